/* top.c - gemmctl top: what the daemon does now, from its page of figures. It asks the daemon for
 * nothing, so it works when that hangs; a connection to the status socket, made and closed without
 * waiting, gives the main thread a reason to come round, and the page tells whether it did. */
#include "client/tool/top.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/tool/tool.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/side.h"

#define POLL_USEC 20000u

struct top {
    char stats_path[CLIENT_DIR_BYTES + sizeof("/" STATS_FILE_NAME)];
    char status_path[CLIENT_DIR_BYTES + sizeof("/" SIDE_STATUS_NAME)];
    uint32_t interval_msec;
    bool is_once;
    const struct stats_page *page;
    uint64_t poked_nsec; /* the first time that the main thread has not answered yet */
    enum look_listener listener;
    struct look looks[2];
    char health[256]; /* of the latest look */
};

static int parse_top(int argc, char **argv, struct top *top)
{
    static const struct option options[] = {
        {"interval", required_argument, NULL, 'i'}, {"once", no_argument, NULL, '1'}, {0}};
    int key;
    optind = 0;
    opterr = 0;
    while ((key = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (key == '1') {
            top->is_once = true;
            continue;
        }
        if (key != 'i') {
            return tool_bad_option(key, argv);
        }
        char *end;
        double seconds = strtod(optarg, &end);
        if (*end != '\0' || end == optarg || !(seconds >= 0.05 && seconds <= 3600)) {
            return tool_usage("--interval '%s' is not between 0.05 and 3600 seconds", optarg);
        }
        top->interval_msec = (uint32_t)(seconds * 1000);
    }
    return optind == argc ? 0 : tool_usage("top takes no words");
}

static bool has_come_round(const struct top *top)
{
    return stats_read(&top->page->main.turn_nsec) >= top->poked_nsec;
}

/* Whatever the daemon makes of it: it is the page that tells. */
static void poke(struct top *top)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", top->status_path);
    if (top->poked_nsec == 0 || has_come_round(top)) {
        top->poked_nsec = clock_now_nsec();
    }
    top->listener = LOOK_LISTENER_UNKNOWN;
    CLEAN_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return;
    }
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
        top->listener = LOOK_LISTENER_THERE;
    } else if (errno == ECONNREFUSED) {
        top->listener = LOOK_LISTENER_NONE;
    }
}

static int open_page(struct top *top)
{
    struct reason why = REASON_NULL;
    int r = stats_open(top->stats_path, &top->page, &why);
    if (r > 0) {
        return tool_fail(client_fail(&why));
    }
    if (r < 0) {
        (void)fprintf(stderr, "gemmctl: no daemon has its figures at %s: %s\n", top->stats_path,
                      strerror(-r));
        return TOOL_NO_DAEMON;
    }
    return 0;
}

/* A daemon that was started anew has a page of its own. */
static void follow_restart(struct top *top)
{
    const struct stats_page *page;
    if (stats_open(top->stats_path, &page, NULL) != 0) {
        return;
    }
    if (page->pid == top->page->pid && page->start_nsec == top->page->start_nsec) {
        (void)stats_close(page);
        return;
    }
    (void)stats_close(top->page);
    top->page = page;
    top->poked_nsec = 0;
    look_take(page, &top->looks[0]);
}

static void look_again(struct top *top)
{
    look_take(top->page, &top->looks[1]);
    top->looks[1].listener = top->listener;
    look_health(&top->looks[1], &top->looks[0], top->poked_nsec, top->health, sizeof(top->health));
}

static char *next_text(struct top *top)
{
    char *text = NULL;
    size_t n_bytes;
    look_again(top);
    FILE *out = open_memstream(&text, &n_bytes);
    if (!out) {
        return NULL;
    }
    top_print(&top->looks[1], &top->looks[0], top->health, out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    top->looks[0] = top->looks[1];
    return text;
}

static int watch(struct top *top)
{
    if (!top_screen_begin()) {
        return tool_usage("top wants a terminal, or --once");
    }
    int r = TOOL_DONE;
    do {
        poke(top);
        CLEAN_FREE char *text = next_text(top);
        if (!text) {
            r = TOOL_FAILED;
            break;
        }
        top_screen_show(text);
        follow_restart(top);
    } while (top_screen_wait(top->interval_msec));
    top_screen_end();
    return r;
}

/* Two looks, an interval apart; of a daemon that hangs, far enough to say so. */
static int show_once(struct top *top, bool is_json)
{
    poke(top);
    (void)usleep(top->interval_msec * 1000);
    const uint64_t patience_nsec = (uint64_t)((LOOK_STUCK_SECONDS + 0.1) * CLOCK_NSEC_PER_SEC);
    while (top->listener != LOOK_LISTENER_NONE && !has_come_round(top) &&
           clock_now_nsec() - top->poked_nsec < patience_nsec) {
        (void)usleep(POLL_USEC);
    }
    if (is_json) {
        look_again(top);
        return tool_print_json(top_json(&top->looks[1], &top->looks[0], top->health));
    }
    CLEAN_FREE char *text = next_text(top);
    if (!text) {
        return TOOL_FAILED;
    }
    (void)fputs(text, stdout);
    return TOOL_DONE;
}

static int run(struct tool *tool, struct top *top)
{
    char dir[CLIENT_DIR_BYTES];
    int r = client_socket_dir(tool->socket_dir, dir, sizeof(dir));
    if (r != 0) {
        return tool_fail(r);
    }
    (void)snprintf(top->stats_path, sizeof(top->stats_path), "%s/" STATS_FILE_NAME, dir);
    (void)snprintf(top->status_path, sizeof(top->status_path), "%s/" SIDE_STATUS_NAME, dir);
    r = open_page(top);
    if (r != 0) {
        return r;
    }
    look_take(top->page, &top->looks[0]);
    r = top->is_once || tool->is_json ? show_once(top, tool->is_json) : watch(top);
    (void)stats_close(top->page);
    return r;
}

int command_top(struct tool *tool, int argc, char **argv)
{
    struct top *top = calloc(1, sizeof(*top)); /* two copies of the page */
    if (!top) {
        return tool_fail(client_refuse(STATUS_NO_MEMORY, "top: out of memory"));
    }
    top->interval_msec = 1000;
    int r = parse_top(argc, argv, top);
    if (r == 0) {
        r = run(tool, top);
    }
    free(top);
    return r;
}
