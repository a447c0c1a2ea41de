/* bench_format.h - formats by name, for weights that nobody has quantised: "int4-g128",
 * "fp8-128x128-w8a8". */
#pragma once

#include "gk/gk.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"

/* bench_format_desc() - the desc of a weight (n, k) of that format, without a bias; scales of
 * integer codes have the type of the activations, as most checkpoints have it. 0;
 * STATUS_UNSUPPORTED for a name that is none, with all that are; or what gk_desc_check() says of
 * the shape. Pure. */
int bench_format_desc(const char *name, uint32_t n, uint32_t k, enum dtype act_dtype,
                      struct gk_desc *ret_desc, struct reason *why) GD_MUST_CHECK;

/* bench_format_name() - the i-th of them; NULL: there are no more. Static. */
const char *bench_format_name(uint32_t i);
