/* plain_plan.h - which algorithms of the vendor's library a plain weight's launches run, chosen
 * when the weight is loaded.
 *
 * The library picks by m, and so would give a row other bits in a larger batch. Here all rows have
 * one order of sums: of the algorithms that the library ranks for the most rows, the first that,
 * tried on this device at some numbers of rows and in some places (plain_trial.c), gives a row the
 * same bits in all of them says what the bits are. For each range of m the fastest of all that give
 * just these is taken. So timing decides how long a product takes, never what it is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gk/gk.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/plain_choice.h"

/* plain_gemm_of() - a call for m rows as the library is asked for it: y in f32 and without the
 * bias, or finished, in the weight's own type; its rows and those of x 16-byte aligned, as close as
 * that allows. plain_can_round() - can the library finish y? Only with a bias of the same type.
 * plain_rows_max() - the most rows of one: what they write is bounded. */
struct cublaslt_gemm plain_gemm_of(const struct gk_desc *desc, enum dtype y_dtype, uint32_t m);
bool plain_can_round(const struct gk_desc *desc);
uint32_t plain_rows_max(const struct gk_desc *desc, enum dtype y_dtype);

/* plain_plan_make() - gk_kernel.plan(), with the device current that will run launches: idempotent,
 * once for each device at least. The types of x and y do not count: a plan is for x of the weight's
 * own. 0, also where nothing could be planned; or a cudaError_t. */
int plain_plan_make(const struct gk_problem *problem, const void *packed,
                    struct gk_planning *planning);

/* plain_plan_find() - the plan for weights of that shape; NULL, with *ret_text (static) saying why
 * there is none. Any thread, no lock: cheap enough for every launch. */
const struct plain_plan *plain_plan_find(const struct gk_problem *problem, const char **ret_text);
