/* test-ring.c - wrap, full, empty, impossible peers, and two threads. */
#include <pthread.h>
#include <sched.h>

#include "ipc/ring.h"
#include "t.h"

#define N_ENTRIES 16u

struct entry {
    uint64_t sequence;
    uint64_t check;
};

struct pair {
    _Atomic uint32_t tail;
    _Atomic uint32_t head;
    struct entry entries[N_ENTRIES];
    struct ring producer;
    struct ring consumer;
};

static void pair_init(struct pair *pair, uint32_t start)
{
    *pair = (struct pair){.tail = start, .head = start};
    ring_init(&pair->producer, &pair->tail, &pair->head, pair->entries, N_ENTRIES,
              sizeof(struct entry));
    ring_init(&pair->consumer, &pair->tail, &pair->head, pair->entries, N_ENTRIES,
              sizeof(struct entry));
    pair->producer.own = start;
    pair->consumer.own = start;
}

static struct entry make_entry(uint64_t sequence)
{
    return (struct entry){.sequence = sequence, .check = ~sequence * 3};
}

static void fill_and_empty(struct pair *pair, uint64_t base)
{
    struct entry entry;
    uint32_t n_free;
    for (uint32_t i = 0; i < N_ENTRIES; i++) {
        assert_int_equal(ring_room(&pair->producer, &n_free), RING_OK);
        assert_int_equal(n_free, N_ENTRIES - i);
        assert_int_equal(ring_fill(&pair->consumer), i);
        entry = make_entry(base + i);
        assert_int_equal(ring_push(&pair->producer, &entry), RING_OK);
    }
    assert_int_equal(ring_push(&pair->producer, &entry), RING_FULL);
    for (uint32_t i = 0; i < N_ENTRIES; i++) {
        assert_int_equal(ring_pop(&pair->consumer, &entry), RING_OK);
        assert_int_equal(entry.sequence, base + i);
    }
    assert_int_equal(ring_pop(&pair->consumer, &entry), RING_EMPTY);
}

static void test_full_and_empty(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair, 0);
    for (uint64_t i = 0; i < 5; i++) {
        fill_and_empty(&pair, i * 100);
    }
}

static void test_wraps_at_32_bits(void **state)
{
    (void)state;
    struct pair pair;
    for (uint32_t before = 0; before <= N_ENTRIES; before++) {
        pair_init(&pair, 0u - before);
        fill_and_empty(&pair, before);
        assert_int_equal(pair.tail, N_ENTRIES - before);
    }
}

/* What was pushed before the mark is taken once its places are given back, not when it is read. */
static void test_taken_when_given_back(void **state)
{
    (void)state;
    struct pair pair;
    struct entry entry;
    for (uint32_t before = 0; before <= 4; before++) {
        pair_init(&pair, 0u - before);
        uint32_t mark = pair.producer.own;
        for (uint64_t i = 0; i < 3; i++) {
            entry = make_entry(i);
            assert_int_equal(ring_push(&pair.producer, &entry), RING_OK);
            mark = i == 1 ? pair.producer.own : mark;
        }
        for (uint64_t i = 0; i < 3; i++) {
            assert_int_equal(ring_is_taken(&pair.producer, mark), i >= 2);
            assert_int_equal(ring_peek(&pair.consumer, &entry), RING_OK);
            assert_int_equal(entry.sequence, i);
            assert_int_equal(ring_is_taken(&pair.producer, mark), i >= 2);
            ring_advance(&pair.consumer);
        }
        assert_true(ring_is_taken(&pair.producer, pair.producer.own));
        assert_int_equal(ring_peek(&pair.consumer, &entry), RING_EMPTY);
    }
}

/* At most N_ENTRIES may ever lie between the two indices; a peer may claim anything. */
static void test_impossible_indices_are_corrupt(void **state)
{
    (void)state;
    static const uint32_t claims[] = {N_ENTRIES + 1, 0x7fffffff, 0x80000000, 0xffffffff};
    struct entry entry = make_entry(0);
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        struct pair pair;
        pair_init(&pair, 1000);
        pair.tail = 1000 + claims[i];
        assert_int_equal(ring_pop(&pair.consumer, &entry), RING_CORRUPT);
        assert_int_equal(ring_fill(&pair.consumer), N_ENTRIES);
        pair.head = 1000 - claims[i];
        assert_int_equal(ring_push(&pair.producer, &entry), RING_CORRUPT);
        uint32_t n_free;
        assert_int_equal(ring_room(&pair.producer, &n_free), RING_CORRUPT);
        assert_int_equal(n_free, 0);
        assert_true(ring_is_taken(&pair.producer, 1000)); /* nothing to wait for */
        assert_int_equal(pair.producer.own, 1000);
        assert_int_equal(pair.consumer.own, 1000);
    }
}

#define N_STRESS 200000u /* each sixteen may cost a turn of the scheduler on a busy machine */

static void *produce(void *argument)
{
    struct pair *pair = argument;
    for (uint64_t i = 0; i < N_STRESS;) {
        struct entry entry = make_entry(i);
        if (ring_push(&pair->producer, &entry) == RING_OK) {
            i++;
        } else {
            (void)sched_yield();
        }
    }
    return NULL;
}

static void test_two_threads(void **state)
{
    (void)state;
    struct pair pair;
    pthread_t thread;
    uint64_t n_wrong = 0;
    pair_init(&pair, 0u - N_STRESS / 2);
    assert_int_equal(pthread_create(&thread, NULL, produce, &pair), 0);
    for (uint64_t i = 0; i < N_STRESS;) {
        struct entry entry;
        if (ring_pop(&pair.consumer, &entry) != RING_OK) {
            (void)sched_yield();
            continue;
        }
        n_wrong += entry.sequence != i || entry.check != make_entry(i).check;
        i++;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(n_wrong, 0);
    assert_int_equal(ring_fill(&pair.consumer), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_and_empty),
        cmocka_unit_test(test_wraps_at_32_bits),
        cmocka_unit_test(test_taken_when_given_back),
        cmocka_unit_test(test_impossible_indices_are_corrupt),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
