/* test-hostile-flow.c - clients that scribble over their rings, or ask and never read the answers
 * (T45). */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

#include "ipc/base/num.h"
#include "ipc/lane.h"
#include "tests/harness/status_document.h"
#include "tests/harness/wire.h"
#include "tests/integ/hostile_case.h"

#define N_SCRIBBLERS 30u
#define N_SCRIBBLES  3000u

#define N_UNREAD        50000u
#define N_IN_FLIGHT_MAX 16u /* of a session: session_requests_max */
#define N_BURST         100u
#define M_SLOW          1024u
#define UNREAD_KIB      (64u * 1024u)
#define PATIENCE        5.0 /* seconds that the good client may wait for a product */

static int set_up(void **state)
{
    return hostile_set_up(state, "session_requests_max = 16\n");
}

/* ---- rings ---- */

/* A process with a real session writes random bytes all over its lane, indices included, and rings.
 * That may be noticed or not. Then it writes indices that no lane can have, which must be, and
 * stays until it is killed. */
static void scribble(const struct hostile *hostile, uint32_t seed)
{
    uint64_t random = seed * 2 + 1;
    const uint64_t one = 1;
    char token[SIDE_TOKEN_BYTES];
    union side_message message;
    struct side_packet packet;
    struct lane lane = LANE_NULL;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = wire_session(&hostile->fixture, token);
    side_init(&message, SIDE_OPEN_LANE, 2);
    if (wire_ask(&hostile->fixture, fd, &message, NULL, 0, &packet) != 1 ||
        lane_attach(&lane, packet.fds[0], packet.fds[1], NULL) != 0) {
        _exit(1);
    }
    for (uint32_t i = 0; i < N_SCRIBBLES; i++) {
        uint64_t place = test_random(&random);
        place %= i % 2 == 0 ? 512 : lane.region.size_bytes;
        ((uint8_t *)lane.region.base)[place] = (uint8_t)test_random(&random);
        if (i % 16 == 0) {
            atomic_fetch_add(&lane.shared->submit_tail, (uint32_t)(test_random(&random) % 3));
            (void)!write(lane.doorbell_fd, &one, sizeof(one));
        }
    }
    /* The worker has moved far fewer than 2^31 entries. */
    atomic_store(&lane.shared->submit_tail, 1u << 31);
    atomic_store(&lane.shared->complete_head, 1u << 31);
    (void)!write(lane.doorbell_fd, &one, sizeof(one));
    for (;;) {
        (void)pause();
    }
}

static void test_lane_scribbling(void **state)
{
    struct hostile *hostile = *state;
    struct status_counts before;
    struct status_counts after;
    status_counts_settle(&hostile->fixture, 2, SETTLE_SECONDS, &before);
    for (uint32_t i = 0; i < N_SCRIBBLERS; i++) {
        int child;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            scribble(hostile, i);
        }
        assert_true(hostile_good_goes_on(hostile));
        bool is_seen =
            status_counts_reach(&hostile->fixture, offsetof(struct status_counts, n_corrupt_lanes),
                                before.n_corrupt_lanes + i + 1, SETTLE_SECONDS, &after);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &child, 0), pid);
        assert_true(is_seen && WIFSIGNALED(child));
    }
    assert_int_equal(after.n_corrupt_lanes, before.n_corrupt_lanes + N_SCRIBBLERS);
}

/* ---- T45: unread replies ---- */

/* X: a session that submits by hand over ZeroMQ. */
struct submitter {
    int fd;
    struct peer peer;
    struct msg_request request;
};

static void submitter_init(struct submitter *x, struct hostile *hostile)
{
    const gemmd_weight_t *weight = &hostile->good.handle;
    char token[SIDE_TOKEN_BYTES];
    x->fd = wire_session(&hostile->fixture, token);
    peer_init(&x->peer, &hostile->fixture, ZMQ_DEALER, token, sizeof(token));
    x->request = (struct msg_request){.verb = MSG_VERB_SUBMIT};
    x->request.submit = (struct request_desc){
        .weight_id = weight->id,
        .x_buffer_id = wire_buffer(&hostile->fixture, x->fd, (uint64_t)M_SLOW * weight->k * 4),
        .x_stride_elems = weight->k,
        .y_buffer_id = wire_buffer(&hostile->fixture, x->fd, (uint64_t)M_SLOW * weight->n * 4),
        .y_stride_elems = weight->n,
        .n = weight->n,
        .k = weight->k,
        .x_dtype = DTYPE_F32,
        .y_dtype = DTYPE_F32};
}

static void submitter_finish(struct submitter *x)
{
    peer_finish(&x->peer);
    (void)close(x->fd);
}

static bool submitter_send(struct submitter *x, uint64_t request_id, uint32_t m)
{
    x->request.request_id = x->request.submit.request_id = request_id;
    x->request.submit.m = m;
    return peer_send_request(&x->peer, &x->request);
}

/* More slow requests than a session may have in flight, and then their answers: one each, and BUSY
 * for those beyond the limit. */
static void test_busy_beyond_the_limit(void **state)
{
    struct hostile *hostile = *state;
    struct submitter x;
    uint32_t n_ok = 0;
    uint32_t n_busy = 0;
    submitter_init(&x, hostile);
    for (uint32_t i = 0; i < N_BURST; i++) {
        assert_true(submitter_send(&x, i, M_SLOW));
    }
    for (uint32_t i = 0; i < N_BURST; i++) {
        int status = peer_receive(&x.peer, NULL);
        assert_true(status == GEMMD_OK || status == GEMMD_BUSY);
        n_ok += status == GEMMD_OK;
        n_busy += status == GEMMD_BUSY;
    }
    assert_true(n_ok >= N_IN_FLIGHT_MAX && n_busy > 0);
    submitter_finish(&x);
}

/* The good client's product, and the longest that it has waited for one. */
static double wait_for_product(struct hostile *hostile, double longest)
{
    double start = fixture_now();
    assert_true(hostile_good_goes_on(hostile));
    double seconds = fixture_now() - start;
    return seconds > longest ? seconds : longest;
}

/* 50,000 requests and never a look at a reply: the daemon holds no more than it may and hangs up,
 * and the good client is served all the while. Then X reads what is left, and dies. */
static void test_client_that_never_reads(void **state)
{
    struct hostile *hostile = *state;
    struct submitter x;
    struct status_counts before;
    struct status_counts after;
    double longest = 0;
    uint32_t n_read = 0;
    status_counts_settle(&hostile->fixture, 2, SETTLE_SECONDS, &before);
    uint64_t kib_before = hostile_resident_kib(hostile);
    submitter_init(&x, hostile);
    for (uint32_t i = 0; i < N_UNREAD; i++) {
        assert_true(submitter_send(&x, i, 1));
        if (i % 500 == 0) {
            longest = wait_for_product(hostile, longest);
        }
    }
    assert_true(longest < PATIENCE);
    assert_false(hostile_has_grown(hostile, kib_before, UNREAD_KIB));
    peer_option(&x.peer, ZMQ_RCVTIMEO, 200);
    for (int status; (status = peer_receive(&x.peer, NULL)) >= 0; n_read++) {
        assert_true(status == GEMMD_OK || status == GEMMD_BUSY || status == GEMMD_NO_SESSION);
    }
    assert_true(n_read > 0);
    submitter_finish(&x);
    status_counts_settle(&hostile->fixture, 2, SETTLE_SECONDS, &after);
    assert_int_equal(after.n_sessions, 2); /* the good client's and the one that asks */
    assert_int_equal(after.n_in_flight, 0);
    assert_int_equal(after.buffer_bytes, before.buffer_bytes);
    assert_int_equal(after.n_fds, before.n_fds);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, NULL, hostile_still_serves)
    const struct CMUnitTest tests[] = {
        CASE(test_lane_scribbling),
        CASE(test_busy_beyond_the_limit),
        CASE(test_client_that_never_reads),
    };
#undef CASE
    return cmocka_run_group_tests(tests, set_up, hostile_tear_down);
}
