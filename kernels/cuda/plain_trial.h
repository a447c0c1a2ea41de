/* plain_trial.h - trying the vendor's algorithms on the current device: which give the rows of a
 * product the same bits however many there are, and which of these is the fastest. Off the submit
 * path. */
#pragma once

#include <stdint.h>

#include "ipc/base/reason.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/plain_choice.h"

/* plain_trial() - make a plan for calls of up to sums->m and rounded->m rows of a product with
 * `packed`, which differ in their y and its bias; rounded->m of 0: of sums only. Allocates, and
 * takes as long as some hundred products. 0 or a cudaError_t. Where there are no sums, *note says
 * why; where some call failed, it says so although there is a plan; else it is left alone. */
int plain_trial(const struct cublaslt_gemm *sums, const struct cublaslt_gemm *rounded,
                const void *packed, struct plain_plan *ret_plan, struct reason *note);
