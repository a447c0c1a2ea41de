/* test-gpu-prefill.c - the kernel for many rows of x, in each of its tiles: against the float64
 * reference, and that the bits of a row depend neither on the tile, nor on the rows beside it, nor
 * on how x and y lie. Skipped without a Hopper GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/clock.h"
#include "ipc/base/num.h"
#include "kernels/cuda/strip_launch.h"
#include "kernels/cuda/strip_prefill.h"
#include "tests/gpu/step.h"
#include "tests/gpu/weight.h"

#define M_MAX   333u
#define SAMPLE  37u /* every so manieth row is compared with the reference */
#define SKIPPED 77
#define N_HELD  40u

static uint32_t cuda_arch;
static const struct sample sample = {.step = SAMPLE, .n_rows = M_MAX / SAMPLE};

/* A packed weight on the GPU, with rows of x. */
struct prefill_case {
    struct gk_canonical canonical;
    const struct gk_layout *layout;
    void *packed;
    char *x; /* (M_MAX, k) of x_dtype, x_stride_bytes apart */
    uint64_t x_stride_bytes;
    char *y; /* (M_MAX, n) of y_dtype, y_stride_bytes apart */
    uint64_t y_stride_bytes;
    void *workspace;
    char *host_x; /* dense */
    enum dtype x_dtype, y_dtype;
};

static uint64_t y_bytes(const struct prefill_case *c)
{
    return M_MAX * c->y_stride_bytes;
}

/* Where rows begin: on 16 bytes, or an element further with an odd number of elements between. */
static void place(struct prefill_case *c, bool is_askew)
{
    const struct gk_desc *desc = &c->canonical.desc;
    uint64_t x_elem = dtype_bytes(c->x_dtype), y_elem = dtype_bytes(c->y_dtype);
    c->x_stride_bytes = is_askew ? (desc->k | 1) * x_elem : num_align_up(desc->k * x_elem, 16);
    c->y_stride_bytes = is_askew ? (desc->n | 1) * y_elem : num_align_up(desc->n * y_elem, 16);
    assert_cuda(cudaFree(c->x));
    assert_cuda(cudaFree(c->y));
    assert_cuda(cudaMalloc((void **)&c->x, (M_MAX + 1) * c->x_stride_bytes));
    assert_cuda(cudaMalloc((void **)&c->y, y_bytes(c)));
}

static char *first_x(const struct prefill_case *c)
{
    bool is_askew = c->x_stride_bytes % 16 != 0;
    return c->x + (is_askew ? dtype_bytes(c->x_dtype) : 0);
}

static void upload_x(const struct prefill_case *c)
{
    uint64_t row_bytes = (uint64_t)c->canonical.desc.k * dtype_bytes(c->x_dtype);
    assert_cuda(cudaMemcpy2D(first_x(c), c->x_stride_bytes, c->host_x, row_bytes, row_bytes, M_MAX,
                             cudaMemcpyHostToDevice));
}

static void case_init(struct prefill_case *c, const struct gk_desc *desc, enum dtype x_dtype,
                      enum dtype y_dtype, struct random *random)
{
    *c = (struct prefill_case){.x_dtype = x_dtype, .y_dtype = y_dtype};
    canonical_random(&c->canonical, desc, random);
    gpu_weight_fill(&c->canonical, random);
    c->layout = gk_layout_for(desc, GK_DEVICE_CUDA);
    c->packed = gpu_weight_upload(&c->canonical, c->layout);
    c->host_x = random_elems((uint64_t)M_MAX * desc->k, x_dtype, random);
    place(c, false);
    upload_x(c);
    assert_cuda(cudaMalloc(&c->workspace, strip_prefill_workspace_bytes(M_MAX, desc->k)));
}

static void case_finish(struct prefill_case *c)
{
    assert_cuda(cudaFree(c->packed));
    assert_cuda(cudaFree(c->x));
    assert_cuda(cudaFree(c->y));
    assert_cuda(cudaFree(c->workspace));
    free(c->host_x);
    gk_canonical_finish(&c->canonical);
}

static struct gk_launch launch_of(const struct prefill_case *c, uint32_t first, uint32_t m)
{
    return (struct gk_launch){
        .problem = {.desc = c->canonical.desc,
                    .layout = c->layout,
                    .m = m,
                    .x_dtype = c->x_dtype,
                    .y_dtype = c->y_dtype,
                    .cuda_arch = cuda_arch,
                    .is_prefill = true},
        .packed = c->packed,
        .prefill = {.x = first_x(c) + first * c->x_stride_bytes,
                    .x_stride_bytes = c->x_stride_bytes,
                    .y = c->y,
                    .y_stride_bytes = c->y_stride_bytes},
        .workspace = c->workspace,
    };
}

static struct strip_prefill_args args_of(const struct gk_launch *launch)
{
    return (struct strip_prefill_args){.base = strip_args_of(launch),
                                       .x = launch->prefill.x,
                                       .x_stride_bytes = launch->prefill.x_stride_bytes,
                                       .y = launch->prefill.y,
                                       .y_stride_bytes = launch->prefill.y_stride_bytes,
                                       .m = launch->problem.m};
}

/* Can weights of such a type be rounded? Does the registry's choice do so? */
static bool is_roundable(const struct prefill_case *c)
{
    const struct gk_desc *desc = &c->canonical.desc;
    return !gk_code_is_int(desc->code) || desc->scale_dtype == c->x_dtype;
}

static bool is_rounded(const struct prefill_case *c)
{
    return is_roundable(c) && c->y_dtype == c->x_dtype;
}

static bool has_tile(const struct prefill_case *c, uint32_t i_tile, bool is_of_rounded)
{
    struct gk_launch launch = launch_of(c, 0, M_MAX);
    struct strip_prefill_args args = args_of(&launch);
    return strip_prefill_has_tile(&args, i_tile, is_of_rounded);
}

static uint32_t first_tile(const struct prefill_case *c, bool is_of_rounded)
{
    uint32_t i_tile = 0;
    while (!has_tile(c, i_tile, is_of_rounded)) {
        i_tile++;
        assert_true(i_tile < STRIP_PREFILL_TILES);
    }
    return i_tile;
}

/* Rows first..first + m - 1 of x, which are rows 0.. of y: dense, the caller's to free. What is not
 * to be written is not. i_tile: STRIP_PREFILL_TILES for the registry's choice. */
static char *run(const struct prefill_case *c, uint32_t first, uint32_t m, uint32_t i_tile)
{
    uint64_t row_bytes = (uint64_t)c->canonical.desc.n * dtype_bytes(c->y_dtype);
    struct gk_launch launch = launch_of(c, first, m);
    assert_cuda(cudaMemset(c->y, 0xff, y_bytes(c))); /* NaN in every type */
    if (i_tile == STRIP_PREFILL_TILES) {
        const struct gk_kernel *kernel;
        assert_int_equal(gk_select(&launch.problem, &kernel, NULL), 0);
        assert_string_equal(kernel->name,
                            is_rounded(c) ? "cuda_strip_prefill_rounded" : "cuda_strip_prefill");
        assert_cuda(kernel->enqueue(&launch, NULL));
    } else {
        struct strip_prefill_args args = args_of(&launch);
        assert_cuda(strip_prefill_enqueue(&args, i_tile, c->workspace, NULL));
    }
    uint8_t *all = malloc(y_bytes(c));
    char *y = malloc(m * row_bytes);
    assert_non_null(all);
    assert_non_null(y);
    assert_cuda(cudaMemcpy(all, c->y, y_bytes(c), cudaMemcpyDeviceToHost));
    for (uint64_t i = 0; i < y_bytes(c); i++) {
        if (i / c->y_stride_bytes >= m || i % c->y_stride_bytes >= row_bytes) {
            assert_int_equal(all[i], 0xff);
        }
    }
    for (uint32_t i = 0; i < m; i++) {
        memcpy(y + i * row_bytes, all + i * c->y_stride_bytes, row_bytes);
    }
    free(all);
    return y;
}

/* y: all rows; weight_rounding: of a weight, relative. */
static void assert_accurate(const struct prefill_case *c, const char *y, double weight_rounding)
{
    const struct gk_desc *desc = &c->canonical.desc;
    double *exact = sample_exact(&sample, &c->canonical, c->host_x, c->x_dtype);
    double error = sample_error(&sample, desc, exact, y, c->y_dtype);
    free(exact);
    if (error > 2e-5 + rounding_error(c->y_dtype) + weight_rounding) {
        char text[64];
        gk_desc_format(desc, text, sizeof(text));
        fail_msg("%s, %u x %u: error %g", text, desc->n, desc->k, error);
    }
}

/* Every tile of the class, and any part of the rows, gives the bits of `all`. */
static void assert_invariant(const struct prefill_case *c, const char *all, bool is_of_rounded)
{
    static const uint32_t parts[][2] = {{0, M_MAX}, {0, 129}, {64, 65}, {7, 1}, {200, 133}};
    uint64_t row_bytes = (uint64_t)c->canonical.desc.n * dtype_bytes(c->y_dtype);
    for (uint32_t i = 0; i < ARRAY_LENGTH(parts); i++) {
        for (uint32_t i_tile = 0; i_tile <= STRIP_PREFILL_TILES; i_tile++) {
            bool is_choice = i_tile == STRIP_PREFILL_TILES;
            if (is_choice ? is_of_rounded != is_rounded(c) : !has_tile(c, i_tile, is_of_rounded)) {
                continue;
            }
            char *some = run(c, parts[i][0], parts[i][1], i_tile);
            assert_memory_equal(some, all + parts[i][0] * row_bytes, parts[i][1] * row_bytes);
            free(some);
        }
    }
}

static void check_class(struct prefill_case *c, bool is_of_rounded)
{
    place(c, false);
    upload_x(c);
    char *all = run(c, 0, M_MAX, first_tile(c, is_of_rounded));
    assert_accurate(c, all, is_of_rounded ? rounding_error(c->x_dtype) : 0);
    assert_invariant(c, all, is_of_rounded);
    place(c, true);
    upload_x(c);
    assert_invariant(c, all, is_of_rounded);
    free(all);
}

static void check_desc(const struct gk_desc *desc, enum dtype x_dtype, enum dtype y_dtype,
                       struct random *random)
{
    struct prefill_case c;
    case_init(&c, desc, x_dtype, y_dtype, random);
    check_class(&c, false);
    if (is_roundable(&c)) {
        check_class(&c, true);
    }
    case_finish(&c);
}

/* Odd and even, whole and ragged tiles, groups and slices. */
static const uint32_t shapes[][2] = {{1, 32},     {17, 100},  {64, 384},
                                     {200, 1000}, {272, 777}, {136, 4352}};

static void check_weights(enum gk_code code)
{
    static const uint32_t groups[] = {32, 64, 128, 256, UINT32_MAX};
    struct random random = {21};
    for (uint32_t i = 0; i < ARRAY_LENGTH(shapes) * ARRAY_LENGTH(groups); i++) {
        const uint32_t *shape = shapes[i / ARRAY_LENGTH(groups)];
        struct gk_desc desc = gpu_int_desc(i, code, shape, groups[i % ARRAY_LENGTH(groups)]);
        enum dtype x_dtype = i % 2 == 1 ? DTYPE_F16 : DTYPE_BF16;
        check_desc(&desc, x_dtype, i % 3 == 0 ? DTYPE_F32 : x_dtype, &random);
    }
}

static void test_4_bit_weights(void **state)
{
    (void)state;
    check_weights(GK_CODE_U4);
}

static void test_8_bit_weights(void **state)
{
    (void)state;
    check_weights(GK_CODE_U8);
}

/* One of the tests' formats, in every shape. */
static void check_format(const char *name, uint64_t seed)
{
    struct random random = {seed};
    const struct format_case *format = format_cases;
    while (strcmp(format->name, name) != 0) {
        format++;
        assert_true(format < format_cases + n_format_cases);
    }
    for (uint32_t i = 0; i < ARRAY_LENGTH(shapes) * 2; i++) {
        const uint32_t *shape = shapes[i / 2];
        enum dtype x_dtype = i % 2 == 0 ? DTYPE_BF16 : DTYPE_F16;
        struct gk_desc desc =
            format_desc(format, shape[0], shape[1], i % 3 == 0 ? DTYPE_BF16 : DTYPE_NONE);
        if (desc.scale_dtype == DTYPE_F32 && i % 4 == 3) {
            desc.scale_dtype = DTYPE_BF16;
        }
        desc.has_perm = i % 5 == 4 && desc.k <= 1000;
        check_desc(&desc, x_dtype, i / 2 % 2 == 0 ? DTYPE_F32 : x_dtype, &random);
    }
}

static void test_fp8_weights(void **state)
{
    (void)state;
    check_format("fp8 tensor", 31);
    check_format("fp8 channel", 32);
    check_format("fp8 128x128", 33);
    check_format("mxfp8", 34);
}

static void test_fp4_weights(void **state)
{
    (void)state;
    check_format("mxfp4", 35);
    check_format("nvfp4", 36);
    check_format("nvfp4 divisor", 37);
}

/* Multiprocessors on which a thread waits until *word is not 0, 20 s at most: beside it there is no
 * room for a CTA. */
struct held {
    cudaStream_t streams[N_HELD];
    uint32_t *word;
};

static void held_init(struct held *held)
{
    assert_cuda(cudaMallocHost((void **)&held->word, sizeof(*held->word)));
    *held->word = 0;
    for (uint32_t i = 0; i < N_HELD; i++) {
        assert_cuda(cudaStreamCreateWithFlags(&held->streams[i], cudaStreamNonBlocking));
        assert_cuda(hold_enqueue(held->word, held->streams[i]));
    }
}

static void held_finish(struct held *held)
{
    *(volatile uint32_t *)held->word = 1;
    for (uint32_t i = 0; i < N_HELD; i++) {
        assert_cuda(cudaStreamSynchronize(held->streams[i]));
        assert_cuda(cudaStreamDestroy(held->streams[i]));
    }
    assert_cuda(cudaFreeHost(held->word));
}

/* Clusters of which some begin when others are over wait for none that has not begun. */
static void assert_in_turns(const struct prefill_case *c, const char *all)
{
    struct held held;
    held_init(&held);
    uint64_t start_nsec = clock_now_nsec();
    char *some = run(c, 0, M_MAX, STRIP_PREFILL_TILES);
    assert_true(clock_now_nsec() - start_nsec < 10000000000u);
    held_finish(&held);
    assert_memory_equal(some, all, (uint64_t)M_MAX * c->canonical.desc.n * dtype_bytes(c->y_dtype));
    free(some);
}

/* So many tiles, and so long a k, that on 132 SMs clusters hand over their sums: with all rows in
 * each size of tiles that can, with some of the rows in none. */
static void check_handing(const struct gk_desc *desc, uint64_t seed)
{
    struct random random = {seed};
    struct prefill_case c;
    case_init(&c, desc, DTYPE_BF16, DTYPE_BF16, &random);
    for (int is_of_rounded = 0; is_of_rounded < 2; is_of_rounded++) {
        char *all = run(&c, 0, M_MAX, first_tile(&c, is_of_rounded));
        assert_invariant(&c, all, is_of_rounded);
        if (is_of_rounded == is_rounded(&c)) {
            assert_in_turns(&c, all);
        }
        free(all);
    }
    case_finish(&c);
}

static void test_handed_sums(void **state)
{
    (void)state;
    struct gk_desc desc = desc_int4(17100, 4352, 128, DTYPE_BF16, DTYPE_NONE);
    desc.has_zeros = true;
    check_handing(&desc, 41);
    const struct format_case *format = format_cases;
    while (strcmp(format->name, "mxfp4") != 0) {
        format++;
    }
    desc = format_desc(format, 17100, 4352, DTYPE_NONE);
    check_handing(&desc, 42);
}

/* Small integers and powers of two: not off by a bit. */
static void test_exact_sums(void **state)
{
    (void)state;
    struct random random = {22};
    struct prefill_case c;
    struct gk_desc desc = desc_int4(144, 1024, 128, DTYPE_BF16, DTYPE_NONE);
    case_init(&c, &desc, DTYPE_BF16, DTYPE_F32, &random);
    for (uint32_t i = 0; i < gk_desc_groups(&desc) * desc.n; i++) {
        elem_store(c.canonical.scales, DTYPE_BF16, i, i % 3 == 0 ? 0.5 : 1.0);
    }
    assert_cuda(cudaFree(c.packed));
    c.packed = gpu_weight_upload(&c.canonical, c.layout);
    for (uint64_t i = 0; i < (uint64_t)M_MAX * desc.k; i++) {
        elem_store(c.host_x, DTYPE_BF16, i, (double)(random_next(&random) % 17) - 8);
    }
    upload_x(&c);
    double *exact = malloc((uint64_t)M_MAX * desc.n * sizeof(*exact));
    assert_non_null(exact);
    assert_int_equal(gk_reference_gemm(&c.canonical, c.host_x, DTYPE_BF16, desc.k, M_MAX, exact),
                     0);
    for (uint32_t i_tile = 0; i_tile < STRIP_PREFILL_TILES; i_tile++) {
        if (!has_tile(&c, i_tile, false) && !has_tile(&c, i_tile, true)) {
            continue;
        }
        char *y = run(&c, 0, M_MAX, i_tile);
        for (uint64_t i = 0; i < (uint64_t)M_MAX * desc.n; i++) {
            assert_true(elem_load(y, DTYPE_F32, i) == exact[i]);
        }
        free(y);
    }
    free(exact);
    case_finish(&c);
}

/* An infinity or a NaN in x makes its row NaN, the canonical one, and leaves others alone. */
static void check_odd_values(enum dtype y_dtype, uint32_t canonical_nan)
{
    struct random random = {23};
    struct prefill_case c;
    struct gk_desc desc = desc_int4(200, 640, 128, DTYPE_BF16, DTYPE_NONE);
    case_init(&c, &desc, DTYPE_BF16, y_dtype, &random);
    uint64_t elem_bytes = dtype_bytes(y_dtype);
    uint64_t row_bytes = desc.n * elem_bytes;
    char *finite[2] = {run(&c, 0, M_MAX, first_tile(&c, false)),
                       run(&c, 0, M_MAX, first_tile(&c, true))};
    static const uint32_t odd_rows[] = {0, 1, 70, 191, 192, 332};
    for (uint32_t i = 0; i < ARRAY_LENGTH(odd_rows); i++) {
        uint64_t i_x = (uint64_t)odd_rows[i] * desc.k + 100 * i + 39;
        elem_store(c.host_x, DTYPE_BF16, i_x,
                   i == 2       ? (double)NAN
                   : i % 2 == 0 ? HUGE_VAL
                                : -HUGE_VAL);
    }
    upload_x(&c);
    for (uint32_t i_tile = 0; i_tile < STRIP_PREFILL_TILES; i_tile++) {
        bool is_of_rounded = has_tile(&c, i_tile, true);
        if (!is_of_rounded && !has_tile(&c, i_tile, false)) {
            continue;
        }
        char *y = run(&c, 0, M_MAX, i_tile);
        for (uint32_t i = 0, i_odd = 0; i < M_MAX; i++) {
            bool is_odd = i_odd < ARRAY_LENGTH(odd_rows) && odd_rows[i_odd] == i;
            if (!is_odd) {
                assert_memory_equal(y + i * row_bytes, finite[is_of_rounded] + i * row_bytes,
                                    row_bytes);
                continue;
            }
            i_odd++;
            for (uint32_t j = 0; j < desc.n; j++) {
                uint32_t bits = 0;
                memcpy(&bits, y + i * row_bytes + j * elem_bytes, elem_bytes);
                assert_int_equal(bits, canonical_nan);
            }
        }
        free(y);
    }
    free(finite[0]);
    free(finite[1]);
    case_finish(&c);
}

static void test_infinities_and_nan(void **state)
{
    (void)state;
    check_odd_values(DTYPE_F32, 0x7fc00000u);
    check_odd_values(DTYPE_BF16, 0x7fc0u);
    check_odd_values(DTYPE_F16, 0x7e00u);
}

/* A sum that is too large is an infinity, as long as x has none. */
static void test_overflow(void **state)
{
    (void)state;
    struct random random = {24};
    struct prefill_case c;
    struct gk_desc desc = desc_int4(64, 256, 128, DTYPE_BF16, DTYPE_NONE);
    case_init(&c, &desc, DTYPE_BF16, DTYPE_F32, &random);
    for (uint32_t i = 0; i < desc.n * desc.k; i++) {
        ((uint8_t *)c.canonical.codes)[i] = 15;
    }
    assert_cuda(cudaFree(c.packed));
    c.packed = gpu_weight_upload(&c.canonical, c.layout);
    for (uint32_t i = 0; i < desc.k; i++) {
        elem_store(c.host_x, DTYPE_BF16, 5 * desc.k + i, 3e38);
    }
    upload_x(&c);
    char *y = run(&c, 0, M_MAX, 1);
    for (uint32_t i = 0; i < desc.n; i++) {
        assert_true(isinf(elem_load(y, DTYPE_F32, 5 * desc.n + i)));
        assert_true(isfinite(elem_load(y, DTYPE_F32, 6 * desc.n + i)));
    }
    free(y);
    case_finish(&c);
}

int main(void)
{
    const char *why = gpu_find(&cuda_arch);
    if (why != NULL || cuda_arch != 90) {
        print_message("skipped: %s\n", why != NULL ? why : "no Hopper GPU here");
        return SKIPPED;
    }
    if (strip_prefill_load() != 0) {
        return 1;
    }
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_4_bit_weights),      cmocka_unit_test(test_8_bit_weights),
        cmocka_unit_test(test_fp8_weights),        cmocka_unit_test(test_fp4_weights),
        cmocka_unit_test(test_handed_sums),        cmocka_unit_test(test_exact_sums),
        cmocka_unit_test(test_infinities_and_nan), cmocka_unit_test(test_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
