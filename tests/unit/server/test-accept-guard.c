/* test-accept-guard.c - no descriptors left: the connection is shed, the caller sees ECONNABORTED,
 * and a ZeroMQ listener lives through it (T43). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "daemon/server/accept_guard.h"
#include "tests/harness/lingering.h"

#define LIMIT 64

static int listen_fd;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int hogs[LIMIT];
static int n_hogs;

static int set_up(void **state)
{
    (void)state;
    const struct rlimit limit = {LIMIT, LIMIT};
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || accept_guard_init() != 0) {
        return -1;
    }
    (void)snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "gemmd-guard-%d",
                   (int)getpid());
    listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        return -1;
    }
    return listen(listen_fd, 64);
}

static int tear_down(void **state)
{
    (void)state;
    accept_guard_finish();
    return close(listen_fd);
}

static int dial(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Leave exactly n_free descriptors. */
static void hog(int n_free)
{
    for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) {
        hogs[n_hogs++] = fd;
    }
    while (n_free-- > 0) {
        (void)close(hogs[--n_hogs]);
    }
}

static void unhog(void)
{
    while (n_hogs > 0) {
        (void)close(hogs[--n_hogs]);
    }
}

static void expect_hang_up(int fd)
{
    char byte;
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    (void)close(fd);
}

static void test_program_exports_its_own(void **state)
{
    (void)state;
    Dl_info info;
    void *found = dlsym(RTLD_DEFAULT, "accept4");
    assert_non_null(found);
    assert_true(dladdr(found, &info) != 0);
    assert_non_null(strstr(info.dli_fname, "test-accept-guard"));
}

static void test_plenty_is_plain(void **state)
{
    (void)state;
    int client = dial();
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    (void)close(fd);
    (void)close(client);
    assert_int_equal(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC), -1);
    assert_int_equal(errno, EAGAIN);
}

static void test_none_left_sheds(void **state)
{
    (void)state;
    uint64_t n_before = accept_guard_shed();
    int client = dial();
    hog(0);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    int saved = errno;
    unhog();
    assert_int_equal(fd, -1);
    assert_int_equal(saved, ECONNABORTED);
    assert_int_equal(accept_guard_shed(), n_before + 1);
    expect_hang_up(client);
}

static void test_headroom_is_kept(void **state)
{
    (void)state;
    int client = dial();
    hog(ACCEPT_GUARD_HEADROOM - 2);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    int saved = errno;
    unhog();
    assert_int_equal(fd, -1);
    assert_int_equal(saved, ECONNABORTED);
    expect_hang_up(client);
    client = dial();
    hog(ACCEPT_GUARD_HEADROOM + ACCEPT_GUARD_FAVOURED + LIMIT / 8 + 1);
    fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    unhog();
    assert_true(fd >= 0);
    (void)close(fd);
    (void)close(client);
}

/* Who asks what is the matter gets some of what others do not. */
static void test_favoured_listener(void **state)
{
    (void)state;
    for (int is_favoured = 0; is_favoured < 2; is_favoured++) {
        int client = dial();
        accept_guard_favour(is_favoured ? listen_fd : -1);
        hog(ACCEPT_GUARD_HEADROOM + 1);
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        unhog();
        assert_int_equal(fd >= 0, is_favoured);
        (void)close(fd);
        (void)close(client);
    }
    accept_guard_favour(-1);
}

/* What clients have the daemon hold besides connections leaves the same ones free. */
static void test_kept_descriptors(void **state)
{
    (void)state;
    const int n_kept = ACCEPT_GUARD_HEADROOM + ACCEPT_GUARD_FAVOURED + LIMIT / 8;
    assert_false(accept_guard_is_kept(LIMIT - 1 - n_kept));
    assert_true(accept_guard_is_kept(LIMIT - n_kept));
    assert_true(accept_guard_is_kept(LIMIT - 1));
}

static bool is_accepted(int n_free)
{
    int client = dial();
    hog(n_free);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    unhog();
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)close(client);
    return fd >= 0;
}

/* An administrator gets what clients do not, down to what is the status socket's. */
static void test_administrators(void **state)
{
    (void)state;
    const uid_t uids[] = {getuid() + 1, getuid()};
    const int n_others = ACCEPT_GUARD_HEADROOM + ACCEPT_GUARD_FAVOURED;
    accept_guard_set_admins(uids, 1);
    assert_false(is_accepted(n_others + LIMIT / 8));
    accept_guard_set_admins(uids, 2);
    assert_true(is_accepted(n_others + LIMIT / 8));
    assert_true(is_accepted(n_others + 1));
    assert_false(is_accepted(n_others));
    accept_guard_favour(listen_fd);
    assert_true(is_accepted(n_others));
    accept_guard_favour(-1);
    accept_guard_set_admins(uids, 0);
}

/* Without the guard this aborts the process inside libzmq. */
static void test_zeromq_survives(void **state)
{
    (void)state;
    char endpoint[64];
    struct sockaddr_un peer = {.sun_family = AF_UNIX};
    (void)snprintf(endpoint, sizeof(endpoint), "ipc://@gemmd-guard-zmq-%d", (int)getpid());
    int n =
        snprintf(peer.sun_path + 1, sizeof(peer.sun_path) - 1, "gemmd-guard-zmq-%d", (int)getpid());
    socklen_t n_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    void *context = zmq_ctx_new();
    void *router = zmq_socket(context, ZMQ_ROUTER);
    assert_int_equal(zmq_bind(router, endpoint), 0);
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint64_t n_before = accept_guard_shed();
    hog(0);
    int connected = connect(client, (struct sockaddr *)&peer, n_bytes);
    for (int i = 0; i < 300 && accept_guard_shed() == n_before; i++) {
        (void)usleep(10000);
    }
    unhog();
    assert_int_equal(connected, 0);
    assert_true(accept_guard_shed() > n_before);
    (void)close(client);
    (void)zmq_close(router);
    (void)zmq_ctx_term(context);
}

static void test_gauges(void **state)
{
    (void)state;
    assert_int_equal(accept_guard_limit(), LIMIT);
    uint64_t n_before = accept_guard_used();
    int fd = dup(listen_fd);
    assert_int_equal(accept_guard_used(), n_before + 1);
    (void)close(fd);
}

/* The program's own recv() leaves no descriptor for the kernel to close, which would wait. */
static void test_received_descriptors(void **state)
{
    (void)state;
    char byte;
    int fds[2];
    struct lingering lingering = lingering_new(20);
    uint64_t n_before = accept_guard_used();
    time_t start = time(NULL);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_true(lingering_send(fds[0], "x", 1, lingering.fd, 1));
    (void)close(lingering.fd);
    assert_int_equal(recv(fds[1], &byte, 1, 0), 1);
    assert_int_equal(byte, 'x');
    assert_true(time(NULL) - start < 10);
    assert_int_equal(accept_guard_used(), n_before + 1); /* the pair, less what was closed */
    (void)close(lingering.reader);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program_exports_its_own), cmocka_unit_test(test_plenty_is_plain),
        cmocka_unit_test(test_none_left_sheds),         cmocka_unit_test(test_headroom_is_kept),
        cmocka_unit_test(test_zeromq_survives),         cmocka_unit_test(test_gauges),
        cmocka_unit_test(test_favoured_listener),       cmocka_unit_test(test_administrators),
        cmocka_unit_test(test_kept_descriptors),        cmocka_unit_test(test_received_descriptors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
