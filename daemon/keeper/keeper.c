/* keeper.c - see keeper.h.
 *
 * The notification socket has an abstract address that the kernel chose; whoever else writes to it
 * is not the child, and is ignored, as the kernel tells with each message who sent it. Messages of
 * a child that has died are read before it is reaped: what it put is kept. */
#include "daemon/keeper/keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/keeper/notice.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"
#include "ipc/base/num.h"

#define BACKOFF_NSEC     (50ull * CLOCK_NSEC_PER_MSEC)
#define BACKOFF_NSEC_MAX (5ull * CLOCK_NSEC_PER_SEC)
#define WATCHDOG_NSEC    (30ull * CLOCK_NSEC_PER_SEC)
#define NOTICES_A_TURN   4096u /* more than a socket's queue can hold */
#define FOR_EVER         (-1)  /* to poll() */
#define EXIT_USAGE       2     /* daemon/server/exit_code.h has these two */
#define EXIT_REFUSED     4
#define EXIT_FAILED      5

struct keeper {
    const char *program; /* these two: borrowed */
    char *const *argv;
    struct fdstore store;
    uint32_t limit_fds; /* open files of this process, and of the daemon, which has half for itself
                         */
    bool is_full;
    int signal_fd;
    int notify_fd;
    char notify_address[32]; /* "@..." */
    sigset_t mask;           /* as it was before ours: the child's */
    pid_t child;             /* 0: none */
    uint64_t start_nsec;     /* when the next child is due */
    uint64_t alive_nsec;     /* of the watchdog: the child's last sign; 0: none is due */
    uint64_t watchdog_nsec;  /* how old that may get */
    uint32_t n_failures;     /* children in a row that died before they were ready */
    bool has_been_ready;
    bool is_upgrading;
    bool is_stopping;
    bool has_ended;
    int exit_code;
};

/* ---- notices ---- */

/* Said once: what comes next is refused for the same reason. */
static void refuse_put(struct keeper *keeper, const char *name)
{
    if (!keeper->is_full) {
        log_write(
            LOG_LEVEL_WARNING, "keeper",
            "'%s' and what follows is not kept: after a death its model is loaded anew if the "
            "configuration names it, else gone; %u descriptors are kept, of at most %u and of "
            "half the limit of %u open files (ulimit -Hn, LimitNOFILE=, --ulimit nofile=)",
            name, keeper->store.n, FDSTORE_FDS_MAX, keeper->limit_fds);
    }
    keeper->is_full = true;
}

static void put(struct keeper *keeper, struct notice *notice)
{
    if (notice->has_lost_fds) {
        refuse_put(keeper, notice->fd_name);
    }
    for (uint32_t i = 0; i < notice->fds.n; i++) {
        int r = fdstore_put(&keeper->store, notice->fd_name, steal_fd(&notice->fds.fds[i]));
        if (r == -ENOBUFS) {
            refuse_put(keeper, notice->fd_name);
        } else if (r < 0) {
            log_write(LOG_LEVEL_WARNING, "keeper", "descriptor '%s' is not kept: %s",
                      notice->fd_name, strerror(-r));
        }
    }
}

static void take_notice(struct keeper *keeper, struct notice *notice)
{
    if (notice->wants_put) {
        put(keeper, notice);
        return;
    }
    if (notice->wants_remove) {
        fdstore_remove(&keeper->store, notice->fd_name);
        keeper->is_full = false;
        return;
    }
    if (notice->is_ready) {
        keeper->n_failures = 0;
        keeper->has_been_ready = true;
    }
    if (notice->is_ready || notice->is_alive) {
        keeper->alive_nsec = clock_now_nsec();
    }
    if (!notice->is_stopping || keeper->is_stopping) {
        (void)sd_notify(0, notice->text); /* to whoever manages this process */
    }
}

/* All that lay there when it began, and no more: anybody may go on sending. */
static void read_notices(struct keeper *keeper)
{
    struct notice notice;
    for (uint32_t i = 0; i < NOTICES_A_TURN && notice_receive(keeper->notify_fd, &notice) == 0;
         i++) {
        if (keeper->child != 0 && notice.sender == keeper->child) {
            take_notice(keeper, &notice);
        }
        notice_finish(&notice);
    }
}

/* ---- the child ---- */

/* Ends with its parent, be that gone already: a second keeper could not be given what the first one
 * held. */
static void become_daemon(struct keeper *keeper, pid_t parent)
{
    char usec[32];
    (void)snprintf(usec, sizeof(usec), "%llu",
                   (unsigned long long)(keeper->watchdog_nsec / CLOCK_NSEC_PER_USEC));
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent ||
        setenv("NOTIFY_SOCKET", keeper->notify_address, 1) < 0 ||
        setenv("WATCHDOG_USEC", usec, 1) < 0 || unsetenv("WATCHDOG_PID") < 0 ||
        fdstore_hand_over(&keeper->store) < 0 ||
        sigprocmask(SIG_SETMASK, &keeper->mask, NULL) < 0) {
        _exit(EXIT_FAILED);
    }
    (void)execv(keeper->program, keeper->argv);
    _exit(EXIT_FAILED);
}

static void start_child(struct keeper *keeper)
{
    keeper->alive_nsec = 0;
    keeper->is_upgrading = false;
    pid_t parent = getpid();
    keeper->child = fork();
    if (keeper->child == 0) {
        become_daemon(keeper, parent);
    }
    if (keeper->child < 0) {
        log_write(LOG_LEVEL_ERROR, "keeper", "fork: %s", strerror(errno));
        keeper->child = 0;
        keeper->start_nsec = clock_now_nsec() + BACKOFF_NSEC_MAX;
        return;
    }
    log_write(LOG_LEVEL_INFO, "keeper", "pid %d is started with %u descriptors", (int)keeper->child,
              keeper->store.n);
}

static void end(struct keeper *keeper, int exit_code)
{
    keeper->has_ended = true;
    keeper->exit_code = exit_code;
}

/* One that had been ready is followed at once, others after a pause that doubles. */
static void plan_start(struct keeper *keeper, bool was_ready)
{
    uint64_t pause_nsec = 0;
    if (!was_ready) {
        uint32_t doublings = (uint32_t)num_min(keeper->n_failures++, 16);
        pause_nsec = num_min(BACKOFF_NSEC << doublings, BACKOFF_NSEC_MAX);
    }
    keeper->start_nsec = clock_now_nsec() + pause_nsec;
}

static void on_death(struct keeper *keeper, int state)
{
    bool was_ready = keeper->alive_nsec != 0;
    int code = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
    enum log_level level = code == 0 ? LOG_LEVEL_NOTICE : LOG_LEVEL_WARNING;
    log_write(level, "keeper", "pid %d ended with %s %d", (int)keeper->child,
              WIFSIGNALED(state) ? "signal" : "code",
              WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state));
    keeper->child = 0;
    /* What has served before may again once a file is mended, and its weights wait for that. */
    bool is_in_vain = (code == EXIT_USAGE || code == EXIT_REFUSED) && !keeper->has_been_ready;
    if (keeper->is_stopping || (!keeper->is_upgrading && (code == 0 || is_in_vain))) {
        end(keeper, code);
        return;
    }
    plan_start(keeper, was_ready || keeper->is_upgrading);
}

/* As process 1 of a container it also inherits the orphans of others. */
static void reap(struct keeper *keeper)
{
    int state;
    read_notices(keeper);
    for (pid_t pid; (pid = waitpid(-1, &state, WNOHANG)) > 0;) {
        if (pid == keeper->child) {
            on_death(keeper, state);
        }
    }
}

/* ---- signals and time ---- */

static void pass_on(const struct keeper *keeper, int signal)
{
    if (keeper->child > 0) {
        (void)kill(keeper->child, signal);
    }
}

static void on_signal(struct keeper *keeper, int signal)
{
    switch (signal) {
    case SIGCHLD:
        reap(keeper);
        return;
    case SIGUSR1:
        keeper->is_upgrading = keeper->child > 0;
        pass_on(keeper, SIGTERM);
        return;
    case SIGTERM:
    case SIGINT:
        keeper->is_stopping = true;
        pass_on(keeper, signal);
        if (keeper->child == 0) {
            end(keeper, 0);
        }
        return;
    default:
        pass_on(keeper, signal);
    }
}

static void read_signals(struct keeper *keeper)
{
    struct signalfd_siginfo info;
    while (read(keeper->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        on_signal(keeper, (int)info.ssi_signo);
    }
}

/* The next thing that happens by the clock; UINT64_MAX: nothing. */
static uint64_t next_nsec(const struct keeper *keeper)
{
    if (keeper->child == 0) {
        return keeper->start_nsec;
    }
    return keeper->alive_nsec != 0 ? keeper->alive_nsec + keeper->watchdog_nsec : UINT64_MAX;
}

static void on_time(struct keeper *keeper)
{
    if (keeper->child == 0) {
        start_child(keeper);
        return;
    }
    log_write(LOG_LEVEL_ERROR, "keeper", "pid %d gives no sign of life and is killed",
              (int)keeper->child);
    keeper->alive_nsec = clock_now_nsec();
    pass_on(keeper, SIGKILL);
}

static int wait_msec(const struct keeper *keeper)
{
    uint64_t next = next_nsec(keeper);
    uint64_t now = clock_now_nsec();
    if (next == UINT64_MAX) {
        return FOR_EVER;
    }
    return next <= now ? 0 : (int)num_min(num_div_up(next - now, CLOCK_NSEC_PER_MSEC), 60000);
}

static void turn(struct keeper *keeper)
{
    struct pollfd fds[] = {{.fd = keeper->signal_fd, .events = POLLIN},
                           {.fd = keeper->notify_fd, .events = POLLIN}};
    (void)poll(fds, ARRAY_LENGTH(fds), wait_msec(keeper));
    read_notices(keeper);
    read_signals(keeper);
    if (!keeper->has_ended && next_nsec(keeper) <= clock_now_nsec()) {
        on_time(keeper);
    }
}

/* ---- set-up ---- */

static int open_signals(struct keeper *keeper)
{
    static const int signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    sigset_t set;
    (void)sigemptyset(&set);
    for (uint32_t i = 0; i < ARRAY_LENGTH(signals); i++) {
        (void)sigaddset(&set, signals[i]);
    }
    if (sigprocmask(SIG_BLOCK, &set, &keeper->mask) < 0) {
        return err_raise(-errno);
    }
    keeper->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return keeper->signal_fd < 0 ? err_raise(-errno) : 0;
}

/* Bound to nothing but its family, it gets an abstract address of its own. */
static int open_notices(struct keeper *keeper)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t n_bytes = sizeof(address);
    int is_on = 1;
    keeper->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (keeper->notify_fd < 0 ||
        bind(keeper->notify_fd, (struct sockaddr *)&address, sizeof(sa_family_t)) < 0 ||
        setsockopt(keeper->notify_fd, SOL_SOCKET, SO_PASSCRED, &is_on, sizeof(is_on)) < 0 ||
        getsockname(keeper->notify_fd, (struct sockaddr *)&address, &n_bytes) < 0) {
        return err_raise(-errno);
    }
    size_t name_bytes = n_bytes - offsetof(struct sockaddr_un, sun_path) - 1;
    (void)snprintf(keeper->notify_address, sizeof(keeper->notify_address), "@%.*s", (int)name_bytes,
                   address.sun_path + 1);
    return 0;
}

static int raise_limit(struct keeper *keeper)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        return err_raise(-errno);
    }
    limit.rlim_cur = limit.rlim_max;
    keeper->limit_fds = (uint32_t)num_min(limit.rlim_max, UINT32_MAX);
    keeper->store.n_max = (uint32_t)num_min(keeper->limit_fds / 2, FDSTORE_FDS_MAX);
    return setrlimit(RLIMIT_NOFILE, &limit) < 0 ? err_raise(-errno) : 0;
}

/* The limit that this process was given by its own supervisor, or the usual one. */
static uint64_t watchdog_limit(void)
{
    const char *text = getenv("WATCHDOG_USEC");
    uint64_t usec = text != NULL ? strtoull(text, NULL, 10) : 0;
    return usec > 0 ? usec * CLOCK_NSEC_PER_USEC : WATCHDOG_NSEC;
}

int keeper_run(const char *program, char *const *argv)
{
    struct keeper keeper = {.program = program,
                            .argv = argv,
                            .store = FDSTORE_NULL,
                            .signal_fd = -1,
                            .notify_fd = -1,
                            .watchdog_nsec = watchdog_limit()};
    int r = raise_limit(&keeper);
    r = r != 0 ? r : open_signals(&keeper);
    r = r != 0 ? r : open_notices(&keeper);
    if (r < 0) {
        log_write(LOG_LEVEL_ERROR, "keeper", "cannot run: %s", strerror(-r));
        end(&keeper, EXIT_FAILED);
    }
    while (!keeper.has_ended) {
        turn(&keeper);
    }
    fdstore_finish(&keeper.store);
    cleanup_fd(&keeper.signal_fd);
    cleanup_fd(&keeper.notify_fd);
    return keeper.exit_code;
}
