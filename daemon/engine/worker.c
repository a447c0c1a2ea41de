/* worker.c - setting up, the loop, going to sleep, tearing down.
 *
 * The loop never blocks but in sleep(). A pass takes a few requests of each lane, then starts one
 * launch: what arrives during a launch shares the next one. */
#include "daemon/engine/worker_internal.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"
#include "ipc/base/num.h"

/* A client that frees a completion rings no doorbell, so a worker that sleeps while a lane has no
 * free completion looks again after that long. libgemmd never lets it come to that. Nor is there a
 * ring when one that has all the requests it may have could take more. */
#define STALLED_LOOK_NSEC (5u * (uint64_t)CLOCK_NSEC_PER_MSEC)

/* Nor does a stream that becomes ready: while one is waited for, the worker polls that long as long
 * as streams keep coming in that time, and looks again after a millisecond otherwise. */
#define ORDER_SPIN_USEC 5000u
#define ORDER_LOOK_NSEC (1u * (uint64_t)CLOCK_NSEC_PER_MSEC)

/* Passes that a stopping worker makes to answer what is still in the rings; more than a ring holds,
 * and an end to a client that never stops submitting. */
#define STOPPING_PASSES 256u

/* What the scheduler can know at once: some tens of models, and as many sessions on each. */
#define SCHED_WEIGHTS 16384u
#define SCHED_EDGES   32768u

/* A hold that ends sooner is waited for awake: a sleeper is woken late by as much. */
#define HOLD_AWAKE_NSEC (100u * (uint64_t)CLOCK_NSEC_PER_USEC)
#define POLLS_PER_YIELD 64u

/* ---- the loop ---- */

static bool pass(struct worker *worker)
{
    bool has_worked = inbox_take(worker);
    has_worked |= intake_poll(worker);
    has_worked |= order_poll(worker, worker_door_status(worker));
    has_worked |= intake_expire(worker);
    has_worked |= batch_launch(worker);
    has_worked |= armed_poll(worker);
    has_worked |= batch_poll(worker);
    return has_worked;
}

/* Tell every client that the worker sleeps; false if one of them was quicker. */
static bool raise_flags(struct worker *worker, bool *ret_has_stalled)
{
    bool is_quiet = inbox_sleep_begin(worker);
    bool has_stalled = false;
    list_for_each (node, &worker->lanes) {
        struct worker_session *session = LIST_OWNER(node, struct worker_session, in_lanes);
        bool is_empty = lane_sleep_begin(&session->lane);
        bool is_stalled = intake_is_stalled(session) || intake_is_full(worker, session);
        has_stalled |= is_stalled;
        is_quiet &= is_empty || is_stalled;
    }
    *ret_has_stalled = has_stalled;
    return is_quiet;
}

static void lower_flags(struct worker *worker)
{
    inbox_sleep_end(worker);
    list_for_each (node, &worker->lanes) {
        lane_sleep_end(&LIST_OWNER(node, struct worker_session, in_lanes)->lane);
    }
}

/* Until a doorbell, a message, or the time that something is held for. An epoll fd is readable
 * when one of its own is, and ppoll() counts nanoseconds. */
static void wait_for_fds(struct worker *worker, uint64_t timeout_nsec)
{
    struct epoll_event events[16];
    struct pollfd any = {.fd = worker->epoll_fd, .events = POLLIN};
    struct timespec timeout = {.tv_sec = (time_t)(timeout_nsec / CLOCK_NSEC_PER_SEC),
                               .tv_nsec = (long)(timeout_nsec % CLOCK_NSEC_PER_SEC)};
    if (ppoll(&any, 1, timeout_nsec == UINT64_MAX ? NULL : &timeout, NULL) > 0) {
        (void)epoll_wait(worker->epoll_fd, events, 16, 0);
    }
}

static uint64_t held_nsec(const struct worker *worker)
{
    uint64_t now_nsec = clock_now_nsec();
    return worker->wake_nsec > now_nsec ? worker->wake_nsec - now_nsec : 0;
}

static void sleep_for_news(struct worker *worker)
{
    bool has_stalled;
    if (raise_flags(worker, &has_stalled)) {
        stats_add(&worker->counters->n_sleeps, 1);
        uint64_t timeout_nsec = has_stalled ? STALLED_LOOK_NSEC : UINT64_MAX;
        if (!list_is_empty(&worker->orders)) {
            timeout_nsec = ORDER_LOOK_NSEC;
        }
        if (worker->wake_nsec != UINT64_MAX) {
            timeout_nsec = num_min(timeout_nsec, held_nsec(worker));
        }
        wait_for_fds(worker, timeout_nsec);
    }
    lower_flags(worker);
}

/* The device is free, but what waits is held for a moment: look on, and offer the CPU to those who
 * are waited for. */
static void look_on(struct worker *worker)
{
    for (uint32_t i = 0; !pass(worker); i++) {
        spin_pause();
        if (i % POLLS_PER_YIELD == POLLS_PER_YIELD - 1) {
            (void)sched_yield();
            return;
        }
    }
}

static struct spin_wait begin_wait(struct worker *worker)
{
    uint32_t usec = worker->limits.spin_usec;
    return list_is_empty(&worker->orders)
               ? spin_begin(&worker->spin, usec)
               : spin_begin(&worker->order_spin, usec > 0 ? ORDER_SPIN_USEC : 0);
}

/* With nothing to do: poll as long as that pays, then sleep. */
static void wait_for_work(struct worker *worker)
{
    if (worker->wake_nsec != UINT64_MAX && held_nsec(worker) < HOLD_AWAKE_NSEC) {
        look_on(worker);
        return;
    }
    struct spin_wait wait = begin_wait(worker);
    while (spin_again(&wait)) {
        if (pass(worker)) {
            spin_hit(&wait);
            return;
        }
    }
    sleep_for_news(worker);
}

static void loop(struct worker *worker)
{
    while (!atomic_load_explicit(&worker->is_stopping, memory_order_acquire)) {
        if (!pass(worker) && worker->n_busy_batches == 0) {
            wait_for_work(worker);
        }
    }
}

/* Answer everything that waits, in queues and in rings, and let the device finish. */
static void stop(struct worker *worker)
{
    batch_refuse_all(worker, STATUS_SHUTTING_DOWN, status_text(STATUS_SHUTTING_DOWN));
    for (uint32_t i = 0; i < STOPPING_PASSES && pass(worker); i++) {
    }
    while (worker->n_busy_batches > 0) {
        (void)batch_poll(worker);
    }
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    log_write(LOG_LEVEL_INFO, "worker", "worker of device %s started", worker->device->name);
    loop(worker);
    stop(worker);
    log_write(LOG_LEVEL_INFO, "worker", "worker of device %s stopped", worker->device->name);
    return NULL;
}

/* ---- setting up and tearing down ---- */

static void fill_pools(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->limits.requests_max; i++) {
        list_append(&worker->free_requests, &worker->requests[i].in_session);
    }
    for (uint32_t i = 0; i < worker->n_request_buckets; i++) {
        list_init(&worker->request_buckets[i]);
    }
    for (uint32_t i = 0; i < WORKER_SESSION_BUCKETS; i++) {
        list_init(&worker->sessions[i]);
    }
}

static int alloc_memory(struct worker *worker)
{
    worker->n_request_buckets = 16;
    while (worker->n_request_buckets < worker->limits.requests_max &&
           worker->n_request_buckets < 1u << 30) {
        worker->n_request_buckets *= 2;
    }
    worker->requests = calloc(worker->limits.requests_max, sizeof(*worker->requests));
    worker->request_buckets = calloc(worker->n_request_buckets, sizeof(struct list));
    worker->batches = calloc(worker_batches(worker->device), sizeof(*worker->batches));
    if (worker->requests == NULL || worker->request_buckets == NULL || worker->batches == NULL) {
        return err_raise(-ENOMEM);
    }
    fill_pools(worker);
    struct sched_limits limits = {
        .items_max = worker->limits.requests_max,
        .rows_max = GK_BATCH_ROWS_MAX,
        .batch_items_max = GK_BATCH_ROWS_MAX,
        .weights_max = SCHED_WEIGHTS,
        .edges_max = SCHED_EDGES,
        .mode = worker->limits.mode,
    };
    return sched_new(&limits, &worker->sched);
}

static int open_fds(struct worker *worker)
{
    worker->inbox_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->inbox_fd < 0) {
        return err_raise(-errno);
    }
    worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (worker->epoll_fd < 0) {
        return err_raise(-errno);
    }
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, worker->inbox_fd, &event) != 0) {
        return err_raise(-errno);
    }
    ssize_t n = getrandom(&worker->hash_secret, sizeof(worker->hash_secret), 0);
    return n == sizeof(worker->hash_secret) ? 0 : err_raise(-EIO);
}

static int set_up(struct worker *worker)
{
    (void)pthread_mutex_init(&worker->inbox_mutex, NULL);
    list_init(&worker->inbox);
    list_init(&worker->lanes);
    list_init(&worker->orders);
    worker->wake_nsec = UINT64_MAX;
    list_init(&worker->free_requests);
    int r = alloc_memory(worker);
    return r != 0 ? r : open_fds(worker);
}

static void tear_down(struct worker *worker)
{
    (void)sched_free(worker->sched);
    if (worker->epoll_fd >= 0) {
        (void)close(worker->epoll_fd);
    }
    if (worker->inbox_fd >= 0) {
        (void)close(worker->inbox_fd);
    }
    free(worker->batches);
    free(worker->request_buckets);
    free(worker->requests);
    (void)pthread_mutex_destroy(&worker->inbox_mutex);
    free(worker);
}

int worker_new(struct device *device, struct store *store, const struct worker_limits *limits,
               const struct worker_callbacks *callbacks, struct worker **ret_worker)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    if (worker == NULL) {
        return err_raise(-ENOMEM);
    }
    worker->device = device;
    worker->store = store;
    worker->limits = *limits;
    worker->callbacks = *callbacks;
    worker->counters = callbacks->stats;
    worker->inbox_fd = -1;
    worker->epoll_fd = -1;
    int r = set_up(worker);
    if (r == 0) {
        r = err_raise(-pthread_create(&worker->thread, NULL, worker_main, worker));
    }
    if (r != 0) {
        tear_down(worker);
        return r;
    }
    (void)pthread_setname_np(worker->thread, "gemmd-worker");
    *ret_worker = worker;
    return 0;
}

static void free_sessions(struct worker *worker)
{
    for (uint32_t i = 0; i < WORKER_SESSION_BUCKETS; i++) {
        for (struct list *node; (node = list_pop(&worker->sessions[i])) != NULL;) {
            struct worker_session *session = LIST_OWNER(node, struct worker_session, in_table);
            lane_finish(&session->lane);
            free(session->order);
            free(session);
        }
    }
}

struct worker *worker_free(struct worker *worker)
{
    if (worker == NULL) {
        return NULL;
    }
    atomic_store(&worker->is_stopping, true);
    inbox_wake(worker);
    (void)pthread_join(worker->thread, NULL);
    free_sessions(worker);
    tear_down(worker);
    return NULL;
}

/* ---- statistics ---- */

void worker_stats(struct worker *worker, struct worker_stats *ret_stats)
{
    const struct stats_worker *counters = worker->counters;
    *ret_stats = (struct worker_stats){
        .n_requests = stats_read(&counters->n_requests),
        .n_ok = stats_read(&counters->n_ok),
        .n_refused = stats_read(&counters->n_refused),
        .n_cancelled = stats_read(&counters->n_cancelled),
        .n_timed_out = stats_read(&counters->n_timed_out),
        .n_failed = stats_read(&counters->n_failed),
        .n_rows = stats_read(&counters->n_rows),
        .n_launches = stats_read(&counters->n_launches),
        .n_shared_launches = stats_read(&counters->n_shared_launches),
        .busy_nsec = stats_read(&counters->busy_nsec),
        .queue_nsec = stats_read(&counters->queue.sum_nsec),
        .n_sleeps = stats_read(&counters->n_sleeps),
        .n_corrupt_lanes = stats_read(&counters->n_corrupt_lanes),
        .n_in_flight = (uint32_t)stats_read(&counters->n_in_flight),
        .n_lanes = (uint32_t)stats_read(&counters->n_lanes),
        .last_ok_nsec = stats_read(&counters->last_ok_nsec),
        .n_held = (uint32_t)stats_read(&counters->n_held),
        .n_passes = (uint32_t)stats_read(&counters->n_passes),
        .n_in_step = (uint32_t)stats_read(&counters->n_in_step),
        .n_armed = stats_read(&counters->n_armed),
        .n_fired = stats_read(&counters->n_fired),
    };
    for (uint32_t i = 0; i < WORKER_DISARMS; i++) {
        ret_stats->n_disarmed[i] = stats_read(&counters->n_disarmed[i]);
    }
    for (uint32_t i = 0; i < SCHED_CLOSES; i++) {
        ret_stats->n_closed[i] = stats_read(&counters->n_closed[i]);
    }
    for (uint32_t i = 0; i < SCHED_HOLDS; i++) {
        ret_stats->n_holds[i] = stats_read(&counters->n_holds[i]);
        ret_stats->hold_idle_nsec[i] = stats_read(&counters->hold_idle_nsec[i]);
    }
    for (uint32_t i = 0; i < WORKER_BATCH_BUCKETS; i++) {
        ret_stats->launches_by_rows[i] = stats_read(&counters->launches_by_rows[i]);
    }
}
