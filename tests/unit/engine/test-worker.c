/* test-worker.c - products through the worker: right bits whatever they were batched with, in
 * place, for any number of clients at once. */
#include "tests/unit/engine/cmocka_all.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ipc/base/clock.h"
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

/* The gaps between rows of y still hold the poison. */
static bool gaps_are_untouched(const struct place *y, uint32_t n, uint32_t m)
{
    uint32_t elem_bytes = dtype_bytes(y->dtype);
    for (uint64_t i_row = 0; i_row < m; i_row++) {
        const uint8_t *gap = y->base + (i_row * y->stride_elems + n) * elem_bytes;
        for (uint64_t i = 0; i < (y->stride_elems - n) * elem_bytes; i++) {
            if (gap[i] != 0xff) {
                return false;
            }
        }
    }
    return y->base[m * y->stride_elems * elem_bytes] == 0xff;
}

static void check_gemm(struct client *client, const struct weight *weight, uint32_t m,
                       enum dtype x_dtype, enum dtype y_dtype)
{
    client_use(client, weight, m, 5, x_dtype, y_dtype, m + 1);
    struct request_result result = client_gemm(client, weight, m);
    assert_int_equal(result.status, STATUS_OK);
    assert_string_equal(result.text, "");
    assert_true(bench_is_right(weight, &client->x, &client->y, m));
    assert_true(gaps_are_untouched(&client->y, weight->desc.n, m));
}

/* T02, T20, T30: every row has the bits that it has alone, whatever m; nothing else is written. */
static void all_row_counts(void **state)
{
    (void)state;
    static const uint32_t counts[] = {0,  1,  7,  8, 15, 16,  17,  31,  32,  33,
                                      63, 64, 65, 0, 3,  127, 128, 129, 257, 1024};
    struct client client;
    client_init(&client, &wb, 1, 16, 1025);
    for (uint32_t i_weight = 0; i_weight < N_WEIGHTS; i_weight++) {
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            check_gemm(&client, wb.bench.weights[i_weight], counts[i], DTYPE_F32, DTYPE_F32);
        }
    }
    client_finish(&client);
}

static void all_types(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    struct client client;
    client_init(&client, &wb, 1, 16, 20);
    for (uint32_t i = 0; i < 9; i++) {
        check_gemm(&client, wb.bench.weights[WEIGHT_INT4], 19, dtypes[i / 3], dtypes[i % 3]);
        check_gemm(&client, wb.bench.weights[WEIGHT_PLAIN], 19, dtypes[i / 3], dtypes[i % 3]);
    }
    client_finish(&client);
}

/* ---- batches of several clients ---- */

static void waiting_rows_share_a_launch(void **state)
{
    (void)state;
    enum { N = 5 };
    const struct weight *weight = wb.bench.weights[WEIGHT_INT4];
    struct client clients[N];
    struct worker_stats before;
    struct worker_stats after;
    for (uint32_t i = 0; i < N; i++) {
        client_init(&clients[i], &wb, 10 + i, 16, 8);
        client_use(&clients[i], weight, i + 1, 3, DTYPE_F16, DTYPE_F16, 100 + i);
    }
    gate_close(&wb);
    worker_stats(wb.worker, &before);
    for (uint32_t i = 0; i < N; i++) {
        struct request_desc desc =
            bench_desc(weight, 1000 + i, i + 1, &clients[i].x, &clients[i].y);
        client_submit(&clients[i], &desc);
    }
    gate_open(&wb);
    for (uint32_t i = 0; i < N; i++) {
        struct request_result result = client_wait(&clients[i]);
        assert_int_equal(result.request_id, 1000 + i);
        assert_int_equal(result.status, STATUS_OK);
        assert_int_equal(result.batch_rows, 15);
        assert_int_equal(result.batch_requests, N);
        assert_int_equal(result.batch_sessions, N);
        assert_true(bench_is_right(weight, &clients[i].x, &clients[i].y, i + 1));
        assert_true(gaps_are_untouched(&clients[i].y, weight->desc.n, i + 1));
    }
    worker_stats(wb.worker, &after);
    assert_int_equal(after.n_launches - before.n_launches, 1);
    assert_int_equal(after.n_shared_launches - before.n_shared_launches, 1);
    assert_int_equal(after.launches_by_rows[4] - before.launches_by_rows[4], 1);
    assert_int_equal(after.n_rows - before.n_rows, 15);
    for (uint32_t i = 0; i < N; i++) {
        client_finish(&clients[i]);
    }
}

struct sender {
    struct client client;
    pthread_t thread;
    uint32_t n_wrong;
};

/* T31: 10, 2, 10 rows, each sequence laid out side by side and sent at once. */
static void *send_sequences(void *arg)
{
    static const uint32_t counts[] = {10, 2, 10, 64, 1, 64, 17, 0, 17};
    struct sender *sender = arg;
    struct client *client = &sender->client;
    for (uint32_t i = 0; i < 60; i++) {
        const struct weight *weight = wb.bench.weights[i % 4 == 0 ? WEIGHT_PLAIN : WEIGHT_INT4];
        uint64_t seed = client->identity.session_id * 1000 + i;
        client_use(client, weight, 192, 0, DTYPE_F32, DTYPE_F32, (uint32_t)seed);
        uint32_t i_row = 0;
        struct place xs[3];
        struct place ys[3];
        for (uint32_t j = 0; j < 3; j++) {
            uint32_t m = counts[i % 3 * 3 + j];
            xs[j] = client->x;
            xs[j].offset_bytes = i_row * client->x.stride_elems * 4;
            ys[j] = client->y;
            ys[j].offset_bytes = i_row * client->y.stride_elems * 4;
            struct request_desc desc = bench_desc(weight, j, m, &xs[j], &ys[j]);
            client_submit(client, &desc);
            i_row += m;
        }
        for (uint32_t j = 0; j < 3; j++) {
            sender->n_wrong += client_wait(client).status != STATUS_OK;
        }
        for (uint32_t j = 0; j < 3; j++) {
            sender->n_wrong += !bench_is_right(weight, &xs[j], &ys[j], counts[i % 3 * 3 + j]);
        }
        sender->n_wrong += client->y.base[i_row * client->y.stride_elems * 4] != 0xff;
    }
    return NULL;
}

static void three_clients_at_once(void **state)
{
    (void)state;
    struct sender senders[3] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        client_init(&senders[i].client, &wb, 20 + i, 16, 200);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_sequences, &senders[i]), 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(senders[i].thread, NULL), 0);
        assert_int_equal(senders[i].n_wrong, 0);
        client_finish(&senders[i].client);
    }
}

static void without_batching_nothing_is_shared(void **state)
{
    (void)state;
    struct worker_bench alone;
    struct worker_limits limits = worker_bench_limits;
    limits.mode = SCHED_OFF;
    worker_bench_init(&alone, &limits);
    const struct weight *weight = alone.bench.weights[WEIGHT_INT4];
    struct client clients[3];
    for (uint32_t i = 0; i < 3; i++) {
        client_init(&clients[i], &alone, 30 + i, 16, 2);
        client_use(&clients[i], weight, 1, 0, DTYPE_F32, DTYPE_F32, i);
    }
    gate_close(&alone);
    for (uint32_t i = 0; i < 3; i++) {
        struct request_desc desc = bench_desc(weight, i, 1, &clients[i].x, &clients[i].y);
        client_submit(&clients[i], &desc);
    }
    gate_open(&alone);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(client_wait(&clients[i]).batch_requests, 1);
        assert_true(bench_is_right(weight, &clients[i].x, &clients[i].y, 1));
        client_finish(&clients[i]);
    }
    worker_bench_finish(&alone);
}

/* ---- prefill ---- */

static void decode_does_not_wait_for_a_whole_prefill(void **state)
{
    (void)state;
    const struct weight *weight = wb.bench.weights[WEIGHT_INT4];
    struct client clients[2];
    client_init(&clients[0], &wb, 40, 16, 2049);
    client_init(&clients[1], &wb, 41, 16, 2);
    client_use(&clients[0], weight, 2048, 1, DTYPE_F16, DTYPE_F32, 1);
    client_use(&clients[1], weight, 1, 0, DTYPE_F16, DTYPE_F32, 2);
    gate_close(&wb);
    for (uint32_t i = 0; i < 2; i++) {
        struct request_desc desc =
            bench_desc(weight, i, i == 0 ? 2048 : 1, &clients[i].x, &clients[i].y);
        client_submit(&clients[i], &desc);
    }
    gate_open(&wb);
    struct request_result prefill = client_wait(&clients[0]);
    struct request_result decode = client_wait(&clients[1]);
    assert_int_equal(prefill.status, STATUS_OK);
    assert_int_equal(decode.status, STATUS_OK);
    /* Both were seen in one pass, the prefill first: the times count from the same moment. */
    assert_true(decode.queue_nsec + decode.run_nsec < prefill.queue_nsec + prefill.run_nsec);
    assert_true(bench_is_right(weight, &clients[0].x, &clients[0].y, 2048));
    assert_true(bench_is_right(weight, &clients[1].x, &clients[1].y, 1));
    client_finish(&clients[0]);
    client_finish(&clients[1]);
}

/* ---- buffers ---- */

/* T22, T23: one memory under two ids, 64 requests on slices of it at once through both. */
static void two_names_for_one_memory(void **state)
{
    (void)state;
    const struct weight *weight = wb.bench.weights[WEIGHT_PLAIN];
    struct client client;
    client_init(&client, &wb, 50, 64, 70);
    client_use(&client, weight, 64, 0, DTYPE_F32, DTYPE_F32, 9);
    void *base;
    uint64_t n_bytes;
    struct region twin = REGION_NULL;
    struct region first = REGION_NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    uint64_t twin_ids[2];
    /* A second buffer pair: one memfd, imported twice. */
    assert_int_equal(wb.bench.device->ops->region_new(wb.bench.device, "pair", 65536, &first, NULL),
                     0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wb.bench.device->ops->region_import(wb.bench.device,
                                                             fcntl(first.fd, F_DUPFD_CLOEXEC, 0),
                                                             65536, &twin, NULL),
                         0);
        assert_int_equal(buffers_add(client.identity.buffers, wb.bench.device, &twin, &charge,
                                     &twin_ids[i], NULL),
                         0);
    }
    struct place x = client.x;
    struct place ys[64];
    for (uint32_t i = 0; i < 64; i++) {
        ys[i] = (struct place){.buffer_id = twin_ids[i % 2],
                               .base = first.base,
                               .offset_bytes = i * 72 * 4,
                               .stride_elems = 72,
                               .dtype = DTYPE_F32};
        x.offset_bytes = i * client.x.stride_elems * 4;
        struct request_desc desc = bench_desc(weight, i, 1, &x, &ys[i]);
        client_submit(&client, &desc);
    }
    assert_int_equal(buffers_remove(client.identity.buffers, twin_ids[0], NULL), 0);
    uint32_t n_ok = 0;
    uint32_t n_gone = 0;
    for (uint32_t i = 0; i < 64; i++) {
        struct request_result result = client_wait(&client);
        x.offset_bytes = result.request_id * client.x.stride_elems * 4;
        if (result.status == STATUS_OK) {
            n_ok++;
            assert_true(bench_row_is_right(weight, &x, &ys[result.request_id], 0));
        } else { /* taken after the name was gone */
            assert_int_equal(result.status, STATUS_NOT_FOUND);
            assert_int_equal(result.request_id % 2, 0);
            n_gone++;
        }
    }
    assert_true(n_ok >= 32);
    assert_int_equal(n_ok + n_gone, 64);
    assert_null(buffers_acquire(client.identity.buffers, twin_ids[0], &base, &n_bytes));
    wb.bench.device->ops->region_free(wb.bench.device, &first);
    client_finish(&client);
}

/* T25 (a): the buffers are removed while a long request uses them. */
static void buffers_removed_under_a_long_request(void **state)
{
    (void)state;
    const struct weight *weight = wb.bench.weights[WEIGHT_INT4];
    struct client client;
    struct worker_stats stats;
    client_init(&client, &wb, 60, 16, 4097);
    client_use(&client, weight, 4096, 0, DTYPE_F32, DTYPE_F32, 3);
    worker_stats(wb.worker, &stats);
    uint64_t n_before = stats.n_launches;
    struct request_desc desc = bench_desc(weight, 1, 4096, &client.x, &client.y);
    client_submit(&client, &desc);
    do { /* until it runs */
        worker_stats(wb.worker, &stats);
    } while (stats.n_launches == n_before);
    assert_int_equal(buffers_remove(client.identity.buffers, client.y.buffer_id, NULL), 0);
    assert_int_equal(buffers_remove(client.identity.buffers, client.x.buffer_id, NULL), 0);
    assert_int_equal(client_wait(&client).status, STATUS_OK);
    for (uint32_t i = 0; i < 4096; i += 63) {
        assert_true(bench_row_is_right(weight, &client.x, &client.y, i));
    }
    client_finish(&client);
}

/* ---- how quick, how quiet ---- */

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* No judgement: the figure is printed for people. Both sides poll, in one process. */
static void round_trip(void **state)
{
    (void)state;
    enum { N = 2000 };
    static uint64_t nsec[2][N];
    struct client client;
    const struct weight *weight = wb.bench.weights[WEIGHT_PLAIN];
    client_init(&client, &wb, 70, 16, 2);
    client_use(&client, weight, 1, 0, DTYPE_F32, DTYPE_F32, 1);
    for (uint32_t m = 0; m < 2; m++) {
        for (uint32_t i = 0; i < N; i++) {
            struct request_desc desc = bench_desc(weight, i, m, &client.x, &client.y);
            struct request_result result;
            uint64_t start_nsec = clock_now_nsec();
            client_submit(&client, &desc);
            while (ring_pop(&client.lane.complete, &result) != RING_OK) {
            }
            nsec[m][i] = clock_now_nsec() - start_nsec;
            assert_int_equal(result.request_id, i);
            assert_int_equal(result.status, STATUS_OK);
        }
        qsort(nsec[m], N, sizeof(nsec[m][0]), compare_u64);
        print_message("round trip, m = %u, plain 72 x 96: p50 %.2f us, p99 %.2f us\n", m,
                      (double)nsec[m][N / 2] * 1e-3, (double)nsec[m][N * 99 / 100] * 1e-3);
    }
    client_finish(&client);
}

static uint64_t total_of(const struct stats_times *times)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < STATS_TIME_BUCKETS; i++) {
        n += stats_read(&times->counts[i]);
    }
    return n;
}

/* Each launch is in one histogram of one kind of weight, each served request in two. */
static void figures_add_up(void **state)
{
    (void)state;
    struct client client;
    client_init(&client, &wb, 70, 16, 100);
    check_gemm(&client, wb.bench.weights[WEIGHT_INT4], 100, DTYPE_F32, DTYPE_F32);
    check_gemm(&client, wb.bench.weights[WEIGHT_INT4], 5, DTYPE_F32, DTYPE_F32);
    client_finish(&client);
    const struct stats_worker *stats = &wb.stats;
    const struct stats_times *kernels = &stats->kernel[0][0][0]; /* all of them */
    uint64_t n_kernels = 0, n_rows = 0, kernel_nsec = 0;
    for (uint32_t i = 0; i < STATS_CODES * STATS_ACTS * STATS_ROW_BUCKETS; i++) {
        n_kernels += total_of(&kernels[i]);
        kernel_nsec += stats_read(&kernels[i].sum_nsec);
    }
    for (uint32_t i = 0; i < STATS_ROW_BUCKETS; i++) {
        n_rows += stats_read(&stats->launches_by_rows[i]);
    }
    assert_int_equal(n_kernels, stats_read(&stats->n_launches));
    assert_int_equal(n_rows, stats_read(&stats->n_launches));
    assert_int_equal(total_of(&stats->stall), stats_read(&stats->n_launches));
    assert_int_equal(kernel_nsec, stats_read(&stats->busy_nsec));
    assert_true(total_of(&stats->kernel[GK_CODE_U4][0][STATS_ROW_BUCKETS - 1]) >= 2);
    assert_true(total_of(&stats->kernel[GK_CODE_U4][0][3]) >= 1);
    assert_int_equal(stats_read(&stats->launch_rows), stats_read(&stats->n_rows));
    assert_int_equal(total_of(&stats->queue), total_of(&stats->request));
    assert_true(stats_read(&stats->request.sum_nsec) > stats_read(&stats->queue.sum_nsec));
}

static void idle_worker_uses_no_cpu(void **state)
{
    (void)state;
    struct client client;
    client_init(&client, &wb, 80, 16, 2);
    check_gemm(&client, wb.bench.weights[WEIGHT_INT4], 1, DTYPE_F32, DTYPE_F32);
    (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    struct worker_stats stats;
    worker_stats(wb.worker, &stats);
    assert_true(stats.n_sleeps > 0);
    assert_int_equal(stats.n_in_flight, 0);
    struct timespec before;
    struct timespec after;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after), 0);
    double used =
        (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    assert_true(used < 0.02);
    /* And the doorbell wakes it. */
    check_gemm(&client, wb.bench.weights[WEIGHT_INT4], 3, DTYPE_F32, DTYPE_F32);
    client_finish(&client);
}

/* Neither side polls: every request and every completion needs its wake-up. */
static void no_wake_up_is_lost(void **state)
{
    (void)state;
    struct worker_bench sleepy;
    struct worker_limits limits = worker_bench_limits;
    limits.spin_usec = 0;
    worker_bench_init(&sleepy, &limits);
    struct client clients[2];
    for (uint32_t i = 0; i < 2; i++) {
        client_init(&clients[i], &sleepy, 90 + i, 16, 2);
    }
    for (uint64_t id = 0; id < 3000; id++) {
        for (uint32_t i = 0; i < 2; i++) {
            struct request_desc desc =
                bench_desc(sleepy.bench.weights[0], id, 0, &clients[i].x, &clients[i].y);
            desc.x_dtype = desc.y_dtype = DTYPE_F32;
            client_submit(&clients[i], &desc);
        }
        for (uint32_t i = 0; i < 2; i++) {
            struct request_result result;
            assert_int_equal(lane_wait_completion(&clients[i].lane, 0, 20000000), 0);
            assert_int_equal(ring_pop(&clients[i].lane.complete, &result), RING_OK);
            assert_int_equal(result.request_id, id);
            assert_int_equal(result.status, STATUS_OK);
        }
    }
    client_finish(&clients[0]);
    client_finish(&clients[1]);
    worker_bench_finish(&sleepy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_row_counts),
        cmocka_unit_test(all_types),
        cmocka_unit_test(waiting_rows_share_a_launch),
        cmocka_unit_test(three_clients_at_once),
        cmocka_unit_test(without_batching_nothing_is_shared),
        cmocka_unit_test(decode_does_not_wait_for_a_whole_prefill),
        cmocka_unit_test(two_names_for_one_memory),
        cmocka_unit_test(buffers_removed_under_a_long_request),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(figures_add_up),
        cmocka_unit_test(idle_worker_uses_no_cpu),
        cmocka_unit_test(no_wake_up_is_lost),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
