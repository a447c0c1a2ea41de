/* test-hostile-descriptors.c - peers that hand over descriptors which take long to close: a TCP
 * connection that lingers, of which they keep no copy, so that the last close() is the daemon's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/unix.h"
#include "tests/harness/lingering.h"
#include "tests/harness/wire.h"
#include "tests/integ/hostile_case.h"

#define LINGER_SECONDS 20
#define ANSWER_SECONDS 4

/* The daemon finds bytes with descriptors of which it has the only copy, and all are served in time
 * while nobody reads what lingers. */
static void expect_service(void **state, int fd, const void *bytes, size_t n_bytes, uint32_t n_fds)
{
    struct hostile *hostile = *state;
    struct lingering lingering = lingering_new(LINGER_SECONDS);
    assert_int_equal(kill(hostile->fixture.pid, SIGSTOP), 0);
    if (!lingering_send(fd, bytes, n_bytes, lingering.fd, n_fds)) {
        (void)close(lingering.reader);
    }
    (void)close(lingering.fd);
    assert_int_equal(kill(hostile->fixture.pid, SIGCONT), 0);
    double start = fixture_now();
    assert_int_equal(hostile_still_serves(state), 0);
    assert_true(fixture_now() - start < ANSWER_SECONDS);
    (void)close(lingering.reader);
}

/* ---- the session socket ---- */

static void expect_service_with(void **state, enum side_type type, uint32_t n_fds)
{
    struct hostile *hostile = *state;
    char token[SIDE_TOKEN_BYTES];
    union side_message message;
    int fd = wire_session(&hostile->fixture, token);
    side_init(&message, type, 2);
    expect_service(state, fd, &message, message.header.size_bytes, n_fds);
    (void)close(fd);
}

static void test_with_a_question(void **state)
{
    expect_service_with(state, SIDE_OPEN_LANE, 1);
}

static void test_as_a_buffer(void **state)
{
    expect_service_with(state, SIDE_IMPORT_BUFFER, 1);
}

static void test_too_many(void **state)
{
    expect_service_with(state, SIDE_OPEN_LANE, LINGERING_SENT_MAX);
}

/* Behind a packet that ends the session, so that the daemon never receives it. */
static void test_unread(void **state)
{
    struct hostile *hostile = *state;
    union side_message message;
    int fd = wire_connect(&hostile->fixture);
    side_init(&message, SIDE_OPEN_LANE, 1);
    message.header.magic = 0;
    assert_int_equal(kill(hostile->fixture.pid, SIGSTOP), 0);
    assert_int_equal(side_send(fd, &message, NULL, 0), 0);
    expect_service(state, fd, &message, message.header.size_bytes, 1);
    (void)close(fd);
}

/* ---- sockets that no descriptor belongs on ---- */

static void send_to(void **state, const char *name, const char *bytes)
{
    struct hostile *hostile = *state;
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", hostile->fixture.socket_dir, name);
    int fd = unix_connect(path, SOCK_STREAM, WIRE_REPLY_MSEC);
    assert_true(fd >= 0);
    expect_service(state, fd, bytes, strlen(bytes), 1);
    (void)close(fd);
}

static void test_to_the_control_socket(void **state)
{
    send_to(state, SIDE_CONTROL_NAME, "\xff");
}

static void test_to_the_status_socket(void **state)
{
    send_to(state, SIDE_STATUS_NAME, "GET / HTTP/1.1\r\n");
}

static int set_up(void **state)
{
    return hostile_set_up(state, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_with_a_question),
        cmocka_unit_test(test_as_a_buffer),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_unread),
        cmocka_unit_test(test_to_the_control_socket),
        cmocka_unit_test(test_to_the_status_socket),
    };
    return cmocka_run_group_tests(tests, set_up, hostile_tear_down);
}
