/* test-gpu-plain.c - products with plain weights by the vendor's library, prefill above all:
 * against the float64 reference, and that the bits of a row depend neither on how many rows a
 * launch has, nor on which, nor on how x and y lie. Skipped without a GPU or the library. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/clock.h"
#include "ipc/base/num.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/registry.h"
#include "tests/gpu/weight.h"

#define SKIPPED     77
#define M_MAX       GK_PREFILL_ROWS_MAX
#define SAMPLE      93u  /* every so manieth row is compared with the reference */
#define POISON_BYTE 0xff /* a NaN in every type */

static uint32_t cuda_arch;
static const struct sample sample = {.step = SAMPLE, .n_rows = M_MAX / SAMPLE + 1};

/* How rows lie: as the library can have them, at strides of an odd number of its 16 bytes, or on
 * elements only. */
enum lie { LIE_DENSE = 0, LIE_SPARSE, LIE_ASKEW, LIES };

/* A packed weight on the GPU, with M_MAX rows of x. */
struct plain_case {
    struct gk_canonical canonical;
    const struct gk_layout *layout;
    void *packed;
    enum dtype x_dtype, y_dtype;
    char *host_x; /* dense */
    char *x;      /* at x_offset in rows of x_stride_bytes; y likewise */
    char *y;
    uint64_t x_stride_bytes, x_offset, x_bytes;
    uint64_t y_stride_bytes, y_offset, y_bytes;
    void *workspace;
};

/* ---- rows ---- */

static uint64_t stride_of(uint64_t row_bytes, uint64_t elem_bytes, enum lie lie)
{
    uint64_t units = num_align_up(row_bytes, 16) / 16;
    return lie == LIE_DENSE    ? units * 16
           : lie == LIE_SPARSE ? (units + 2 + units % 2 + 1) * 16
                               : row_bytes + elem_bytes;
}

static void place(struct plain_case *c, enum lie lie)
{
    const struct gk_desc *desc = &c->canonical.desc;
    uint64_t x_elem = dtype_bytes(c->x_dtype), y_elem = dtype_bytes(c->y_dtype);
    c->x_offset = lie == LIE_DENSE ? 0 : lie == LIE_SPARSE ? 16 : x_elem;
    c->y_offset = lie == LIE_DENSE ? 0 : lie == LIE_SPARSE ? 16 : y_elem;
    c->x_stride_bytes = stride_of(desc->k * x_elem, x_elem, lie);
    c->y_stride_bytes = stride_of(desc->n * y_elem, y_elem, lie);
    c->x_bytes = c->x_offset + M_MAX * c->x_stride_bytes;
    c->y_bytes = c->y_offset + M_MAX * c->y_stride_bytes;
    assert_cuda(cudaFree(c->x));
    assert_cuda(cudaFree(c->y));
    assert_cuda(cudaMalloc((void **)&c->x, c->x_bytes));
    assert_cuda(cudaMalloc((void **)&c->y, c->y_bytes));
    assert_cuda(cudaMemset(c->x, POISON_BYTE, c->x_bytes));
    assert_cuda(cudaMemcpy2D(c->x + c->x_offset, c->x_stride_bytes, c->host_x, desc->k * x_elem,
                             desc->k * x_elem, M_MAX, cudaMemcpyHostToDevice));
}

/* ---- a weight ---- */

static struct gk_problem problem_of(const struct plain_case *c, uint32_t m)
{
    return (struct gk_problem){.desc = c->canonical.desc,
                               .layout = c->layout,
                               .m = m,
                               .x_dtype = c->x_dtype,
                               .y_dtype = c->y_dtype,
                               .cuda_arch = cuda_arch,
                               .is_prefill = true};
}

static void plan(const struct plain_case *c)
{
    struct gk_problem problem = problem_of(c, 1);
    problem.is_prefill = false;
    struct gk_planning planning = GK_PLANNING_NULL;
    assert_cuda(cuda_plain_cublaslt_prefill.plan(&problem, c->packed, &planning));
}

static void case_init(struct plain_case *c, const struct gk_desc *desc, enum dtype y_dtype,
                      struct random *random)
{
    *c = (struct plain_case){.x_dtype = gk_code_dtype(desc->code), .y_dtype = y_dtype};
    canonical_random(&c->canonical, desc, random);
    c->layout = gk_layout_for(desc, GK_DEVICE_CUDA);
    c->packed = gpu_weight_upload(&c->canonical, c->layout);
    plan(c);
    c->host_x = random_elems((uint64_t)M_MAX * desc->k, c->x_dtype, random);
    struct gk_problem problem = problem_of(c, M_MAX);
    assert_cuda(cudaMalloc(&c->workspace, cuda_plain_cublaslt_prefill.workspace_bytes(&problem)));
    place(c, LIE_DENSE);
}

static void case_finish(struct plain_case *c)
{
    assert_cuda(cudaFree(c->packed));
    assert_cuda(cudaFree(c->x));
    assert_cuda(cudaFree(c->y));
    assert_cuda(cudaFree(c->workspace));
    free(c->host_x);
    gk_canonical_finish(&c->canonical);
}

/* Rows first..first + m - 1 of x, which are rows 0.. of y: dense, the caller's to free. What is not
 * to be written is not. */
static char *run(const struct plain_case *c, uint32_t first, uint32_t m)
{
    uint64_t row_bytes = (uint64_t)c->canonical.desc.n * dtype_bytes(c->y_dtype);
    const struct gk_launch launch = {
        .problem = problem_of(c, m),
        .packed = c->packed,
        .prefill = {.x = c->x + c->x_offset + first * c->x_stride_bytes,
                    .x_stride_bytes = c->x_stride_bytes,
                    .y = c->y + c->y_offset,
                    .y_stride_bytes = c->y_stride_bytes},
        .workspace = c->workspace,
    };
    assert_int_equal(cuda_plain_cublaslt_prefill.can_implement(&launch.problem, NULL), 0);
    assert_cuda(cudaMemset(c->y, POISON_BYTE, c->y_bytes));
    assert_cuda(cuda_plain_cublaslt_prefill.enqueue(&launch, NULL));
    uint8_t *all = malloc(c->y_bytes);
    char *y = malloc(m * row_bytes);
    assert_true(all != NULL && y != NULL);
    assert_cuda(cudaMemcpy(all, c->y, c->y_bytes, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < m; i++) {
        uint8_t *row = all + c->y_offset + i * c->y_stride_bytes;
        memcpy(y + i * row_bytes, row, row_bytes);
        memset(row, POISON_BYTE, row_bytes);
    }
    if (all[0] != POISON_BYTE || memcmp(all, all + 1, c->y_bytes - 1) != 0) {
        fail_msg("something beside %u rows was written", m);
    }
    free(all);
    return y;
}

/* ---- judging ---- */

static double *reference_of(const struct plain_case *c)
{
    return sample_exact(&sample, &c->canonical, c->host_x, c->x_dtype);
}

static void assert_accurate(const struct plain_case *c, const char *y)
{
    const struct gk_desc *desc = &c->canonical.desc;
    double *exact = reference_of(c);
    double error = sample_error(&sample, desc, exact, y, c->y_dtype);
    free(exact);
    if (error > 1e-5 + rounding_error(c->y_dtype)) {
        fail_msg("%u x %u: error %g", desc->n, desc->k, error);
    }
}

/* Any part of the rows, lying anyhow, gives the bits of `all`. Many columns: a few parts. */
static void assert_invariant(struct plain_case *c, const char *all)
{
    static const uint32_t parts[][2] = {{0, 1024},  {1023, 1}, {5, 2},     {960, 64}, {7, 63},
                                        {100, 65},  {3, 127},  {512, 128}, {64, 129}, {11, 255},
                                        {700, 257}, {1, 511},  {200, 513}, {24, 1000}};
    uint64_t row_bytes = (uint64_t)c->canonical.desc.n * dtype_bytes(c->y_dtype);
    for (enum lie lie = LIE_DENSE; lie < LIES; lie++) {
        place(c, lie);
        for (uint32_t i = 0; i<ARRAY_LENGTH(parts); i += c->canonical.desc.n> 4096 ? 4 : 1) {
            char *some = run(c, parts[i][0], parts[i][1]);
            if (memcmp(some, all + parts[i][0] * row_bytes, parts[i][1] * row_bytes) != 0) {
                fail_msg("%u x %u: other bits, %u rows from %u on, lie %d", c->canonical.desc.n,
                         c->canonical.desc.k, parts[i][1], parts[i][0], lie);
            }
            free(some);
        }
    }
}

/* A row that is batched has the bits of one in a prefill. */
static void assert_batched_alike(struct plain_case *c, const char *all)
{
    const struct gk_desc *desc = &c->canonical.desc;
    uint64_t row_bytes = (uint64_t)desc->n * dtype_bytes(c->y_dtype);
    const void *x_rows[GK_BATCH_ROWS_MAX];
    void *y_rows[GK_BATCH_ROWS_MAX];
    struct gk_launch launch = {.problem = problem_of(c, 0),
                               .packed = c->packed,
                               .x_rows = x_rows,
                               .y_rows = y_rows,
                               .workspace = c->workspace};
    launch.problem.is_prefill = false;
    place(c, LIE_ASKEW);
    for (launch.problem.m = 1; launch.problem.m <= GK_BATCH_ROWS_MAX; launch.problem.m += 9) {
        uint32_t m = launch.problem.m;
        char *y = malloc(m * row_bytes);
        assert_non_null(y);
        for (uint32_t i = 0; i < m; i++) { /* every 15th row of x, upside down */
            x_rows[i] = c->x + c->x_offset + 15 * i * c->x_stride_bytes;
            y_rows[i] = c->y + c->y_offset + (m - 1 - i) * c->y_stride_bytes;
        }
        assert_int_equal(cuda_plain_cublaslt.can_implement(&launch.problem, NULL), 0);
        assert_cuda(cudaMemset(c->y, POISON_BYTE, c->y_bytes));
        assert_cuda(cuda_plain_cublaslt.enqueue(&launch, NULL));
        assert_cuda(cudaMemcpy2D(y, row_bytes, c->y + c->y_offset, c->y_stride_bytes, row_bytes, m,
                                 cudaMemcpyDeviceToHost));
        for (uint32_t i = 0; i < m; i++) {
            assert_memory_equal(y + (m - 1 - i) * row_bytes, all + 15 * i * row_bytes, row_bytes);
        }
        free(y);
    }
}

static void check(const struct gk_desc *desc, enum dtype y_dtype, struct random *random)
{
    struct plain_case c;
    case_init(&c, desc, y_dtype, random);
    char *all = run(&c, 0, M_MAX);
    assert_accurate(&c, all);
    assert_invariant(&c, all);
    assert_batched_alike(&c, all);
    free(all);
    case_finish(&c);
}

/* ---- tests ---- */

static void test_products(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{1, 1},     {7, 40},     {64, 128},
                                         {200, 383}, {384, 1536}, {1024, 4096}};
    static const enum dtype biases[] = {DTYPE_NONE, DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    static const enum dtype y_dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    struct random random = {41};
    for (uint32_t i = 0; i < ARRAY_LENGTH(shapes) * 4; i++) {
        const uint32_t *shape = shapes[i / 4];
        enum dtype dtype = i % 2 == 0 ? DTYPE_BF16 : DTYPE_F16;
        struct gk_desc desc = desc_plain(shape[0], shape[1], dtype, biases[i % 4]);
        check(&desc, dtype, &random);
        check(&desc, y_dtypes[i / 2 % 3], &random);
    }
}

/* So many columns that a launch takes several calls of the library. */
static void test_many_columns(void **state)
{
    (void)state;
    struct random random = {42};
    struct gk_desc desc = desc_plain(40000, 64, DTYPE_BF16, DTYPE_NONE);
    check(&desc, DTYPE_BF16, &random);
    check(&desc, DTYPE_F32, &random);
}

/* Does a plan that was kept hold? What is planned anew is kept again; there is a line about a kept
 * one that is of no use. Plans are made once for each number of multiprocessors: those that no GPU
 * has stand for other processes here. */
static void recall(const struct plain_case *c, uint32_t n_sms, const char *kept,
                   struct gk_planning *ret_planning)
{
    struct gk_problem problem = problem_of(c, 1);
    *ret_planning = GK_PLANNING_NULL;
    ret_planning->kept = kept;
    problem.is_prefill = false;
    problem.n_sms = n_sms;
    uint64_t start_nsec = clock_now_nsec();
    assert_cuda(cuda_plain_cublaslt_prefill.plan(&problem, c->packed, ret_planning));
    print_message("%u x %u, %s: %.1f ms%s%s\n", problem.desc.n, problem.desc.k,
                  kept != NULL ? "kept" : "not kept",
                  1e-6 * (double)(clock_now_nsec() - start_nsec),
                  ret_planning->note.status != 0 ? "; " : "", ret_planning->note.text);
    assert_int_equal(cuda_plain_cublaslt_prefill.can_implement(&problem, NULL), STATUS_UNSUPPORTED);
    problem.is_prefill = true;
    assert_int_equal(cuda_plain_cublaslt_prefill.can_implement(&problem, NULL), 0);
}

static void test_kept_plans(void **state)
{
    (void)state;
    struct random random = {45};
    struct plain_case c;
    struct gk_planning first, second;
    struct gk_desc desc = desc_plain(1024, 4096, DTYPE_BF16, DTYPE_BF16);
    case_init(&c, &desc, DTYPE_BF16, &random);
    recall(&c, 1001, NULL, &first);
    assert_true(first.text[0] != '\0' && first.note.status == 0);
    recall(&c, 1002, first.text, &second);
    assert_true(second.text[0] == '\0' && second.note.status == 0);
    first.text[200] = first.text[200] == '1' ? '2' : '1';
    recall(&c, 1003, first.text, &second);
    assert_true(second.text[0] != '\0' && second.note.status != 0);
    assert_cuda(cudaMemset(c.packed, 0, c.layout->packed_bytes(&desc)));
    recall(&c, 1004, second.text, &first); /* zeros tell nothing: noise does */
    assert_true(first.text[0] == '\0' && first.note.status == 0);
    case_finish(&c);
}

/* Small integers: not off by a bit. */
static void test_exact_sums(void **state)
{
    (void)state;
    struct random random = {43};
    struct plain_case c;
    struct gk_desc desc = desc_plain(192, 1024, DTYPE_F16, DTYPE_NONE);
    case_init(&c, &desc, DTYPE_F32, &random);
    for (uint64_t i = 0; i < (uint64_t)desc.n * desc.k; i++) {
        elem_store(c.canonical.codes, DTYPE_F16, i, (double)(random_next(&random) % 17) - 8);
    }
    for (uint64_t i = 0; i < (uint64_t)M_MAX * desc.k; i++) {
        elem_store(c.host_x, DTYPE_F16, i, (double)(random_next(&random) % 17) - 8);
    }
    assert_cuda(cudaFree(c.packed));
    c.packed = gpu_weight_upload(&c.canonical, c.layout);
    place(&c, LIE_DENSE);
    char *y = run(&c, 0, M_MAX);
    double *exact = reference_of(&c);
    for (uint64_t i = 0; i < (uint64_t)sample.n_rows * desc.n; i++) {
        uint64_t i_y = i / desc.n * SAMPLE * desc.n + i % desc.n;
        assert_true(elem_load(y, DTYPE_F32, i_y) == exact[i]);
    }
    free(exact);
    free(y);
    case_finish(&c);
}

/* Infinities and NaN come out as float64 has them, NaN in the bits that NUMERICS.md says, and leave
 * other rows alone. */
static void check_odd_values(enum dtype dtype, enum dtype bias_dtype)
{
    struct random random = {44};
    struct plain_case c;
    struct gk_desc desc = desc_plain(128, 640, dtype, bias_dtype);
    case_init(&c, &desc, dtype, &random);
    char *finite = run(&c, 0, M_MAX);
    static const uint32_t odd_rows[] = {0, SAMPLE, 3 * SAMPLE, 5 * SAMPLE, 11 * SAMPLE};
    for (uint32_t i = 0; i < ARRAY_LENGTH(odd_rows); i++) {
        uint64_t i_x = (uint64_t)odd_rows[i] * desc.k + 100 * i + 39;
        elem_store(c.host_x, dtype, i_x, i == 2 ? (double)NAN : i % 2 == 0 ? HUGE_VAL : -HUGE_VAL);
        if (i == 3) {
            elem_store(c.host_x, dtype, i_x + 1, HUGE_VAL); /* infinity less infinity */
        }
    }
    double *exact = reference_of(&c);
    uint64_t row_bytes = desc.n * dtype_bytes(dtype);
    for (enum lie lie = LIE_DENSE; lie < LIES; lie++) {
        place(&c, lie);
        char *y = run(&c, 0, M_MAX);
        for (uint32_t i = 0, i_odd = 0; i < M_MAX; i++) {
            if (i_odd == ARRAY_LENGTH(odd_rows) || odd_rows[i_odd] != i) {
                assert_memory_equal(y + i * row_bytes, finite + i * row_bytes, row_bytes);
                continue;
            }
            i_odd++;
            for (uint32_t j = 0; j < desc.n; j++) {
                double expected = exact[i / SAMPLE * desc.n + j];
                double got = elem_load(y, dtype, (uint64_t)i * desc.n + j);
                assert_false(isfinite(expected));
                assert_true(isnan(expected) ? isnan(got) : got == expected);
                if (isnan(got)) {
                    assert_int_equal(((uint16_t *)(void *)y)[i * desc.n + j], 0x7fff);
                }
            }
        }
        free(y);
    }
    free(exact);
    free(finite);
    case_finish(&c);
}

static void test_infinities_and_nan(void **state)
{
    (void)state;
    check_odd_values(DTYPE_BF16, DTYPE_NONE);
    check_odd_values(DTYPE_F16, DTYPE_NONE);
    check_odd_values(DTYPE_BF16, DTYPE_BF16);
    check_odd_values(DTYPE_BF16, DTYPE_F32);
    check_odd_values(DTYPE_F16, DTYPE_F16);
}

/* ---- the program ---- */

int main(void)
{
    const char *why = gpu_find(&cuda_arch);
    why = why != NULL ? why : cublaslt_open();
    if (why != NULL) {
        print_message("skipped: %s\n", why);
        return SKIPPED;
    }
    if (cuda_plain_cublaslt_prefill.load() != 0) {
        return 1;
    }
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),           cmocka_unit_test(test_many_columns),
        cmocka_unit_test(test_kept_plans),         cmocka_unit_test(test_exact_sums),
        cmocka_unit_test(test_infinities_and_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
