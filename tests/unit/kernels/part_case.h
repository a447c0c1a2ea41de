/* part_case.h - random weights of every kind, and comparison of a rectangle of one with another. */
#pragma once

#include "gk/gk.h"
#include "kernel_case.h"

/* part_random() - a canonical weight with everything its desc has: codes and 8-bit scales that are
 * no NaN, scales and column scales that are powers of two, integers as bias. perm is the same for
 * the same k. */
void part_random(struct gk_canonical *canonical, const struct gk_desc *desc, struct random *random);

/* part_assert() - value (first_n + i_n, first_k + i_k) of the whole is value (i_n, i_k) of the
 * part, and the bias of these rows is the same where the part has one. */
void part_assert(const struct gk_canonical *part, const struct gk_canonical *whole,
                 uint32_t first_n, uint32_t first_k);

/* part_descs() - one desc of each kind of weight, n x k. */
#define PART_DESCS 9
void part_descs(uint32_t n, uint32_t k, struct gk_desc descs[PART_DESCS]);
