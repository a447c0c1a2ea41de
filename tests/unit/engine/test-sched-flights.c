/* test-sched-flights.c - what the scheduler knows of launches in flight: which of them has ended,
 * and when the device should be free. */
#include "tests/unit/engine/cmocka_all.h"

#include <string.h>

#include "daemon/engine/sched.h"
#include "ipc/base/clock.h"

#define USEC       ((uint64_t)CLOCK_NSEC_PER_USEC)
#define SHORT_USEC 40u
#define LONG_USEC  100u

enum { WEIGHT_SHORT = 1, WEIGHT_LONG, WEIGHT_OTHER, N_SESSIONS };

static struct sched_session sessions[N_SESSIONS];
static struct sched_item items[N_SESSIONS]; /* of each session one, for the weight of that number */

/* Gives out a launch of that weight's item. */
static void launch(struct sched *sched, uint32_t weight, uint64_t now_nsec)
{
    struct sched_item *taken[1];
    struct sched_verdict verdict;
    items[weight] = (struct sched_item){
        .weight_key = weight, .session = &sessions[weight], .n_rows = 1, .priority = SCHED_NORMAL};
    assert_int_equal(sched_push(sched, &items[weight], now_nsec), SCHED_PUSHED);
    assert_int_equal(sched_next(sched, now_nsec, taken, &verdict), 1);
    assert_ptr_equal(taken[0], &items[weight]);
}

static void end(struct sched *sched, uint32_t weight, uint64_t now_nsec, uint64_t run_usec)
{
    sched_ended(sched, now_nsec, run_usec * USEC);
    sched_done(sched, &items[weight], now_nsec);
}

/* A scheduler that knows what a launch of each weight takes. */
static struct sched *new_sched(void)
{
    struct sched *sched;
    const struct sched_limits limits = {8, 64, 8, 64, 512, SCHED_NATURAL};
    assert_int_equal(sched_new(&limits, &sched), 0);
    memset(sessions, 0, sizeof(sessions));
    for (uint32_t i = 0; i < N_SESSIONS; i++) {
        sched_join(sched, &sessions[i]);
    }
    launch(sched, WEIGHT_SHORT, 0);
    end(sched, WEIGHT_SHORT, SHORT_USEC * USEC, SHORT_USEC);
    launch(sched, WEIGHT_LONG, SHORT_USEC * USEC);
    end(sched, WEIGHT_LONG, (SHORT_USEC + LONG_USEC) * USEC, LONG_USEC);
    return sched;
}

/* When the scheduler wants to be asked for the item that waits, a fixed time before it expects the
 * device to be free. */
static uint64_t asked_again_nsec(struct sched *sched, uint64_t now_nsec)
{
    struct sched_item *taken[1];
    struct sched_verdict verdict;
    assert_int_equal(sched_next(sched, now_nsec, taken, &verdict), 0);
    return verdict.until_nsec;
}

static void wait_behind(struct sched *sched, uint64_t now_nsec)
{
    items[WEIGHT_OTHER] = (struct sched_item){.weight_key = WEIGHT_OTHER,
                                              .session = &sessions[WEIGHT_OTHER],
                                              .n_rows = 1,
                                              .priority = SCHED_NORMAL};
    assert_int_equal(sched_push(sched, &items[WEIGHT_OTHER], now_nsec), SCHED_PUSHED);
}

static void what_is_postponed_begins_anew(void **state)
{
    (void)state;
    struct sched *sched = new_sched();
    uint64_t start_nsec = 1000 * USEC;
    launch(sched, WEIGHT_LONG, start_nsec);
    wait_behind(sched, start_nsec);
    uint64_t before_nsec = asked_again_nsec(sched, start_nsec);
    uint64_t late_nsec = start_nsec + 75 * USEC;
    sched_postponed(sched, late_nsec);
    assert_int_equal(asked_again_nsec(sched, late_nsec), before_nsec + 75 * USEC);
    (void)sched_free(sched);
}

static void what_is_postponed_ends_last(void **state)
{
    (void)state;
    struct sched *sched = new_sched();
    uint64_t start_nsec = 1000 * USEC;
    launch(sched, WEIGHT_LONG, start_nsec);
    launch(sched, WEIGHT_SHORT, start_nsec + 95 * USEC); /* just before the other should end */
    sched_postponed(sched, start_nsec + 95 * USEC);
    uint64_t end_nsec = start_nsec + (95 + SHORT_USEC) * USEC;
    wait_behind(sched, end_nsec);
    end(sched, WEIGHT_SHORT, end_nsec, SHORT_USEC);
    uint64_t behind_long_nsec = asked_again_nsec(sched, end_nsec);
    end(sched, WEIGHT_LONG, end_nsec + LONG_USEC * USEC, LONG_USEC);

    assert_int_equal(sched_cancel(sched, &items[WEIGHT_OTHER], end_nsec), true);
    launch(sched, WEIGHT_SHORT, 2000 * USEC);
    wait_behind(sched, 2000 * USEC);
    uint64_t behind_short_nsec = asked_again_nsec(sched, 2000 * USEC);
    assert_int_equal((behind_long_nsec - end_nsec) - (behind_short_nsec - 2000 * USEC),
                     (LONG_USEC - SHORT_USEC) * USEC);
    (void)sched_free(sched);
}

/* Each launch teaches what its own weight costs, in whatever order they end. */
static void what_is_postponed_learns_its_own_time(void **state)
{
    (void)state;
    struct sched *sched = new_sched();
    for (uint64_t i = 1; i <= 20; i++) {
        uint64_t start_nsec = i * 1000 * USEC;
        launch(sched, WEIGHT_LONG, start_nsec);
        launch(sched, WEIGHT_SHORT, start_nsec + 95 * USEC);
        sched_postponed(sched, start_nsec + 95 * USEC);
        end(sched, WEIGHT_SHORT, start_nsec + 200 * USEC, SHORT_USEC);
        end(sched, WEIGHT_LONG, start_nsec + 400 * USEC, LONG_USEC);
    }
    uint64_t wait_usec[N_SESSIONS] = {0};
    for (uint32_t weight = WEIGHT_SHORT; weight <= WEIGHT_LONG; weight++) {
        uint64_t start_nsec = (100 + weight) * 1000 * USEC;
        launch(sched, weight, start_nsec);
        wait_behind(sched, start_nsec);
        wait_usec[weight] = (asked_again_nsec(sched, start_nsec) - start_nsec) / USEC;
        assert_int_equal(sched_cancel(sched, &items[WEIGHT_OTHER], start_nsec), true);
        end(sched, weight, start_nsec + 400 * USEC, 0);
    }
    assert_int_equal(wait_usec[WEIGHT_LONG] - wait_usec[WEIGHT_SHORT], LONG_USEC - SHORT_USEC);
    (void)sched_free(sched);
}

/* ---- what the device has begun by itself ---- */

/* Two sessions' items for one weight. */
static void push_pair(struct sched *sched, uint64_t now_nsec)
{
    for (uint32_t i = 1; i <= 2; i++) {
        items[i] = (struct sched_item){.weight_key = WEIGHT_LONG,
                                       .session = &sessions[i],
                                       .n_rows = i,
                                       .priority = SCHED_NORMAL};
        assert_int_equal(sched_push(sched, &items[i], now_nsec), SCHED_PUSHED);
    }
}

static void what_was_taken_is_as_if_given_out(void **state)
{
    (void)state;
    double deficits[2][2];
    uint64_t asked_nsec[2];
    for (uint32_t by_itself = 0; by_itself < 2; by_itself++) {
        struct sched *sched = new_sched();
        struct sched_item *taken[2] = {&items[1], &items[2]};
        struct sched_verdict verdict;
        uint64_t start_nsec = 1000 * USEC;
        push_pair(sched, start_nsec);
        if (by_itself) {
            sched_taken(sched, taken, 2, start_nsec);
        } else {
            assert_int_equal(sched_next(sched, start_nsec, taken, &verdict), 2);
        }
        assert_int_equal(sched_queued(sched), 0);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(items[1 + i].state, SCHED_TAKEN);
            deficits[by_itself][i] = sessions[1 + i].deficit_nsec;
        }
        wait_behind(sched, start_nsec);
        asked_nsec[by_itself] = asked_again_nsec(sched, start_nsec);
        sched_ended(sched, start_nsec + LONG_USEC * USEC, LONG_USEC * USEC);
        for (uint32_t i = 1; i <= 2; i++) {
            sched_done(sched, &items[i], start_nsec + LONG_USEC * USEC);
        }
        (void)sched_free(sched);
    }
    assert_true(deficits[0][0] == deficits[1][0] && deficits[0][1] == deficits[1][1]);
    assert_true(deficits[0][1] < deficits[0][0]);
    assert_int_equal(asked_nsec[0], asked_nsec[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_postponed_begins_anew),
        cmocka_unit_test(what_is_postponed_ends_last),
        cmocka_unit_test(what_is_postponed_learns_its_own_time),
        cmocka_unit_test(what_was_taken_is_as_if_given_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
