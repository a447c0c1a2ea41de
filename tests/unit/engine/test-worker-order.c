/* test-worker-order.c - requests in stream order: launched when their stream is ready and not
 * before, in nobody's way, and with an end that the stream hears of whatever happens. The words are
 * written by this CPU instead of a GPU. */
#include "tests/unit/engine/cmocka_all.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ipc/base/clock.h"
#include "ipc/order.h"
#include "tests/unit/engine/worker_bench.h"

#define N_ENTRIES  16u
#define WAIT_NSEC  20000000000ull
#define PAUSE_NSEC 30000000u /* long enough for the worker to have slept */

static struct worker_bench wb;

/* A client with words. */
struct ordered {
    struct client client;
    void *memory;
    struct order_words words;
};

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

static void pause_while_it_sleeps(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NSEC}, NULL);
}

static void ordered_init(struct ordered *ordered, uint64_t session_id)
{
    client_init(&ordered->client, &wb, session_id, N_ENTRIES, 70);
    client_use(&ordered->client, wb.bench.weights[WEIGHT_INT4], 1, 0, DTYPE_F32, DTYPE_F32, 5);
    ordered->memory = calloc(1, order_bytes(N_ENTRIES));
    assert_non_null(ordered->memory);
    ordered->words = order_words_at(ordered->memory, N_ENTRIES);
    struct worker_words words = {.base = ordered->memory, .n_entries = N_ENTRIES};
    assert_int_equal(worker_open_order(wb.worker, session_id, &words), 0);
}

static void ordered_finish(struct ordered *ordered)
{
    client_finish(&ordered->client);
    free(ordered->memory);
}

/* Its id is 100 + entry. */
static struct request_desc desc_of(const struct ordered *ordered, uint32_t entry, uint32_t value,
                                   uint32_t stream)
{
    const struct client *client = &ordered->client;
    struct request_desc desc =
        bench_desc(wb.bench.weights[WEIGHT_INT4], 100 + entry, 1, &client->x, &client->y);
    desc.flags = REQUEST_FLAG_ORDERED;
    desc.order_entry = entry;
    desc.order_value = value;
    desc.order_stream = stream;
    return desc;
}

static void submit(struct ordered *ordered, uint32_t entry, uint32_t value, uint32_t stream)
{
    struct request_desc desc = desc_of(ordered, entry, value, stream);
    client_submit(&ordered->client, &desc);
}

static void say_ready(struct ordered *ordered, uint32_t entry, uint32_t value)
{
    atomic_store_explicit(&ordered->words.ready[entry], value, memory_order_release);
}

static void wait_ended(const struct ordered *ordered, uint32_t entry, uint32_t value)
{
    uint64_t end = clock_now_nsec() + WAIT_NSEC;
    while (!order_is_reached(atomic_load(&ordered->words.ended[entry]), value)) {
        assert_true(clock_now_nsec() < end);
    }
}

static void expect(struct ordered *ordered, uint64_t request_id, uint32_t status)
{
    struct request_result result = client_wait(&ordered->client);
    assert_int_equal(result.request_id, request_id);
    assert_int_equal(result.status, status);
}

/* With few requests, half of which may wait. */
#define N_REQUESTS 8u

static int set_up_small(void **state)
{
    (void)state;
    struct worker_limits limits = worker_bench_limits;
    limits.requests_max = N_REQUESTS;
    worker_bench_init(&wb, &limits);
    return 0;
}

/* ---- waiting ---- */

static void launched_when_ready(void **state)
{
    (void)state;
    struct ordered ordered;
    ordered_init(&ordered, 1);
    submit(&ordered, 3, 7, 0);
    pause_while_it_sleeps();
    say_ready(&ordered, 3, 6);
    pause_while_it_sleeps();
    assert_int_equal(ring_fill(&ordered.client.lane.complete), 0);
    assert_int_equal(atomic_load(&ordered.words.ended[3]), 0);
    say_ready(&ordered, 3, 7); /* no doorbell rings */
    wait_ended(&ordered, 3, 7);
    assert_int_equal(ring_fill(&ordered.client.lane.complete),
                     1); /* told before it was signalled */
    expect(&ordered, 103, STATUS_OK);
    assert_true(
        bench_is_right(wb.bench.weights[WEIGHT_INT4], &ordered.client.x, &ordered.client.y, 1));
    ordered_finish(&ordered);
}

static void words_that_wrap(void **state)
{
    (void)state;
    struct ordered ordered;
    ordered_init(&ordered, 2);
    atomic_store(&ordered.words.ended[0], UINT32_MAX - 2);
    for (uint32_t value = UINT32_MAX - 1; value != 3; value++) {
        submit(&ordered, 0, value, 0);
        assert_false(order_is_reached(atomic_load(&ordered.words.ended[0]), value));
        say_ready(&ordered, 0, value);
        wait_ended(&ordered, 0, value);
        expect(&ordered, 100, STATUS_OK);
    }
    ordered_finish(&ordered);
}

/* The second of a stream waits for the first; another stream, another session and a request without
 * order wait for nobody. */
static void a_stalled_stream_stalls_alone(void **state)
{
    (void)state;
    struct ordered stalled, other;
    ordered_init(&stalled, 3);
    ordered_init(&other, 4);
    submit(&stalled, 0, 1, 5);
    submit(&stalled, 1, 1, 5);
    submit(&stalled, 2, 1, 6);
    submit(&other, 0, 1, 5);
    say_ready(&stalled, 1, 1);
    say_ready(&other, 0, 1);
    wait_ended(&other, 0, 1);
    say_ready(&stalled, 2, 1);
    wait_ended(&stalled, 2, 1);
    expect(&stalled, 102, STATUS_OK);
    assert_int_equal(client_gemm(&stalled.client, wb.bench.weights[WEIGHT_INT4], 1).status,
                     STATUS_OK);
    assert_int_equal(atomic_load(&stalled.words.ended[1]), 0);
    say_ready(&stalled, 0, 1);
    wait_ended(&stalled, 1, 1);
    expect(&stalled, 100, STATUS_OK);
    expect(&stalled, 101, STATUS_OK);
    ordered_finish(&stalled);
    ordered_finish(&other);
}

static void deadlines_count_from_ready(void **state)
{
    (void)state;
    struct ordered ordered;
    ordered_init(&ordered, 5);
    struct request_desc desc = desc_of(&ordered, 0, 1, 0);
    desc.timeout_usec = PAUSE_NSEC / 1000 / 2;
    client_submit(&ordered.client, &desc);
    pause_while_it_sleeps();
    gate_close(&wb);
    say_ready(&ordered, 0, 1);
    gate_open(&wb);
    expect(&ordered, 100, STATUS_OK);
    ordered_finish(&ordered);
}

/* ---- ends ---- */

static void refusals_are_signalled_at_once(void **state)
{
    (void)state;
    struct ordered ordered;
    ordered_init(&ordered, 6);
    struct request_desc desc = desc_of(&ordered, 1, 1, 0);
    desc.x_offset_bytes = 1ull << 40;
    client_submit(&ordered.client, &desc);
    wait_ended(&ordered, 1, 1);
    expect(&ordered, 101, STATUS_INVALID_ARGUMENT);
    desc = desc_of(&ordered, 2, 1, 0);
    desc.m = 0;
    client_submit(&ordered.client, &desc);
    wait_ended(&ordered, 2, 1);
    expect(&ordered, 102, STATUS_OK);
    ordered_finish(&ordered);
}

static void cancelled_while_it_waits(void **state)
{
    (void)state;
    struct ordered ordered;
    ordered_init(&ordered, 7);
    for (uint32_t i = 0; i < 3; i++) {
        submit(&ordered, i, 1, 0);
    }
    for (uint32_t i = 0; i < 3; i++) { /* from the middle, then both ends */
        uint32_t entry = (i + 1) % 3;
        struct request_desc cancel = {.op = REQUEST_OP_CANCEL, .request_id = 100 + entry};
        client_submit(&ordered.client, &cancel);
        expect(&ordered, 100 + entry, STATUS_CANCELLED);
        wait_ended(&ordered, entry, 1);
    }
    submit(&ordered, 0, 2, 0); /* the stream is as new */
    say_ready(&ordered, 0, 2);
    expect(&ordered, 100, STATUS_OK);
    ordered_finish(&ordered);
}

static void words_out_of_range(void **state)
{
    (void)state;
    struct ordered ordered;
    struct client client;
    ordered_init(&ordered, 8);
    submit(&ordered, N_ENTRIES, 1, 0);
    expect(&ordered, 100 + N_ENTRIES, STATUS_INVALID_ARGUMENT);
    submit(&ordered, 0, 1, ORDER_STREAMS_MAX);
    expect(&ordered, 100, STATUS_INVALID_ARGUMENT);
    struct request_desc desc = desc_of(&ordered, 0, 1, 0);
    assert_int_equal(worker_submit(wb.worker, &ordered.client.identity, &desc, NULL), 0);
    wait_replies(&wb, 1);
    assert_int_equal(wb.replies[0].status, STATUS_UNSUPPORTED);
    client_init(&client, &wb, 9, N_ENTRIES, 1);
    client_submit(&client, &desc);
    struct request_result result = client_wait(&client);
    assert_int_equal(result.status, STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(result.text, "has not opened its words"));
    client_finish(&client);
    ordered_finish(&ordered);
}

/* What waits is dropped with its session. */
static void detached_while_it_waits(void **state)
{
    (void)state;
    struct ordered gone, other;
    struct worker_stats stats;
    ordered_init(&gone, 10);
    ordered_init(&other, 11);
    for (uint32_t i = 0; i < N_ENTRIES; i++) {
        submit(&gone, i, 1, i % 3);
    }
    say_ready(&other, 0, 1);
    submit(&other, 0, 1, 0);
    expect(&other, 100, STATUS_OK); /* so the worker has seen the others */
    ordered_finish(&gone);
    worker_stats(wb.worker, &stats);
    assert_int_equal(stats.n_in_flight, 0);
    ordered_finish(&other);
}

static void drained_while_it_waits(void **state)
{
    (void)state;
    struct ordered ordered;
    ordered_init(&ordered, 12);
    submit(&ordered, 0, 1, 0);
    pause_while_it_sleeps();
    worker_drain(wb.worker);
    wait_ended(&ordered, 0, 1);
    expect(&ordered, 100, STATUS_SHUTTING_DOWN);
    ordered_finish(&ordered);
}

static void stopped_while_it_waits(void **state)
{
    (void)state;
    struct ordered ordered;
    ordered_init(&ordered, 13);
    submit(&ordered, 0, 1, 0);
    pause_while_it_sleeps();
    wb.worker = worker_free(wb.worker);
    assert_int_equal(atomic_load(&ordered.words.ended[0]), 1);
    expect(&ordered, 100, STATUS_SHUTTING_DOWN);
    (void)buffers_free(ordered.client.identity.buffers);
    lane_finish(&ordered.client.lane);
    free(ordered.memory);
}

static void lost_while_it_waits(void **state)
{
    (void)state;
    struct ordered ordered;
    ordered_init(&ordered, 14);
    submit(&ordered, 0, 1, 0);
    submit(&ordered, 1, 1, 1);
    assert_int_equal(fault_inject(&wb.bench.device->fault, STATUS_DEVICE_LOST, 1), 0);
    say_ready(&ordered, 1, 1);
    wait_ended(&ordered, 0, 1);
    wait_ended(&ordered, 1, 1);
    expect(&ordered, 101, STATUS_DEVICE_LOST);
    expect(&ordered, 100, STATUS_DEVICE_LOST);
    ordered_finish(&ordered);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

/* Streams that never get ready leave room for everybody else, and who is refused is let go. */
static void waiting_is_bounded(void **state)
{
    (void)state;
    struct ordered ordered;
    ordered_init(&ordered, 1);
    for (uint32_t i = 0; i < N_REQUESTS / 2; i++) {
        submit(&ordered, i, 7, 0);
    }
    submit(&ordered, N_REQUESTS / 2, 7, 0);
    expect(&ordered, 100 + N_REQUESTS / 2, STATUS_BUSY);
    wait_ended(&ordered, N_REQUESTS / 2, 7);
    struct request_desc plain = desc_of(&ordered, 0, 0, 0);
    plain.flags = 0;
    plain.request_id = 1;
    client_submit(&ordered.client, &plain);
    expect(&ordered, 1, STATUS_OK);
    for (uint32_t i = 0; i < N_REQUESTS / 2; i++) {
        say_ready(&ordered, i, 7);
        expect(&ordered, 100 + i, STATUS_OK);
    }
    submit(&ordered, N_REQUESTS / 2, 8, 0);
    say_ready(&ordered, N_REQUESTS / 2, 8);
    expect(&ordered, 100 + N_REQUESTS / 2, STATUS_OK);
    ordered_finish(&ordered);
}

/* A lane that has its share of the requests, and more in its ring, is no work: streams are looked
 * at now and then meanwhile. */
static void what_is_over_the_share_lets_it_sleep(void **state)
{
    (void)state;
    struct ordered ordered;
    struct client idle;
    struct worker_stats before;
    struct worker_stats after;
    ordered_init(&ordered, 1);
    client_init(&idle, &wb, 2, N_ENTRIES, 70);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        submit(&ordered, i, 7, 0);
    }
    pause_while_it_sleeps();
    worker_stats(wb.worker, &before);
    assert_int_equal(before.n_in_flight, N_REQUESTS / 2);
    pause_while_it_sleeps();
    worker_stats(wb.worker, &after);
    assert_in_range(after.n_sleeps - before.n_sleeps, 1, 1000);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        say_ready(&ordered, i, 7);
        expect(&ordered, 100 + i, STATUS_OK);
    }
    client_finish(&idle);
    ordered_finish(&ordered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(launched_when_ready),
        TEST(words_that_wrap),
        TEST(a_stalled_stream_stalls_alone),
        TEST(deadlines_count_from_ready),
        TEST(refusals_are_signalled_at_once),
        TEST(cancelled_while_it_waits),
        TEST(words_out_of_range),
        TEST(detached_while_it_waits),
        TEST(drained_while_it_waits),
        TEST(stopped_while_it_waits),
        TEST(lost_while_it_waits),
        cmocka_unit_test_setup_teardown(waiting_is_bounded, set_up_small, tear_down),
        cmocka_unit_test_setup_teardown(what_is_over_the_share_lets_it_sleep, set_up_small,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
