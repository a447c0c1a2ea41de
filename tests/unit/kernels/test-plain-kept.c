/* test-plain-kept.c - plans of plain weights: one for each kind of GPU, kept as text, and what an
 * earlier process has kept is used where it holds and thrown away where it does not. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "kernels/cuda/plain_plan.h"
#include "kernels/cuda/plain_text.h"
#include "tests/unit/kernels/fake_cublaslt.h"

#define N 64u

static const struct fake_algorithm good_ones[] = {
    {.order = FAKE_ORDER_A, .msec = 2},
    {.order = FAKE_ORDER_A, .msec = 1, .few_rows = 96, .many_msec = 4},
    {.order = FAKE_ORDER_B, .msec = 1}};

static uint16_t w[48 * N];
static uint32_t next_k = 16; /* a shape that nothing has been planned for */

static int set_up(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LENGTH(w); i++) {
        w[i] = bf16_from_f32(0.37f + 0.011f * (float)(i % 61));
    }
    fake_algorithms = good_ones;
    fake_n_algorithms = ARRAY_LENGTH(good_ones);
    fake_version = 130100;
    return 0;
}

static struct gk_problem next_problem(void)
{
    return (struct gk_problem){
        .desc = {.n = N, .k = next_k++, .code = GK_CODE_BF16}, .cuda_arch = 90, .n_sms = 132};
}

/* The plan for a new shape, of which `kept` was kept; NULL: none. */
static const struct plain_plan *plan_with(const char *kept, struct gk_planning *planning)
{
    const struct gk_problem problem = next_problem();
    const char *text = NULL;
    *planning = GK_PLANNING_NULL;
    planning->kept = kept;
    fake_n_products = 0;
    assert_int_equal(plain_plan_make(&problem, w, planning), cudaSuccess);
    assert_int_equal(fake_n_held, 0);
    return plain_plan_find(&problem, &text);
}

static void assert_same_plan(const struct plain_plan *a, const struct plain_plan *b)
{
    for (uint32_t m = 1; m <= a->rounded.rows_max; m++) {
        assert_int_equal(fake_index_of(plain_algorithm(&a->sums, m)),
                         fake_index_of(plain_algorithm(&b->sums, m)));
        assert_int_equal(fake_index_of(plain_algorithm(&a->rounded, m)),
                         fake_index_of(plain_algorithm(&b->rounded, m)));
    }
}

/* ---- as text ---- */

static void test_text_holds_the_plan(void **state)
{
    (void)state;
    struct plain_plan plan = {.sums.rows_max = 512}, again;
    char text[GK_PLAN_TEXT_BYTES];
    for (uint32_t i = 0; i < PLAIN_RANGES_MAX; i++) {
        memset(&plan.sums.algorithms[i], (int)(0x80 + i), sizeof(plan.sums.algorithms[i]));
        memset(&plan.rounded.algorithms[i], (int)(0xf0 - i), sizeof(plan.rounded.algorithms[i]));
    }
    for (plan.rounded.rows_max = 0; plan.rounded.rows_max <= 1024; plan.rounded.rows_max += 1024) {
        plain_text_format(&plan, 130100, text);
        assert_null(strpbrk(text, "\t\n"));
        assert_int_equal(plain_text_parse(text, 130100, 512, 1024, &again, NULL), 0);
        assert_int_equal(again.sums.rows_max, 512);
        assert_int_equal(again.rounded.rows_max, plan.rounded.rows_max);
        assert_memory_equal(again.sums.algorithms, plan.sums.algorithms,
                            plain_ranges(512) * sizeof(plan.sums.algorithms[0]));
        assert_memory_equal(again.rounded.algorithms, plan.rounded.algorithms,
                            plain_ranges(plan.rounded.rows_max) *
                                sizeof(plan.rounded.algorithms[0]));
    }
}

static void expect_refused(const char *text, uint64_t version, uint32_t sums_rows,
                           const char *words)
{
    struct plain_plan plan;
    struct reason why = REASON_NULL;
    assert_int_equal(plain_text_parse(text, version, sums_rows, 1024, &plan, &why),
                     STATUS_UNSUPPORTED);
    assert_string_equal(why.text, words);
}

/* No text takes anybody for a plan that is none: every cut and every changed byte is seen. */
static void test_text_that_is_damaged(void **state)
{
    (void)state;
    struct plain_plan plan = {.sums = {.rows_max = 32}, .rounded = {.rows_max = 0}};
    char good[GK_PLAN_TEXT_BYTES], text[GK_PLAN_TEXT_BYTES];
    memset(plan.sums.algorithms, 0x5a, sizeof(plan.sums.algorithms));
    plain_text_format(&plan, 130100, good);
    for (uint32_t i = 0; good[i] != '\0'; i++) {
        memcpy(text, good, sizeof(text));
        text[i] = (char)(good[i] == '5' ? '6' : '5');
        expect_refused(text, 130100, 32, "it is damaged");
        text[i] = '\0';
        expect_refused(text, 130100, 32, "it is damaged");
    }
    expect_refused("garbage", 130100, 32, "it is damaged");
    for (uint32_t i = 0; i + 1 < sizeof(text); i++) {
        text[i] = i % 2 == 0 ? '1' : ' ';
    }
    text[sizeof(text) - 1] = '\0';
    expect_refused(text, 130100, 32, "it is damaged"); /* more words than any plan has */
    expect_refused(good, 130200, 32, "it is of cuBLASLt 130100, and this is 130200");
    expect_refused(good, 130100, 64, "it is for calls of other numbers of rows");
}

/* ---- plans ---- */

static void test_what_is_kept_spares_the_trial(void **state)
{
    (void)state;
    struct gk_planning first, second;
    const struct plain_plan *made = plan_with(NULL, &first);
    assert_non_null(made);
    assert_true(first.text[0] != '\0' && first.note.status == 0);
    uint32_t n_tried = fake_n_products;
    const struct plain_plan *recalled = plan_with(first.text, &second);
    assert_non_null(recalled);
    assert_true(second.text[0] == '\0' && second.note.status == 0);
    assert_same_plan(made, recalled);
    assert_true(fake_n_products * 10 < n_tried);
}

/* A plan is made anew, and kept, with a line that says why. */
static void expect_thrown_away(const char *kept, const char *words)
{
    struct gk_planning planning;
    assert_non_null(plan_with(kept, &planning));
    assert_true(planning.text[0] != '\0');
    if (strstr(planning.note.text, "the kept plan is thrown away: ") == NULL ||
        strstr(planning.note.text, words) == NULL) {
        fail_msg("'%s' is not in: %s", words, planning.note.text);
    }
}

static void test_what_does_not_hold_is_thrown_away(void **state)
{
    (void)state;
    struct gk_planning planning;
    assert_non_null(plan_with(NULL, &planning));
    static const struct fake_algorithm others[] = {{.order = FAKE_ORDER_A, .msec = 2},
                                                   {.order = FAKE_ORDER_B, .msec = 1}};
    static const struct fake_algorithm failing[] = {{.order = FAKE_ORDER_A, .msec = 2},
                                                    {.order = FAKE_ORDER_A, .fails = true}};
    expect_thrown_away("gar bage", "it is damaged");
    fake_version = 130200;
    expect_thrown_away(planning.text, "it is of cuBLASLt 130100");
    fake_version = 130100;
    fake_algorithms = others; /* what it names has another order of sums now */
    fake_n_algorithms = 2;
    expect_thrown_away(planning.text, "gives a row other bits than another");
    fake_n_algorithms = 1;
    expect_thrown_away(planning.text, "is declined by cuBLASLt");
    fake_algorithms = failing;
    fake_n_algorithms = 2;
    struct gk_planning after;
    assert_non_null(plan_with(planning.text, &after));
    assert_non_null(strstr(after.note.text, "failed with CUBLAS_STATUS_EXECUTION_FAILED"));
}

/* Zeros have the same bits in any order: a plan that does not hold is seen all the same. */
static void test_a_weight_of_zeros_believes_no_file(void **state)
{
    (void)state;
    struct gk_planning planning;
    static const struct fake_algorithm others[] = {{.order = FAKE_ORDER_A, .msec = 2},
                                                   {.order = FAKE_ORDER_B, .msec = 1}};
    assert_non_null(plan_with(NULL, &planning));
    memset(w, 0, sizeof(w));
    fake_algorithms = others;
    fake_n_algorithms = 2;
    expect_thrown_away(planning.text, "gives a row other bits than another");
}

/* GPUs of one kind share a plan, each with a handle of its own; those of other numbers of
 * multiprocessors do not. */
static void test_kinds_of_devices(void **state)
{
    (void)state;
    struct gk_problem problem = next_problem();
    struct gk_planning planning = GK_PLANNING_NULL;
    const char *text;
    fake_n_opened = 0;
    assert_int_equal(plain_plan_make(&problem, w, &planning), cudaSuccess);
    const struct plain_plan *plan = plain_plan_find(&problem, &text);
    assert_non_null(plan);
    assert_int_equal(plain_plan_make(&problem, w, &planning), cudaSuccess);
    assert_ptr_equal(plain_plan_find(&problem, &text), plan);
    assert_int_equal(fake_n_opened, 2);
    problem.n_sms = 114;
    assert_null(plain_plan_find(&problem, &text));
    assert_string_equal(text, "no weight of that shape has been planned for");
    assert_int_equal(plain_plan_make(&problem, w, &planning), cudaSuccess);
    assert_ptr_not_equal(plain_plan_find(&problem, &text), plan);
}

/* Why there is none is told by the plan's absence, too. */
static void test_none(void **state)
{
    (void)state;
    static const struct fake_algorithm failing[] = {{.fails = true}};
    struct gk_problem problem = next_problem();
    struct gk_planning planning = GK_PLANNING_NULL;
    const char *text = NULL;
    fake_algorithms = failing;
    fake_n_algorithms = 1;
    assert_int_equal(plain_plan_make(&problem, w, &planning), cudaSuccess);
    assert_null(plain_plan_find(&problem, &text));
    assert_string_equal(text, planning.note.text);
    assert_non_null(strstr(text, "CUBLAS_STATUS_EXECUTION_FAILED"));
    assert_string_equal(planning.text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_text_holds_the_plan, set_up),
        cmocka_unit_test_setup(test_text_that_is_damaged, set_up),
        cmocka_unit_test_setup(test_what_is_kept_spares_the_trial, set_up),
        cmocka_unit_test_setup(test_what_does_not_hold_is_thrown_away, set_up),
        cmocka_unit_test_setup(test_a_weight_of_zeros_believes_no_file, set_up),
        cmocka_unit_test_setup(test_kinds_of_devices, set_up),
        cmocka_unit_test_setup(test_none, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
