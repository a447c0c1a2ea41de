/* plain_retrial.h - does a plan that an earlier process has made hold on the current device? Off
 * the submit path. */
#pragma once

#include "ipc/base/reason.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/plain_choice.h"

/* plain_retrial() - each of its algorithms is asked of the library and run once, which loads its
 * code, and has to give the bits of the others. What was tried when the plan was made is not tried
 * again, so this takes as long as two dozen products. 0 with *note left alone, or saying what is
 * wrong with the plan; or a cudaError_t. */
int plain_retrial(const struct cublaslt_gemm *sums, const struct cublaslt_gemm *rounded,
                  const void *packed, const struct plain_plan *plan, struct reason *note);
