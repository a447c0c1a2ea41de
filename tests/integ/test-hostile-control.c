/* test-hostile-control.c - borrowed identities and wrong framing on the control socket (T42, T44).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

#include "ipc/base/num.h"
#include "ipc/codec.h"
#include "ipc/frame.h"
#include "tests/harness/status_document.h"
#include "tests/harness/wire.h"
#include "tests/integ/hostile_case.h"

#define N_RESTARTS   200u
#define N_ENDLESS    20u
#define N_FRAMES_MAX 1000000u
#define GROWTH_KIB   (16u * 1024u)

static int set_up(void **state)
{
    return hostile_set_up(state, NULL);
}

static uint64_t n_bad_framing(const struct hostile *hostile)
{
    struct status_counts counts;
    status_counts_read(&hostile->fixture, &counts);
    return counts.n_bad_framing;
}

/* ---- T42: identities ---- */

static void test_foreign_identities(void **state)
{
    struct hostile *hostile = *state;
    char longest[FRAME_ROUTE_BYTES_MAX];
    memset(longest, 'i', sizeof(longest));
    const struct {
        const char *id;
        size_t n_bytes;
    } cases[] = {
        {"", 0}, /* libzmq makes one up */
        {"T1", 2},
        {"00000000000000000000000000000000", SIDE_TOKEN_BYTES},
        {longest, sizeof(longest)},
        {"\0\0\0\0\1", 5}, /* as one that libzmq makes up */
        {"\0zero", 5},
    };
    struct peer peers[ARRAY_LENGTH(cases)];
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        peer_init(&peers[i], &hostile->fixture, ZMQ_DEALER, cases[i].id, cases[i].n_bytes);
        assert_int_equal(peer_ping(&peers[i], 7), GEMMD_NO_SESSION);
    }
    assert_true(hostile_good_goes_on(hostile));
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        peer_finish(&peers[i]);
    }
}

/* Two live connections with one routing id that is nobody's session: both get definite answers, or
 * the older one none any more; nobody else notices. */
static void test_one_foreign_identity_twice(void **state)
{
    struct hostile *hostile = *state;
    struct peer first;
    struct peer second;
    peer_init(&first, &hostile->fixture, ZMQ_DEALER, "T1", 2);
    assert_int_equal(peer_ping(&first, 1), GEMMD_NO_SESSION);
    peer_init(&second, &hostile->fixture, ZMQ_DEALER, "T1", 2);
    assert_int_equal(peer_ping(&second, 2), GEMMD_NO_SESSION);
    peer_finish(&first);
    assert_int_equal(peer_ping(&second, 3), GEMMD_NO_SESSION);
    peer_finish(&second);
}

/* The newer connection of one routing id takes the older's place: both speak for the session that
 * the token belongs to, and nobody else's replies go astray. */
static void test_one_token_twice(void **state)
{
    struct hostile *hostile = *state;
    struct peer first;
    struct peer second;
    char token[SIDE_TOKEN_BYTES];
    int fd = wire_session(&hostile->fixture, token);
    peer_init(&first, &hostile->fixture, ZMQ_DEALER, token, sizeof(token));
    assert_int_equal(peer_ping(&first, 1), GEMMD_OK);
    peer_init(&second, &hostile->fixture, ZMQ_DEALER, token, sizeof(token));
    assert_int_equal(peer_ping(&second, 2), GEMMD_OK);
    assert_true(hostile_good_goes_on(hostile));
    peer_finish(&first);
    assert_int_equal(peer_ping(&second, 3), GEMMD_OK);
    hostile_close_peer(&second, fd);
}

/* A client that dies with a request in flight and is back at once, again and again, while the
 * daemon works for others. */
static void test_restarts(void **state)
{
    struct hostile *hostile = *state;
    char token[SIDE_TOKEN_BYTES];
    struct peer peer;
    struct product busy;
    struct status_counts counts;
    const struct product_shape shape = {
        .m = 200, .x_dtype = GEMMD_F32, .y_dtype = GEMMD_F32, .seed = 9};
    int fd = wire_session(&hostile->fixture, token);
    struct msg_request submit = {.verb = MSG_VERB_SUBMIT};
    assert_true(product_init(&busy, hostile->good_client, "tiny",
                             &hostile->model.weights[TEST_INT4], &shape));
    submit.submit = (struct request_desc){.weight_id = busy.handle.id,
                                          .x_buffer_id = wire_buffer(&hostile->fixture, fd, 4096),
                                          .x_stride_elems = busy.handle.k,
                                          .y_buffer_id = wire_buffer(&hostile->fixture, fd, 4096),
                                          .y_stride_elems = busy.handle.n,
                                          .m = 1,
                                          .n = busy.handle.n,
                                          .k = busy.handle.k,
                                          .x_dtype = DTYPE_F32,
                                          .y_dtype = DTYPE_F32};
    for (uint32_t i = 0; i < N_RESTARTS; i++) {
        gemmd_ticket_t ticket;
        assert_int_equal(gemmd_submit(hostile->good_client, &busy.gemm, 1, &ticket), GEMMD_OK);
        peer_init(&peer, &hostile->fixture, ZMQ_DEALER, token, sizeof(token));
        submit.request_id = submit.submit.request_id = 1000 + i;
        assert_true(peer_send_request(&peer, &submit));
        assert_int_equal(peer_ping(&peer, 5000 + i), GEMMD_OK);
        peer_finish(&peer);
        assert_int_equal(gemmd_wait(hostile->good_client, ticket, GEMMD_WAIT_FOREVER, NULL),
                         GEMMD_OK);
    }
    assert_true(product_is_right(&busy));
    product_finish(&busy);
    (void)close(fd);
    status_counts_settle(&hostile->fixture, 2, SETTLE_SECONDS, &counts);
    assert_int_equal(counts.n_sessions, 2); /* the good client's and the one that asks */
    assert_int_equal(counts.n_in_flight, 0);
}

/* ---- T44: framing ---- */

static void send_frames(struct peer *peer, uint32_t n, size_t n_bytes)
{
    static const uint8_t zeros[4096];
    for (uint32_t i = 0; i < n; i++) {
        assert_true(zmq_send(peer->socket, zeros, n_bytes, i + 1 < n ? ZMQ_SNDMORE : 0) >= 0);
    }
}

/* Answered or dropped, and counted; the same connection goes on. */
static void test_wrong_framing(void **state)
{
    struct hostile *hostile = *state;
    static const struct {
        uint32_t n_frames;
        size_t n_bytes;
    } cases[] = {{1, 0}, {1, 16}, {2, 16}, {3, 0}, {20, 0}, {1000, 1}, {3, 300}, {20, 300}};
    uint64_t n_before = n_bad_framing(hostile);
    struct peer peer;
    int fd = hostile_open_peer(hostile, &peer);
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        send_frames(&peer, cases[i].n_frames, cases[i].n_bytes);
        assert_int_equal(peer_ping(&peer, 500 + i), GEMMD_OK);
    }
    hostile_close_peer(&peer, fd);
    assert_int_equal(n_bad_framing(hostile), n_before + ARRAY_LENGTH(cases));
}

/* One request of a REQ socket, of that many payload frames; its reply's status. */
static int ask_by_req(struct peer *peer, uint32_t n_frames)
{
    const struct msg_request request = {.verb = MSG_VERB_PING, .request_id = 4};
    uint8_t *bytes;
    size_t n_bytes;
    uint8_t buffer[1024];
    struct msg_reply reply = MSG_REPLY_NULL;
    assert_int_equal(codec_encode_request(&request, &bytes, &n_bytes), 0);
    for (uint32_t i = 0; i < n_frames; i++) {
        assert_int_equal(zmq_send(peer->socket, bytes, n_bytes, i + 1 < n_frames ? ZMQ_SNDMORE : 0),
                         n_bytes);
    }
    free(bytes);
    int n = zmq_recv(peer->socket, buffer, sizeof(buffer), 0);
    assert_true(n > 0 && n <= (int)sizeof(buffer));
    assert_int_equal(codec_decode_reply(buffer, (size_t)n, &reply, NULL), 0);
    int status = reply.status;
    msg_reply_finish(&reply);
    return status;
}

/* A REQ cannot ask again before it has an answer, so it must get one to everything. */
static void test_req_socket(void **state)
{
    struct hostile *hostile = *state;
    char token[SIDE_TOKEN_BYTES];
    struct peer peer;
    int fd = wire_session(&hostile->fixture, token);
    uint64_t n_before = n_bad_framing(hostile);
    peer_init(&peer, &hostile->fixture, ZMQ_REQ, token, sizeof(token));
    assert_int_equal(ask_by_req(&peer, 1), GEMMD_OK);
    assert_int_equal(ask_by_req(&peer, 2), GEMMD_BAD_FRAMING);
    assert_int_equal(ask_by_req(&peer, 1), GEMMD_OK);
    assert_int_equal(ask_by_req(&peer, 1000), GEMMD_BAD_FRAMING);
    assert_int_equal(ask_by_req(&peer, 1), GEMMD_OK);
    hostile_close_peer(&peer, fd);
    assert_int_equal(n_bad_framing(hostile), n_before + 2);
}

/* One whole message from one socket to the other. */
static void forward(void *from, void *to)
{
    int is_more = 1;
    while (is_more) {
        zmq_msg_t frame;
        (void)zmq_msg_init(&frame);
        assert_true(zmq_msg_recv(&frame, from, 0) >= 0);
        is_more = zmq_msg_more(&frame);
        assert_true(zmq_msg_send(&frame, to, is_more ? ZMQ_SNDMORE : 0) >= 0);
    }
}

/* A ROUTER-DEALER proxy puts a routing frame of its own in front; its clients are served. */
static void test_proxy(void **state)
{
    struct hostile *hostile = *state;
    char token[SIDE_TOKEN_BYTES];
    char address[420];
    struct peer back;
    struct peer peer;
    int fd = wire_session(&hostile->fixture, token);
    (void)snprintf(address, sizeof(address), "ipc://%s", temp_path(&hostile->fixture.folder, "p"));
    peer_init(&back, &hostile->fixture, ZMQ_DEALER, "proxy", 5);
    void *front = zmq_socket(back.context, ZMQ_ROUTER);
    assert_int_equal(zmq_bind(front, address), 0);
    peer_init_at(&peer, address, ZMQ_DEALER, token, sizeof(token));
    for (uint64_t i = 0; i < 10; i++) {
        uint64_t answered = 0;
        const struct msg_request request = {.verb = MSG_VERB_PING, .request_id = 300 + i};
        assert_true(peer_send_request(&peer, &request));
        forward(front, back.socket);
        forward(back.socket, front);
        assert_int_equal(peer_receive(&peer, &answered), GEMMD_OK);
        assert_int_equal(answered, 300 + i);
    }
    peer_finish(&peer);
    (void)zmq_close(front);
    hostile_close_peer(&back, fd);
}

/* Messages of which the second half never comes: as if they had not been sent. */
static void test_half_a_message(void **state)
{
    struct hostile *hostile = *state;
    char token[SIDE_TOKEN_BYTES];
    struct peer peer;
    int fd = wire_session(&hostile->fixture, token);
    uint64_t n_before = n_bad_framing(hostile);
    for (uint32_t i = 0; i < 50; i++) {
        int raw = zmtp_connect(&hostile->fixture, token, sizeof(token));
        assert_true(zmtp_send_frame(raw, "", 0, true));
        assert_true(i % 2 == 0 || zmtp_send_frame(raw, "half", 4, true));
        (void)close(raw);
    }
    peer_init(&peer, &hostile->fixture, ZMQ_DEALER, token, sizeof(token));
    assert_int_equal(peer_ping(&peer, 8), GEMMD_OK);
    hostile_close_peer(&peer, fd);
    assert_int_equal(n_bad_framing(hostile), n_before);
}

/* Messages that never end: each sender is hung up on, and what it sent is not kept. */
static void test_endless_messages(void **state)
{
    struct hostile *hostile = *state;
    struct status_counts before;
    struct status_counts after;
    char token[SIDE_TOKEN_BYTES];
    char letters[200];
    memset(letters, 'e', sizeof(letters));
    int fd = wire_session(&hostile->fixture, token);
    status_counts_read(&hostile->fixture, &before);
    uint64_t kib_before = hostile_resident_kib(hostile);
    for (uint32_t i = 0; i < N_ENDLESS; i++) {
        int raw = zmtp_connect(&hostile->fixture, token, sizeof(token));
        uint8_t n_bytes = i % 2 == 0 ? 0 : sizeof(letters);
        uint32_t n_frames = 0;
        while (n_frames < N_FRAMES_MAX && zmtp_send_frame(raw, letters, n_bytes, true)) {
            n_frames++;
        }
        assert_true(n_frames < N_FRAMES_MAX);
        (void)close(raw);
    }
    assert_false(hostile_has_grown(hostile, kib_before, GROWTH_KIB));
    assert_true(status_counts_reach(&hostile->fixture, offsetof(struct status_counts, n_endless),
                                    before.n_endless + N_ENDLESS, SETTLE_SECONDS, &after));
    (void)close(fd);
}

/* Over the cap libzmq hangs up on the sender; nobody else notices, and it may connect again. */
static void test_oversized_frame(void **state)
{
    struct hostile *hostile = *state;
    size_t n_bytes = 64u << 20;
    void *bytes = calloc(1, n_bytes);
    assert_non_null(bytes);
    char token[SIDE_TOKEN_BYTES];
    struct peer peer;
    int fd = wire_session(&hostile->fixture, token);
    uint64_t kib_before = hostile_resident_kib(hostile);
    peer_init(&peer, &hostile->fixture, ZMQ_DEALER, token, sizeof(token));
    peer_send(&peer, bytes, n_bytes);
    assert_true(hostile_good_goes_on(hostile));
    assert_false(hostile_has_grown(hostile, kib_before, GROWTH_KIB));
    peer_finish(&peer);
    peer_init(&peer, &hostile->fixture, ZMQ_DEALER, token, sizeof(token));
    assert_int_equal(peer_ping(&peer, 9), GEMMD_OK);
    hostile_close_peer(&peer, fd);
    free(bytes);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, NULL, hostile_still_serves)
    const struct CMUnitTest tests[] = {
        CASE(test_foreign_identities),
        CASE(test_one_foreign_identity_twice),
        CASE(test_one_token_twice),
        CASE(test_restarts),
        CASE(test_wrong_framing),
        CASE(test_req_socket),
        CASE(test_proxy),
        CASE(test_half_a_message),
        CASE(test_endless_messages),
        CASE(test_oversized_frame),
    };
#undef CASE
    return cmocka_run_group_tests(tests, set_up, hostile_tear_down);
}
