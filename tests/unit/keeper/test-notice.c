/* Messages of sd_notify(3), as text and off a socket. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/keeper/notice.h"
#include "tests/harness/lingering.h"

static struct notice parsed(const char *text)
{
    struct notice notice = {.sender = 0};
    (void)snprintf(notice.text, sizeof(notice.text), "%s", text);
    notice_parse(&notice);
    return notice;
}

static void test_texts(void **state)
{
    (void)state;
    struct notice notice = parsed("FDSTORE=1\nFDNAME=w.1.0\nFDPOLL=0");
    assert_true(notice.wants_put && !notice.wants_remove && !notice.is_ready);
    assert_string_equal(notice.fd_name, "w.1.0");
    notice = parsed("FDNAME=m.1\nFDSTOREREMOVE=1\n");
    assert_true(notice.wants_remove && !notice.wants_put);
    notice = parsed("STATUS=serving\nREADY=1\nWATCHDOG=1");
    assert_true(notice.is_ready && notice.is_alive && !notice.is_stopping);
    notice = parsed("STOPPING=1");
    assert_true(notice.is_stopping);
}

static void test_what_only_looks_like_it(void **state)
{
    (void)state;
    struct notice notice = parsed("READY=10\nFDSTORE=0\n\n=\nFDNAME=\nX_WATCHDOG=1");
    assert_false(notice.is_ready || notice.wants_put || notice.is_alive);
    assert_string_equal(notice.fd_name, "");
    char text[200] = "FDNAME=";
    memset(text + 7, 'n', 100);
    notice = parsed(text);
    assert_string_equal(notice.fd_name, ""); /* too long is none, not another */
}

static void send_with_fd(int socket_fd, const char *text, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    assert_int_equal(sendmsg(socket_fd, &message, 0), (ssize_t)strlen(text));
}

static void test_socket(void **state)
{
    (void)state;
    int pair[2];
    int is_on = 1;
    struct notice notice;
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    assert_int_equal(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &is_on, sizeof(is_on)), 0);
    assert_int_equal(notice_receive(pair[0], &notice), -EAGAIN);
    send_with_fd(pair[1], "FDSTORE=1\nFDNAME=a", pair[1]);
    assert_int_equal(notice_receive(pair[0], &notice), 0);
    assert_int_equal(notice.sender, getpid());
    assert_int_equal(notice.fds.n, 1);
    int fd = notice.fds.fds[0];
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    notice_finish(&notice);
    assert_true(fcntl(fd, F_GETFD) < 0);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

/* Anybody on the machine may send here: what comes must not hold up who receives it. */
static void test_descriptors_of_strangers(void **state)
{
    (void)state;
    int pair[2];
    struct notice notice;
    struct lingering lingering = lingering_new(20);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    assert_true(lingering_send(pair[1], "FDSTORE=1", 9, lingering.fd, LINGERING_SENT_MAX));
    (void)close(lingering.fd);
    time_t start = time(NULL);
    assert_int_equal(notice_receive(pair[0], &notice), 0);
    notice_finish(&notice);
    assert_true(time(NULL) - start < 10);
    (void)close(lingering.reader);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_what_only_looks_like_it),
        cmocka_unit_test(test_socket),
        cmocka_unit_test(test_descriptors_of_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
