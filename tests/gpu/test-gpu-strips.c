/* test-gpu-strips.c - the strip kernels, and whatever else reads their layout, against the float64
 * reference; and that the bits of a row depend neither on the rows beside it nor on which of the
 * kernels it came through. Skipped without a GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/f8.h"
#include "ipc/base/num.h"
#include "tests/gpu/weight.h"

#define M_MAX   64u
#define SKIPPED 77

static uint32_t cuda_arch;

/* A packed weight on the GPU, with rows of x and y. */
struct gpu_case {
    struct gk_canonical canonical;
    const struct gk_layout *layout;
    void *packed;
    char *x; /* (M_MAX, k) of x_dtype, a row at a time as misaligned as row_offset says */
    char *y; /* (M_MAX, n) of y_dtype */
    void *workspace;
    char *host_x;
    double *exact; /* (M_MAX, n): the products in float64 */
    enum dtype x_dtype, y_dtype;
};

static void gpu_case_init(struct gpu_case *c, const struct gk_desc *desc, enum dtype x_dtype,
                          enum dtype y_dtype, struct random *random)
{
    *c = (struct gpu_case){.x_dtype = x_dtype, .y_dtype = y_dtype};
    canonical_random(&c->canonical, desc, random);
    gpu_weight_fill(&c->canonical, random);
    c->layout = gk_layout_for(desc, GK_DEVICE_CUDA);
    c->packed = gpu_weight_upload(&c->canonical, c->layout);
    uint64_t x_bytes = (uint64_t)M_MAX * desc->k * dtype_bytes(x_dtype);
    c->host_x = random_elems((uint64_t)M_MAX * desc->k, x_dtype, random);
    assert_cuda(cudaMalloc((void **)&c->x, x_bytes));
    assert_cuda(cudaMemcpy(c->x, c->host_x, x_bytes, cudaMemcpyHostToDevice));
    assert_cuda(cudaMalloc((void **)&c->y, (uint64_t)M_MAX * desc->n * dtype_bytes(y_dtype)));
    const struct sample all = {.step = 1, .n_rows = M_MAX};
    c->exact = sample_exact(&all, &c->canonical, c->host_x, x_dtype);
    const struct gk_problem like = {.desc = *desc, .layout = c->layout, .cuda_arch = cuda_arch};
    uint64_t workspace_bytes = gk_workspace_max(&like);
    assert_cuda(cudaMalloc(&c->workspace, num_max(workspace_bytes, 64)));
}

static void gpu_case_finish(struct gpu_case *c)
{
    assert_cuda(cudaFree(c->packed));
    assert_cuda(cudaFree(c->x));
    assert_cuda(cudaFree(c->y));
    assert_cuda(cudaFree(c->workspace));
    free(c->host_x);
    free(c->exact);
    gk_canonical_finish(&c->canonical);
}

static struct gk_problem problem_of(const struct gpu_case *c, uint32_t m)
{
    return (struct gk_problem){.desc = c->canonical.desc,
                               .layout = c->layout,
                               .m = m,
                               .x_dtype = c->x_dtype,
                               .y_dtype = c->y_dtype,
                               .cuda_arch = cuda_arch};
}

/* Rows first..first + m - 1 of x; y comes back packed. The caller frees it. */
static char *run(const struct gk_kernel *kernel, const struct gpu_case *c, uint32_t first,
                 uint32_t m)
{
    const struct gk_desc *desc = &c->canonical.desc;
    uint64_t x_bytes = (uint64_t)desc->k * dtype_bytes(c->x_dtype);
    uint64_t y_bytes = (uint64_t)desc->n * dtype_bytes(c->y_dtype);
    const void *x_rows[M_MAX];
    void *y_rows[M_MAX];
    for (uint32_t i = 0; i < m; i++) {
        x_rows[i] = c->x + (first + i) * x_bytes;
        y_rows[i] = c->y + i * y_bytes;
    }
    struct gk_launch launch = {.problem = problem_of(c, m),
                               .packed = c->packed,
                               .x_rows = x_rows,
                               .y_rows = y_rows,
                               .workspace = c->workspace};
    char *y = malloc(M_MAX * y_bytes);
    assert_non_null(y);
    assert_cuda(cudaMemset(c->y, 0xff, M_MAX * y_bytes)); /* NaN in every type */
    assert_cuda(kernel->enqueue(&launch, NULL));
    assert_cuda(cudaMemcpy(y, c->y, M_MAX * y_bytes, cudaMemcpyDeviceToHost));
    for (uint64_t i = m * y_bytes; i < M_MAX * y_bytes; i++) {
        assert_int_equal((uint8_t)y[i], 0xff); /* nothing beyond the rows asked for */
    }
    return y;
}

/* Relative Frobenius error of m rows of y against float64. */
static double error_of(const struct gpu_case *c, const char *y, uint32_t m)
{
    const struct sample all = {.step = 1, .n_rows = m};
    return sample_error(&all, &c->canonical.desc, c->exact, y, c->y_dtype);
}

static void assert_accurate(const struct gk_kernel *kernel, const struct gpu_case *c)
{
    static const uint32_t ms[] = {1, 2, 3, 8, 9, 16, 17, 33, 48, 64};
    for (uint32_t i = 0; i < ARRAY_LENGTH(ms); i++) {
        struct gk_problem problem = problem_of(c, ms[i]);
        if (kernel->can_implement(&problem, NULL) != 0) {
            continue;
        }
        char *y = run(kernel, c, 0, ms[i]);
        double error = error_of(c, y, ms[i]);
        if (error > 3e-6 + rounding_error(c->y_dtype)) {
            char text[64];
            gk_desc_format(&c->canonical.desc, text, sizeof(text));
            fail_msg("%s: %s, %u x %u, m %u: error %g", kernel->name, text, c->canonical.desc.n,
                     c->canonical.desc.k, ms[i], error);
        }
        free(y);
    }
}

/* Row i alone, and as any row of a batch. */
static void assert_invariant(const struct gk_kernel *kernel, const struct gpu_case *c)
{
    uint64_t row_bytes = (uint64_t)c->canonical.desc.n * dtype_bytes(c->y_dtype);
    char *all = run(kernel, c, 0, M_MAX);
    for (uint32_t first = 0; first < M_MAX; first += 7) {
        uint32_t m = (uint32_t)num_min(1 + first % 13, M_MAX - first);
        struct gk_problem problem = problem_of(c, m);
        if (kernel->can_implement(&problem, NULL) != 0) {
            continue;
        }
        char *some = run(kernel, c, first, m);
        assert_memory_equal(some, all + first * row_bytes, m * row_bytes);
        free(some);
    }
    free(all);
}

/* The kernel that is chosen for one row gives the bits of the one for 64. */
static void assert_one_class(const struct gpu_case *c)
{
    uint64_t row_bytes = (uint64_t)c->canonical.desc.n * dtype_bytes(c->y_dtype);
    char *all = NULL;
    for (uint32_t m = M_MAX; m > 0; m = m > 16 ? m - 8 : m - 1) {
        const struct gk_kernel *kernel;
        struct gk_problem problem = problem_of(c, m);
        assert_int_equal(gk_select(&problem, &kernel, NULL), 0);
        char *some = run(kernel, c, 0, m);
        if (all == NULL) {
            all = some;
            continue;
        }
        assert_memory_equal(some, all, m * row_bytes);
        free(some);
    }
    free(all);
}

static uint32_t check_desc(const struct gk_desc *desc, enum dtype x_dtype, enum dtype y_dtype,
                           struct random *random)
{
    struct gpu_case c;
    gpu_case_init(&c, desc, x_dtype, y_dtype, random);
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    struct gk_problem problem = problem_of(&c, M_MAX);
    uint32_t n_run = 0;
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (kernels[i]->can_implement(&problem, NULL) == 0) {
            assert_accurate(kernels[i], &c);
            assert_invariant(kernels[i], &c);
            n_run++;
        }
    }
    assert_one_class(&c);
    gpu_case_finish(&c);
    return n_run;
}

static const enum dtype x_dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};

/* Odd and even shapes, one step of k and several, full and ragged groups; with k 1300 strip_wide
 * and strip_batch add up parts of k within a thread block, from 4096 on in a launch of its own. */
static void check_integer_weights(enum gk_code code)
{
    static const uint32_t shapes[][2] = {{1, 32},     {17, 100},   {96, 384},
                                         {128, 512},  {200, 1000}, {384, 4096},
                                         {272, 4352}, {48, 9000},  {72, 1300}};
    static const uint32_t groups[] = {32, 64, 128, 256, UINT32_MAX};
    struct random random = {11};
    uint32_t n_run = 0;
    for (uint32_t i = 0; i < ARRAY_LENGTH(shapes) * ARRAY_LENGTH(groups); i++) {
        const uint32_t *shape = shapes[i / ARRAY_LENGTH(groups)];
        struct gk_desc desc = gpu_int_desc(i, code, shape, groups[i % ARRAY_LENGTH(groups)]);
        for (uint32_t j = 0; j < ARRAY_LENGTH(x_dtypes); j++) {
            enum dtype y_dtype = (i + j) % 2 == 0 ? DTYPE_F32 : x_dtypes[j];
            n_run += check_desc(&desc, x_dtypes[j], y_dtype, &random);
        }
    }
    print_message("%u weights and kernels\n", n_run);
    assert_true(n_run >= ARRAY_LENGTH(shapes) * ARRAY_LENGTH(groups) * 5);
}

static void test_4_bit_weights(void **state)
{
    (void)state;
    check_integer_weights(GK_CODE_U4);
}

static void test_8_bit_weights(void **state)
{
    (void)state;
    check_integer_weights(GK_CODE_U8);
}

/* The same shapes, but for the longest, with every float format that has strips. */
static void test_float_weights(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{1, 32},     {17, 100},   {96, 384},   {128, 512},
                                         {200, 1000}, {384, 4096}, {272, 4352}, {72, 1300}};
    struct random random = {15};
    uint32_t n_run = 0;
    uint32_t n_checked = 0;
    for (uint32_t i = 0; i < n_format_cases * ARRAY_LENGTH(shapes); i++) {
        const uint32_t *shape = shapes[i % ARRAY_LENGTH(shapes)];
        struct gk_desc desc =
            format_desc(&format_cases[i / ARRAY_LENGTH(shapes)], shape[0], shape[1],
                        i % 3 == 0   ? DTYPE_F32
                        : i % 3 == 1 ? DTYPE_BF16
                                     : DTYPE_NONE);
        bool is_float = desc.code == GK_CODE_E4M3 || desc.code == GK_CODE_E2M1;
        if (!is_float || desc.act != GK_ACT_FLOAT) {
            continue;
        }
        desc.has_perm = i % 4 == 3 && desc.k <= 1000;
        for (uint32_t j = 0; j < ARRAY_LENGTH(x_dtypes); j++) {
            enum dtype y_dtype = (i + j) % 2 == 0 ? DTYPE_F32 : x_dtypes[j];
            n_run += check_desc(&desc, x_dtypes[j], y_dtype, &random);
            n_checked++;
        }
    }
    print_message("%u weights and kernels\n", n_run);
    assert_int_equal(n_checked, 7 * 3 * ARRAY_LENGTH(shapes));
    assert_true(n_run >= n_checked * 5 / 3); /* all have the simple one, two types the other */
}

/* More columns than a launch of strip_wide or strip_batch has, which is 32768. */
static void test_many_columns(void **state)
{
    (void)state;
    static const char *const names[] = {"int4 g128", "int8 g128", "nvfp4"};
    struct random random = {17};
    uint32_t n_run = 0;
    for (uint32_t i = 0; i < n_format_cases; i++) {
        for (uint32_t j = 0; j < ARRAY_LENGTH(names); j++) {
            if (strcmp(format_cases[i].name, names[j]) == 0) {
                struct gk_desc desc = format_desc(&format_cases[i], 32768 + 23, 300, DTYPE_F32);
                n_run += check_desc(&desc, x_dtypes[j % 2], DTYPE_F32, &random);
            }
        }
    }
    assert_true(n_run >= 3 * ARRAY_LENGTH(names));
}

static void test_plain_weights(void **state)
{
    (void)state;
    struct random random = {12};
    for (uint32_t i = 0; i < ARRAY_LENGTH(x_dtypes); i++) {
        struct gk_desc desc = desc_plain(77, 301, x_dtypes[i], DTYPE_F16);
        assert_int_not_equal(check_desc(&desc, x_dtypes[i], DTYPE_F32, &random), 0);
    }
}

/* What a code is worth. */
static double value_of(enum gk_code code, uint8_t bits)
{
    switch (code) {
    case GK_CODE_U4:
        return bits - 8.0;
    case GK_CODE_U8:
        return bits - 128.0;
    case GK_CODE_E4M3:
        return (double)e4m3_to_f32(bits);
    default:
        return (double)e2m1_to_f32(bits);
    }
}

/* Row i of the weight has code i throughout; every scale is 2^-8 and x 256. */
static void check_exact_sums(const struct gk_desc *desc, enum dtype x_dtype)
{
    struct random random = {13};
    struct gpu_case c;
    uint32_t n_codes = 1u << gk_code_bits(desc->code);
    gpu_case_init(&c, desc, x_dtype, DTYPE_F32, &random);
    gk_canonical_finish(&c.canonical);
    canonical_fill(&c.canonical, desc, 0, 0x1p-8);
    for (uint32_t i = 0; i < desc->n; i++) {
        uint8_t code = (uint8_t)(i % n_codes);
        code = isnan(value_of(desc->code, code)) ? 0 : code;
        memset((uint8_t *)c.canonical.codes + (uint64_t)i * desc->k, code, desc->k);
    }
    assert_cuda(cudaFree(c.packed));
    c.packed = gpu_weight_upload(&c.canonical, c.layout);
    for (uint64_t i = 0; i < (uint64_t)M_MAX * desc->k; i++) {
        elem_store(c.host_x, x_dtype, i, 256.0);
    }
    assert_cuda(cudaMemcpy(c.x, c.host_x, (uint64_t)M_MAX * desc->k * 2, cudaMemcpyHostToDevice));
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    for (uint32_t m = 8; m <= M_MAX; m *= 2) {
        struct gk_problem problem = problem_of(&c, m);
        for (uint32_t i = 0; i < n_kernels; i++) {
            if (kernels[i]->can_implement(&problem, NULL) != 0) {
                continue;
            }
            char *y = run(kernels[i], &c, 0, m);
            for (uint32_t j = 0; j < m * desc->n; j++) {
                uint8_t code = ((uint8_t *)c.canonical.codes)[j % desc->n * desc->k];
                if (elem_load(y, DTYPE_F32, j) != value_of(desc->code, code) * desc->k) {
                    fail_msg("%s, code %u: %g", kernels[i]->name, code, elem_load(y, DTYPE_F32, j));
                }
            }
            free(y);
        }
    }
    gpu_case_finish(&c);
}

/* Small integers and powers of two: no kernel may be off by a bit. Every code there is, since all
 * of them are masked, looked up or moved about. */
static void test_exact_sums(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * n_format_cases; i++) {
        struct gk_desc desc = format_desc(&format_cases[i / 2], 256, 640, DTYPE_NONE);
        if (!gk_code_is_plain(desc.code) && desc.act == GK_ACT_FLOAT) {
            check_exact_sums(&desc, x_dtypes[i % 2]);
        }
    }
}

/* An infinity or a NaN makes its row NaN and leaves the others alone, whatever the kernel. */
static void check_spoiled_row(const struct gpu_case *c, uint32_t m, double value)
{
    const struct gk_desc *desc = &c->canonical.desc;
    const struct gk_kernel *kernel;
    struct gk_problem problem = problem_of(c, m);
    assert_int_equal(gk_select(&problem, &kernel, NULL), 0);
    char *expected = run(kernel, c, 0, m);
    uint32_t spoiled = m / 2;
    uint64_t row_bytes = (uint64_t)desc->k * dtype_bytes(c->x_dtype);
    char *row = c->host_x + spoiled * row_bytes;
    char kept[8];
    uint64_t i_k = desc->k / 3;
    uint32_t elem_bytes = dtype_bytes(c->x_dtype);
    memcpy(kept, row + i_k * elem_bytes, elem_bytes);
    elem_store(row, c->x_dtype, i_k, value);
    assert_cuda(cudaMemcpy(c->x + spoiled * row_bytes, row, row_bytes, cudaMemcpyHostToDevice));
    char *y = run(kernel, c, 0, m);
    for (uint32_t i = 0; i < m * desc->n; i++) {
        double product = elem_load(y, c->y_dtype, i);
        bool is_same = product == elem_load(expected, c->y_dtype, i);
        assert_true(i / desc->n == spoiled ? isnan(product) : is_same);
    }
    memcpy(row + i_k * elem_bytes, kept, elem_bytes);
    assert_cuda(cudaMemcpy(c->x + spoiled * row_bytes, row, row_bytes, cudaMemcpyHostToDevice));
    free(expected);
    free(y);
}

/* An element of row m / 2 of x has the value; the last row of the registry, which can do all, is
 * the yardstick. */
static void check_infinity(const struct gpu_case *c, uint32_t m, double value)
{
    const struct gk_desc *desc = &c->canonical.desc;
    const struct gk_kernel *kernel;
    struct gk_problem problem = problem_of(c, m);
    assert_int_equal(gk_select(&problem, &kernel, NULL), 0);
    uint64_t row_bytes = (uint64_t)desc->k * dtype_bytes(c->x_dtype);
    char *row = c->x + m / 2 * row_bytes;
    char *spoiled = malloc(row_bytes);
    assert_non_null(spoiled);
    memcpy(spoiled, c->host_x + m / 2 * row_bytes, row_bytes);
    elem_store(spoiled, c->x_dtype, desc->k / 3, value);
    assert_cuda(cudaMemcpy(row, spoiled, row_bytes, cudaMemcpyHostToDevice));
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    char *expected = run(kernels[n_kernels - 1], c, 0, m);
    char *y = run(kernel, c, 0, m);
    for (uint32_t i = m / 2 * desc->n; i < (m / 2 + 1) * desc->n; i++) {
        double a = elem_load(y, c->y_dtype, i);
        double b = elem_load(expected, c->y_dtype, i);
        assert_true((isnan(a) && isnan(b)) || a == b);
        assert_false(isfinite(a));
    }
    memcpy(spoiled, c->host_x + m / 2 * row_bytes, row_bytes);
    assert_cuda(cudaMemcpy(row, spoiled, row_bytes, cudaMemcpyHostToDevice));
    free(spoiled);
    free(expected);
    free(y);
}

static void test_infinities_and_nan(void **state)
{
    (void)state;
    static const double values[] = {HUGE_VAL, -HUGE_VAL, (double)NAN};
    static const uint32_t ms[] = {1, 7, 16, 40};
    struct random random = {14};
    for (uint32_t i = 0; i < 4 * ARRAY_LENGTH(x_dtypes); i++) {
        struct gk_desc desc = desc_int4(64, 640, 128, DTYPE_F16, DTYPE_NONE);
        desc.code = i % 2 == 0 ? GK_CODE_U4 : GK_CODE_U8;
        desc.has_zeros = i / 2 % 2 == 1;
        struct gpu_case c;
        gpu_case_init(&c, &desc, x_dtypes[i / 4], DTYPE_F32, &random);
        for (uint32_t j = 0; j < ARRAY_LENGTH(values) * ARRAY_LENGTH(ms); j++) {
            check_spoiled_row(&c, ms[j % ARRAY_LENGTH(ms)], values[j / ARRAY_LENGTH(ms)]);
        }
        gpu_case_finish(&c);
    }
}

/* Against floats an infinity goes the way of IEEE 754, whatever the kernel. */
static void test_infinities_against_floats(void **state)
{
    (void)state;
    static const double values[] = {HUGE_VAL, -HUGE_VAL, (double)NAN};
    static const uint32_t ms[] = {1, 7, 16, 40};
    struct random random = {16};
    for (uint32_t i = 0; i < n_format_cases * 2; i++) {
        struct gk_desc desc = format_desc(&format_cases[i / 2], 64, 640, DTYPE_NONE);
        bool is_float = desc.code == GK_CODE_E4M3 || desc.code == GK_CODE_E2M1;
        if (!is_float || desc.act != GK_ACT_FLOAT) {
            continue;
        }
        struct gpu_case c;
        gpu_case_init(&c, &desc, x_dtypes[i % 2], DTYPE_F32, &random);
        for (uint32_t j = 0; j < ARRAY_LENGTH(values) * ARRAY_LENGTH(ms); j++) {
            check_infinity(&c, ms[j % ARRAY_LENGTH(ms)], values[j / ARRAY_LENGTH(ms)]);
        }
        gpu_case_finish(&c);
    }
}

int main(void)
{
    const char *why = gpu_find(&cuda_arch);
    if (why != NULL) {
        print_message("skipped: %s\n", why);
        return SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_sums),         cmocka_unit_test(test_plain_weights),
        cmocka_unit_test(test_infinities_and_nan), cmocka_unit_test(test_4_bit_weights),
        cmocka_unit_test(test_8_bit_weights),      cmocka_unit_test(test_float_weights),
        cmocka_unit_test(test_many_columns),       cmocka_unit_test(test_infinities_against_floats),
    };
    return cmocka_run_group_tests(tests, gpu_load_kernels, NULL);
}
