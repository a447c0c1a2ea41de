/* test-route.c - orders of weights learned from requests alone. */
#include "tests/unit/engine/cmocka_all.h"

#include <string.h>

#include "daemon/engine/route.h"

#define N_WALKERS 3u

static struct routes *routes;
static struct route_walker walkers[N_WALKERS];
static uint64_t now;

static int set_up(void **state)
{
    (void)state;
    const struct route_limits limits = {40, 100, 4};
    assert_int_equal(route_new(&limits, &routes), 0);
    memset(walkers, 0, sizeof(walkers));
    for (uint32_t i = 0; i < N_WALKERS; i++) {
        route_join(routes, &walkers[i]);
    }
    now = 1000;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(route_free(routes));
    return 0;
}

/* One request from its arrival to its end, after that long a thought. */
static void step(uint32_t i_walker, uint64_t weight, uint64_t think_nsec)
{
    now += think_nsec;
    route_arrive(routes, &walkers[i_walker], route_node(routes, weight), now);
    now += 30;
    route_complete(&walkers[i_walker], now);
}

static void walk(uint32_t i_walker, uint64_t n_weights, uint32_t n_passes, uint64_t think_nsec)
{
    for (uint32_t i = 0; i < n_passes; i++) {
        for (uint64_t weight = 1; weight <= n_weights; weight++) {
            step(i_walker, weight, think_nsec);
        }
    }
}

static void one_alone_is_known_after_some_passes(void **state)
{
    (void)state;
    walk(0, 10, 1, 50);
    assert_int_equal(route_rings(routes), 0);
    walk(0, 10, 4, 50);
    assert_int_equal(route_rings(routes), 1);
    assert_non_null(walkers[0].ring);
    assert_int_equal(walkers[0].ring->n_nodes, 10);
    assert_int_equal(route_think_nsec(&walkers[0]), 50);
}

static void the_second_finds_the_way(void **state)
{
    (void)state;
    walk(0, 10, 5, 50);
    for (uint64_t weight = 4; weight < 7; weight++) {
        step(1, weight, 20);
    }
    assert_ptr_equal(walkers[1].ring, walkers[0].ring);
    assert_int_equal(walkers[0].ring->n_walkers, 2);
    step(1, 2, 20); /* somewhere else */
    assert_null(walkers[1].ring);
    assert_int_equal(walkers[0].ring->n_walkers, 1);
}

static void think_times_are_each_edge_s_own(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 30; i++) {
        for (uint64_t weight = 1; weight <= 5; weight++) {
            step(0, weight, weight * 100); /* before it */
        }
    }
    assert_int_equal(route_think_nsec(&walkers[0]), 100); /* 5 is followed by 1 */
    step(0, 1, 100);
    assert_int_equal(route_think_nsec(&walkers[0]), 200);
}

/* Several at once: nothing is thought in between. */
static void bursts_have_an_order_too(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        for (uint64_t weight = 1; weight <= 9; weight += 3) {
            now += 70;
            for (uint64_t j = 0; j < 3; j++) {
                route_arrive(routes, &walkers[0], route_node(routes, weight + j), now);
            }
            for (uint64_t j = 0; j < 3; j++) {
                now += 30;
                route_complete(&walkers[0], now);
            }
        }
    }
    assert_non_null(walkers[0].ring);
    assert_int_equal(walkers[0].ring->n_nodes, 9);
    assert_int_equal(route_think_nsec(&walkers[0]), 70);
}

static void what_has_no_order_is_on_no_ring(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (uint32_t i = 0; i < 2000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        step(0, 1 + (random >> 33) % 10, 10);
    }
    assert_null(walkers[0].ring);
    /* A weight that comes twice in a pass has two successors. */
    for (uint32_t i = 0; i < 20; i++) {
        step(1, 20, 10);
        step(1, 21, 10);
        step(1, 20, 10);
        step(1, 22, 10);
    }
    assert_null(walkers[1].ring);
}

static void prefill_interrupts(void **state)
{
    (void)state;
    walk(0, 10, 5, 50);
    assert_non_null(walkers[0].ring);
    route_arrive(routes, &walkers[0], NULL, now);
    route_complete(&walkers[0], now);
    assert_null(walkers[0].ring);
    walk(0, 10, 1, 50);
    assert_non_null(walkers[0].ring);
}

static void a_changed_order_is_learned_anew(void **state)
{
    (void)state;
    walk(0, 10, 5, 50);
    walk(0, 7, 20, 50);
    assert_int_equal(route_rings(routes), 1);
    assert_int_equal(walkers[0].ring->n_nodes, 7);
}

/* Tables that are full: weights without a node, then all anew. */
static void forgetting(void **state)
{
    (void)state;
    walk(0, 40, 5, 50);
    assert_int_equal(route_rings(routes), 1);
    assert_null(route_node(routes, 41));
    assert_non_null(route_node(routes, 40));
    route_forget(routes);
    assert_int_equal(route_rings(routes), 0);
    assert_null(walkers[0].ring);
    assert_non_null(route_node(routes, 41));
    walk(0, 10, 5, 50);
    assert_int_equal(route_rings(routes), 1);
    for (uint32_t i = 0; i < 50; i++) { /* edges of those who leave are used again */
        walk(1, 10, 3, 50);
        route_leave(routes, &walkers[1]);
        route_join(routes, &walkers[1]);
    }
    walk(1, 10, 2, 50);
    assert_ptr_equal(walkers[1].ring, walkers[0].ring);
}

static void bad_limits(void **state)
{
    (void)state;
    struct routes *none;
    assert_true(route_new(&(struct route_limits){0, 1, 1}, &none) < 0);
    assert_true(route_new(&(struct route_limits){1, 0, 1}, &none) < 0);
    assert_true(route_new(&(struct route_limits){1, 1, 0}, &none) < 0);
    assert_null(route_free(NULL));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_alone_is_known_after_some_passes),
        TEST(the_second_finds_the_way),
        TEST(think_times_are_each_edge_s_own),
        TEST(bursts_have_an_order_too),
        TEST(what_has_no_order_is_on_no_ring),
        TEST(prefill_interrupts),
        TEST(a_changed_order_is_learned_anew),
        TEST(forgetting),
        TEST(bad_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
