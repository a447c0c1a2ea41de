/* test-foreign.c - descriptors that peers send: all are taken, and closing them waits for nobody.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/base/clock.h"
#include "ipc/base/foreign.h"
#include "tests/harness/lingering.h"

#define LINGER_SECONDS 20
#define ANSWER_SECONDS 5u

static int lowest_free_fd(void)
{
    int fd = dup(STDIN_FILENO);
    assert_true(fd >= 0);
    (void)close(fd);
    return fd;
}

static void make_pair(int type, int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds), 0);
}

static uint64_t start_nsec;

/* A message on fd has the only descriptor of a connection that lingers; its reader. */
static int send_only_copy(int fd, size_t n_bytes)
{
    struct lingering lingering = lingering_new(LINGER_SECONDS);
    assert_true(lingering_send(fd, "x", n_bytes, lingering.fd, 1));
    (void)close(lingering.fd);
    start_nsec = clock_now_nsec();
    return lingering.reader;
}

static void expect_no_waiting(int reader)
{
    assert_true(clock_now_nsec() - start_nsec < ANSWER_SECONDS * (uint64_t)CLOCK_NSEC_PER_SEC);
    (void)close(reader);
}

static void test_all_are_taken(void **state)
{
    (void)state;
    int pair[2];
    char bytes[8];
    struct foreign_fds fds;
    struct foreign_signs signs;
    make_pair(SOCK_SEQPACKET, pair);
    int before = lowest_free_fd();
    assert_true(lingering_send(pair[0], "ab", 2, STDIN_FILENO, 3));
    assert_int_equal(foreign_receive(pair[1], bytes, sizeof(bytes), 0, &fds, &signs), 2);
    assert_memory_equal(bytes, "ab", 2);
    assert_int_equal(fds.n, 3);
    assert_true(signs.has_control);
    assert_int_equal(fcntl(fds.fds[2], F_GETFD), FD_CLOEXEC);
    foreign_close_all(&fds);
    assert_int_equal(fds.n, 0);
    assert_int_equal(lowest_free_fd(), before);
    assert_int_equal(foreign_receive(pair[1], bytes, sizeof(bytes), MSG_DONTWAIT, &fds, &signs),
                     -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(fds.n, 0);
    assert_int_equal(send(pair[0], "abc", 3, 0), 3);
    assert_int_equal(foreign_receive(pair[1], bytes, 2, 0, &fds, &signs), 2);
    assert_int_equal(signs.flags & (MSG_TRUNC | MSG_CTRUNC), MSG_TRUNC);
    assert_false(signs.has_control);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void test_no_number_free(void **state)
{
    (void)state;
    int pair[2];
    char byte;
    struct foreign_fds fds;
    struct foreign_signs signs;
    struct rlimit limit;
    make_pair(SOCK_SEQPACKET, pair);
    assert_true(lingering_send(pair[0], "x", 1, STDIN_FILENO, 3));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit low = {(rlim_t)lowest_free_fd() + 1, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    ssize_t n = foreign_receive(pair[1], &byte, 1, 0, &fds, &signs);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(n, 1);
    assert_int_equal(fds.n, 1);
    assert_true((signs.flags & MSG_CTRUNC) != 0);
    foreign_close_all(&fds);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void test_what_is_a_socket(void **state)
{
    (void)state;
    int pair[2];
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    make_pair(SOCK_STREAM, pair);
    assert_true(foreign_is_socket(pair[0]));
    assert_false(foreign_is_socket(file));
    (void)close(file);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void test_closing_does_not_wait(void **state)
{
    (void)state;
    int pair[2];
    char byte;
    struct foreign_fds fds;
    struct foreign_signs signs;
    make_pair(SOCK_SEQPACKET, pair);
    int reader = send_only_copy(pair[0], 1);
    assert_int_equal(foreign_receive(pair[1], &byte, 1, 0, &fds, &signs), 1);
    assert_int_equal(fds.n, 1);
    errno = EDOM;
    foreign_close(fds.fds[0]);
    assert_int_equal(errno, EDOM);
    expect_no_waiting(reader);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

/* A peer's own end of a Unix socket is not touched. */
static void test_unix_sockets_stay_connected(void **state)
{
    (void)state;
    int pair[2];
    char byte;
    make_pair(SOCK_SEQPACKET, pair);
    foreign_close(dup(pair[0]));
    assert_int_equal(send(pair[0], "x", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(recv(pair[1], &byte, 1, 0), 1);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void test_hanging_up_does_not_wait(void **state)
{
    (void)state;
    int pair[2];
    make_pair(SOCK_STREAM, pair);
    assert_int_equal(send(pair[0], "unread", 6, 0), 6);
    int reader = send_only_copy(pair[0], 1);
    foreign_hang_up(pair[1]);
    expect_no_waiting(reader);
    (void)close(pair[0]);
    make_pair(SOCK_SEQPACKET, pair);
    assert_int_equal(send(pair[0], "", 0, 0), 0); /* which looks like the end */
    reader = send_only_copy(pair[0], 0);
    foreign_hang_up(pair[1]);
    expect_no_waiting(reader);
    (void)close(pair[0]);
}

/* Nothing comes in behind what is taken out, and answers can be read still. */
static void test_drained(void **state)
{
    (void)state;
    int pair[2];
    char byte;
    make_pair(SOCK_SEQPACKET, pair);
    assert_int_equal(send(pair[0], "x", 1, 0), 1);
    assert_int_equal(send(pair[1], "y", 1, 0), 1);
    foreign_drain(pair[1]);
    assert_int_equal(send(pair[0], "x", 1, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(recv(pair[0], &byte, 1, 0), 1);
    assert_int_equal(byte, 'y');
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void test_forbidding_harms_no_bytes(void **state)
{
    (void)state;
    int pair[2];
    char byte;
    make_pair(SOCK_STREAM, pair);
    foreign_forbid(pair[1]);
    assert_int_equal(send(pair[0], "x", 1, 0), 1);
    assert_int_equal(recv(pair[1], &byte, 1, 0), 1);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_taken),
        cmocka_unit_test(test_no_number_free),
        cmocka_unit_test(test_what_is_a_socket),
        cmocka_unit_test(test_closing_does_not_wait),
        cmocka_unit_test(test_unix_sockets_stay_connected),
        cmocka_unit_test(test_hanging_up_does_not_wait),
        cmocka_unit_test(test_drained),
        cmocka_unit_test(test_forbidding_harms_no_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
