/* test-worker-armed.c - the worker with a device that takes launches ahead of their rows: they get
 * them, or are disarmed, and whatever becomes of them no request is lost, answered twice or wrong.
 * The device itself checks what the worker asks of it (ahead_device.h).
 *
 * Clients put all their requests into the ring, in stream order, and their streams go from one to
 * the next as soon as its product is there: a walk. How many launches of a walk are armed depends
 * on what the machine does besides, since the worker measures whether that pays. So there is
 * another one where there were too few. */
#include "tests/unit/engine/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/clock.h"
#include "ipc/base/num.h"
#include "ipc/order.h"
#include "tests/unit/engine/ahead_device.h"
#include "tests/unit/engine/worker_bench.h"

#define N_CLIENTS    2u
#define N_STEPS      250u
#define N_ENTRIES    256u
#define WALKS_MAX    40u
#define EVENT_ARMED  3u /* armed launches until something happens */
#define WAIT_SECONDS 30u

struct walker {
    struct client client;
    void *memory;
    struct order_words words;
    uint32_t *done;                /* (N_ENTRIES) in the device's memory, as it were ... */
    _Atomic uint32_t *quick_ready; /* ... and there too */
    uint32_t value;                /* of this walk's words */
    uint32_t n_late;               /* entries up to here are ready on the device ... */
    uint32_t n_seen;               /* ... and up to here for the worker */
};

static struct worker_bench wb;
static struct ahead_device device;
static struct walker walkers[N_CLIENTS];
static void (*_Atomic on_event)(void);
static bool is_stopping;           /* the first walker, at the event */
static _Atomic uint32_t i_stopped; /* its step then; 0: it has not */
static _Atomic bool is_through;    /* the first walker, with a walk */
static bool is_silent;             /* clients do not tell the device, as old ones */
static uint32_t n_polls_late;      /* for which the worker does not see it; 0: it sees it first */
static uint32_t n_polls;           /* of these so far */

/* What is ready, and where: the worker's thread and the test's say so. */
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

static void change(struct device *changed)
{
    ahead_device_init(&device, changed);
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
static void say_ready(struct walker *walker, uint32_t entry)
{
    (void)pthread_mutex_lock(&streams_lock);
    show_ready(walker); /* those before have been done since */
    if (!is_silent) {
        atomic_store(&walker->quick_ready[entry], walker->value);
    }
    walker->n_late = entry + 1;
    if (n_polls_late == 0 || !ahead_device_waits()) {
        show_ready(walker);
    }
    (void)pthread_mutex_unlock(&streams_lock);
}

/* That entry never is; the next is to be. */
static void leave_out(struct walker *walker, uint32_t entry)
{
    (void)pthread_mutex_lock(&streams_lock);
    walker->n_late = walker->n_seen = entry + 1;
    (void)pthread_mutex_unlock(&streams_lock);
}

/* On the worker's thread. */
static void show_late(bool is_free)
{
    if (!is_free && ++n_polls % n_polls_late != 0) {
        return;
    }
    (void)pthread_mutex_lock(&streams_lock);
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        show_ready(&walkers[i]);
    }
    (void)pthread_mutex_unlock(&streams_lock);
}

/* The event, once, when a launch of the second weight is armed; does the walker stop there? */
static bool watch(const struct walker *walker, uint32_t i_next)
{
    if (on_event == NULL || walker != &walkers[0] || device.n_armed < EVENT_ARMED ||
        i_next % 2 == 0 || !ahead_device_waits()) {
        return false;
    }
    i_stopped = is_stopping ? i_next : 0;
    void (*event)(void) = on_event;
    event();
    on_event = NULL;
    return is_stopping;
}

/* On the worker's thread: the stream that waited for that word goes on. */
static void go_on(const uint32_t *word)
{
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        struct walker *walker = &walkers[i];
        if (word < walker->done || word >= walker->done + N_ENTRIES) {
            continue;
        }
        uint32_t i_next = (uint32_t)(word - walker->done) + 1;
        bool is_stopped = watch(walker, i_next);
        is_through = is_through || (walker == &walkers[0] && i_next == N_STEPS);
        if (i_next < N_ENTRIES && !is_stopped) {
            say_ready(walker, i_next);
        }
    }
}

static const struct weight *weight_at(uint32_t i)
{
    return wb.bench.weights[i % 2 == 0 ? WEIGHT_INT4 : WEIGHT_PLAIN];
}

/* Each step has its own row of y. */
static struct place y_at(const struct walker *walker, uint32_t i)
{
    struct place y = walker->client.y;
    y.stride_elems = weight_at(i)->desc.n;
    y.offset_bytes = (uint64_t)i * wb.bench.weights[WEIGHT_INT4]->desc.n * 4;
    return y;
}

static struct place x_at(const struct walker *walker, uint32_t i)
{
    struct place x = walker->client.x;
    x.stride_elems = weight_at(i)->desc.k;
    return x;
}

static void submit(struct walker *walker, uint32_t i)
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
    client_init(&walker->client, &wb, session_id, N_ENTRIES, N_ENTRIES);
    client_use(&walker->client, wb.bench.weights[WEIGHT_INT4], N_ENTRIES - 1, 0, DTYPE_F32,
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
    assert_int_equal(worker_open_order(wb.worker, session_id, &words), 0);
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

static int set_up(void **state)
{
    (void)state;
    struct worker_limits limits = worker_bench_limits;
    limits.requests_max = 4 * N_ENTRIES;
    limits.mode = SCHED_RENDEZVOUS;
    limits.may_arm = true;
    worker_bench_init_on(&wb, &limits, change);
    device.on_signal = go_on;
    on_event = NULL;
    is_stopping = false;
    i_stopped = 0;
    is_through = false;
    is_silent = false;
    n_polls_late = n_polls = 0;
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        walker_init(&walkers[i], 10 + i);
    }
    return 0;
}

static uint64_t n_disarmed(enum worker_disarm why)
{
    return stats_read(&wb.stats.n_disarmed[why]);
}

/* What was armed has got its rows, or is accounted for. */
static int tear_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        walker_finish(&walkers[i]);
    }
    worker_bench_finish(&wb);
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        free_words(&walkers[i]);
    }
    uint64_t n_ended = stats_read(&wb.stats.n_fired);
    for (uint32_t i = 0; i < WORKER_DISARMS; i++) {
        n_ended += n_disarmed((enum worker_disarm)i);
    }
    assert_int_equal(stats_read(&wb.stats.n_armed), device.n_armed);
    assert_int_equal(n_ended, device.n_armed);
    return 0;
}

static void begin_walk(struct walker *walker)
{
    (void)pthread_mutex_lock(&streams_lock);
    walker->value++;
    walker->n_late = walker->n_seen = 0;
    (void)pthread_mutex_unlock(&streams_lock);
    for (uint32_t i = 0; i < N_STEPS; i++) {
        submit(walker, i);
    }
    say_ready(walker, 0);
}

static void start(uint32_t n_walkers)
{
    is_through = false;
    gate_close(&wb); /* so that all begin at once */
    for (uint32_t i = 0; i < n_walkers; i++) {
        begin_walk(&walkers[i]);
    }
    gate_open(&wb);
}

/* The requests of one walker, each answered once, with OK and then with that status. The number of
 * those that are OK. */
static uint32_t collect(struct walker *walker, uint32_t n_steps, uint32_t status)
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

static void all_are_served(uint32_t n_walkers)
{
    start(n_walkers);
    for (uint32_t i = 0; i < n_walkers; i++) {
        assert_int_equal(collect(&walkers[i], N_STEPS, STATUS_OK), N_STEPS);
    }
}

/* Walks until so much has happened. */
static void all_are_served_until(uint32_t n_walkers, uint64_t (*count)(void), uint64_t enough)
{
    all_are_served(n_walkers);
    for (uint32_t i = 1; i < WALKS_MAX && count() < enough; i++) {
        all_are_served(n_walkers);
    }
    assert_true(count() >= enough);
}

/* Walks until the event: from then on requests end with that status. */
static void walk_to_event(uint32_t n_walkers, uint32_t status)
{
    uint32_t n_ok_max = 0;
    for (uint32_t i = 0; i < WALKS_MAX && on_event != NULL; i++) {
        n_ok_max = 0;
        start(n_walkers);
        for (uint32_t j = 0; j < n_walkers; j++) {
            n_ok_max = (uint32_t)num_max(n_ok_max, collect(&walkers[j], N_STEPS, status));
        }
    }
    assert_null(on_event);
    assert_true(n_ok_max < N_STEPS);
}

/* Walks of the first until it stops, at the event. */
static void walk_to_stop(void (*event)(void))
{
    on_event = event;
    is_stopping = true;
    uint64_t end_nsec = clock_now_nsec() + WAIT_SECONDS * (uint64_t)CLOCK_NSEC_PER_SEC;
    start(1);
    while (i_stopped == 0) {
        assert_true(clock_now_nsec() < end_nsec);
        if (is_through) {
            assert_int_equal(collect(&walkers[0], N_STEPS, STATUS_OK), N_STEPS);
            start(1);
        }
    }
}

/* ---- what becomes of them ---- */

static uint64_t n_fired(void)
{
    return device.n_fired;
}

static uint64_t n_begun(void)
{
    return device.n_begun;
}

static uint64_t n_lost(void)
{
    return device.n_lost;
}

static uint64_t n_given_up(void)
{
    return n_disarmed(WORKER_DISARM_GIVEN_UP);
}

static void rows_come_to_what_is_armed(void **state)
{
    (void)state;
    all_are_served_until(1, n_fired, 4);
}

static void a_cohort_shares_what_is_armed(void **state)
{
    (void)state;
    all_are_served_until(N_CLIENTS, n_fired, 4);
    assert_true(stats_read(&wb.stats.n_shared_launches) >= N_STEPS / 2);
}

/* Clients that do not write the device's words are served as before. */
static void who_tells_the_worker_only_is_served(void **state)
{
    (void)state;
    is_silent = true;
    all_are_served_until(N_CLIENTS, n_fired, 4);
    assert_int_equal(device.n_begun, 0);
}

/* The device begins by itself, and is through before the worker has seen why. */
static void the_device_begins_by_itself(void **state)
{
    (void)state;
    n_polls_late = 100000;
    device.on_poll = show_late;
    all_are_served_until(N_CLIENTS, n_begun, 4);
    assert_true(stats_read(&wb.stats.n_fired) >= device.n_begun);
}

/* The worker sees it at any moment: before, while the launch runs, or when it is being disarmed. */
static void the_worker_sees_it_sooner_or_later(void **state)
{
    (void)state;
    n_polls_late = 7;
    device.on_poll = show_late;
    all_are_served_until(N_CLIENTS, n_begun, 4);
}

/* What the device had ceased to wait for is launched after all. */
static void who_fires_too_late_launches(void **state)
{
    (void)state;
    is_silent = true;
    device.lose_every = 2;
    all_are_served_until(N_CLIENTS, n_lost, 1);
    assert_true(n_given_up() >= device.n_lost);
}

static void what_the_device_gives_up_is_launched(void **state)
{
    (void)state;
    device.is_deaf = true;
    all_are_served_until(1, n_given_up, 1);
}

static void nothing(void)
{
}

/* Nobody comes any more: it does not stay. */
static void what_nobody_comes_for_is_disarmed(void **state)
{
    (void)state;
    walk_to_stop(nothing);
    uint64_t end_nsec = clock_now_nsec() + WAIT_SECONDS * (uint64_t)CLOCK_NSEC_PER_SEC;
    while (n_disarmed(WORKER_DISARM_LATE) == 0) {
        assert_true(clock_now_nsec() < end_nsec);
    }
    say_ready(&walkers[0], i_stopped);
    assert_int_equal(collect(&walkers[0], N_STEPS, STATUS_OK), N_STEPS);
}

/* Its stream stops, and the request with it. */
static void call_off(void)
{
    struct request_desc cancel = {.op = REQUEST_OP_CANCEL, .request_id = i_stopped};
    client_submit(&walkers[0].client, &cancel);
}

/* Nobody else can end it while the device expects it, and then it is not forgotten. */
static void what_is_cancelled_while_it_is_expected_ends(void **state)
{
    (void)state;
    walk_to_stop(call_off);
    leave_out(&walkers[0], i_stopped);
    say_ready(&walkers[0], i_stopped + 1);
    assert_int_equal(collect(&walkers[0], N_STEPS, STATUS_CANCELLED), N_STEPS - 1);
}

static void a_client_goes_while_it_is_expected(void **state)
{
    (void)state;
    walk_to_stop(nothing); /* tear_down() detaches it */
}

/* Another's request for the first weight comes while the second is armed: it does not wait for it.
 */
static void other_comes(void)
{
    say_ready(&walkers[1], 0);
}

static void another_goes_first(void **state)
{
    (void)state;
    submit(&walkers[1], 0);
    walk_to_stop(other_comes);
    assert_int_equal(collect(&walkers[1], 1, STATUS_OK), 1);
    say_ready(&walkers[0], i_stopped);
    assert_int_equal(collect(&walkers[0], N_STEPS, STATUS_OK), N_STEPS);
    assert_true(n_disarmed(WORKER_DISARM_OTHER) + n_disarmed(WORKER_DISARM_LATE) > 0);
}

static void lose(void)
{
    device.is_lost = true;
}

static void a_lost_device_answers_all(void **state)
{
    (void)state;
    on_event = lose;
    walk_to_event(N_CLIENTS, STATUS_DEVICE_LOST);
    (void)pthread_mutex_lock(&wb.mutex);
    assert_int_equal(wb.n_fatal, 1);
    (void)pthread_mutex_unlock(&wb.mutex);
}

static _Atomic uint32_t n_armed_then;

static void unload(void)
{
    struct reason why;
    n_armed_then = device.n_armed;
    assert_int_equal(store_unpublish(wb.bench.store, "bench", &why), 0);
}

/* Requests that hold its weights are served; nothing is armed for it any more. */
static void a_model_may_go(void **state)
{
    (void)state;
    on_event = unload;
    start(1);
    assert_true(collect(&walkers[0], N_STEPS, STATUS_NOT_FOUND) > 0);
    for (uint32_t i = 1; i < WALKS_MAX && on_event != NULL; i++) {
        start(1);
        (void)collect(&walkers[0], N_STEPS, STATUS_NOT_FOUND);
    }
    assert_true(n_armed_then > 0);
    assert_int_equal(device.n_armed, n_armed_then);
}

static void drain(void)
{
    worker_drain(wb.worker);
}

static void a_draining_worker_disarms(void **state)
{
    (void)state;
    is_silent = true;
    on_event = drain;
    walk_to_event(N_CLIENTS, STATUS_SHUTTING_DOWN);
    assert_int_equal(n_disarmed(WORKER_DISARM_STOPPED), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_come_to_what_is_armed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cohort_shares_what_is_armed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_tells_the_worker_only_is_served, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_device_begins_by_itself, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_worker_sees_it_sooner_or_later, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_fires_too_late_launches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_the_device_gives_up_is_launched, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_nobody_comes_for_is_disarmed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_cancelled_while_it_is_expected_ends, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_client_goes_while_it_is_expected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_goes_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lost_device_answers_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_model_may_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_draining_worker_disarms, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
