/* test-worker-ends.c - the other ways in which requests, sessions, lanes and devices end: refusals,
 * cancelling, deadlines, detaching, hostile peers, faults, shutting down. */
#include "tests/unit/engine/cmocka_all.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/engine/worker_bench.h"

static struct worker_bench wb;

static int set_up(void **state)
{
    (void)state;
    worker_bench_init(&wb, &worker_bench_limits);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    worker_bench_finish(&wb);
    return 0;
}

static void pause_msec(long msec)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = msec * 1000000}, NULL);
}

static struct request_desc desc_of(const struct client *client, uint64_t request_id, uint32_t m)
{
    return bench_desc(wb.bench.weights[WEIGHT_INT4], request_id, m, &client->x, &client->y);
}

static void start_client(struct client *client, uint64_t session_id, uint32_t n_entries)
{
    client_init(client, &wb, session_id, n_entries, 70);
    client_use(client, wb.bench.weights[WEIGHT_INT4], 1, 0, DTYPE_F32, DTYPE_F32, 5);
}

/* ---- refusing, cancelling, deadlines ---- */

static void refusals_have_a_sentence(void **state)
{
    (void)state;
    struct client client;
    start_client(&client, 1, 16);
    struct request_desc desc = desc_of(&client, 5, 71); /* one row more than the buffer has */
    desc.x_offset_bytes = (uint64_t)71 * 320 * 4;
    client_submit(&client, &desc);
    struct request_result result = client_wait(&client);
    assert_int_equal(result.request_id, 5);
    assert_int_equal(result.status, STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(result.text, "of buffer 1, which has"));
    client_finish(&client);
}

static void cancel_what_waits(void **state)
{
    (void)state;
    struct client client;
    start_client(&client, 2, 16);
    gate_close(&wb);
    for (uint64_t id = 1; id <= 3; id++) {
        struct request_desc desc = desc_of(&client, id, 1);
        client_submit(&client, &desc);
    }
    struct request_desc cancel = {.op = REQUEST_OP_CANCEL, .request_id = 2};
    client_submit(&client, &cancel);
    cancel.request_id = 999; /* nobody: no answer */
    client_submit(&client, &cancel);
    gate_open(&wb);
    struct request_result result = client_wait(&client);
    assert_int_equal(result.request_id, 2);
    assert_int_equal(result.status, STATUS_CANCELLED);
    for (uint64_t id = 1; id <= 3; id += 2) {
        result = client_wait(&client);
        assert_int_equal(result.request_id, id);
        assert_int_equal(result.status, STATUS_OK);
    }
    client_submit(&client, &cancel);
    client_finish(&client);
}

static void deadlines(void **state)
{
    (void)state;
    struct client client;
    start_client(&client, 3, 16);
    struct request_desc desc = desc_of(&client, 1, 1);
    desc.timeout_usec = UINT64_MAX; /* beyond the end of time: none */
    client_submit(&client, &desc);
    assert_int_equal(client_wait(&client).status, STATUS_OK);
    desc.timeout_usec = 10000000;
    client_submit(&client, &desc);
    assert_int_equal(client_wait(&client).status, STATUS_OK);
    /* Taken, but for a worker that is held up before it launches anything: a second gate in the
     * same pass of the inbox keeps it busy beyond the deadline. */
    gate_close(&wb);
    desc = desc_of(&client, 2, 1);
    desc.timeout_usec = 1000;
    assert_int_equal(worker_submit(wb.worker, &client.identity, &desc, NULL), 0);
    gate_send(&wb);
    gate_open(&wb);
    gate_wait(&wb);
    pause_msec(20);
    gate_open(&wb);
    wait_replies(&wb, 1);
    assert_int_equal(wb.replies[0].request_id, 2);
    assert_int_equal(wb.replies[0].status, STATUS_TIMEOUT);
    struct worker_stats stats;
    worker_stats(wb.worker, &stats);
    assert_int_equal(stats.n_timed_out, 1);
    client_finish(&client);
}

/* ---- the ZeroMQ path ---- */

static void zmq_requests(void **state)
{
    (void)state;
    struct client client;
    start_client(&client, 4, 16);
    struct request_desc desc = desc_of(&client, 11, 1);
    wb.n_replies = 0;
    assert_int_equal(worker_submit(wb.worker, &client.identity, &desc, NULL), 0);
    wait_replies(&wb, 1);
    assert_int_equal(wb.replies[0].request_id, 11);
    assert_int_equal(wb.replies[0].status, STATUS_OK);
    assert_true(bench_is_right(wb.bench.weights[WEIGHT_INT4], &client.x, &client.y, 1));

    gate_close(&wb);
    struct reason why = REASON_NULL;
    for (uint32_t i = 0; i < worker_bench_limits.session_requests_max; i++) {
        desc.request_id = 20 + i;
        assert_int_equal(worker_submit(wb.worker, &client.identity, &desc, &why), 0);
    }
    assert_int_equal(worker_submit(wb.worker, &client.identity, &desc, &why), STATUS_BUSY);
    assert_non_null(strstr(why.text, "8 requests in flight"));
    worker_cancel(wb.worker, 4, 23);
    worker_cancel(wb.worker, 4444, 23);
    gate_open(&wb);
    wait_replies(&wb, 9);
    assert_int_equal(wb.replies[1].request_id, 23);
    assert_int_equal(wb.replies[1].status, STATUS_CANCELLED);
    for (uint32_t i = 2; i < 9; i++) {
        assert_int_equal(wb.replies[i].status, STATUS_OK);
    }
    assert_int_equal(worker_submit(wb.worker, &client.identity, &desc, &why), 0);
    wait_replies(&wb, 10);
    client_finish(&client);
}

/* ---- detaching ---- */

static void detach_with_requests_queued(void **state)
{
    (void)state;
    struct client client;
    struct client other;
    start_client(&client, 5, 16);
    start_client(&other, 6, 16);
    gate_close(&wb);
    for (uint64_t id = 0; id < 16; id++) {
        struct request_desc desc = desc_of(&client, id, 1 + (uint32_t)id % 2 * 69);
        client_submit(&client, &desc);
    }
    struct request_desc desc = desc_of(&client, 99, 1);
    wb.n_replies = 0;
    assert_int_equal(worker_submit(wb.worker, &client.identity, &desc, NULL), 0);
    uint32_t n_detached = wb.n_detached;
    worker_detach(wb.worker, 5);
    desc = desc_of(&other, 1, 1);
    client_submit(&other, &desc);
    gate_open(&wb);
    assert_int_equal(client_wait(&other).status, STATUS_OK);
    wait_detached(&wb, n_detached + 1);
    assert_int_equal(wb.n_replies, 0);
    (void)buffers_free(client.identity.buffers);
    lane_finish(&client.lane);
    client_finish(&other);
    struct worker_stats stats;
    worker_stats(wb.worker, &stats);
    assert_int_equal(stats.n_lanes, 0);
    assert_int_equal(stats.n_in_flight, 0);
}

static void detach_in_the_middle_of_launches(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        struct client client;
        start_client(&client, 100 + i, 16);
        for (uint64_t id = 0; id < 12; id++) {
            struct request_desc desc = desc_of(&client, id, id == 3 ? 70 : 1);
            client_submit(&client, &desc);
        }
        if (i % 3 == 0) {
            (void)client_wait(&client);
        }
        assert_int_equal(buffers_remove(client.identity.buffers, client.x.buffer_id, NULL), 0);
        assert_int_equal(buffers_remove(client.identity.buffers, client.y.buffer_id, NULL), 0);
        client_finish(&client);
    }
    uint64_t held[QUOTA_KINDS];
    uint32_t n_accounts;
    quota_totals(wb.bench.quota, held, &n_accounts);
    assert_int_equal(n_accounts, 0);
}

static void detach_of_a_session_that_never_attached(void **state)
{
    (void)state;
    uint32_t n_detached = wb.n_detached;
    worker_detach(wb.worker, 777);
    wait_detached(&wb, n_detached + 1);
    assert_int_equal(wb.last_detached, 777);
}

/* ---- peers that do not play by the rules ---- */

/* T45: X submits all it can and reads nothing; Y works; then X reads. */
static void client_that_does_not_read(void **state)
{
    (void)state;
    struct client x;
    struct client y;
    start_client(&x, 7, 16);
    start_client(&y, 8, 16);
    uint64_t n_submitted = 0;
    for (uint32_t i = 0; i < 200; i++) {
        struct request_desc desc = desc_of(&x, n_submitted, 1);
        while (lane_submit(&x.lane, &desc) == RING_OK) {
            desc.request_id = ++n_submitted;
        }
        assert_int_equal(client_gemm(&y, wb.bench.weights[WEIGHT_INT4], 1).status, STATUS_OK);
    }
    assert_int_equal(n_submitted, 32); /* a ring of completions and a ring of submissions */
    for (uint64_t id = 0; id < n_submitted; id++) {
        struct request_result result = client_wait(&x);
        assert_int_equal(result.request_id, id);
        assert_int_equal(result.status, STATUS_OK);
    }
    client_finish(&x);
    client_finish(&y);
}

/* A lane whose client wrote an impossible index to `word` is dropped, and its neighbour served. */
static void spoil_index(uint64_t session_id, size_t word)
{
    struct client x;
    struct client y;
    start_client(&x, session_id, 16);
    start_client(&y, session_id + 1, 16);
    struct worker_stats stats;
    worker_stats(wb.worker, &stats);
    uint64_t n_before = stats.n_corrupt_lanes;
    atomic_store((_Atomic uint32_t *)((uint8_t *)x.lane.shared + word), 100000);
    for (uint32_t i = 0; i < 50 && stats.n_corrupt_lanes == n_before; i++) {
        assert_int_equal(client_gemm(&y, wb.bench.weights[WEIGHT_INT4], 1).status, STATUS_OK);
        worker_stats(wb.worker, &stats);
    }
    assert_int_equal(stats.n_corrupt_lanes, n_before + 1);
    assert_int_equal(stats.n_lanes, 1);
    client_finish(&x);
    client_finish(&y);
}

static void impossible_index(void **state)
{
    (void)state;
    spoil_index(900, offsetof(struct lane_shared, submit_tail));
    spoil_index(902, offsetof(struct lane_shared, complete_head));
}

struct scribbler {
    struct client client;
    _Atomic bool is_over;
};

static void *scribble(void *arg)
{
    struct scribbler *scribbler = arg;
    struct lane_shared *shared = scribbler->client.lane.shared;
    uint64_t seed = 1;
    while (!atomic_load(&scribbler->is_over)) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t value = (uint32_t)(seed >> 40) % 40;
        _Atomic uint32_t *words[] = {&shared->submit_tail,      &shared->complete_head,
                                     &shared->is_worker_asleep, &shared->n_client_waiters,
                                     &shared->submit_head,      &shared->complete_tail};
        atomic_store(words[(seed >> 33) % 6], value);
        if ((seed >> 50) % 64 == 0) {
            (void)!write(scribbler->client.lane.doorbell_fd, &(uint64_t){1}, sizeof(uint64_t));
        }
    }
    return NULL;
}

static void scribbling_peers(void **state)
{
    (void)state;
    struct scribbler scribblers[2] = {0};
    pthread_t threads[2];
    struct client y;
    start_client(&y, 13, 16);
    for (uint32_t i = 0; i < 2; i++) {
        start_client(&scribblers[i].client, 11 + i, 16);
        for (uint64_t id = 0; id < 16; id++) { /* entries that may be taken many times over */
            struct request_desc desc = desc_of(&scribblers[i].client, id, (uint32_t)id);
            desc.x_offset_bytes = id == 7 ? UINT64_MAX - 3 : 0;
            client_submit(&scribblers[i].client, &desc);
        }
        assert_int_equal(pthread_create(&threads[i], NULL, scribble, &scribblers[i]), 0);
    }
    const struct weight *weight = wb.bench.weights[WEIGHT_INT4];
    for (uint32_t i = 0; i < 500; i++) {
        client_use(&y, weight, 3, 0, DTYPE_F32, DTYPE_F32, i);
        assert_int_equal(client_gemm(&y, weight, 3).status, STATUS_OK);
        assert_true(bench_is_right(weight, &y.x, &y.y, 3));
    }
    for (uint32_t i = 0; i < 2; i++) {
        atomic_store(&scribblers[i].is_over, true);
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        client_finish(&scribblers[i].client);
    }
    client_finish(&y);
}

/* How often the worker has gone to sleep, once it sleeps. */
static uint64_t sleeps(void)
{
    struct worker_stats stats;
    uint64_t n;
    do {
        worker_stats(wb.worker, &stats);
        n = stats.n_sleeps;
        pause_msec(20);
        worker_stats(wb.worker, &stats);
    } while (stats.n_sleeps != n);
    return n;
}

/* Does a ring of that doorbell wake the worker? */
static bool wakes(int doorbell_fd)
{
    uint64_t n_before = sleeps();
    assert_int_equal(write(doorbell_fd, &(uint64_t){1}, sizeof(uint64_t)), sizeof(uint64_t));
    pause_msec(50);
    return sleeps() != n_before;
}

/* Who has left keeps the doorbell, and wakes nobody with it. */
static void doorbell_of_one_who_has_left(void **state)
{
    (void)state;
    struct client client;
    start_client(&client, 920, 16);
    int doorbell_fd = dup(client.lane.doorbell_fd);
    assert_true(doorbell_fd >= 0);
    assert_true(wakes(doorbell_fd));
    client_finish(&client);
    assert_false(wakes(doorbell_fd));
    (void)close(doorbell_fd);
}

/* Nor does one whose lane is ignored. */
static void doorbell_of_a_corrupt_lane(void **state)
{
    (void)state;
    struct client client;
    start_client(&client, 921, 16);
    (void)sleeps();
    atomic_store(&client.lane.shared->submit_tail, 100000);
    assert_true(wakes(client.lane.doorbell_fd));
    assert_false(wakes(client.lane.doorbell_fd));
    client_finish(&client);
}

/* ---- faults and the end: these three come last, each with a worker of its own ---- */

static void device_error_fails_only_its_batch(void **state)
{
    (void)state;
    struct client client;
    start_client(&client, 14, 16);
    const struct weight *weight = wb.bench.weights[WEIGHT_INT4];
    assert_int_equal(fault_inject(&wb.bench.device->fault, STATUS_DEVICE_ERROR, 1), 0);
    assert_int_equal(client_gemm(&client, weight, 1).status, STATUS_DEVICE_ERROR);
    assert_int_equal(client_gemm(&client, weight, 1).status, STATUS_OK);
    assert_true(bench_is_right(weight, &client.x, &client.y, 1));
    assert_int_equal(wb.n_fatal, 0);
    client_finish(&client);
}

/* T48 */
static void lost_device_answers_everything(void **state)
{
    (void)state;
    worker_bench_finish(&wb);
    worker_bench_init(&wb, &worker_bench_limits);
    struct client clients[2];
    start_client(&clients[0], 15, 16);
    start_client(&clients[1], 16, 16);
    gate_close(&wb);
    for (uint64_t id = 0; id < 10; id++) { /* one prefill between them */
        struct request_desc desc = desc_of(&clients[id % 2], id, id == 4 ? 70 : 1);
        client_submit(&clients[id % 2], &desc);
    }
    struct request_desc other =
        bench_desc(wb.bench.weights[WEIGHT_PLAIN], 10, 1, &clients[0].x, &clients[0].y);
    client_submit(&clients[0], &other);
    assert_int_equal(fault_inject(&wb.bench.device->fault, STATUS_DEVICE_LOST, 1), 0);
    gate_open(&wb);
    for (uint64_t id = 0; id < 11; id++) {
        struct request_result result = client_wait(&clients[id == 10 ? 0 : id % 2]);
        assert_int_equal(result.status, STATUS_DEVICE_LOST);
        assert_true(strlen(result.text) > 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(client_gemm(&clients[1], wb.bench.weights[WEIGHT_INT4], i).status,
                         STATUS_DEVICE_LOST);
    }
    client_finish(&clients[0]);
    client_finish(&clients[1]);
    assert_int_equal(wb.n_fatal, 1);
}

static void draining_refuses_what_is_new(void **state)
{
    (void)state;
    worker_bench_finish(&wb);
    worker_bench_init(&wb, &worker_bench_limits);
    struct client client;
    start_client(&client, 17, 16);
    const struct weight *weight = wb.bench.weights[WEIGHT_INT4];
    assert_int_equal(client_gemm(&client, weight, 1).status, STATUS_OK);
    worker_drain(wb.worker);
    assert_int_equal(client_gemm(&client, weight, 1).status, STATUS_SHUTTING_DOWN);
    client_finish(&client);
}

static void *free_worker(void *arg)
{
    return worker_free(arg);
}

static void shutting_down_answers_what_waits(void **state)
{
    (void)state;
    worker_bench_finish(&wb);
    worker_bench_init(&wb, &worker_bench_limits);
    struct client client;
    start_client(&client, 18, 16);
    gate_close(&wb);
    for (uint64_t id = 0; id < 16; id++) {
        struct request_desc desc = desc_of(&client, id, id == 5 ? 70 : 1);
        client_submit(&client, &desc);
    }
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_worker, wb.worker), 0);
    pause_msec(20);
    gate_open(&wb);
    for (uint64_t id = 0; id < 16; id++) {
        uint32_t status = client_wait(&client).status;
        assert_true(status == STATUS_OK || status == STATUS_SHUTTING_DOWN);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    wb.worker = NULL;
    (void)buffers_free(client.identity.buffers);
    lane_finish(&client.lane);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_have_a_sentence),
        cmocka_unit_test(cancel_what_waits),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(zmq_requests),
        cmocka_unit_test(detach_with_requests_queued),
        cmocka_unit_test(detach_in_the_middle_of_launches),
        cmocka_unit_test(detach_of_a_session_that_never_attached),
        cmocka_unit_test(client_that_does_not_read),
        cmocka_unit_test(impossible_index),
        cmocka_unit_test(scribbling_peers),
        cmocka_unit_test(doorbell_of_one_who_has_left),
        cmocka_unit_test(doorbell_of_a_corrupt_lane),
        cmocka_unit_test(device_error_fails_only_its_batch),
        cmocka_unit_test(lost_device_answers_everything),
        cmocka_unit_test(draining_refuses_what_is_new),
        cmocka_unit_test(shutting_down_answers_what_waits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
