/* ready.c - gemmctl ready: /readyz or /healthz of the status socket, for supervisors that run a
 * command. Not over a session, which other clients may have used up. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "client/tool/tool.h"
#include "ipc/base/cleanup.h"
#include "ipc/side.h"
#include "ipc/unix.h"

#define ANSWER_MSEC 5000u /* the daemon answers within 2 s, if it does */

/* The whole answer to a GET of the page, NUL-terminated. 0 or negative errno, -EAGAIN when time ran
 * out. */
static int ask(const char *path, const char *page, char *text, size_t size_bytes)
{
    char request[128];
    int n_request =
        snprintf(request, sizeof(request),
                 "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", page);
    const struct timeval limit = {.tv_sec = ANSWER_MSEC / 1000};
    CLEAN_FD int fd = unix_connect(path, SOCK_STREAM, ANSWER_MSEC);
    if (fd < 0) {
        return fd;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
        send(fd, request, (size_t)n_request, MSG_NOSIGNAL) < 0) {
        return -errno;
    }
    size_t n_bytes = 0;
    ssize_t n = 1;
    while (n > 0 && n_bytes < size_bytes - 1) {
        n = recv(fd, text + n_bytes, size_bytes - 1 - n_bytes, 0);
        n_bytes += n > 0 ? (size_t)n : 0;
    }
    text[n_bytes] = '\0';
    return n < 0 ? -errno : 0;
}

static int judge(struct tool *tool, const char *key, const char *answer)
{
    int code = 0;
    const char *body = strstr(answer, "\r\n\r\n");
    if (sscanf(answer, "HTTP/1.%*1[01] %3d", &code) != 1 || body == NULL) {
        return tool_fail(client_refuse(STATUS_BAD_MESSAGE, "the daemon's answer is not HTTP"));
    }
    body += strlen("\r\n\r\n");
    size_t n_bytes = strcspn(body, "\n");
    if (tool->is_json) {
        (void)tool_print_json(json_pack("{s:b, s:s%}", key, code == 200, "text", body, n_bytes));
    } else {
        (void)fprintf(code == 200 ? stdout : stderr, "%.*s\n", (int)n_bytes, body);
    }
    return code == 200 ? TOOL_DONE : TOOL_REFUSED;
}

static int parse_ready(int argc, char **argv, bool *ret_is_alive)
{
    static const struct option options[] = {{"alive", no_argument, NULL, 'a'}, {0}};
    int key;
    bool is_alive = false;
    optind = 0;
    opterr = 0;
    while ((key = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (key != 'a') {
            return tool_bad_option(key, argv);
        }
        is_alive = true;
    }
    *ret_is_alive = is_alive;
    return optind == argc ? 0 : tool_usage("ready takes no words");
}

int command_ready(struct tool *tool, int argc, char **argv)
{
    char dir[CLIENT_DIR_BYTES], path[CLIENT_DIR_BYTES + sizeof("/" SIDE_STATUS_NAME)];
    char answer[4096];
    bool is_alive = false;
    int r = parse_ready(argc, argv, &is_alive);
    if (r != 0) {
        return r;
    }
    r = client_socket_dir(tool->socket_dir, dir, sizeof(dir));
    if (r != 0) {
        return tool_fail(r);
    }
    (void)snprintf(path, sizeof(path), "%s/" SIDE_STATUS_NAME, dir);
    r = ask(path, is_alive ? "/healthz" : "/readyz", answer, sizeof(answer));
    if (r == 0) {
        return judge(tool, is_alive ? "alive" : "ready", answer);
    }
    if (r == -EAGAIN) {
        (void)fprintf(stderr, "gemmctl: %s did not answer within %u ms\n", path, ANSWER_MSEC);
        return TOOL_FAILED;
    }
    (void)fprintf(stderr, "gemmctl: no answer from %s: %s\n", path, strerror(-r));
    return TOOL_NO_DAEMON;
}
