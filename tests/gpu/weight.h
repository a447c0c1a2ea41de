/* weight.h - random weights on a GPU as kernels read them, and what their products should be, for
 * tests that launch kernels without a daemon. All of these assert, but where they say otherwise. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "tests/unit/kernels/kernel_case.h"

#define assert_cuda(call) assert_int_equal((call), cudaSuccess)

/* gpu_find() - the first GPU's compute capability, 90 for Hopper; NULL, or why there is none.
 * gpu_load_kernels() - all of the registry: a cmocka set-up. Neither asserts. */
const char *gpu_find(uint32_t *ret_cuda_arch);
int gpu_load_kernels(void **state);

/* gpu_int_desc() - the i-th of a walk through what weights of integers may have beside their shape
 * (n, k): groups of up to group_k, zero points, act-order, biases, column scales, scales' types. */
struct gk_desc gpu_int_desc(uint32_t i, enum gk_code code, const uint32_t shape[2],
                            uint32_t group_k);

/* gpu_weight_fill() - zero points, permutation and column scales, where there are any, which
 * canonical_random() leaves without effect. */
void gpu_weight_fill(struct gk_canonical *canonical, struct random *random);

/* gpu_weight_upload() - packed in that layout, in the present device's memory: the caller's to free
 * by cudaFree(). */
void *gpu_weight_upload(const struct gk_canonical *canonical, const struct gk_layout *layout);

/* random_elems() - n elements in [-1, 1) as their type rounds them, which the caller frees. */
char *random_elems(uint64_t n, enum dtype dtype, struct random *random);

/* Rows of x (k), dense, that are compared with the float64 reference: every step-th, n_rows of
 * them. sample_exact() - their products (n_rows, n), which the caller frees. sample_error() - the
 * relative Frobenius error of y (n), dense, of all rows, against these; infinite if one is NaN.
 * rounding_error() - half a unit in the last place of that type, relative. */
struct sample {
    uint32_t step;
    uint32_t n_rows;
};
double *sample_exact(const struct sample *sample, const struct gk_canonical *canonical,
                     const char *x, enum dtype x_dtype);
double sample_error(const struct sample *sample, const struct gk_desc *desc, const double *exact,
                    const char *y, enum dtype y_dtype);
double rounding_error(enum dtype dtype);
