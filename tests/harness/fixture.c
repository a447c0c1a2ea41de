/* fixture.c - see fixture.h. */
#include "tests/harness/fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ipc/unix.h"

#define POLL_SECONDS        0.005
#define FIXTURE_LOG_SECONDS 10.0

uint32_t fixture_number(const char *variable, uint32_t usual)
{
    const char *text = getenv(variable);
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : usual;
}

double fixture_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void fixture_sleep(double seconds)
{
    struct timespec span = {.tv_sec = (time_t)seconds};
    span.tv_nsec = (long)((seconds - (double)span.tv_sec) * 1e9);
    (void)nanosleep(&span, NULL);
}

static void print_log(const struct fixture *fixture)
{
    char line[512];
    FILE *log = fopen(fixture->log_path, "r");
    while (log != NULL && fgets(line, sizeof(line), log) != NULL) {
        (void)fprintf(stderr, "  gemmd| %s", line);
    }
    if (log != NULL) {
        (void)fclose(log);
    }
}

void fixture_fail(const struct fixture *fixture, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    print_log(fixture);
    abort();
}

void fixture_init(struct fixture *fixture)
{
    memset(fixture, 0, sizeof(*fixture));
    temp_folder_init(&fixture->folder);
    (void)snprintf(fixture->socket_dir, sizeof(fixture->socket_dir), "%s",
                   temp_path(&fixture->folder, "s"));
    (void)snprintf(fixture->log_path, sizeof(fixture->log_path), "%s",
                   temp_path(&fixture->folder, "log"));
    if (mkdir(fixture->socket_dir, 0700) != 0) {
        fixture_fail(fixture, "mkdir %s: %s", fixture->socket_dir, strerror(errno));
    }
}

void fixture_finish(struct fixture *fixture)
{
    if (fixture->pid != 0) {
        fixture_kill(fixture);
    }
    temp_folder_finish(&fixture->folder);
}

/* ---- starting ---- */

/* Tests that were carried to another machine say where the program is there. */
static const char *program(void)
{
    const char *path = getenv("GEMMD_PROGRAM");
    return path != NULL ? path : GEMMD_PROGRAM;
}

/* Instead of those in the configuration; NULL: those. Most tests look at memory with the CPU: on a
 * machine with a GPU they still want the host. */
static const char *device_of(const struct fixture_options *options)
{
    bool names_devices = options->config != NULL && strstr(options->config, "devices") != NULL;
    bool wants_host = !names_devices && getenv("GEMMD_TEST_GPU") == NULL;
    const char *chosen = getenv("GEMMD_TEST_DEVICE");
    return chosen == NULL && wants_host ? "host" : chosen;
}

/* A device that was chosen is one of all, whatever the test itself may see of them. */
static void see_all_devices(void)
{
    if (getenv("GEMMD_TEST_DEVICE") != NULL) {
        (void)unsetenv("CUDA_VISIBLE_DEVICES");
    }
}

static void become_daemon(const struct fixture *fixture, const struct fixture_options *options,
                          const char *config_path)
{
    const char *argv[15] = {program(), "--config", config_path};
    uint32_t n = 3;
    if (fixture->socket_dir[0] != '\0') {
        argv[n++] = "--socket-dir";
        argv[n++] = fixture->socket_dir;
    }
    const char *device = device_of(options);
    if (device != NULL) {
        argv[n++] = "--device";
        argv[n++] = device;
    }
    if (options->model != NULL) {
        argv[n++] = "--model";
        argv[n++] = options->model;
    }
    if (options->is_kept) {
        argv[n++] = "--keeper";
    }
    if (options->argument != NULL) {
        argv[n++] = options->argument;
    }
    int log_fd = open(fixture->log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    struct rlimit limit = {options->n_fds_max, options->n_fds_max};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || log_fd < 0 || dup2(log_fd, STDOUT_FILENO) < 0 ||
        dup2(log_fd, STDERR_FILENO) < 0 ||
        (options->n_fds_max != 0 && setrlimit(RLIMIT_NOFILE, &limit) != 0)) {
        _exit(126);
    }
    (void)close(log_fd);
    see_all_devices();
    if (options->in_child != NULL) {
        options->in_child(options->arg);
    }
    (void)execv(argv[0], (char *const *)(uintptr_t)argv);
    (void)fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

void fixture_spawn(struct fixture *fixture, const struct fixture_options *options)
{
    const char *config_path = temp_path(&fixture->folder, "conf");
    write_text(config_path, options->config != NULL ? options->config : "");
    fixture->pid = fork();
    if (fixture->pid == 0) {
        become_daemon(fixture, options, config_path);
    }
    if (fixture->pid < 0) {
        fixture_fail(fixture, "fork: %s", strerror(errno));
    }
}

static bool is_ready(const struct fixture *fixture, bool has_model)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    options.socket_dir = fixture->socket_dir;
    options.reconnect_msec = 0;
    gemmd_client_t *client;
    if (gemmd_open(&options, &client) != GEMMD_OK) {
        return false;
    }
    gemmd_weight_t *weights = NULL;
    size_t n = 0;
    int r = has_model ? gemmd_list_weights(client, NULL, sizeof(*weights), &weights, &n) : GEMMD_OK;
    free(weights);
    gemmd_close(client);
    return r == GEMMD_OK && (n > 0 || !has_model);
}

void fixture_wait_ready(struct fixture *fixture, bool has_model)
{
    double deadline = fixture_now() + FIXTURE_READY_SECONDS;
    while (!is_ready(fixture, has_model)) {
        if (!fixture_is_running(fixture)) {
            fixture_fail(fixture, "the daemon ended before it was ready");
        }
        if (fixture_now() > deadline) {
            fixture_fail(fixture, "not ready within %.0f s: %s", FIXTURE_READY_SECONDS,
                         gemmd_last_error());
        }
        fixture_sleep(POLL_SECONDS);
    }
}

void fixture_start(struct fixture *fixture, const struct fixture_options *options)
{
    fixture_spawn(fixture, options);
    fixture_wait_ready(fixture, options->model != NULL);
}

/* ---- ending ---- */

int fixture_wait_exit(struct fixture *fixture, double timeout_seconds)
{
    double deadline = fixture_now() + timeout_seconds;
    int state;
    pid_t pid;
    while ((pid = waitpid(fixture->pid, &state, WNOHANG)) == 0 && fixture_now() < deadline) {
        fixture_sleep(POLL_SECONDS);
    }
    if (pid == 0) {
        return -1;
    }
    fixture->pid = 0;
    return WIFSIGNALED(state) ? 256 + WTERMSIG(state) : WEXITSTATUS(state);
}

int fixture_stop(struct fixture *fixture)
{
    if (kill(fixture->pid, SIGTERM) != 0) {
        fixture_fail(fixture, "kill: %s", strerror(errno));
    }
    return fixture_wait_exit(fixture, FIXTURE_STOP_SECONDS);
}

void fixture_kill(struct fixture *fixture)
{
    (void)kill(fixture->pid, SIGKILL);
    (void)waitpid(fixture->pid, NULL, 0);
    fixture->pid = 0;
}

/* WNOWAIT: looking must not reap it, or its exit code would be lost. */
bool fixture_is_running(struct fixture *fixture)
{
    siginfo_t info = {0};
    return fixture->pid != 0 &&
           waitid(P_PID, (id_t)fixture->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
}

/* ---- the log ---- */

uint32_t fixture_logged(const struct fixture *fixture, const char *text)
{
    char line[1024];
    uint32_t n = 0;
    FILE *log = fopen(fixture->log_path, "r");
    while (log != NULL && fgets(line, sizeof(line), log) != NULL) {
        n += strstr(line, text) != NULL;
    }
    if (log != NULL) {
        (void)fclose(log);
    }
    return n;
}

void fixture_wait_logged(const struct fixture *fixture, const char *text, uint32_t n)
{
    double deadline = fixture_now() + FIXTURE_LOG_SECONDS;
    while (fixture_logged(fixture, text) < n) {
        if (fixture_now() > deadline) {
            fixture_fail(fixture, "'%s' is not in the log %u times", text, n);
        }
        fixture_sleep(POLL_SECONDS);
    }
}

/* ---- looking ---- */

gemmd_client_t *fixture_open(const struct fixture *fixture, enum gemmd_path path)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    options.socket_dir = fixture->socket_dir;
    options.path = path;
    options.reconnect_msec = 0; /* a test wants to see the daemon's end */
    gemmd_client_t *client;
    if (gemmd_open(&options, &client) != GEMMD_OK) {
        fixture_fail(fixture, "gemmd_open: %s", gemmd_last_error());
    }
    return client;
}

/* The kernel's word for who listens on the session socket: the peer of a connection to it. */
pid_t fixture_daemon_pid(const struct fixture *fixture)
{
    char path[400];
    struct ucred peer = {0};
    socklen_t n_bytes = sizeof(peer);
    (void)snprintf(path, sizeof(path), "%s/session", fixture->socket_dir);
    int fd = unix_connect(path, SOCK_SEQPACKET, 1000);
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes) < 0) {
        fixture_fail(fixture, "no daemon answers at %s", path);
    }
    (void)close(fd);
    return peer.pid;
}

uint32_t fixture_fds(const struct fixture *fixture)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)fixture->pid);
    DIR *folder = opendir(path);
    if (folder == NULL) {
        fixture_fail(fixture, "%s: %s", path, strerror(errno));
    }
    uint32_t n = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        n += entry->d_name[0] != '.';
    }
    (void)closedir(folder);
    return n;
}

uint32_t fixture_maps(const struct fixture *fixture)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)fixture->pid);
    FILE *maps = fopen(path, "r");
    if (maps == NULL) {
        fixture_fail(fixture, "%s: %s", path, strerror(errno));
    }
    uint32_t n = 0;
    for (int byte; (byte = fgetc(maps)) != EOF;) {
        n += byte == '\n';
    }
    (void)fclose(maps);
    return n;
}
