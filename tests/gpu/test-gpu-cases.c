/* test-gpu-cases.c - published cases of other projects on every CUDA kernel that takes them:
 * products whose exact value is known (T01, T07), tails of rows (T02), a thousand runs over old
 * output of any kind (T17), scratch of one m used at another (T18). --quick, for sanitizers: few
 * runs. Skipped without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/device/device.h"
#include "ipc/base/num.h"
#include "tests/unit/kernels/kernel_case.h"

#define SKIPPED  77
#define ROWS_MAX 65u

static struct device *device;
static uint32_t n_runs = 1000;

/* ---- one weight ---- */

/* A weight on the device, m rows of x and of y in host memory. */
struct job {
    struct gk_canonical canonical;
    struct region packed;
    struct gk_problem problem;
    void *x;
    void *y;
    uint64_t x_row_bytes;
    uint64_t y_row_bytes;
};

/* Takes over canonical. */
static void job_init(struct job *job, const struct gk_canonical *canonical, uint32_t m,
                     enum dtype x_dtype, enum dtype y_dtype)
{
    struct reason why = REASON_NULL;
    const struct gk_desc *desc = &canonical->desc;
    void *bytes;
    *job = (struct job){.canonical = *canonical, .packed = REGION_NULL};
    job->problem = (struct gk_problem){.desc = *desc,
                                       .layout = gk_layout_for(desc, GK_DEVICE_CUDA),
                                       .m = m,
                                       .x_dtype = x_dtype,
                                       .y_dtype = y_dtype,
                                       .cuda_arch = device->cuda_arch};
    uint64_t size_bytes = job->problem.layout->packed_bytes(desc);
    assert_int_equal(device->ops->region_new(device, "weight", size_bytes, &job->packed, &why), 0);
    assert_int_equal(device_view_begin(device, &job->packed, DEVICE_WRITE, &bytes, &why), 0);
    job->problem.layout->pack(canonical, bytes);
    assert_int_equal(device_view_end(device, &job->packed, DEVICE_WRITE, &why), 0);
    job->x_row_bytes = (uint64_t)desc->k * dtype_bytes(x_dtype);
    job->y_row_bytes = (uint64_t)desc->n * dtype_bytes(y_dtype);
    job->x = calloc(ROWS_MAX, job->x_row_bytes);
    job->y = calloc(ROWS_MAX, job->y_row_bytes);
    assert_true(job->x != NULL && job->y != NULL);
}

static void job_finish(struct job *job)
{
    device->ops->region_free(device, &job->packed);
    gk_canonical_finish(&job->canonical);
    free(job->x);
    free(job->y);
}

static void job_random(struct job *job, struct random *random)
{
    for (uint64_t i = 0; i < (uint64_t)ROWS_MAX * job->problem.desc.k; i++) {
        elem_store(job->x, job->problem.x_dtype, i, random_unit(random));
    }
}

/* Elements first to end of every row of x. */
static void job_set(struct job *job, uint32_t first, uint32_t end, double value)
{
    for (uint64_t i_m = 0; i_m < ROWS_MAX; i_m++) {
        for (uint64_t i_k = first; i_k < end; i_k++) {
            elem_store(job->x, job->problem.x_dtype, i_m * job->problem.desc.k + i_k, value);
        }
    }
}

/* y is filled with that byte first. */
static void job_run(struct job *job, const struct gk_kernel *kernel, uint32_t m, int poison)
{
    const void *x_rows[GK_BATCH_ROWS_MAX];
    void *y_rows[GK_BATCH_ROWS_MAX];
    struct reason why = REASON_NULL;
    for (uint32_t i = 0; i < m; i++) {
        x_rows[i] = (const char *)job->x + i * job->x_row_bytes;
        y_rows[i] = (char *)job->y + i * job->y_row_bytes;
    }
    struct gk_launch launch = {
        .problem = job->problem, .packed = job->packed.base, .x_rows = x_rows, .y_rows = y_rows};
    launch.problem.m = m;
    memset(job->y, poison, ROWS_MAX * job->y_row_bytes);
    if (device_run_alone(device, kernel, &launch, &why) != 0) {
        fail_msg("%s: %s", kernel->name, why.text);
    }
}

typedef void (*job_check)(struct job *job, const struct gk_kernel *kernel, void *arg);

static void for_each_kernel(struct job *job, job_check check, void *arg)
{
    uint32_t n_kernels, n_checked = 0;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (kernels[i]->can_implement(&job->problem, NULL) == 0) {
            check(job, kernels[i], arg);
            n_checked++;
        }
    }
    assert_true(n_checked > 0);
}

/* ---- known values ---- */

static void check_value(struct job *job, const struct gk_kernel *kernel, void *arg)
{
    const double *expected = arg;
    job_run(job, kernel, job->problem.m, 0xff);
    for (uint64_t i = 0; i < (uint64_t)job->problem.m * job->problem.desc.n; i++) {
        double got = elem_load(job->y, job->problem.y_dtype, i);
        if (got != *expected) {
            fail_msg("%s, k %u, m %u: element %u is %.9g, not %.9g", kernel->name,
                     job->problem.desc.k, job->problem.m, (unsigned)i, got, *expected);
        }
    }
}

static void test_t01_more_groups_than_group_size(void **state)
{
    (void)state;
    static const uint32_t cases[][2] = {{32, 1088}, {64, 4224}, {128, 16512}};
    static const uint32_t row_counts[] = {1, 17};
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases) * ARRAY_LENGTH(row_counts); i++) {
        uint32_t group_k = cases[i / 2][0], k = cases[i / 2][1];
        double expected = group_k;
        struct gk_desc desc = desc_int4(128, k, group_k, DTYPE_F16, DTYPE_NONE);
        struct gk_canonical canonical;
        struct job job;
        canonical_fill(&canonical, &desc, 9, 1.0);
        job_init(&job, &canonical, row_counts[i % 2], DTYPE_F16, DTYPE_F32);
        job_set(&job, k - group_k, k, 1.0);
        for_each_kernel(&job, check_value, &expected);
        job_finish(&job);
    }
}

/* Codes of 1 whose sums leave what 14 bits of an accumulator hold, and come back. */
static void check_promotion(enum gk_act act, uint32_t group, uint32_t m)
{
    const uint32_t k = 16512;
    double expected = 128;
    struct gk_desc desc = desc_int4(64, k, group != 0 ? group : k, DTYPE_F32, DTYPE_NONE);
    struct gk_canonical canonical;
    struct job job;
    desc.code = GK_CODE_E4M3;
    desc.group_n = group != 0 ? 64 : 1;
    desc.act = act;
    desc.act_scale = act == GK_ACT_FP8_TENSOR ? 1.0f : 0.0f;
    canonical_fill(&canonical, &desc, 0x38, 1.0); /* 1 */
    uint8_t *codes = canonical.codes;
    for (uint64_t i = 0; i < (uint64_t)desc.n * k; i++) {
        uint64_t i_k = i % k;
        codes[i] = i_k < 8192 ? 0x58 : i_k < 8320 ? 0x38 : 0xd8; /* 16, 1, -16 */
    }
    job_init(&job, &canonical, m, DTYPE_BF16, DTYPE_F32);
    job_set(&job, 0, k, 16.0);
    job_set(&job, 8192, 8320, 1.0);
    for_each_kernel(&job, check_value, &expected);
    job_finish(&job);
}

static void test_t07_sums_of_fp8_are_promoted(void **state)
{
    (void)state;
    check_promotion(GK_ACT_FLOAT, 0, 1);
    check_promotion(GK_ACT_FLOAT, 0, 64);
    check_promotion(GK_ACT_FLOAT, 128, 64);
    check_promotion(GK_ACT_FP8_TENSOR, 0, 1);
    check_promotion(GK_ACT_FP8_TENSOR, 0, 64);
}

/* ---- bits ---- */

struct repeat {
    uint32_t n_runs;
    void *first; /* ROWS_MAX rows of y */
};

/* Whatever lay in y, whichever m ran before: the same bits. */
static void check_repeats(struct job *job, const struct gk_kernel *kernel, void *arg)
{
    static const int poisons[] = {0x7e, 0x00, 0xff};
    const struct repeat *repeat = arg;
    uint32_t m = job->problem.m;
    struct gk_problem one = job->problem;
    one.m = 1;
    job_run(job, kernel, m, 0x5a);
    memcpy(repeat->first, job->y, m * job->y_row_bytes);
    for (uint32_t i = 0; i < repeat->n_runs; i++) {
        if (i % 50 == 0 && kernel->can_implement(&one, NULL) == 0) {
            job_run(job, kernel, 1, 0x5a);
            assert_memory_equal(job->y, repeat->first, job->y_row_bytes);
        }
        job_run(job, kernel, m, poisons[i % ARRAY_LENGTH(poisons)]);
        if (memcmp(job->y, repeat->first, m * job->y_row_bytes) != 0) {
            fail_msg("%s, %u x %u, m %u: run %u has other bits", kernel->name, job->problem.desc.n,
                     job->problem.desc.k, m, i);
        }
    }
}

static void run_repeats(const struct gk_desc *desc, const uint32_t *row_counts, uint32_t n_counts,
                        uint32_t n)
{
    struct random random = {desc->n + desc->k};
    struct gk_canonical canonical;
    struct job job;
    canonical_random(&canonical, desc, &random);
    job_init(&job, &canonical, 1, DTYPE_BF16, DTYPE_BF16);
    job_random(&job, &random);
    struct repeat repeat = {.n_runs = n, .first = malloc(ROWS_MAX * job.y_row_bytes)};
    assert_non_null(repeat.first);
    for (uint32_t i = 0; i < n_counts; i++) {
        job.problem.m = row_counts[i];
        for_each_kernel(&job, check_repeats, &repeat);
    }
    free(repeat.first);
    job_finish(&job);
}

static void test_t02_row_tails(void **state)
{
    (void)state;
    static const uint32_t row_counts[] = {1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64};
    struct gk_desc int4 = desc_int4(256, 512, 128, DTYPE_F16, DTYPE_NONE);
    struct gk_desc fp8 = desc_int4(256, 512, 128, DTYPE_F32, DTYPE_NONE);
    fp8.code = GK_CODE_E4M3;
    fp8.group_n = 128;
    run_repeats(&int4, row_counts, ARRAY_LENGTH(row_counts), num_min(n_runs, 20));
    run_repeats(&fp8, row_counts, ARRAY_LENGTH(row_counts), num_min(n_runs, 20));
}

static void test_t17_a_thousand_runs(void **state)
{
    (void)state;
    static const uint32_t shapes[][3] = {{256, 512, 16}, {256, 512, 33}, {2560, 2048, 48}};
    for (uint32_t i = 0; i < ARRAY_LENGTH(shapes); i++) {
        struct gk_desc desc = desc_int4(shapes[i][0], shapes[i][1], 128, DTYPE_F16, DTYPE_NONE);
        run_repeats(&desc, &shapes[i][2], 1, n_runs);
    }
}

/* Large ones, less often: what they need of scratch differs most. */
static void test_t18_large_after_small(void **state)
{
    (void)state;
    static const uint32_t row_counts[] = {64, 1, 33, 17, 64};
    struct gk_desc desc = desc_int4(11008, 4096, 128, DTYPE_F16, DTYPE_NONE);
    run_repeats(&desc, row_counts, ARRAY_LENGTH(row_counts), num_min(n_runs, 30));
}

int main(int argc, char **argv)
{
    struct reason why = REASON_NULL;
    n_runs = argc == 2 && strcmp(argv[1], "--quick") == 0 ? 2 : n_runs;
    if (device_open("cuda:0", 0, 0, &device, &why) != 0) {
        print_message("skipped: %s\n", why.text);
        return SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_t01_more_groups_than_group_size),
        cmocka_unit_test(test_t07_sums_of_fp8_are_promoted),
        cmocka_unit_test(test_t02_row_tails),
        cmocka_unit_test(test_t17_a_thousand_runs),
        cmocka_unit_test(test_t18_large_after_small),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)device_close(device);
    return n_failed;
}
