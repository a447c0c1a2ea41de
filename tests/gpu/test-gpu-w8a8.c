/* test-gpu-w8a8.c - the kernels of Hopper with 8-bit activations against the simple kernel, which
 * has the host's bits: the same bits for int8, close for e4m3; a row's bits at every m, at every
 * place in a batch and on every repeat, of 4-bit weights in each of the two classes; rows that come
 * quantised; rows with NaN and infinities. Skipped without a Hopper GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/quant/quant.h"
#include "tests/gpu/weight.h"

#define M_MAX    64u  /* of a batch */
#define ROWS_MAX 300u /* of prefill */
#define SKIPPED  77

static uint32_t cuda_arch;

/* A packed weight on the GPU, with rows of x and y and, where they come quantised, their scales. */
struct gpu_case {
    struct gk_canonical canonical;
    const struct gk_layout *layout;
    void *packed;
    uint8_t *x; /* (M_MAX, k) of x_dtype, x_offset elements behind an aligned address */
    uint32_t x_offset;
    float *x_scales; /* (M_MAX, n_x_scales) */
    uint32_t n_x_scales;
    uint8_t *y; /* (M_MAX, n) of y_dtype */
    void *workspace;
    enum dtype x_dtype, y_dtype;
    bool is_prefill; /* however few rows there are */
    bool is_fast;    /* it may accumulate fast */
};

static const struct gk_kernel *find(const char *name)
{
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (strcmp(kernels[i]->name, name) == 0) {
            return kernels[i];
        }
    }
    fail_msg("there is no kernel %s", name);
    return NULL;
}

/* Of 4-bit weights, two kernels share the bits of a batch. */
static const struct gk_kernel *kernel_of(const struct gpu_case *c, uint32_t m)
{
    const struct gk_desc *desc = &c->canonical.desc;
    if (desc->code == GK_CODE_U4) {
        return find(m > M_MAX || c->is_prefill       ? "cuda_w4a8_prefill"
                    : m > 16 && desc->group_k >= 128 ? "cuda_w4a8_strip_wide"
                                                     : "cuda_w4a8_strip_gemm");
    }
    return find(gk_act_is_int8(desc->act) ? "cuda_int8_wgmma_gemm" : "cuda_fp8_wgmma_gemm");
}

static void init(struct gpu_case *c, const struct gk_desc *desc, enum dtype x_dtype,
                 enum dtype y_dtype, uint32_t x_offset, struct random *random)
{
    *c = (struct gpu_case){.x_dtype = x_dtype, .y_dtype = y_dtype, .x_offset = x_offset};
    canonical_random(&c->canonical, desc, random);
    uint64_t n_zeros = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    uint32_t n_codes = 1u << gk_code_bits(desc->code);
    for (uint64_t i = 0; desc->has_zeros && i < n_zeros; i++) {
        c->canonical.zeros[i] = (uint8_t)(random_next(random) % n_codes);
    }
    c->layout = gk_layout_for(desc, GK_DEVICE_CUDA);
    assert_string_equal(c->layout->tag,
                        desc->code == GK_CODE_U4 ? "cuda-strip16-u4" : "cuda-swizzle8");
    c->packed = gpu_weight_upload(&c->canonical, c->layout);
    assert_cuda(cudaMalloc((void **)&c->x, ((uint64_t)ROWS_MAX * desc->k + x_offset) * 4));
    assert_cuda(cudaMalloc((void **)&c->y, (uint64_t)ROWS_MAX * desc->n * 4));
    c->n_x_scales = (uint32_t)num_max(gk_desc_x_scales(desc), 1);
    assert_cuda(cudaMalloc((void **)&c->x_scales, (uint64_t)ROWS_MAX * c->n_x_scales * 4));
    const struct gk_problem like = {.desc = *desc, .layout = c->layout, .cuda_arch = cuda_arch};
    assert_cuda(cudaMalloc(&c->workspace, gk_workspace_max(&like)));
}

static void finish(struct gpu_case *c)
{
    assert_cuda(cudaFree(c->packed));
    assert_cuda(cudaFree(c->x));
    assert_cuda(cudaFree(c->x_scales));
    assert_cuda(cudaFree(c->y));
    assert_cuda(cudaFree(c->workspace));
    gk_canonical_finish(&c->canonical);
}

static void set_x(struct gpu_case *c, enum dtype x_dtype, const void *x)
{
    uint32_t elem_bytes = dtype_bytes(x_dtype);
    c->x_dtype = x_dtype;
    assert_cuda(cudaMemcpy(c->x + (uint64_t)c->x_offset * elem_bytes, x,
                           (uint64_t)ROWS_MAX * c->canonical.desc.k * elem_bytes,
                           cudaMemcpyHostToDevice));
}

/* Random rows of float, as their type rounds them; the caller frees them. */
static void *random_x(const struct gk_desc *desc, enum dtype x_dtype, struct random *random)
{
    uint64_t n = (uint64_t)ROWS_MAX * desc->k;
    void *x = malloc(n * dtype_bytes(x_dtype));
    assert_non_null(x);
    for (uint64_t i = 0; i < n; i++) {
        elem_store(x, x_dtype, i, 3 * random_unit(random) * random_unit(random));
    }
    return x;
}

/* Rows first..first + m - 1 of x, as prefill where there are more than a batch has; y comes back,
 * (ROWS_MAX, n). The caller frees it. */
static uint8_t *run(const struct gk_kernel *kernel, const struct gpu_case *c, uint32_t first,
                    uint32_t m)
{
    const struct gk_desc *desc = &c->canonical.desc;
    uint64_t x_bytes = (uint64_t)desc->k * dtype_bytes(c->x_dtype);
    uint64_t y_bytes = (uint64_t)desc->n * dtype_bytes(c->y_dtype);
    uint8_t *x = c->x + (uint64_t)c->x_offset * dtype_bytes(c->x_dtype) + first * x_bytes;
    const float *x_scales = c->x_scales + (uint64_t)first * c->n_x_scales;
    const void *x_rows[M_MAX];
    const float *scale_rows[M_MAX];
    void *y_rows[M_MAX];
    for (uint32_t i = 0; i < num_min(m, M_MAX); i++) {
        x_rows[i] = x + i * x_bytes;
        scale_rows[i] = x_scales + (uint64_t)i * c->n_x_scales;
        y_rows[i] = c->y + i * y_bytes;
    }
    bool has_scales = dtype_bytes(c->x_dtype) == 1 && gk_desc_x_scales(desc) > 0;
    struct gk_launch launch = {.problem = {.desc = *desc,
                                           .layout = c->layout,
                                           .m = m,
                                           .x_dtype = c->x_dtype,
                                           .y_dtype = c->y_dtype,
                                           .cuda_arch = cuda_arch,
                                           .is_prefill = m > M_MAX || c->is_prefill,
                                           .may_accumulate_fast = c->is_fast},
                               .packed = c->packed,
                               .prefill = {.x = x,
                                           .y = c->y,
                                           .x_scales = has_scales ? x_scales : NULL,
                                           .x_stride_bytes = x_bytes,
                                           .y_stride_bytes = y_bytes,
                                           .x_scale_stride_bytes = c->n_x_scales * sizeof(float)},
                               .x_rows = x_rows,
                               .x_scale_rows = has_scales ? scale_rows : NULL,
                               .y_rows = y_rows,
                               .workspace = c->workspace};
    struct reason why = REASON_NULL;
    if (kernel->can_implement(&launch.problem, &why) != 0) {
        fail_msg("%s: %s", kernel->name, why.text);
    }
    uint8_t *y = malloc(ROWS_MAX * y_bytes);
    assert_non_null(y);
    assert_cuda(cudaMemset(c->y, 0xff, ROWS_MAX * y_bytes)); /* NaN in every type */
    assert_cuda(cudaMemset(c->workspace, 0xff, gk_workspace_max(&launch.problem)));
    assert_cuda(kernel->enqueue(&launch, NULL));
    assert_cuda(cudaMemcpy(y, c->y, ROWS_MAX * y_bytes, cudaMemcpyDeviceToHost));
    for (uint64_t i = m * y_bytes; m < ROWS_MAX && i < (m + 1) * y_bytes; i++) {
        assert_int_equal(y[i], 0xff); /* nothing beyond the rows asked for */
    }
    return y;
}

/* Relative Frobenius error of y against another y of the same type. */
static double distance(const struct gpu_case *c, const uint8_t *y, const uint8_t *other, uint32_t m)
{
    double error = 0, norm = 0;
    for (uint64_t i = 0; i < (uint64_t)m * c->canonical.desc.n; i++) {
        double exact = elem_load(other, c->y_dtype, i);
        double difference = elem_load(y, c->y_dtype, i) - exact;
        assert_false(isnan(difference));
        error += difference * difference;
        norm += exact * exact;
    }
    return norm == 0 ? sqrt(error) : sqrt(error / norm);
}

static void assert_near_simple(const struct gpu_case *c, const uint8_t *y, const char *what)
{
    const struct gk_desc *desc = &c->canonical.desc;
    uint8_t *simple = run(find("cuda_any_gemm_simple"), c, 0, M_MAX);
    uint64_t y_bytes = (uint64_t)M_MAX * desc->n * dtype_bytes(c->y_dtype);
    double error = distance(c, y, simple, M_MAX);
    double unit = c->y_dtype == DTYPE_F32 ? 0 : c->y_dtype == DTYPE_F16 ? 0x1p-10 : 0x1p-7;
    bool is_same =
        gk_act_is_int8(desc->act) ? memcmp(y, simple, y_bytes) == 0 : error <= 5e-4 + unit;
    if (!is_same) {
        fail_msg("%s, %u x %u: %g off", what, desc->n, desc->k, error);
    }
    free(simple);
}

/* Every number of rows, from a place in the batch that moves along. */
static void assert_invariant(const struct gpu_case *c, const uint8_t *all, const char *what)
{
    uint64_t row_bytes = (uint64_t)c->canonical.desc.n * dtype_bytes(c->y_dtype);
    for (uint32_t m = 1; m <= M_MAX; m++) {
        uint32_t first = 5 * m % (M_MAX - m + 1);
        uint8_t *some = run(kernel_of(c, m), c, first, m);
        if (memcmp(some, all + first * row_bytes, m * row_bytes) != 0) {
            fail_msg("%s: other bits at m %u", what, m);
        }
        free(some);
    }
}

/* Rows of prefill have the bits that they have in a batch, of 4-bit weights in a chunk of prefill.
 */
static void assert_prefill(struct gpu_case *c, const char *what)
{
    static const uint32_t ms[] = {65, 128, 200, ROWS_MAX};
    uint64_t row_bytes = (uint64_t)c->canonical.desc.n * dtype_bytes(c->y_dtype);
    c->is_prefill = c->canonical.desc.code == GK_CODE_U4;
    for (uint32_t i = 0; i < ARRAY_LENGTH(ms); i++) {
        uint8_t *all = run(kernel_of(c, ms[i]), c, 0, ms[i]);
        for (uint32_t first = 0; first < ms[i]; first += M_MAX) {
            uint32_t m = (uint32_t)num_min(M_MAX, ms[i] - first);
            uint8_t *some = run(kernel_of(c, m), c, first, m);
            if (memcmp(some, all + first * row_bytes, m * row_bytes) != 0) {
                fail_msg("%s: other bits in prefill of %u rows", what, ms[i]);
            }
            free(some);
        }
        assert_near_simple(c, all, what);
        free(all);
    }
    c->is_prefill = false;
}

/* Sums that stay in the tensor core are less exact, and a row has the same bits in every chunk. */
static void assert_fast(struct gpu_case *c, const uint8_t *promoted, const char *what)
{
    static const uint32_t ms[] = {1, 40, 64, 65, 200};
    const struct gk_desc *desc = &c->canonical.desc;
    uint64_t row_bytes = (uint64_t)desc->n * dtype_bytes(c->y_dtype);
    bool is_grouped = desc->act == GK_ACT_FP8_GROUP || gk_desc_groups(desc) > 1;
    c->is_fast = c->is_prefill = true;
    uint8_t *fast = run(kernel_of(c, ROWS_MAX), c, 0, ROWS_MAX);
    for (uint32_t i = 0; i < ARRAY_LENGTH(ms); i++) {
        uint32_t first = ROWS_MAX - ms[i] - i;
        uint8_t *some = run(kernel_of(c, ms[i]), c, first, ms[i]);
        if (memcmp(some, fast + first * row_bytes, ms[i] * row_bytes) != 0) {
            fail_msg("%s: other bits in a chunk of %u rows, fast", what, ms[i]);
        }
        free(some);
    }
    c->is_fast = c->is_prefill = false;
    bool is_same = memcmp(fast, promoted, M_MAX * row_bytes) == 0;
    if ((gk_act_is_int8(desc->act) || is_grouped) && !is_same) {
        fail_msg("%s: there is no fast accumulation, and other bits", what);
    }
    assert_true(distance(c, fast, promoted, M_MAX) < (c->y_dtype == DTYPE_BF16 ? 1e-2 : 5e-3));
    free(fast);
}

/* N and k odd and even: less than a group of rows, than a warpgroup's, more than one round of
 * CTAs; less than a block of k, one more than a stage, whole stages, and one group shorter than a
 * block. Of an H200's pairs of CTAs some go round their ring of stages: by one and by two
 * warpgroups, with scales of groups, and in two turns of which one CTA has but one. Prefill of
 * ROWS_MAX rows there cuts 5704 columns into tiles of 192, 17000 into tiles of 256 and 192. */
static const uint32_t shapes[][2] = {{1, 16},     {7, 129},     {64, 128},   {200, 1000},
                                     {1100, 384}, {513, 2944},  {130, 8192}, {36100, 1160},
                                     {5704, 200}, {17000, 2000}};

static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};

static bool is_served(const struct gk_desc *desc)
{
    return desc->act != GK_ACT_FLOAT && !desc->has_perm;
}

static void check_format(const struct format_case *format, uint32_t i)
{
    const uint32_t *shape = shapes[i % ARRAY_LENGTH(shapes)];
    struct random random = {i + 1};
    struct gk_desc desc = format_desc(format, shape[0], shape[1], dtypes[i % 3]);
    desc.column_scale = i % 4 == 3 ? GK_COLUMN_SCALE_DIVIDES : GK_COLUMN_SCALE_NONE;
    desc.bias_dtype = i % 3 == 2 ? DTYPE_NONE : desc.bias_dtype;
    struct gpu_case c;
    init(&c, &desc, dtypes[i % 3], dtypes[i / 3 % 3], i % 5 == 1 ? 3 : 0, &random);
    void *x = random_x(&desc, c.x_dtype, &random);
    set_x(&c, c.x_dtype, x);
    uint8_t *all = run(kernel_of(&c, M_MAX), &c, 0, M_MAX);
    assert_near_simple(&c, all, format->name);
    assert_invariant(&c, all, format->name);
    assert_prefill(&c, format->name);
    if (desc.code != GK_CODE_U4) { /* which is never summed fast */
        assert_fast(&c, all, format->name);
    }
    free(all);
    free(x);
    finish(&c);
}

static void test_all_schemes(void **state)
{
    (void)state;
    uint32_t n_run = 0;
    for (uint32_t i = 0; i < n_format_cases * ARRAY_LENGTH(shapes); i++) {
        const struct format_case *format = &format_cases[i / ARRAY_LENGTH(shapes)];
        if (is_served(&format->desc)) {
            check_format(format, i);
            n_run++;
        }
    }
    assert_int_equal(n_run, 13 * ARRAY_LENGTH(shapes));
}

/* Rows that the host quantised give the bits of the rows themselves, in the type they come in. */
static void check_given(const struct format_case *format)
{
    struct random random = {7};
    struct gk_desc desc = format_desc(format, 200, 1000, DTYPE_NONE);
    struct gpu_case c;
    init(&c, &desc, DTYPE_F32, DTYPE_F32, 0, &random);
    float *x = random_x(&desc, DTYPE_F32, &random);
    uint8_t *codes = malloc((uint64_t)ROWS_MAX * desc.k);
    float *scales = malloc((uint64_t)ROWS_MAX * c.n_x_scales * sizeof(*scales));
    assert_true(codes != NULL && scales != NULL);
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        (void)quant_row(&quant_portable, &desc, x + (uint64_t)i * desc.k,
                        codes + (uint64_t)i * desc.k, scales + (uint64_t)i * c.n_x_scales);
    }
    set_x(&c, DTYPE_F32, x);
    uint8_t *expected = run(kernel_of(&c, ROWS_MAX), &c, 0, ROWS_MAX);
    uint8_t *expected_batch = run(kernel_of(&c, M_MAX), &c, 0, M_MAX);
    set_x(&c, gk_act_dtype(desc.act), codes);
    assert_cuda(cudaMemcpy(c.x_scales, scales, (uint64_t)ROWS_MAX * c.n_x_scales * sizeof(*scales),
                           cudaMemcpyHostToDevice));
    uint8_t *prefill = run(kernel_of(&c, ROWS_MAX), &c, 0, ROWS_MAX);
    assert_memory_equal(prefill, expected, (uint64_t)ROWS_MAX * desc.n * sizeof(float));
    free(prefill);
    for (uint32_t m = 1; m <= M_MAX; m += 7) {
        uint8_t *y = run(kernel_of(&c, m), &c, 0, m);
        if (memcmp(y, expected_batch, (uint64_t)m * desc.n * sizeof(float)) != 0) {
            fail_msg("%s: other bits from rows that come quantised", format->name);
        }
        free(y);
    }
    free(expected);
    free(expected_batch);
    free(x);
    free(codes);
    free(scales);
    finish(&c);
}

static void test_quantised_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_format_cases; i++) {
        /* Codes of a dynamic zero point cannot come: theirs are symmetric. */
        const struct gk_desc *desc = &format_cases[i].desc;
        if (is_served(desc) && desc->act != GK_ACT_INT8_TOKEN_ZERO) {
            check_given(&format_cases[i]);
        }
    }
}

/* The kernel and the simple one agree on which elements are NaN and infinite; other rows keep their
 * bits. */
static void check_spoiled(const struct format_case *format, double value, bool is_prefill)
{
    struct random random = {9};
    struct gk_desc desc = format_desc(format, 72, 520, DTYPE_NONE);
    struct gpu_case c;
    init(&c, &desc, DTYPE_F32, DTYPE_F32, 0, &random);
    c.is_prefill = is_prefill;
    float *x = random_x(&desc, DTYPE_F32, &random);
    set_x(&c, DTYPE_F32, x);
    uint8_t *before = run(kernel_of(&c, M_MAX), &c, 0, M_MAX);
    x[5 * desc.k + 300] = (float)value;
    set_x(&c, DTYPE_F32, x);
    uint8_t *after = run(kernel_of(&c, M_MAX), &c, 0, M_MAX);
    uint8_t *simple = run(find("cuda_any_gemm_simple"), &c, 0, M_MAX);
    for (uint64_t i = 0; i < (uint64_t)M_MAX * desc.n; i++) {
        double y = elem_load(after, DTYPE_F32, i);
        if (i / desc.n != 5) {
            assert_memory_equal(after + 4 * i, before + 4 * i, 4);
        } else if (isnan(elem_load(simple, DTYPE_F32, i)) != isnan(y)) {
            fail_msg("%s: %g for x %g", format->name, y, value);
        }
    }
    free(before);
    free(after);
    free(simple);
    free(x);
    finish(&c);
}

static void test_not_finite(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_format_cases; i++) {
        if (is_served(&format_cases[i].desc)) {
            for (int is_prefill = 0; is_prefill < 2; is_prefill++) {
                check_spoiled(&format_cases[i], (double)NAN, is_prefill);
                check_spoiled(&format_cases[i], (double)INFINITY, is_prefill);
                check_spoiled(&format_cases[i], -(double)INFINITY, is_prefill);
            }
        }
    }
}

int main(void)
{
    const char *why = gpu_find(&cuda_arch);
    if (why != NULL || cuda_arch != 90) {
        print_message("skipped: %s\n", why != NULL ? why : "no Hopper GPU here");
        return SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_schemes),
        cmocka_unit_test(test_quantised_rows),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, gpu_load_kernels, NULL);
}
