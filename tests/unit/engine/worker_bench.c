/* worker_bench.c - see worker_bench.h. */
#include "tests/unit/engine/worker_bench.h"

#include "tests/unit/engine/cmocka_all.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define GATE_SESSION UINT64_MAX
#define K_MAX        320u
#define N_MAX        200u
#define GAP_MAX      16u

const struct worker_limits worker_bench_limits = {
    .requests_max = 256,
    .session_requests_max = 8,
    .rows_max = 4096,
    .spin_usec = 50,
    .mode = SCHED_NATURAL,
};

/* ---- callbacks ---- */

static void wait_at_gate(struct worker_bench *wb)
{
    uint32_t number = ++wb->n_gates_reached;
    (void)pthread_cond_broadcast(&wb->changed);
    while (wb->n_gates_open < number) {
        (void)pthread_cond_wait(&wb->changed, &wb->mutex);
    }
}

static void on_reply(void *arg, uint64_t session_id, const struct request_result *result)
{
    struct worker_bench *wb = arg;
    (void)pthread_mutex_lock(&wb->mutex);
    if (session_id == GATE_SESSION) {
        wait_at_gate(wb);
    } else {
        assert_true(wb->n_replies < REPLIES_MAX);
        wb->replies[wb->n_replies++] = *result;
    }
    (void)pthread_cond_broadcast(&wb->changed);
    (void)pthread_mutex_unlock(&wb->mutex);
}

static void on_detached(void *arg, uint64_t session_id)
{
    struct worker_bench *wb = arg;
    (void)pthread_mutex_lock(&wb->mutex);
    wb->last_detached = session_id;
    wb->n_detached++;
    (void)pthread_cond_broadcast(&wb->changed);
    (void)pthread_mutex_unlock(&wb->mutex);
}

static void on_fatal(void *arg, const struct reason *why)
{
    struct worker_bench *wb = arg;
    assert_int_equal(why->status, STATUS_DEVICE_LOST);
    (void)pthread_mutex_lock(&wb->mutex);
    wb->n_fatal++;
    (void)pthread_mutex_unlock(&wb->mutex);
}

/* ---- the worker ---- */

static void change_nothing(struct device *device)
{
    (void)device;
}

void worker_bench_init(struct worker_bench *wb, const struct worker_limits *limits)
{
    worker_bench_init_on(wb, limits, change_nothing);
}

void worker_bench_init_on(struct worker_bench *wb, const struct worker_limits *limits,
                          void (*change)(struct device *device))
{
    *wb = (struct worker_bench){0};
    bench_init(&wb->bench, 2);
    change(wb->bench.device);
    (void)pthread_mutex_init(&wb->mutex, NULL);
    (void)pthread_cond_init(&wb->changed, NULL);
    struct worker_callbacks callbacks = {wb, on_reply, on_detached, on_fatal, &wb->stats};
    assert_int_equal(worker_new(wb->bench.device, wb->bench.store, limits, &callbacks, &wb->worker),
                     0);
}

void worker_bench_finish(struct worker_bench *wb)
{
    wb->worker = worker_free(wb->worker);
    assert_null(wb->worker);
    bench_finish(&wb->bench);
    (void)pthread_cond_destroy(&wb->changed);
    (void)pthread_mutex_destroy(&wb->mutex);
}

void gate_send(struct worker_bench *wb)
{
    struct worker_client gate = {.session_id = GATE_SESSION};
    struct place nothing = {.dtype = DTYPE_F32};
    struct request_desc desc = bench_desc(wb->bench.weights[0], 0, 0, &nothing, &nothing);
    wb->n_gates++;
    assert_int_equal(worker_submit(wb->worker, &gate, &desc, NULL), 0);
}

void gate_wait(struct worker_bench *wb)
{
    (void)pthread_mutex_lock(&wb->mutex);
    while (wb->n_gates_reached < wb->n_gates) {
        (void)pthread_cond_wait(&wb->changed, &wb->mutex);
    }
    (void)pthread_mutex_unlock(&wb->mutex);
}

void gate_close(struct worker_bench *wb)
{
    gate_send(wb);
    gate_wait(wb);
}

void gate_open(struct worker_bench *wb)
{
    (void)pthread_mutex_lock(&wb->mutex);
    wb->n_gates_open++;
    (void)pthread_cond_broadcast(&wb->changed);
    (void)pthread_mutex_unlock(&wb->mutex);
}

static void wait_count(struct worker_bench *wb, const uint32_t *count, uint32_t n)
{
    (void)pthread_mutex_lock(&wb->mutex);
    while (*count < n) {
        (void)pthread_cond_wait(&wb->changed, &wb->mutex);
    }
    assert_int_equal(*count, n);
    (void)pthread_mutex_unlock(&wb->mutex);
}

void wait_replies(struct worker_bench *wb, uint32_t n)
{
    wait_count(wb, &wb->n_replies, n);
}

void wait_detached(struct worker_bench *wb, uint32_t n)
{
    wait_count(wb, &wb->n_detached, n);
}

/* ---- clients ---- */

void client_init(struct client *client, struct worker_bench *wb, uint64_t session_id,
                 uint32_t n_entries, uint32_t rows_max)
{
    *client = (struct client){.owner = wb, .identity = {session_id, bench_buffers()}};
    struct lane lane = LANE_NULL;
    assert_int_equal(lane_create(&lane, n_entries, 0), 0);
    assert_int_equal(lane_attach(&client->lane, fcntl(lane.region.fd, F_DUPFD_CLOEXEC, 0),
                                 fcntl(lane.doorbell_fd, F_DUPFD_CLOEXEC, 0), NULL),
                     0);
    client->x.buffer_id = bench_add(&wb->bench, client->identity.buffers,
                                    (uint64_t)rows_max * (K_MAX + GAP_MAX) * 4, &client->x.base);
    client->y.buffer_id = bench_add(&wb->bench, client->identity.buffers,
                                    (uint64_t)rows_max * (N_MAX + GAP_MAX) * 4, &client->y.base);
    assert_int_equal(worker_attach(wb->worker, &client->identity, &lane), 0);
    assert_int_equal(lane.doorbell_fd, -1);
}

void client_finish(struct client *client)
{
    uint32_t n_detached = client->owner->n_detached;
    worker_detach(client->owner->worker, client->identity.session_id);
    wait_detached(client->owner, n_detached + 1);
    assert_int_equal(client->owner->last_detached, client->identity.session_id);
    (void)buffers_free(client->identity.buffers);
    lane_finish(&client->lane);
}

void client_use(struct client *client, const struct weight *weight, uint32_t m, uint32_t gap_elems,
                enum dtype x_dtype, enum dtype y_dtype, uint32_t seed)
{
    client->x.dtype = x_dtype;
    client->x.stride_elems = weight->desc.k + gap_elems;
    client->y.dtype = y_dtype;
    client->y.stride_elems = weight->desc.n + gap_elems;
    bench_fill(&client->x, m, weight->desc.k, seed);
    memset(client->y.base, 0xff, (uint64_t)(m + 1) * client->y.stride_elems * dtype_bytes(y_dtype));
}

void client_submit(struct client *client, const struct request_desc *desc)
{
    assert_int_equal(lane_submit(&client->lane, desc), RING_OK);
}

struct request_result client_wait(struct client *client)
{
    struct request_result result;
    assert_int_equal(lane_wait_completion(&client->lane, 20, 20000000), 0);
    assert_int_equal(ring_pop(&client->lane.complete, &result), RING_OK);
    return result;
}

struct request_result client_gemm(struct client *client, const struct weight *weight, uint32_t m)
{
    struct request_desc desc = bench_desc(weight, 77, m, &client->x, &client->y);
    client_submit(client, &desc);
    struct request_result result = client_wait(client);
    assert_int_equal(result.request_id, 77);
    return result;
}
