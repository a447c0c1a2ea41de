/* test-plain.c - what the rows of cuBLASLt take and decline, and how their launches are cut, as far
 * as that needs no GPU: nothing can be planned without one. */
#include <cuda_runtime_api.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "kernel_case.h"
#include "kernels/cuda/plain_plan.h"
#include "kernels/cuda/registry.h"

static struct gk_problem prefill_problem(uint32_t n, uint32_t k, enum dtype bias_dtype)
{
    struct gk_desc desc = desc_plain(n, k, DTYPE_BF16, bias_dtype);
    return (struct gk_problem){.desc = desc,
                               .layout = gk_layout_for(&desc, GK_DEVICE_CUDA),
                               .m = GK_PREFILL_ROWS_MAX,
                               .x_dtype = DTYPE_BF16,
                               .y_dtype = DTYPE_BF16,
                               .cuda_arch = 90,
                               .is_prefill = true};
}

static void expect_declined(const struct gk_kernel *kernel, const struct gk_problem *problem,
                            const char *words)
{
    struct reason why = REASON_NULL;
    assert_int_equal(kernel->can_implement(problem, &why), STATUS_UNSUPPORTED);
    if (strstr(why.text, words) == NULL) {
        fail_msg("'%s' is not in: %s", words, why.text);
    }
}

static void test_what_is_declined(void **state)
{
    (void)state;
    const struct gk_problem good = prefill_problem(256, 512, DTYPE_NONE);
    expect_declined(&cuda_plain_cublaslt_prefill, &good,
                    "no weight of that shape has been planned");
    expect_declined(&cuda_plain_cublaslt, &good, "1 to 64 rows, not 1024");
    struct gk_problem problem = good;
    problem.m = GK_PREFILL_ROWS_MAX + 1;
    expect_declined(&cuda_plain_cublaslt_prefill, &problem, "1 to 1024 rows, not 1025");
    problem.m = 0;
    expect_declined(&cuda_plain_cublaslt_prefill, &problem, "1 to 1024 rows, not 0");
    problem = good;
    problem.is_prefill = false;
    expect_declined(&cuda_plain_cublaslt_prefill, &problem, "requests of more than 64 rows");
    problem = good;
    problem.x_dtype = DTYPE_F16;
    expect_declined(&cuda_plain_cublaslt_prefill, &problem,
                    "cuBLASLt multiplies x of the weight's own type only, bf16");
    problem = good;
    problem.desc.code = GK_CODE_F32;
    expect_declined(&cuda_plain_cublaslt_prefill, &problem, "plain f16 and bf16 weights");
    problem = good;
    problem.layout = NULL;
    expect_declined(&cuda_plain_cublaslt_prefill, &problem, "plain f16 and bf16 weights");
}

/* Without a plan prefill goes in launches as of a batch, by the kernel that needs none. */
static void test_unplanned_prefill(void **state)
{
    (void)state;
    struct gk_problem problem = prefill_problem(256, 512, DTYPE_NONE);
    const struct gk_kernel *kernel;
    assert_int_equal(gk_rows_max(&problem), GK_BATCH_ROWS_MAX);
    problem.m = GK_BATCH_ROWS_MAX;
    assert_int_equal(gk_select(&problem, &kernel, NULL), 0);
    assert_string_equal(kernel->name, "cuda_any_gemm_simple");
}

/* What a call writes is bounded, whatever n; a real layer's rows go in one. */
static void test_rows_of_a_call(void **state)
{
    (void)state;
    struct gk_desc desc = desc_plain(28672, 8192, DTYPE_BF16, DTYPE_NONE);
    assert_int_equal(plain_rows_max(&desc, DTYPE_BF16), 1024);
    assert_int_equal(plain_rows_max(&desc, DTYPE_F32), 512);
    desc = desc_plain(128256, 4096, DTYPE_BF16, DTYPE_NONE);
    assert_int_equal(plain_rows_max(&desc, DTYPE_BF16), 256);
    assert_int_equal(plain_rows_max(&desc, DTYPE_F32), 128);
    desc = desc_plain(1u << 20, 64, DTYPE_BF16, DTYPE_NONE);
    assert_int_equal(plain_rows_max(&desc, DTYPE_BF16), GK_BATCH_ROWS_MAX);
}

/* The library adds a bias of y's own type only, and none to sums. */
static void test_biases(void **state)
{
    (void)state;
    struct gk_desc desc = desc_plain(256, 512, DTYPE_BF16, DTYPE_BF16);
    assert_true(plain_can_round(&desc));
    assert_int_equal(plain_gemm_of(&desc, DTYPE_BF16, 1).bias_dtype, DTYPE_BF16);
    assert_int_equal(plain_gemm_of(&desc, DTYPE_F32, 1).bias_dtype, DTYPE_NONE);
    desc.bias_dtype = DTYPE_F32;
    assert_false(plain_can_round(&desc));
    desc.bias_dtype = DTYPE_NONE;
    assert_true(plain_can_round(&desc));
}

static void test_ranges(void **state)
{
    (void)state;
    struct plain_choice choice = {.rows_max = 1024};
    static const uint16_t ms[][2] = {{1, 0},   {16, 0},  {17, 1},  {32, 1},  {33, 2},   {64, 2},
                                     {65, 3},  {96, 3},  {97, 4},  {128, 4}, {192, 5},  {256, 6},
                                     {257, 7}, {384, 7}, {512, 8}, {513, 9}, {769, 10}, {1024, 10}};
    for (uint32_t i = 0; i < ARRAY_LENGTH(ms); i++) {
        assert_ptr_equal(plain_algorithm(&choice, ms[i][0]), &choice.algorithms[ms[i][1]]);
    }
    choice.rows_max = 64;
    assert_int_equal(plain_range_last(64, 2), 64);
    assert_ptr_equal(plain_algorithm(&choice, 64), &choice.algorithms[2]);
}

/* What a device has no handle for is declined: other errors count as the loss of the device. */
static void test_no_handle(void **state)
{
    (void)state;
    const struct gk_problem problem = prefill_problem(256, 512, DTYPE_NONE);
    const struct cublaslt_gemm gemm = plain_gemm_of(&problem.desc, DTYPE_F32, 1);
    const struct cublaslt_pointers at = {.w = NULL};
    const cublasLtMatmulAlgo_t algorithm = {.data = {0}};
    assert_int_equal(cublaslt_enqueue(&gemm, &at, &algorithm, NULL), cudaErrorNotSupported);
}

/* A launch of any m finds room in what the largest one wants. */
static void test_workspace(void **state)
{
    (void)state;
    static const enum dtype y_dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    for (uint32_t i = 0; i < ARRAY_LENGTH(y_dtypes); i++) {
        struct gk_problem problem = prefill_problem(40000, 301, DTYPE_NONE);
        problem.y_dtype = y_dtypes[i];
        uint64_t most = cuda_plain_cublaslt_prefill.workspace_bytes(&problem);
        assert_true(most <= CUBLASLT_WORKSPACE_BYTES + (64u << 20) + 1024 * 304 * 2 + 256);
        for (problem.m = 1; problem.m < GK_PREFILL_ROWS_MAX; problem.m++) {
            uint64_t n_bytes = cuda_plain_cublaslt_prefill.workspace_bytes(&problem);
            assert_in_range(n_bytes, CUBLASLT_WORKSPACE_BYTES, most);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_declined), cmocka_unit_test(test_unplanned_prefill),
        cmocka_unit_test(test_rows_of_a_call),   cmocka_unit_test(test_biases),
        cmocka_unit_test(test_ranges),           cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_no_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
