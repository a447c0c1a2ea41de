/* plain_product.h - products of noise with a plain weight on the current device, and what is
 * expected of them: what algorithms of the vendor's library are tried on. Off the submit path; one
 * thread. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "gk/digest.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/plain_choice.h"

/* What became of one. Declined: the library does not take it, which is of this one product; failed:
 * by whatever else. */
enum plain_outcome { PLAIN_GOOD = 0, PLAIN_OTHER_BITS, PLAIN_DECLINED, PLAIN_FAILED };

struct plain_product {
    struct cublaslt_gemm gemm; /* m is set for each */
    struct cublaslt_pointers at;
    uint32_t m_max;
    uint8_t *memory;
    void *noise_w;             /* NULL: the weight's own does */
    void *expected;            /* y of m_max rows */
    struct gk_digest *digests; /* of what is expected, and of what came */
    cudaStream_t stream;
    cudaEvent_t start, end;

    const char *failure; /* name of the first error; NULL: nothing has failed */
    uint32_t failure_m;  /* rows of that product */
};

/* plain_product_init() - memory for products of up to sums->m and rounded->m rows with `packed`,
 * which differ in their y and its bias; rows of x are noise. 0 or a cudaError_t.
 * plain_product_finish() - follows in either case, with the error that there was, if any: 0, that,
 * or what products have left behind. That one failed may be the algorithm's fault; this is the
 * device's. */
int plain_product_init(struct plain_product *product, const struct cublaslt_gemm *sums,
                       const struct cublaslt_gemm *rounded, const void *packed);
int plain_product_finish(struct plain_product *product, int error);

/* plain_product_begin() - gemm, one of the two, is what is multiplied from here on.
 * plain_product_replace_w() - noise is W from here on. 0 or a cudaError_t. */
void plain_product_begin(struct plain_product *product, const struct cublaslt_gemm *gemm);
int plain_product_replace_w(struct plain_product *product);

/* plain_product_can() - does the library take that product of m rows, also where rows of x and y
 * lie as close as 16 bytes allow?
 * plain_product_expect() - what that algorithm gives for all m_max rows is expected.
 * plain_product_expect_rounded() - what rounding gives of the sums of all rows is; those are
 * multiplied by `sums`, begun with, and `rounded` is to be begun.
 * plain_product_compare() - has a product of m rows from first_m on the bits that are expected of
 * them? */
bool plain_product_can(const struct plain_product *product, const cublasLtMatmulAlgo_t *algorithm,
                       uint32_t m);
enum plain_outcome plain_product_expect(struct plain_product *product,
                                        const cublasLtMatmulAlgo_t *algorithm);
enum plain_outcome plain_product_expect_rounded(struct plain_product *product,
                                                const struct plain_choice *sums,
                                                const struct cublaslt_gemm *rounded);
enum plain_outcome plain_product_compare(struct plain_product *product,
                                         const cublasLtMatmulAlgo_t *algorithm, uint32_t first_m,
                                         uint32_t m);

/* plain_product_shows_order() - do any two rows that are expected differ? Zeros have the same bits
 * in whatever order they are added up, so of such a W nothing can be told. */
bool plain_product_shows_order(struct plain_product *product);

/* plain_product_time() - milliseconds of a launch with little of the weight in the cache: a pass
 * through a model's weights finds none of it. */
enum plain_outcome plain_product_time(struct plain_product *product,
                                      const cublasLtMatmulAlgo_t *algorithm, uint32_t m,
                                      float *ret_msec);
