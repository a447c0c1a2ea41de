/* test-site.c - the status port that cannot be had. Its documents: tests/service/status-socket.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "daemon/server/site.h"

static char folder[] = "/tmp/gemmd-site-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static int open_on(uint64_t port, struct reason *why)
{
    static struct core core;
    struct site site;
    sd_event *event = NULL;
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/status", folder);
    int r = sd_event_new(&event);
    r = r < 0 ? r : site_init(&site, &core, NULL, NULL, event);
    if (r == 0) {
        r = site_open(&site, path, 0600, -1, port, why);
        site_finish(&site);
    }
    (void)sd_event_unref(event);
    (void)unlink(path);
    return r;
}

/* A port that this process has. */
static uint16_t take_port(int *ret_fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, n_bytes), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &n_bytes), 0);
    *ret_fd = fd;
    return ntohs(address.sin_port);
}

static void test_port_of_somebody(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    int fd;
    uint16_t port = take_port(&fd);
    assert_int_equal(open_on(port, &why), STATUS_EXISTS);
    assert_non_null(strstr(why.text, "status_port: somebody else has port "));
    assert_int_equal(close(fd), 0);
    assert_int_equal(open_on(port, &why), 0);
}

/* What a unit's RestrictAddressFamilies=AF_UNIX does; for good, so in a child. */
static bool forbid_internet(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void expect_refusal(int error, const char *words)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct reason why = REASON_NULL;
        bool is_forbidden = forbid_internet(error);
        bool is_refused = open_on(9477, &why) == STATUS_PERMISSION;
        bool has_words = strstr(why.text, "status_port: cannot listen on 127.0.0.1:9477: ") &&
                         strstr(why.text, strerror(error)) && strstr(why.text, words);
        _exit(!is_forbidden ? 77 : is_refused && has_words ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        skip(); /* no seccomp here */
    }
    assert_int_equal(status, 0);
}

static void test_port_that_is_forbidden(void **state)
{
    (void)state;
    expect_refusal(EAFNOSUPPORT, "RestrictAddressFamilies=");
    expect_refusal(EPERM, "RestrictAddressFamilies=");
    expect_refusal(EACCES, "deploy/systemd/README.md");
    expect_refusal(EMFILE, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_port_of_somebody),
        cmocka_unit_test(test_port_that_is_forbidden),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
