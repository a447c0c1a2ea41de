/* armed_walk.c - see armed_walk.h. */
#include "tests/unit/engine/armed_walk.h"

#include <stdlib.h>
#include <string.h>

#include "ipc/base/clock.h"
#include "ipc/base/num.h"

#define EVENT_ARMED 3u /* armed launches until something happens */

struct walk walk = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void change(struct device *changed)
{
    ahead_device_init(&walk.device, changed);
}

/* ---- streams ---- */

static void show_ready(struct walker *walker)
{
    while (walker->n_seen < walker->n_late) {
        atomic_store_explicit(&walker->words.ready[walker->n_seen++], walker->value,
                              memory_order_release);
    }
}

/* Entries in order. */
void walk_say_ready(struct walker *walker, uint32_t entry)
{
    (void)pthread_mutex_lock(&walk.lock);
    show_ready(walker); /* those before have been done since */
    if (!walk.is_silent) {
        atomic_store(&walker->quick_ready[entry], walker->value);
    }
    walker->n_late = entry + 1;
    if (walk.n_polls_late == 0 || !ahead_device_waits()) {
        show_ready(walker);
    }
    (void)pthread_mutex_unlock(&walk.lock);
}

/* That entry never is; the next is to be. */
void walk_leave_out(struct walker *walker, uint32_t entry)
{
    (void)pthread_mutex_lock(&walk.lock);
    walker->n_late = walker->n_seen = entry + 1;
    (void)pthread_mutex_unlock(&walk.lock);
}

/* On the worker's thread. */
void walk_show_late(bool is_free)
{
    if (!is_free && ++walk.n_polls % walk.n_polls_late != 0) {
        return;
    }
    (void)pthread_mutex_lock(&walk.lock);
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        show_ready(&walk.walkers[i]);
    }
    (void)pthread_mutex_unlock(&walk.lock);
}

/* The event, once, when a launch of the second weight is armed; does the walker stop there? */
static bool watch(const struct walker *walker, uint32_t i_next)
{
    if (walk.on_event == NULL || walker != &walk.walkers[0] || walk.device.n_armed < EVENT_ARMED ||
        i_next % 2 == 0 || !ahead_device_waits()) {
        return false;
    }
    walk.i_stopped = walk.is_stopping ? i_next : 0;
    void (*event)(void) = walk.on_event;
    event();
    walk.on_event = NULL;
    return walk.is_stopping;
}

/* On the worker's thread: the stream that waited for that word goes on. */
static void go_on(const uint32_t *word)
{
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        struct walker *walker = &walk.walkers[i];
        if (word < walker->done || word >= walker->done + N_ENTRIES) {
            continue;
        }
        uint32_t i_next = (uint32_t)(word - walker->done) + 1;
        bool is_stopped = watch(walker, i_next);
        walk.is_through = walk.is_through || (walker == &walk.walkers[0] && i_next == N_STEPS);
        if (i_next < N_ENTRIES && !is_stopped) {
            walk_say_ready(walker, i_next);
        }
    }
}

static const struct weight *weight_at(uint32_t i)
{
    return walk.wb.bench.weights[i % 2 == 0 ? WEIGHT_INT4 : WEIGHT_PLAIN];
}

/* Each step has its own row of y. */
static struct place y_at(const struct walker *walker, uint32_t i)
{
    struct place y = walker->client.y;
    y.stride_elems = weight_at(i)->desc.n;
    y.offset_bytes = (uint64_t)i * walk.wb.bench.weights[WEIGHT_INT4]->desc.n * 4;
    return y;
}

static struct place x_at(const struct walker *walker, uint32_t i)
{
    struct place x = walker->client.x;
    x.stride_elems = weight_at(i)->desc.k;
    return x;
}

void walk_submit(struct walker *walker, uint32_t i)
{
    struct place x = x_at(walker, i), y = y_at(walker, i);
    struct request_desc desc = bench_desc(weight_at(i), i, 1, &x, &y);
    desc.flags = REQUEST_FLAG_ORDERED;
    desc.order_entry = i;
    desc.order_value = walker->value;
    client_submit(&walker->client, &desc);
}

static void walker_init(struct walker *walker, uint64_t session_id)
{
    client_init(&walker->client, &walk.wb, session_id, N_ENTRIES, N_ENTRIES);
    client_use(&walker->client, walk.wb.bench.weights[WEIGHT_INT4], N_ENTRIES - 1, 0, DTYPE_F32,
               DTYPE_F32, (uint32_t)session_id);
    walker->memory = calloc(1, order_bytes(N_ENTRIES));
    assert_non_null(walker->memory);
    walker->words = order_words_at(walker->memory, N_ENTRIES);
    walker->done = calloc(1, ORDER_DEVICE_BYTES);
    assert_non_null(walker->done);
    walker->quick_ready =
        (_Atomic uint32_t *)(void *)(walker->done + ORDER_DEVICE_READY_OFFSET / sizeof(uint32_t));
    walker->n_late = walker->n_seen = 0;
    walker->value = 1;
    struct worker_words words = {walker->memory, N_ENTRIES, (uintptr_t)walker->done};
    assert_int_equal(worker_open_order(walk.wb.worker, session_id, &words), 0);
}

static void walker_finish(struct walker *walker)
{
    client_finish(&walker->client);
}

/* When nobody looks at its words any more. */
static void free_words(struct walker *walker)
{
    free(walker->memory);
    free(walker->done);
}

/* ---- set-up ---- */

int walk_set_up(void **state)
{
    (void)state;
    struct worker_limits limits = worker_bench_limits;
    limits.requests_max = 4 * N_ENTRIES;
    limits.mode = SCHED_RENDEZVOUS;
    limits.may_arm = true;
    worker_bench_init_on(&walk.wb, &limits, change);
    walk.device.on_signal = go_on;
    walk.on_event = NULL;
    walk.is_stopping = false;
    walk.i_stopped = 0;
    walk.is_through = false;
    walk.is_silent = false;
    walk.n_polls_late = walk.n_polls = 0;
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        walker_init(&walk.walkers[i], 10 + i);
    }
    return 0;
}

uint64_t walk_disarmed(enum worker_disarm why)
{
    return stats_read(&walk.wb.stats.n_disarmed[why]);
}

/* What was armed has got its rows, or is accounted for. */
int walk_tear_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        walker_finish(&walk.walkers[i]);
    }
    worker_bench_finish(&walk.wb);
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        free_words(&walk.walkers[i]);
    }
    uint64_t n_ended = stats_read(&walk.wb.stats.n_fired);
    for (uint32_t i = 0; i < WORKER_DISARMS; i++) {
        n_ended += walk_disarmed((enum worker_disarm)i);
    }
    assert_int_equal(stats_read(&walk.wb.stats.n_armed), walk.device.n_armed);
    assert_int_equal(n_ended, walk.device.n_armed);
    return 0;
}

static void begin_walk(struct walker *walker)
{
    (void)pthread_mutex_lock(&walk.lock);
    walker->value++;
    walker->n_late = walker->n_seen = 0;
    (void)pthread_mutex_unlock(&walk.lock);
    for (uint32_t i = 0; i < N_STEPS; i++) {
        walk_submit(walker, i);
    }
    walk_say_ready(walker, 0);
}

void walk_start(uint32_t n_walkers)
{
    walk.is_through = false;
    gate_close(&walk.wb); /* so that all begin at once */
    for (uint32_t i = 0; i < n_walkers; i++) {
        begin_walk(&walk.walkers[i]);
    }
    gate_open(&walk.wb);
}

/* The requests of one walker, each answered once, with OK and then with that status. The number of
 * those that are OK. */
uint32_t walk_collect(struct walker *walker, uint32_t n_steps, uint32_t status)
{
    bool is_answered[N_ENTRIES] = {false};
    uint32_t n_ok = 0;
    for (uint32_t i = 0; i < n_steps; i++) {
        struct request_result result = client_wait(&walker->client);
        assert_true(result.request_id < n_steps && !is_answered[result.request_id]);
        is_answered[result.request_id] = true;
        if (result.status != STATUS_OK) {
            assert_int_equal(result.status, status);
            continue;
        }
        struct place x = x_at(walker, (uint32_t)result.request_id);
        struct place y = y_at(walker, (uint32_t)result.request_id);
        assert_true(bench_is_right(weight_at((uint32_t)result.request_id), &x, &y, 1));
        n_ok++;
    }
    return n_ok;
}

void walk_all(uint32_t n_walkers)
{
    walk_start(n_walkers);
    for (uint32_t i = 0; i < n_walkers; i++) {
        assert_int_equal(walk_collect(&walk.walkers[i], N_STEPS, STATUS_OK), N_STEPS);
    }
}

/* Walks until so much has happened. */
void walk_all_until(uint32_t n_walkers, uint64_t (*count)(void), uint64_t enough)
{
    walk_all(n_walkers);
    for (uint32_t i = 1; i < WALKS_MAX && count() < enough; i++) {
        walk_all(n_walkers);
    }
    assert_true(count() >= enough);
}

/* Walks until the event: from then on requests end with that status. */
void walk_to_event(uint32_t n_walkers, uint32_t status)
{
    uint32_t n_ok_max = 0;
    for (uint32_t i = 0; i < WALKS_MAX && walk.on_event != NULL; i++) {
        n_ok_max = 0;
        walk_start(n_walkers);
        for (uint32_t j = 0; j < n_walkers; j++) {
            n_ok_max = (uint32_t)num_max(n_ok_max, walk_collect(&walk.walkers[j], N_STEPS, status));
        }
    }
    assert_null(walk.on_event);
    assert_true(n_ok_max < N_STEPS);
}

/* Walks of the first until it stops, at the event. */
void walk_to_stop(void (*event)(void))
{
    walk.on_event = event;
    walk.is_stopping = true;
    uint64_t end_nsec = clock_now_nsec() + WAIT_SECONDS * (uint64_t)CLOCK_NSEC_PER_SEC;
    walk_start(1);
    while (walk.i_stopped == 0) {
        assert_true(clock_now_nsec() < end_nsec);
        if (walk.is_through) {
            assert_int_equal(walk_collect(&walk.walkers[0], N_STEPS, STATUS_OK), N_STEPS);
            walk_start(1);
        }
    }
}
