/* test-sched.c - the scheduler's promises, checked by a model over random scenarios on a virtual
 * clock. */
#include "tests/unit/engine/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/engine/sched.h"

#define ITEMS      400u
#define ROWS_MAX   64u
#define BATCH_MAX  64u
#define N_SESSIONS 7u
#define N_WEIGHTS  5u

static uint64_t seed;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static struct sched_session sessions[N_SESSIONS + 20];

static struct sched *new_sched(enum sched_mode mode)
{
    struct sched *sched;
    struct sched_limits limits = {ITEMS, ROWS_MAX, BATCH_MAX, 64, 512, mode};
    assert_int_equal(sched_new(&limits, &sched), 0);
    memset(sessions, 0, sizeof(sessions));
    for (uint32_t i = 0; i < N_SESSIONS + 20; i++) {
        sched_join(sched, &sessions[i]);
    }
    return sched;
}

static struct sched_item item_of(uint64_t weight, uint64_t session, uint32_t n_rows)
{
    return (struct sched_item){.weight_key = weight,
                               .session = &sessions[session],
                               .n_rows = n_rows,
                               .priority = SCHED_NORMAL,
                               .hold_nsec_max = UINT64_MAX};
}

/* The next launch; it takes no time. */
static uint32_t next(struct sched *sched, struct sched_item **items)
{
    struct sched_verdict verdict;
    uint32_t n = sched_next(sched, 0, items, &verdict);
    if (n > 0) {
        sched_ended(sched, 0, 0);
    }
    return n;
}

static void push(struct sched *sched, struct sched_item *item)
{
    assert_int_equal(sched_push(sched, item, 0), SCHED_PUSHED);
}

/* ---- single rules ---- */

static void flood_leaves_room_for_others(void **state)
{
    (void)state;
    struct sched *sched = new_sched(SCHED_NATURAL);
    struct sched_item flood[300];
    struct sched_item others[20];
    for (uint32_t i = 0; i < 300; i++) {
        flood[i] = item_of(1, 20, 1);
        push(sched, &flood[i]);
    }
    for (uint32_t i = 0; i < 20; i++) {
        others[i] = item_of(1, i, 1);
        push(sched, &others[i]);
    }
    struct sched_item *batch[BATCH_MAX];
    assert_int_equal(next(sched, batch), 64);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(others[i].state, SCHED_TAKEN);
    }
    assert_int_equal(sched_queued(sched), 300 - 44);
    (void)sched_free(sched);
}

static void flood_of_one_weight_delays_another_by_one_launch(void **state)
{
    (void)state;
    struct sched *sched = new_sched(SCHED_NATURAL);
    struct sched_item flood[300];
    for (uint32_t i = 0; i < 300; i++) {
        flood[i] = item_of(1, 20, ROWS_MAX);
        push(sched, &flood[i]);
    }
    struct sched_item other = item_of(2, 1, 1);
    push(sched, &other);
    struct sched_item *batch[BATCH_MAX];
    assert_int_equal(next(sched, batch), 1);
    assert_int_equal(next(sched, batch), 1);
    assert_ptr_equal(batch[0], &other);
    (void)sched_free(sched);
}

static void sessions_of_equal_need_get_equal_shares(void **state)
{
    (void)state;
    struct sched *sched = new_sched(SCHED_NATURAL);
    struct sched_item items[4][64];
    for (uint32_t i = 0; i < 64; i++) {
        for (uint32_t s = 0; s < 4; s++) {
            items[s][i] = item_of(1, s, 1);
            push(sched, &items[s][i]);
        }
    }
    struct sched_item *batch[BATCH_MAX];
    for (uint32_t i_batch = 0; i_batch < 4; i_batch++) {
        assert_int_equal(next(sched, batch), 64);
        uint32_t n_rows[4] = {0};
        for (uint32_t i = 0; i < 64; i++) {
            n_rows[batch[i]->session - sessions]++;
        }
        for (uint32_t s = 0; s < 4; s++) {
            assert_int_equal(n_rows[s], 16);
        }
    }
    (void)sched_free(sched);
}

static void prefill_comes_alone(void **state)
{
    (void)state;
    struct sched *sched = new_sched(SCHED_NATURAL);
    struct sched_item decode = item_of(1, 1, 1);
    struct sched_item prefill = item_of(1, 2, 1000);
    struct sched_item later = item_of(1, 3, 2);
    push(sched, &decode);
    push(sched, &prefill);
    push(sched, &later);
    struct sched_item *batch[BATCH_MAX];
    assert_int_equal(next(sched, batch), 2);
    assert_int_equal(later.state, SCHED_TAKEN);
    assert_int_equal(next(sched, batch), 1);
    assert_ptr_equal(batch[0], &prefill);
    assert_int_equal(next(sched, batch), 0);
    (void)sched_free(sched);
}

/* A step that comes while a chunk runs waits for its end: it is shorter while steps are to come. */
static void chunks_are_small_beside_decode(void **state)
{
    (void)state;
    const uint64_t second_nsec = 1000000000;
    struct sched *sched = new_sched(SCHED_NATURAL);
    struct sched_item decode = item_of(1, 1, 1);
    struct sched_item prefill = item_of(1, 2, 4096);
    struct sched_item *batch[BATCH_MAX];
    struct sched_verdict verdict;
    prefill.n_chunk_rows = 1024;
    for (uint64_t i = 1; i <= 3; i++) { /* before a step, after it, and long after it */
        uint64_t now_nsec = i * second_nsec;
        if (i == 2) {
            assert_int_equal(sched_push(sched, &decode, now_nsec), SCHED_PUSHED);
            assert_int_equal(sched_next(sched, now_nsec, batch, &verdict), 1);
            assert_ptr_equal(batch[0], &decode);
            sched_ended(sched, now_nsec, 1000);
            sched_done(sched, &decode, now_nsec);
            now_nsec += 1000;
        }
        assert_int_equal(sched_push(sched, &prefill, now_nsec), SCHED_PUSHED);
        assert_int_equal(sched_next(sched, now_nsec, batch, &verdict), 1);
        assert_ptr_equal(batch[0], &prefill);
        assert_int_equal(verdict.n_rows, i == 2 ? 256 : 1024);
        sched_ended(sched, now_nsec, 1000);
        sched_done(sched, &prefill, now_nsec);
    }
    (void)sched_free(sched);
}

static void classes_do_not_mix(void **state)
{
    (void)state;
    struct sched *sched = new_sched(SCHED_NATURAL);
    struct sched_item items[4] = {item_of(1, 1, 1), item_of(1, 1, 1), item_of(1, 1, 1),
                                  item_of(1, 2, 1)};
    items[1].class_key = 5;
    for (int i = 0; i < 4; i++) {
        push(sched, &items[i]);
    }
    struct sched_item *batch[BATCH_MAX];
    /* The second of session 1 is of another class: its third, of the first class, may not overtake.
     */
    assert_int_equal(next(sched, batch), 2);
    assert_int_equal(items[0].state, SCHED_TAKEN);
    assert_int_equal(items[3].state, SCHED_TAKEN);
    assert_int_equal(next(sched, batch), 1);
    assert_ptr_equal(batch[0], &items[1]);
    (void)sched_free(sched);
}

static void without_batching_each_goes_alone(void **state)
{
    (void)state;
    struct sched *sched = new_sched(SCHED_OFF);
    struct sched_item items[10];
    for (uint32_t i = 0; i < 10; i++) {
        items[i] = item_of(1, i % 2, 1);
        push(sched, &items[i]);
    }
    struct sched_item *batch[BATCH_MAX];
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(next(sched, batch), 1);
        assert_ptr_equal(batch[0], &items[i]);
    }
    (void)sched_free(sched);
}

static void full_and_bad_limits(void **state)
{
    (void)state;
    struct sched *sched;
    struct sched_limits limits = {0, 1, 1, 1, 1, SCHED_NATURAL};
    assert_true(sched_new(&limits, &sched) < 0);
    limits.items_max = 2;
    limits.weights_max = 0;
    assert_true(sched_new(&limits, &sched) < 0);
    limits.weights_max = 1;
    assert_int_equal(sched_new(&limits, &sched), 0);
    memset(sessions, 0, sizeof(sessions));
    for (uint32_t i = 0; i < 4; i++) {
        sched_join(sched, &sessions[i]);
    }
    struct sched_item items[3] = {item_of(1, 1, 1), item_of(2, 2, 1), item_of(3, 3, 1)};
    push(sched, &items[0]);
    push(sched, &items[1]);
    assert_int_equal(sched_push(sched, &items[2], 0), SCHED_FULL);
    assert_true(sched_cancel(sched, &items[0], 0));
    assert_false(sched_cancel(sched, &items[0], 0));
    push(sched, &items[2]);
    assert_null(sched_free(sched));
    assert_null(sched_free(NULL));
}

static void deadlines_come_in_order(void **state)
{
    (void)state;
    struct sched *sched = new_sched(SCHED_NATURAL);
    struct sched_item items[100];
    for (uint32_t i = 0; i < 100; i++) {
        items[i] = item_of(i % 3, i % 7, 1);
        items[i].deadline_nsec = 1000 + (i * 37) % 100;
        push(sched, &items[i]);
    }
    assert_int_equal(sched_deadline(sched), 1000);
    assert_null(sched_expired(sched, 999));
    for (uint32_t i = 0; i < 100; i += 4) {
        assert_true(sched_cancel(sched, &items[i], 0));
    }
    uint64_t last = 0;
    uint32_t n_expired = 0;
    for (struct sched_item *item; (item = sched_expired(sched, 1099)) != NULL; n_expired++) {
        assert_true(item->deadline_nsec >= last);
        assert_int_equal(item->state, SCHED_OUTSIDE);
        last = item->deadline_nsec;
    }
    assert_int_equal(n_expired, 75);
    assert_int_equal(sched_deadline(sched), UINT64_MAX);
    assert_int_equal(sched_queued(sched), 0);
    (void)sched_free(sched);
}

/* ---- random scenarios against a model ---- */

/* What the model remembers beside an item. */
struct record {
    struct sched_item item;
    uint64_t order;      /* of its push */
    uint64_t pushed_at;  /* calls of next() before it was pushed */
    uint32_t wait_bound; /* calls of next() that it may take until it starts */
};

struct scenario {
    struct sched *sched;
    struct record records[ITEMS];
    uint64_t now_nsec;
    uint64_t n_pushes;
    uint64_t n_nexts;
    uint64_t last_started[N_WEIGHTS][N_SESSIONS]; /* order of the last item that started */
    uint32_t n_queued;
};

static void push_random(struct scenario *scenario, struct record *record)
{
    record->item = item_of(random_below(N_WEIGHTS), random_below(N_SESSIONS),
                           random_below(20) == 0 ? 65 + random_below(500) : 1 + random_below(64));
    record->item.class_key = random_below(8) == 0;
    record->item.deadline_nsec = random_below(3) == 0 ? scenario->now_nsec + random_below(5000) : 0;
    uint32_t n_before = 0;
    for (uint32_t i = 0; i < ITEMS; i++) {
        const struct sched_item *other = &scenario->records[i].item;
        n_before += other != &record->item && other->state == SCHED_QUEUED &&
                    other->weight_key == record->item.weight_key &&
                    other->session == record->item.session;
    }
    record->order = ++scenario->n_pushes;
    record->pushed_at = scenario->n_nexts;
    /* A round has two launches a session at most: each costs a quantum here, which those who share
     * it pay together, and everybody may overdraw once; every other launch of a
     * session may be one whose deadline was near, which is no turn of its own. A prefill waits for
     * time to pass, not for launches. */
    record->wait_bound = (n_before + 1) * 2 * 2 * N_SESSIONS * N_WEIGHTS;
    if (record->item.n_rows > ROWS_MAX) {
        record->wait_bound = UINT32_MAX;
    }
    assert_int_equal(sched_push(scenario->sched, &record->item, scenario->now_nsec), SCHED_PUSHED);
    scenario->n_queued++;
}

static void check_start(struct scenario *scenario, const struct sched_item *item)
{
    const struct record *record = (const struct record *)item;
    uint64_t *last = &scenario->last_started[item->weight_key][item->session - sessions];
    assert_int_equal(item->state, SCHED_TAKEN);
    assert_true(record->order > *last || item->n_rows > ROWS_MAX);
    assert_true(scenario->n_nexts - record->pushed_at <= record->wait_bound);
    *last = item->n_rows > ROWS_MAX ? *last : record->order;
}

static void next_and_check(struct scenario *scenario, enum sched_mode mode)
{
    struct sched_item *batch[BATCH_MAX];
    uint32_t n = next(scenario->sched, batch);
    scenario->n_nexts++;
    assert_int_equal(n == 0, scenario->n_queued == 0);
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        check_start(scenario, batch[i]);
        assert_int_equal(batch[i]->weight_key, batch[0]->weight_key);
        assert_int_equal(batch[i]->class_key, batch[0]->class_key);
        n_rows += batch[i]->n_rows;
        sched_done(scenario->sched, batch[i],
                   scenario->now_nsec); /* a second time in one batch would abort here */
    }
    assert_true(n <= 1 || (n_rows <= ROWS_MAX && mode != SCHED_OFF));
    scenario->n_queued -= n;
}

static void leave_early(struct scenario *scenario, struct record *record)
{
    bool was_queued = record->item.state == SCHED_QUEUED;
    assert_int_equal(sched_cancel(scenario->sched, &record->item, scenario->now_nsec), was_queued);
    scenario->n_queued -= was_queued;
}

static void expire_and_check(struct scenario *scenario)
{
    for (struct sched_item *item;
         (item = sched_expired(scenario->sched, scenario->now_nsec)) != NULL;) {
        assert_true(item->deadline_nsec != 0 && item->deadline_nsec <= scenario->now_nsec);
        assert_int_equal(item->state, SCHED_OUTSIDE);
        scenario->n_queued--;
    }
    uint64_t earliest = UINT64_MAX;
    for (uint32_t i = 0; i < ITEMS; i++) {
        const struct sched_item *item = &scenario->records[i].item;
        if (item->state == SCHED_QUEUED && item->deadline_nsec != 0) {
            earliest = item->deadline_nsec < earliest ? item->deadline_nsec : earliest;
        }
    }
    assert_int_equal(sched_deadline(scenario->sched), earliest);
}

static void step(struct scenario *scenario, enum sched_mode mode)
{
    struct record *record = &scenario->records[random_below(ITEMS)];
    uint32_t what = random_below(100);
    if (what < 60 && record->item.state == SCHED_OUTSIDE) {
        push_random(scenario, record);
    } else if (what < 90) {
        next_and_check(scenario, mode);
    } else if (what < 95) {
        leave_early(scenario, record);
    } else {
        scenario->now_nsec += random_below(1000);
        expire_and_check(scenario);
    }
    assert_int_equal(sched_queued(scenario->sched), scenario->n_queued);
}

static void run_scenario(uint64_t number, enum sched_mode mode)
{
    seed = number * 7919 + 1;
    struct scenario *scenario = calloc(1, sizeof(*scenario));
    assert_non_null(scenario);
    scenario->sched = new_sched(mode);
    for (int i = 0; i < 5000; i++) {
        step(scenario, mode);
    }
    while (scenario->n_queued > 0) { /* nothing is lost: every one comes out in the end */
        next_and_check(scenario, mode);
    }
    for (uint32_t i = 0; i < ITEMS; i++) {
        assert_int_equal(scenario->records[i].item.state, SCHED_OUTSIDE);
    }
    (void)sched_free(scenario->sched);
    free(scenario);
}

static void random_scenarios(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20; i++) {
        run_scenario(i, SCHED_NATURAL);
    }
    for (uint64_t i = 0; i < 5; i++) {
        run_scenario(1000 + i, SCHED_OFF);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flood_leaves_room_for_others),
        cmocka_unit_test(flood_of_one_weight_delays_another_by_one_launch),
        cmocka_unit_test(sessions_of_equal_need_get_equal_shares),
        cmocka_unit_test(prefill_comes_alone),
        cmocka_unit_test(chunks_are_small_beside_decode),
        cmocka_unit_test(classes_do_not_mix),
        cmocka_unit_test(without_batching_each_goes_alone),
        cmocka_unit_test(full_and_bad_limits),
        cmocka_unit_test(deadlines_come_in_order),
        cmocka_unit_test(random_scenarios),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
