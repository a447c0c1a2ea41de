/* test-bench-weight.c - made-up weights: good values, enough copies, and all memory back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/weights/bench_format.h"
#include "daemon/weights/bench_weight.h"
#include "tests/unit/weights/fake_device.h"

#define N 64u
#define K 128u

static struct fake_device fake;
static struct progress progress;

static int set_up(void **state)
{
    (void)state;
    fake_device_init(&fake);
    progress_init(&progress);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    progress_finish(&progress);
    fake_device_finish(&fake); /* no region is left */
    return 0;
}

static struct gk_desc desc_of(const char *name)
{
    struct gk_desc desc;
    assert_int_equal(bench_format_desc(name, N, K, DTYPE_F16, &desc, NULL), 0);
    return desc;
}

/* Finite, not all alike, of both signs, and nothing that would drown the rest. */
static void check_values(const struct gk_canonical *canonical, const char *name)
{
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (uint32_t i = 0; i < N * K; i++) {
        double value = gk_canonical_value(canonical, i / K, i % K);
        least = fmin(least, value);
        most = fmax(most, value);
        if (!isfinite(value) || fabs(value) > 2) {
            fail_msg("%s: element %u is %g", name, i, value);
        }
    }
    assert_true(least < 0 && most > 0);
}

static void test_values_of_every_format(void **state)
{
    (void)state;
    for (uint32_t i = 0; bench_format_name(i); i++) {
        struct gk_canonical canonical;
        const struct gk_desc desc = desc_of(bench_format_name(i));
        assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
        bench_weight_fill(&canonical);
        check_values(&canonical, bench_format_name(i));
        gk_canonical_finish(&canonical);
    }
}

static void test_act_order_is_a_permutation(void **state)
{
    (void)state;
    struct gk_canonical canonical;
    const struct gk_desc desc = desc_of("int4-g128-act-order");
    bool is_seen[K] = {false};
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    bench_weight_fill(&canonical);
    for (uint32_t i = 0; i < K; i++) {
        assert_true(canonical.perm[i] < K);
        assert_false(is_seen[canonical.perm[i]]);
        is_seen[canonical.perm[i]] = true;
    }
    gk_canonical_finish(&canonical);
}

static int make(const char *name, struct bench_weight *weight, struct reason *why)
{
    const struct gk_desc desc = desc_of(name);
    return bench_weight_init(weight, &fake.base, &desc, gk_layout_for(&desc, GK_DEVICE_HOST),
                             &progress, why);
}

static void test_copies_hold_the_same_weight(void **state)
{
    (void)state;
    struct bench_weight weight;
    const struct gk_desc desc = desc_of("int8-g128");
    assert_int_equal(make("int8-g128", &weight, NULL), 0);
    assert_int_equal(weight.n_copies, BENCH_COPIES_MAX); /* so small that more would be needed */
    assert_int_equal(atomic_load(&fake.n_regions), BENCH_COPIES_MAX);
    struct gk_canonical made, packed;
    assert_int_equal(gk_canonical_alloc(&made, &desc), 0);
    assert_int_equal(gk_canonical_alloc(&packed, &desc), 0);
    bench_weight_fill(&made);
    for (uint32_t i = 0; i < weight.n_copies; i++) {
        gk_layout_for(&desc, GK_DEVICE_HOST)->unpack(weight.packed[i], &packed);
        assert_memory_equal(made.codes, packed.codes, N * K);
    }
    gk_canonical_finish(&made);
    gk_canonical_finish(&packed);
    bench_weight_finish(&weight);
}

static void test_no_room(void **state)
{
    (void)state;
    struct bench_weight weight;
    struct reason why = REASON_NULL;
    atomic_store(&fake.n_regions_left, 3);
    assert_int_equal(make("int4-g128", &weight, &why), STATUS_NO_SPACE);
    assert_non_null(strstr(why.text, "no room for gemmd:bench"));
    assert_int_equal(weight.n_copies, 0);
    bench_weight_finish(&weight);
}

/* Asked before anything is made: a weight that no machine has the memory for. */
static void test_machine_without_memory(void **state)
{
    (void)state;
    struct bench_weight weight;
    struct reason why = REASON_NULL;
    const struct gk_desc desc = {.n = 1u << 24, .k = 1u << 24, .code = GK_CODE_BF16};
    assert_int_equal(bench_weight_init(&weight, &fake.base, &desc,
                                       gk_layout_for(&desc, GK_DEVICE_HOST), &progress, &why),
                     STATUS_NO_SPACE);
    assert_non_null(strstr(why.text, "MiB to make; the machine has"));
}

static void test_cancelled(void **state)
{
    (void)state;
    struct bench_weight weight;
    struct reason why = REASON_NULL;
    atomic_store(&progress.is_cancelled, true);
    assert_int_equal(make("int4-g128", &weight, &why), STATUS_CANCELLED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(values_of_every_format),      TEST(act_order_is_a_permutation),
        TEST(copies_hold_the_same_weight), TEST(no_room),
        TEST(machine_without_memory),      TEST(cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
