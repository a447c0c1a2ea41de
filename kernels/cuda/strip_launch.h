/* strip_launch.h - what the rows of the strip kernels share: legality, and a launch as they are
 * told. */
#pragma once

#include "gk/gk.h"
#include "kernels/cuda/strip_parts_args.h"

/* strip_check() - can a kernel that reads the layout of strip.h and takes so many rows a launch
 * take that problem? 0 or STATUS_UNSUPPORTED with the reason. */
int strip_check(const struct gk_problem *problem, uint32_t n_rows_max,
                struct reason *why) GD_MUST_CHECK;

/* strip_check_prefill() - is it a launch of a request of more than a batch's rows, and on Hopper?
 * As above. */
int strip_check_prefill(const struct gk_problem *problem, struct reason *why) GD_MUST_CHECK;

/* strip_parts_check() - strip_check() for those of strip_parts.h. */
int strip_parts_check(const struct gk_problem *problem, struct reason *why) GD_MUST_CHECK;

/* strip_args_of() - the weight of a launch; m and rows are left empty. */
struct strip_args strip_args_of(const struct gk_launch *launch);

/* strip_parts_args_of() - a launch of up to GK_BATCH_ROWS_MAX rows. */
struct strip_parts_args strip_parts_args_of(const struct gk_launch *launch);
