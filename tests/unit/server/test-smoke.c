/* test-smoke.c - the program itself: a model, a product on each path, the refusals a session meets,
 * and an orderly end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/codec.h"
#include "ipc/lane.h"
#include "ipc/side.h"
#include "ipc/sock.h"
#include "tests/harness/fixture.h"
#include "tests/harness/product.h"

static struct fixture fixture;
static struct test_model model;

static int set_up(void **state)
{
    (void)state;
    static char model_option[400];
    fixture_init(&fixture);
    test_model_write(&model, &fixture.folder, "m", 7);
    (void)snprintf(model_option, sizeof(model_option), "m=%s", model.path);
    fixture_start(&fixture, &(struct fixture_options){.config = "hello_timeout_msec = 200\n",
                                                      .model = model_option});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_finish(&fixture);
    test_model_finish(&model);
    return 0;
}

static void check_product(enum gemmd_path path, uint32_t i_weight, uint32_t m)
{
    gemmd_client_t *client = fixture_open(&fixture, path);
    struct product product;
    const struct product_shape shape = {
        .m = m, .x_dtype = GEMMD_F32, .y_dtype = GEMMD_F32, .seed = 3};
    assert_true(product_init(&product, client, "m", &model.weights[i_weight], &shape));
    assert_true(product_run(&product, client));
    assert_true(product_is_right(&product));
    product_finish(&product);
    gemmd_close(client);
}

static void test_products_on_both_paths(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < TEST_WEIGHTS; i++) {
        check_product(GEMMD_PATH_RING, i, 1);
        check_product(GEMMD_PATH_ZEROMQ, i, 3);
    }
}

/* ---- the session socket, by hand ---- */

static int dial(void)
{
    char path[320];
    (void)snprintf(path, sizeof(path), "%s/" SIDE_SOCKET_NAME, fixture.socket_dir);
    int fd = side_connect(path, 5000);
    assert_true(fd >= 0);
    return fd;
}

/* Send and take the answer; its descriptors are the caller's. */
static struct side_packet ask(int fd, const union side_message *message)
{
    struct side_packet packet;
    assert_int_equal(side_send(fd, message, NULL, 0), 0);
    assert_int_equal(side_receive(fd, &packet, NULL), 1);
    assert_int_equal(packet.message.header.sequence, message->header.sequence);
    return packet;
}

static struct side_packet say_hello(int fd)
{
    union side_message hello;
    side_init(&hello, SIDE_HELLO, 1);
    hello.hello.version_min = SIDE_VERSION_MIN;
    hello.hello.version_max = SIDE_VERSION_MAX;
    (void)snprintf(hello.hello.name, sizeof(hello.hello.name), "test");
    return ask(fd, &hello);
}

static void test_same_lane_twice_is_the_same_lane(void **state)
{
    (void)state;
    int fd = dial();
    assert_int_equal(say_hello(fd).message.header.type, SIDE_WELCOME);
    union side_message open_lane;
    side_init(&open_lane, SIDE_OPEN_LANE, 2);
    struct side_packet first = ask(fd, &open_lane);
    struct side_packet second = ask(fd, &open_lane);
    assert_int_equal(first.message.header.type, SIDE_LANE);
    assert_int_equal(first.n_fds, 2);
    assert_int_equal(second.n_fds, 2);
    struct lane a = LANE_NULL;
    struct lane b = LANE_NULL;
    assert_int_equal(lane_attach(&a, first.fds[0], first.fds[1], NULL), 0);
    assert_int_equal(lane_attach(&b, second.fds[0], second.fds[1], NULL), 0);
    a.shared->n_client_waiters = 77;
    assert_int_equal(b.shared->n_client_waiters, 77);
    lane_finish(&a);
    lane_finish(&b);
    (void)close(fd);
}

static void test_refusals_have_a_sentence(void **state)
{
    (void)state;
    int fd = dial();
    assert_int_equal(say_hello(fd).message.header.type, SIDE_WELCOME);
    union side_message message;
    side_init(&message, SIDE_OPEN_LANE, 2);
    message.open_lane.device_index = 9;
    struct side_packet packet = ask(fd, &message);
    assert_int_equal(packet.message.header.type, SIDE_REFUSED);
    assert_int_equal(packet.message.refused.status, STATUS_NOT_FOUND);
    assert_string_equal(packet.message.refused.text, "device 9: this daemon owns 1");
    side_init(&message, SIDE_ALLOC_BUFFER, 3);
    message.alloc_buffer.size_bytes = 1ull << 62;
    packet = ask(fd, &message);
    assert_int_equal(packet.message.refused.status, STATUS_QUOTA);
    side_init(&message, SIDE_RELEASE_BUFFER, 4);
    message.release_buffer.buffer_id = 12345;
    packet = ask(fd, &message);
    assert_int_equal(packet.message.refused.status, STATUS_NOT_FOUND);
    (void)close(fd);
}

static void expect_hang_up(int fd)
{
    struct side_packet packet;
    assert_int_equal(side_receive(fd, &packet, NULL), 0);
    (void)close(fd);
}

static void test_garbage_is_refused_and_hung_up(void **state)
{
    (void)state;
    int fd = dial();
    struct side_packet packet;
    assert_int_equal(write(fd, "garbage", 7), 7);
    assert_int_equal(side_receive(fd, &packet, NULL), 1);
    assert_int_equal(packet.message.header.type, SIDE_REFUSED);
    assert_true(packet.message.refused.text[0] != '\0');
    expect_hang_up(fd);
}

static void test_wrong_version_is_told(void **state)
{
    (void)state;
    int fd = dial();
    union side_message hello;
    side_init(&hello, SIDE_HELLO, 1);
    hello.hello.version_min = 77;
    hello.hello.version_max = 78;
    struct side_packet packet = ask(fd, &hello);
    assert_int_equal(packet.message.refused.status, STATUS_VERSION);
    expect_hang_up(fd);
}

static void test_silence_is_hung_up(void **state)
{
    (void)state;
    double start = fixture_now();
    expect_hang_up(dial());
    assert_true(fixture_now() - start < 3.0);
}

/* ---- the control socket, by hand ---- */

static struct msg_reply call(struct sock *sock, const struct msg_request *request)
{
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    struct msg_reply reply = MSG_REPLY_NULL;
    assert_int_equal(codec_encode_request(request, &bytes, &n_bytes), 0);
    assert_int_equal(sock_send_request(sock, bytes, n_bytes, 5000), 0);
    free(bytes);
    assert_int_equal(sock_receive_reply(sock, 5000, &bytes, &n_bytes, NULL), 0);
    assert_int_equal(codec_decode_reply(bytes, n_bytes, &reply, NULL), 0);
    free(bytes);
    return reply;
}

static void dial_control(struct sock *sock, const char *token)
{
    char path[320];
    (void)snprintf(path, sizeof(path), "%s/" SIDE_CONTROL_NAME, fixture.socket_dir);
    assert_int_equal(sock_connect_dealer(sock, path, token, SIDE_TOKEN_BYTES), 0);
}

static void test_strangers_and_garbage_are_answered(void **state)
{
    (void)state;
    struct sock stranger = SOCK_NULL;
    const struct msg_request ping = {.request_id = 9, .verb = MSG_VERB_PING};
    dial_control(&stranger, "0123456789abcdef0123456789abcdef");
    struct msg_reply reply = call(&stranger, &ping);
    assert_int_equal(reply.status, STATUS_NO_SESSION);
    assert_int_equal(reply.request_id, 9);
    sock_finish(&stranger);

    int fd = dial();
    struct side_packet welcome = say_hello(fd);
    struct sock sock = SOCK_NULL;
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    dial_control(&sock, welcome.message.welcome.token);
    assert_int_equal(sock_send_request(&sock, "\xff\xff\xff", 3, 5000), 0);
    assert_int_equal(sock_receive_reply(&sock, 5000, &bytes, &n_bytes, NULL), 0);
    assert_int_equal(codec_decode_reply(bytes, n_bytes, &reply, NULL), 0);
    free(bytes);
    assert_int_equal(reply.status, STATUS_BAD_MESSAGE);
    reply = call(&sock, &ping);
    assert_int_equal(reply.status, STATUS_OK);
    assert_string_equal(reply.version, "0.1.0");
    sock_finish(&sock);
    (void)close(fd);
}

static void test_repeating_a_verb_gives_the_same_answer(void **state)
{
    (void)state;
    int fd = dial();
    struct side_packet welcome = say_hello(fd);
    struct sock sock = SOCK_NULL;
    dial_control(&sock, welcome.message.welcome.token);
    struct msg_request load = {.request_id = 1, .verb = MSG_VERB_LOAD};
    (void)snprintf(load.load.name, sizeof(load.load.name), "twice");
    (void)snprintf(load.load.path, sizeof(load.load.path), "%s", model.path);
    struct msg_reply first = call(&sock, &load);
    assert_int_equal(first.status, STATUS_OK);
    assert_int_equal(first.body, MSG_BODY_JOB);
    struct msg_request unload = {.request_id = 2, .verb = MSG_VERB_UNLOAD};
    (void)snprintf(unload.name, sizeof(unload.name), "nothing");
    assert_int_equal(call(&sock, &unload).status, STATUS_NOT_FOUND);
    struct msg_reply again = call(&sock, &load);
    assert_int_equal(again.job.job_id, first.job.job_id);
    assert_string_equal(again.job.state, first.job.state);
    msg_reply_finish(&first);
    msg_reply_finish(&again);
    sock_finish(&sock);
    (void)close(fd);
}

static void test_status_and_explanation(void **state)
{
    (void)state;
    int fd = dial();
    struct side_packet welcome = say_hello(fd);
    struct sock sock = SOCK_NULL;
    dial_control(&sock, welcome.message.welcome.token);
    const struct msg_request status = {.request_id = 1, .verb = MSG_VERB_STATUS};
    struct msg_reply reply = call(&sock, &status);
    assert_int_equal(reply.body, MSG_BODY_STATUS);
    assert_non_null(strstr(reply.json, "\"state\":\"serving\""));
    assert_non_null(strstr(reply.json, "\"name\":\"m\""));
    assert_non_null(strstr(reply.json, "\"launches_by_rows\""));
    msg_reply_finish(&reply);
    struct msg_request explain = {.request_id = 2, .verb = MSG_VERB_EXPLAIN};
    (void)snprintf(explain.explain.weight, sizeof(explain.explain.weight), "m/%s",
                   model.weights[TEST_INT4].module);
    reply = call(&sock, &explain);
    assert_int_equal(reply.status, STATUS_OK);
    assert_int_equal(reply.explanation.n_choices, 7);
    assert_true(reply.explanation.choices[0].kernel[0] != '\0');
    assert_string_equal(reply.explanation.ahead, "no launch: the host queues none");
    assert_true(reply.explanation.choices[0].n_declined > 0);
    assert_true(reply.explanation.choices[0].declined[0].reason[0] != '\0');
    msg_reply_finish(&reply);
    sock_finish(&sock);
    (void)close(fd);
}

/* A path of two-byte letters makes a sentence that is cut in the middle of one. */
static void test_status_survives_a_cut_sentence(void **state)
{
    (void)state;
    int fd = dial();
    struct side_packet welcome = say_hello(fd);
    struct sock sock = SOCK_NULL;
    dial_control(&sock, welcome.message.welcome.token);
    for (uint64_t i = 0; i < 2; i++) { /* one of the two lengths is cut within a letter */
        struct msg_request load = {.request_id = 1 + i, .verb = MSG_VERB_LOAD};
        (void)snprintf(load.load.name, sizeof(load.load.name), "cut%s", i == 0 ? "" : "t");
        load.load.path[0] = '/';
        for (size_t at = 1; at + 2 < 600; at += 2) {
            memcpy(load.load.path + at, "\xc3\xa9", 2);
        }
        struct msg_reply job = call(&sock, &load);
        assert_int_equal(job.status, STATUS_OK);
        struct msg_request status = {.request_id = job.job.job_id, .verb = MSG_VERB_JOB_STATUS};
        status.job_id = job.job.job_id;
        while (strcmp(job.job.state, "failed") != 0) {
            msg_reply_finish(&job);
            fixture_sleep(0.01);
            job = call(&sock, &status);
            assert_int_equal(job.body, MSG_BODY_JOB);
        }
        msg_reply_finish(&job);
    }
    const struct msg_request status = {.request_id = 9, .verb = MSG_VERB_STATUS};
    struct msg_reply reply = call(&sock, &status);
    assert_int_equal(reply.status, STATUS_OK);
    assert_non_null(strstr(reply.json, "\"state\":\"failed\""));
    msg_reply_finish(&reply);
    sock_finish(&sock);
    (void)close(fd);
}

/* Ask, never read: hung up when the queues and the outbox are full, and nobody else notices (T45).
 */
static void test_who_does_not_read_is_hung_up(void **state)
{
    (void)state;
    int fd = dial();
    struct side_packet welcome = say_hello(fd);
    struct sock sock = SOCK_NULL;
    const struct msg_request status = {.request_id = 1, .verb = MSG_VERB_STATUS};
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    uint8_t byte;
    bool is_hung_up = false;
    dial_control(&sock, welcome.message.welcome.token);
    assert_int_equal(codec_encode_request(&status, &bytes, &n_bytes), 0);
    for (uint32_t i = 0; i < 50000 && !is_hung_up; i++) {
        (void)!sock_send_request(&sock, bytes, n_bytes, 100);
        is_hung_up = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
    }
    assert_true(is_hung_up);
    free(bytes);
    sock_finish(&sock);
    (void)close(fd);
    check_product(GEMMD_PATH_ZEROMQ, TEST_PLAIN, 1);
}

static void test_sigterm_ends_it_cleanly(void **state)
{
    (void)state;
    char path[320];
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    double start = fixture_now();
    assert_int_equal(fixture_stop(&fixture), 0);
    assert_true(fixture_now() - start < 5.0);
    (void)snprintf(path, sizeof(path), "%s/" SIDE_SOCKET_NAME, fixture.socket_dir);
    assert_int_equal(access(path, F_OK), -1);
    (void)snprintf(path, sizeof(path), "%s/" SIDE_CONTROL_NAME, fixture.socket_dir);
    assert_int_equal(access(path, F_OK), -1);
    gemmd_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_on_both_paths),
        cmocka_unit_test(test_same_lane_twice_is_the_same_lane),
        cmocka_unit_test(test_refusals_have_a_sentence),
        cmocka_unit_test(test_garbage_is_refused_and_hung_up),
        cmocka_unit_test(test_wrong_version_is_told),
        cmocka_unit_test(test_silence_is_hung_up),
        cmocka_unit_test(test_strangers_and_garbage_are_answered),
        cmocka_unit_test(test_repeating_a_verb_gives_the_same_answer),
        cmocka_unit_test(test_status_and_explanation),
        cmocka_unit_test(test_status_survives_a_cut_sentence),
        cmocka_unit_test(test_who_does_not_read_is_hung_up),
        cmocka_unit_test(test_sigterm_ends_it_cleanly),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
