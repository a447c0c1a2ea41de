/* test-accuracy.c - the table of kernels/NUMERICS.md: how far products of every format are from the
 * double reference, for numbers of rows and shapes that are multiples of nothing. More rows than a
 * launch takes go in batches, as the daemon has them. Printed as the page has it. */
#include <math.h>
#include <stdio.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "reference_case.h"

static const uint32_t n_rows[] = {1, 17, 64, 257};
static const uint32_t shapes[][2] = {{129, 520}, {77, 1111}};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The worst batch. */
static struct errors run_batches(const struct weight_case *weight, uint32_t m, enum dtype y_dtype,
                                 struct random *random)
{
    const struct gk_desc *desc = &weight->canonical.desc;
    struct errors worst = {0, 0};
    for (uint32_t i_m = 0; i_m < m; i_m += GK_BATCH_ROWS_MAX) {
        uint32_t n_batch = (uint32_t)num_min(GK_BATCH_ROWS_MAX, m - i_m);
        struct rows_case x, y;
        rows_init(&x, n_batch, desc->k, DTYPE_BF16);
        rows_init(&y, n_batch, desc->n, y_dtype);
        rows_random(&x, random);
        kernel_run(kernel_best(weight, &x, &y), weight, &x, &y, 2);
        struct errors errors = reference_errors(&weight->canonical, &x, &y);
        worst.frobenius = larger(worst.frobenius, errors.frobenius);
        worst.worst_share = larger(worst.worst_share, errors.worst_share);
        rows_finish(&x);
        rows_finish(&y);
    }
    return worst;
}

static struct errors measure(const struct format_case *format, uint32_t m, enum dtype y_dtype)
{
    struct random random = {1};
    struct errors worst = {0, 0};
    for (uint32_t i = 0; i < ARRAY_LENGTH(shapes); i++) {
        struct gk_desc desc = format_desc(format, shapes[i][0], shapes[i][1], DTYPE_BF16);
        struct gk_canonical canonical;
        canonical_random(&canonical, &desc, &random);
        struct weight_case weight;
        weight_case_init(&weight, &canonical);
        struct errors errors = run_batches(&weight, m, y_dtype, &random);
        worst.frobenius = larger(worst.frobenius, errors.frobenius);
        worst.worst_share = larger(worst.worst_share, errors.worst_share);
        weight_case_finish(&weight);
    }
    return worst;
}

static void test_table(void **state)
{
    (void)state;
    printf("| format |");
    for (uint32_t i = 0; i < ARRAY_LENGTH(n_rows); i++) {
        printf(" m %u, f32 |", n_rows[i]);
    }
    printf(" m 64, bf16 |\n|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < n_format_cases; i++) {
        printf("| %s |", format_cases[i].name);
        for (uint32_t j = 0; j <= ARRAY_LENGTH(n_rows); j++) {
            bool is_f32 = j < ARRAY_LENGTH(n_rows);
            enum dtype y_dtype = is_f32 ? DTYPE_F32 : DTYPE_BF16;
            struct errors errors = measure(&format_cases[i], is_f32 ? n_rows[j] : 64, y_dtype);
            printf(" %.1e, %.3f |", errors.frobenius, errors.worst_share);
            assert_true(errors.frobenius <= frobenius_tolerance(y_dtype));
            assert_true(errors.worst_share <= 1);
        }
        printf("\n");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
