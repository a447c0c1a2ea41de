/* plain_retrial.c - see plain_retrial.h. */
#include "kernels/cuda/plain_retrial.h"

#include "kernels/cuda/plain_product.h"

/* At the least of each range's numbers of rows, the last rows. */
static enum plain_outcome compare_ranges(struct plain_product *product,
                                         const struct plain_choice *choice)
{
    enum plain_outcome outcome = PLAIN_GOOD;
    for (uint32_t i = plain_ranges(choice->rows_max); outcome == PLAIN_GOOD && i-- > 0;) {
        const cublasLtMatmulAlgo_t *algorithm = &choice->algorithms[i];
        uint32_t first_m = plain_range_first(i);
        uint32_t last_m = plain_range_last(choice->rows_max, i);
        bool can = plain_product_can(product, algorithm, first_m) &&
                   plain_product_can(product, algorithm, last_m);
        outcome = can ? plain_product_compare(product, algorithm, product->m_max - first_m, first_m)
                      : PLAIN_DECLINED;
    }
    return outcome;
}

static cudaError_t compare_plan(struct plain_product *product, const struct cublaslt_gemm *sums,
                                const struct cublaslt_gemm *rounded, const struct plain_plan *plan,
                                enum plain_outcome *ret_outcome)
{
    const cublasLtMatmulAlgo_t *reference = plain_algorithm(&plan->sums, sums->m);
    plain_product_begin(product, sums);
    *ret_outcome = plain_product_can(product, reference, sums->m)
                       ? plain_product_expect(product, reference)
                       : PLAIN_DECLINED;
    if (*ret_outcome == PLAIN_GOOD && !plain_product_shows_order(product)) {
        cudaError_t error = (cudaError_t)plain_product_replace_w(product);
        if (error != cudaSuccess) {
            return error;
        }
        *ret_outcome = plain_product_expect(product, reference);
    }
    if (*ret_outcome == PLAIN_GOOD) {
        *ret_outcome = compare_ranges(product, &plan->sums);
    }
    if (*ret_outcome == PLAIN_GOOD && plan->rounded.rows_max > 0) {
        *ret_outcome = plain_product_expect_rounded(product, &plan->sums, rounded);
        plain_product_begin(product, rounded);
    }
    if (*ret_outcome == PLAIN_GOOD && plan->rounded.rows_max > 0) {
        *ret_outcome = compare_ranges(product, &plan->rounded);
    }
    return cudaSuccess;
}

int plain_retrial(const struct cublaslt_gemm *sums, const struct cublaslt_gemm *rounded,
                  const void *packed, const struct plain_plan *plan, struct reason *note)
{
    static const char *const words[] = {[PLAIN_OTHER_BITS] = "gives a row other bits than another",
                                        [PLAIN_DECLINED] = "is declined by cuBLASLt"};
    struct plain_product product;
    enum plain_outcome outcome = PLAIN_GOOD;
    cudaError_t error = (cudaError_t)plain_product_init(&product, sums, rounded, packed);
    error = error != cudaSuccess ? error : compare_plan(&product, sums, rounded, plan, &outcome);
    if (outcome == PLAIN_FAILED) {
        (void)reason_set(note, STATUS_DEVICE_ERROR, "cuBLASLt failed with %s at %u rows",
                         product.failure, product.failure_m);
    } else if (outcome != PLAIN_GOOD) {
        (void)reason_set(note, STATUS_UNSUPPORTED, "one of its algorithms %s", words[outcome]);
    }
    return plain_product_finish(&product, error);
}
