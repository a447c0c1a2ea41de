/* weight.h - random weights on a GPU as kernels read them, for tests that launch kernels without a
 * daemon. All of these assert. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "tests/unit/kernels/kernel_case.h"

#define assert_cuda(call) assert_int_equal((call), cudaSuccess)

/* gpu_weight_fill() - zero points, permutation and column scales, where there are any, which
 * canonical_random() leaves without effect. */
void gpu_weight_fill(struct gk_canonical *canonical, struct random *random);

/* gpu_weight_upload() - packed in that layout, in the present device's memory: the caller's to free
 * by cudaFree(). */
void *gpu_weight_upload(const struct gk_canonical *canonical, const struct gk_layout *layout);

/* random_elems() - n elements in [-1, 1) as their type rounds them, which the caller frees. */
char *random_elems(uint64_t n, enum dtype dtype, struct random *random);
