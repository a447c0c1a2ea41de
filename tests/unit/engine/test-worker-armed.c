/* test-worker-armed.c - the worker with a device that takes launches ahead of their rows: they get
 * them, or are disarmed, and whatever becomes of them no request is lost, answered twice or wrong.
 * The device itself checks what the worker asks of it (ahead_device.h). */
#include "tests/unit/engine/armed_walk.h"

#include "ipc/base/clock.h"
#include "ipc/base/num.h"

/* ---- what becomes of them ---- */

static uint64_t n_fired(void)
{
    return walk.device.n_fired;
}

static uint64_t n_begun(void)
{
    return walk.device.n_begun;
}

static uint64_t n_lost(void)
{
    return walk.device.n_lost;
}

static uint64_t n_given_up(void)
{
    return walk_disarmed(WORKER_DISARM_GIVEN_UP);
}

static void rows_come_to_what_is_armed(void **state)
{
    (void)state;
    walk_all_until(1, n_fired, 4);
}

static void a_cohort_shares_what_is_armed(void **state)
{
    (void)state;
    walk_all_until(N_CLIENTS, n_fired, 4);
    assert_true(stats_read(&walk.wb.stats.n_shared_launches) >= N_STEPS / 2);
}

/* Clients that do not write the device's words are served as before. */
static void who_tells_the_worker_only_is_served(void **state)
{
    (void)state;
    walk.is_silent = true;
    walk_all_until(N_CLIENTS, n_fired, 4);
    assert_int_equal(walk.device.n_begun, 0);
}

/* The device begins by itself, and is through before the worker has seen why. */
static void the_device_begins_by_itself(void **state)
{
    (void)state;
    walk.n_polls_late = 100000;
    walk.device.on_poll = walk_show_late;
    walk_all_until(N_CLIENTS, n_begun, 4);
    assert_true(stats_read(&walk.wb.stats.n_fired) >= walk.device.n_begun);
}

/* The worker sees it at any moment: before, while the launch runs, or when it is being disarmed. */
static void the_worker_sees_it_sooner_or_later(void **state)
{
    (void)state;
    walk.n_polls_late = 7;
    walk.device.on_poll = walk_show_late;
    walk_all_until(N_CLIENTS, n_begun, 4);
}

/* What the device had ceased to wait for is launched after all. */
static void who_fires_too_late_launches(void **state)
{
    (void)state;
    walk.is_silent = true;
    walk.device.lose_every = 2;
    walk_all_until(N_CLIENTS, n_lost, 1);
    assert_true(n_given_up() >= walk.device.n_lost);
}

static void what_the_device_gives_up_is_launched(void **state)
{
    (void)state;
    walk.device.is_deaf = true;
    walk_all_until(1, n_given_up, 1);
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
    while (walk_disarmed(WORKER_DISARM_LATE) == 0) {
        assert_true(clock_now_nsec() < end_nsec);
    }
    walk_say_ready(&walk.walkers[0], walk.i_stopped);
    assert_int_equal(walk_collect(&walk.walkers[0], N_STEPS, STATUS_OK), N_STEPS);
}

/* Its stream stops, and the request with it. */
static void call_off(void)
{
    struct request_desc cancel = {.op = REQUEST_OP_CANCEL, .request_id = walk.i_stopped};
    client_submit(&walk.walkers[0].client, &cancel);
}

/* Nobody else can end it while the device expects it, and then it is not forgotten. */
static void what_is_cancelled_while_it_is_expected_ends(void **state)
{
    (void)state;
    walk_to_stop(call_off);
    walk_leave_out(&walk.walkers[0], walk.i_stopped);
    walk_say_ready(&walk.walkers[0], walk.i_stopped + 1);
    assert_int_equal(walk_collect(&walk.walkers[0], N_STEPS, STATUS_CANCELLED), N_STEPS - 1);
}

static void a_client_goes_while_it_is_expected(void **state)
{
    (void)state;
    walk_to_stop(nothing); /* walk_tear_down() detaches it */
}

/* Another's request for the first weight comes while the second is armed: it does not wait for it.
 */
static void other_comes(void)
{
    walk_say_ready(&walk.walkers[1], 0);
}

static void another_goes_first(void **state)
{
    (void)state;
    walk_submit(&walk.walkers[1], 0);
    walk_to_stop(other_comes);
    assert_int_equal(walk_collect(&walk.walkers[1], 1, STATUS_OK), 1);
    walk_say_ready(&walk.walkers[0], walk.i_stopped);
    assert_int_equal(walk_collect(&walk.walkers[0], N_STEPS, STATUS_OK), N_STEPS);
    assert_true(walk_disarmed(WORKER_DISARM_OTHER) + walk_disarmed(WORKER_DISARM_LATE) > 0);
}

static void lose(void)
{
    walk.device.is_lost = true;
}

static void a_lost_device_answers_all(void **state)
{
    (void)state;
    walk.on_event = lose;
    walk_to_event(N_CLIENTS, STATUS_DEVICE_LOST);
    (void)pthread_mutex_lock(&walk.wb.mutex);
    assert_int_equal(walk.wb.n_fatal, 1);
    (void)pthread_mutex_unlock(&walk.wb.mutex);
}

static _Atomic uint32_t n_armed_then;

static void unload(void)
{
    struct reason why;
    n_armed_then = walk.device.n_armed;
    assert_int_equal(store_unpublish(walk.wb.bench.store, "bench", &why), 0);
}

/* Requests that hold its weights are served; nothing is armed for it any more. */
static void a_model_may_go(void **state)
{
    (void)state;
    walk.on_event = unload;
    walk_start(1);
    assert_true(walk_collect(&walk.walkers[0], N_STEPS, STATUS_NOT_FOUND) > 0);
    for (uint32_t i = 1; i < WALKS_MAX && walk.on_event != NULL; i++) {
        walk_start(1);
        (void)walk_collect(&walk.walkers[0], N_STEPS, STATUS_NOT_FOUND);
    }
    assert_true(n_armed_then > 0);
    assert_int_equal(walk.device.n_armed, n_armed_then);
}

static void drain(void)
{
    worker_drain(walk.wb.worker);
}

static void a_draining_worker_disarms(void **state)
{
    (void)state;
    walk.is_silent = true;
    walk.on_event = drain;
    walk_to_event(N_CLIENTS, STATUS_SHUTTING_DOWN);
    assert_int_equal(walk_disarmed(WORKER_DISARM_STOPPED), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_come_to_what_is_armed, walk_set_up, walk_tear_down),
        cmocka_unit_test_setup_teardown(a_cohort_shares_what_is_armed, walk_set_up, walk_tear_down),
        cmocka_unit_test_setup_teardown(who_tells_the_worker_only_is_served, walk_set_up,
                                        walk_tear_down),
        cmocka_unit_test_setup_teardown(the_device_begins_by_itself, walk_set_up, walk_tear_down),
        cmocka_unit_test_setup_teardown(the_worker_sees_it_sooner_or_later, walk_set_up,
                                        walk_tear_down),
        cmocka_unit_test_setup_teardown(who_fires_too_late_launches, walk_set_up, walk_tear_down),
        cmocka_unit_test_setup_teardown(what_the_device_gives_up_is_launched, walk_set_up,
                                        walk_tear_down),
        cmocka_unit_test_setup_teardown(what_nobody_comes_for_is_disarmed, walk_set_up,
                                        walk_tear_down),
        cmocka_unit_test_setup_teardown(what_is_cancelled_while_it_is_expected_ends, walk_set_up,
                                        walk_tear_down),
        cmocka_unit_test_setup_teardown(a_client_goes_while_it_is_expected, walk_set_up,
                                        walk_tear_down),
        cmocka_unit_test_setup_teardown(another_goes_first, walk_set_up, walk_tear_down),
        cmocka_unit_test_setup_teardown(a_lost_device_answers_all, walk_set_up, walk_tear_down),
        cmocka_unit_test_setup_teardown(a_model_may_go, walk_set_up, walk_tear_down),
        cmocka_unit_test_setup_teardown(a_draining_worker_disarms, walk_set_up, walk_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
