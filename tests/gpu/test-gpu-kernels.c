/* test-gpu-kernels.c - every CUDA row of the registry against float64, and against the host kernels
 * bit for bit where NUMERICS.md promises it; rows that do not change with m. --quick: a fifth of
 * the cases. Skipped without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/device/device.h"
#include "ipc/base/num.h"
#include "tests/unit/kernels/kernel_case.h"

#define SKIPPED     77
#define POISON_BYTE 0x5a

static struct device *device;
static struct device *host;
static uint32_t every = 1; /* of the cases; --quick, for sanitizers, takes every 5th */

static const uint32_t row_counts[] = {1, 7, 8, 16, 17, 33, 64};
static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

/* ---- one weight on one device ---- */

struct packed {
    struct device *device;
    const struct gk_layout *layout;
    struct region region;
};

/* False where that device has no layout for it. */
static bool pack(struct packed *packed, struct device *on, const struct gk_canonical *canonical)
{
    struct reason why = REASON_NULL;
    void *bytes;
    *packed = (struct packed){.device = on, .region = REGION_NULL};
    packed->layout = gk_layout_for(&canonical->desc, on->ops->kind);
    if (packed->layout == NULL) {
        return false;
    }
    uint64_t size_bytes = packed->layout->packed_bytes(&canonical->desc);
    assert_int_equal(on->ops->region_new(on, "weight", size_bytes, &packed->region, &why), 0);
    assert_int_equal(device_view_begin(on, &packed->region, DEVICE_WRITE, &bytes, &why), 0);
    packed->layout->pack(canonical, bytes);
    assert_int_equal(device_view_end(on, &packed->region, DEVICE_WRITE, &why), 0);
    return true;
}

static void unpack(struct packed *packed)
{
    if (packed->layout != NULL) {
        packed->device->ops->region_free(packed->device, &packed->region);
    }
}

static struct gk_problem problem_of(const struct packed *packed, const struct gk_desc *desc,
                                    uint32_t m, enum dtype x_dtype, enum dtype y_dtype)
{
    return (struct gk_problem){.desc = *desc,
                               .layout = packed->layout,
                               .m = m,
                               .x_dtype = x_dtype,
                               .y_dtype = y_dtype,
                               .cuda_arch = packed->device->cuda_arch};
}

/* x and y are (m, k) and (m, n), dense. */
static void run(const struct packed *packed, const struct gk_kernel *kernel,
                const struct gk_problem *problem, const void *x, void *y)
{
    const void *x_rows[GK_BATCH_ROWS_MAX];
    void *y_rows[GK_BATCH_ROWS_MAX];
    struct reason why = REASON_NULL;
    for (uint64_t i = 0; i < problem->m; i++) {
        x_rows[i] = (const char *)x + i * problem->desc.k * dtype_bytes(problem->x_dtype);
        y_rows[i] = (char *)y + i * problem->desc.n * dtype_bytes(problem->y_dtype);
    }
    struct gk_launch launch = {
        .problem = *problem, .packed = packed->region.base, .x_rows = x_rows, .y_rows = y_rows};
    memset(y, POISON_BYTE, (uint64_t)problem->m * problem->desc.n * dtype_bytes(problem->y_dtype));
    int r = device_run_alone(packed->device, kernel, &launch, &why);
    if (r != 0) {
        fail_msg("%s: %s", kernel->name, why.text);
    }
}

/* ---- judging ---- */

/* Sums that the tensor core makes of e4m3 products have about 14 bits; all others are of f32. */
static double sum_tolerance(const struct gk_kernel *kernel)
{
    return strcmp(kernel->numerics, "fp8") == 0 ? 5e-4 : 1e-5;
}

static void assert_near(const void *y, enum dtype y_dtype, const double *reference, uint64_t n,
                        double tolerance, const char *what)
{
    double error = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++) {
        double difference = elem_load(y, y_dtype, i) - reference[i];
        error += difference * difference;
        squares += reference[i] * reference[i];
    }
    double unit = y_dtype == DTYPE_F32 ? 0x1p-24 : y_dtype == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
    if (!(sqrt(error) <= (tolerance + 2 * unit) * sqrt(squares))) {
        fail_msg("%s: relative error %.3g", what, sqrt(error / squares));
    }
}

/* One product, by one kernel, judged. host_y: what the host's kernel gave, or NULL. */
static void check(const struct packed *packed, const struct gk_kernel *kernel,
                  const struct gk_problem *problem, const void *x, const double *reference,
                  const void *host_y, const char *what)
{
    uint64_t n = (uint64_t)problem->m * problem->desc.n;
    uint64_t y_bytes = n * dtype_bytes(problem->y_dtype);
    void *y = malloc(y_bytes);
    void *again = malloc(y_bytes);
    assert_true(y != NULL && again != NULL);
    run(packed, kernel, problem, x, y);
    assert_near(y, problem->y_dtype, reference, n, sum_tolerance(kernel), what);
    if (host_y != NULL && memcmp(y, host_y, y_bytes) != 0) {
        fail_msg("%s: not the host's bits", what);
    }
    struct gk_problem last_row = *problem;
    last_row.m = 1;
    if (kernel->can_implement(&last_row, NULL) == 0) {
        uint64_t row_bytes = y_bytes / problem->m;
        uint64_t x_offset =
            (uint64_t)(problem->m - 1) * problem->desc.k * dtype_bytes(problem->x_dtype);
        run(packed, kernel, &last_row, (const char *)x + x_offset, again);
        if (memcmp(again, (const char *)y + (problem->m - 1) * row_bytes, row_bytes) != 0) {
            fail_msg("%s: a row by itself has other bits", what);
        }
    }
    free(y);
    free(again);
}

static void check_all_kernels(const struct gk_canonical *canonical, const struct packed *on_gpu,
                              const struct packed *on_host, uint32_t m, uint32_t i)
{
    const struct gk_desc *desc = &canonical->desc;
    struct gk_problem problem = problem_of(on_gpu, desc, m, dtypes[i % 3], dtypes[i / 3 % 3]);
    struct random random = {i + 1};
    double *reference = malloc(sizeof(double) * m * desc->n);
    void *x = malloc((uint64_t)m * desc->k * 4);
    void *host_y = NULL;
    for (uint64_t j = 0; j < (uint64_t)m * desc->k; j++) {
        elem_store(x, problem.x_dtype, j, random_unit(&random));
    }
    assert_int_equal(gk_reference_gemm(canonical, x, problem.x_dtype, desc->k, m, reference), 0);
    const struct gk_kernel *kernel;
    struct gk_problem host_problem = problem;
    host_problem.layout = on_host->layout;
    if (on_host->layout != NULL && gk_select(&host_problem, &kernel, NULL) == 0) {
        host_y = malloc((uint64_t)m * desc->n * 4);
        run(on_host, kernel, &host_problem, x, host_y);
    }
    uint32_t n_kernels, n_run = 0;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    assert_int_equal(device_plan(on_gpu->device, &problem, on_gpu->region.base, NULL), 0);
    for (uint32_t j = 0; j < n_kernels; j++) {
        char format[64], what[200];
        gk_desc_format(desc, format, sizeof(format));
        (void)snprintf(what, sizeof(what), "%s, %s, %u x %u, m %u", kernels[j]->name, format,
                       desc->n, desc->k, m);
        if (kernels[j]->can_implement(&problem, NULL) == 0) {
            bool is_as_host = strcmp(kernels[j]->numerics, "host") == 0;
            check(on_gpu, kernels[j], &problem, x, reference, is_as_host ? host_y : NULL, what);
            n_run++;
        }
    }
    assert_true(n_run > 0);
    free(reference);
    free(x);
    free(host_y);
}

/* ---- weights ---- */

static void fill_scales(struct gk_canonical *canonical, struct random *random)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    for (uint64_t i = 0; i < n_scales; i++) {
        if (desc->scale_dtype == DTYPE_F8_E4M3) {
            ((uint8_t *)canonical->scales)[i] = (uint8_t)(0x28 + random_next(random) % 24);
        } else if (desc->scale_dtype == DTYPE_F8_E8M0) {
            ((uint8_t *)canonical->scales)[i] = (uint8_t)(120 + random_next(random) % 8);
        } else {
            elem_store(canonical->scales, desc->scale_dtype, i, 0.02 + 0.01 * random_unit(random));
        }
        if (desc->has_zeros) {
            canonical->zeros[i] = (uint8_t)(random_next(random) % 16);
        }
    }
}

/* A permutation: each element changes places with a later one. */
static void fill_perm(struct gk_canonical *canonical, struct random *random)
{
    uint32_t k = canonical->desc.k;
    for (uint32_t i = 0; i < k; i++) {
        canonical->perm[i] = i;
    }
    for (uint32_t i = 0; i < k; i++) {
        uint32_t j = i + random_next(random) % (k - i);
        uint32_t moved = canonical->perm[i];
        canonical->perm[i] = canonical->perm[j];
        canonical->perm[j] = moved;
    }
}

static void fill_codes(struct gk_canonical *canonical, struct random *random)
{
    const struct gk_desc *desc = &canonical->desc;
    uint8_t *codes = canonical->codes;
    for (uint64_t i = 0; i < (uint64_t)desc->n * desc->k; i++) {
        uint8_t code = (uint8_t)random_next(random);
        if (gk_code_is_plain(desc->code)) {
            elem_store(codes, gk_code_dtype(desc->code), i, random_unit(random));
        } else if (desc->code == GK_CODE_E4M3 && (code & 0x7f) == 0x7f) {
            codes[i] = 0; /* a NaN */
        } else {
            codes[i] = gk_code_bits(desc->code) == 4 ? code & 15 : code;
        }
    }
}

static void fill(struct gk_canonical *canonical, const struct gk_desc *desc, struct random *random)
{
    struct reason why = REASON_NULL;
    if (gk_desc_check(desc, &why) != 0) {
        fail_msg("%s", why.text);
    }
    assert_int_equal(gk_canonical_alloc(canonical, desc), 0);
    fill_codes(canonical, random);
    if (!gk_code_is_plain(desc->code)) {
        fill_scales(canonical, random);
    }
    if (desc->has_perm) {
        fill_perm(canonical, random);
    }
    for (uint32_t i = 0; i < desc->n; i++) {
        if (desc->column_scale != GK_COLUMN_SCALE_NONE) {
            canonical->column_scales[i] = 1.5f + (float)random_unit(random);
        }
        if (desc->bias_dtype != DTYPE_NONE) {
            elem_store(canonical->bias, desc->bias_dtype, i, random_unit(random));
        }
    }
}

static void check_weight(const struct gk_desc *desc, uint32_t i)
{
    struct gk_canonical canonical;
    struct packed on_gpu, on_host;
    struct random random = {i * 7919 + 1};
    fill(&canonical, desc, &random);
    assert_true(pack(&on_gpu, device, &canonical));
    (void)pack(&on_host, host, &canonical);
    for (uint32_t j = 0; j < ARRAY_LENGTH(row_counts); j += every) {
        check_all_kernels(&canonical, &on_gpu, &on_host, row_counts[j], i + j);
    }
    unpack(&on_gpu);
    unpack(&on_host);
    gk_canonical_finish(&canonical);
}

static const uint32_t shapes[][2] = {
    {1, 1}, {7, 40}, {64, 128}, {65, 200}, {200, 384}, {384, 1536},
};

static void test_plain(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LENGTH(shapes) * 3; i += every) {
        struct gk_desc desc = desc_plain(shapes[i / 3][0], shapes[i / 3][1], dtypes[i % 3],
                                         i % 2 == 0 ? DTYPE_F16 : DTYPE_NONE);
        check_weight(&desc, i);
    }
}

static void test_integers(void **state)
{
    (void)state;
    static const uint32_t groups[] = {32, 128, 192, UINT32_MAX};
    for (uint32_t i = 0; i < ARRAY_LENGTH(shapes) * 8; i += every) {
        struct gk_desc desc = desc_int4(shapes[i / 8][0], shapes[i / 8][1], groups[i % 4],
                                        dtypes[i % 3], i % 5 == 0 ? DTYPE_BF16 : DTYPE_NONE);
        desc.code = i / 4 % 2 == 0 ? GK_CODE_U4 : GK_CODE_U8;
        desc.has_zeros = i % 3 == 1;
        desc.has_perm = i % 3 == 2;
        check_weight(&desc, i);
    }
}

static void test_floats(void **state)
{
    (void)state;
    static const enum dtype scale_dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_F8_E8M0};
    for (uint32_t i = 0; i < ARRAY_LENGTH(shapes) * 4; i += every) {
        uint32_t n = shapes[i / 4][0], k = shapes[i / 4][1];
        struct gk_desc desc = desc_int4(n, k, i % 2 == 0 ? 128 : 32, scale_dtypes[i % 4], 0);
        desc.code = i % 4 < 2 ? GK_CODE_E4M3 : GK_CODE_E2M1;
        desc.group_n = i % 4 == 0 ? (uint32_t)num_min(n, 128) : 1;
        desc.column_scale = i % 4 == 2 ? GK_COLUMN_SCALE_DIVIDES : GK_COLUMN_SCALE_NONE;
        check_weight(&desc, i);
    }
}

/* Every scheme: codes, scales and sums all have the host's bits. */
static void test_activations(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LENGTH(shapes) * GK_ACT_INT8_TOKEN_ZERO; i += every) {
        enum gk_act act = GK_ACT_FP8_TENSOR + i % GK_ACT_INT8_TOKEN_ZERO;
        uint32_t n = shapes[i / GK_ACT_INT8_TOKEN_ZERO][0];
        uint32_t k = shapes[i / GK_ACT_INT8_TOKEN_ZERO][1];
        bool is_group = act == GK_ACT_FP8_GROUP;
        bool is_static = act == GK_ACT_FP8_TENSOR || act == GK_ACT_INT8_TENSOR;
        struct gk_desc desc = desc_int4(n, k, is_group ? 128 : k, DTYPE_F32, DTYPE_F16);
        desc.code = gk_act_is_int8(act) ? GK_CODE_U8 : GK_CODE_E4M3;
        desc.group_n = is_group ? (uint32_t)num_min(n, 128) : 1;
        desc.act = act;
        desc.act_scale = is_static ? 0.0078125f : 0.0f;
        desc.act_zero = act == GK_ACT_INT8_TENSOR ? -3 : 0;
        desc.is_act_scale_pow2 = act == GK_ACT_FP8_TOKEN && i % 4 == 1;
        check_weight(&desc, i);
    }
}

int main(int argc, char **argv)
{
    struct reason why = REASON_NULL;
    every = argc == 2 && strcmp(argv[1], "--quick") == 0 ? 5 : 1;
    if (device_open("cuda:0", 0, 0, &device, &why) != 0) {
        print_message("skipped: %s\n", why.text);
        return SKIPPED;
    }
    if (device_open("host", 1, 2, &host, &why) != 0) {
        print_error("%s\n", why.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_activations),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)device_close(host);
    (void)device_close(device);
    return n_failed;
}
