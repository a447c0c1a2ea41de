/* plain_text.h - a plan as a line of text, and back: for another process with the same library. The
 * library lets its algorithms be kept as the bytes they are, for the same version of it. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"
#include "kernels/cuda/plain_choice.h"

/* plain_text_format() - text: GK_PLAN_TEXT_BYTES. */
void plain_text_format(const struct plain_plan *plan, uint64_t library_version, char *text);

/* plain_text_parse() - a plan for calls of up to sums_rows rows, and rounded_rows that are rounded
 * (or of none), with that version of the library. text: any. 0, or STATUS_UNSUPPORTED with what is
 * wrong with it. */
int plain_text_parse(const char *text, uint64_t library_version, uint32_t sums_rows,
                     uint32_t rounded_rows, struct plain_plan *ret_plan, struct reason *why);
