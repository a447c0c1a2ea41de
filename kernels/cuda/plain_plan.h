/* plain_plan.h - which algorithm of the vendor's library a plain weight's launches run, chosen when
 * the weight is loaded.
 *
 * The library picks by m, and so would give a row other bits in a larger batch. Here one algorithm
 * serves all m of a launch: of those the library ranks, the first that, tried on this device, gives
 * a row the same bits at every m and in every place says what the bits are; the fastest of all that
 * give just these is taken. So timing decides how long a product takes, never what it is. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"
#include "kernels/cuda/cublaslt.h"

/* plain_gemm_of() - a launch's product as the library is asked for it. */
struct cublaslt_gemm plain_gemm_of(const struct gk_problem *problem);

/* plain_plan() - gk_kernel.plan(): idempotent; 0 or a cudaError_t, also where nothing could be
 * planned. */
int plain_plan(const struct gk_problem *problem, const void *packed);

/* plain_plan_find() - the algorithm for weights of that shape; NULL, with *ret_text (static) saying
 * why there is none. Any thread, no lock: cheap enough for every launch. */
const cublasLtMatmulAlgo_t *plain_plan_find(const struct gk_problem *problem,
                                            const char **ret_text);
