/* format_case.h - every format that kernels serve, by name, and random weights of any. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"

/* A small generator with a fixed sequence: the tests must fail the same way twice. */
struct random {
    uint64_t state;
};
uint32_t random_next(struct random *random);
double random_unit(struct random *random); /* [-1, 1) */

/* Elements of F32, F16, BF16, F8_E4M3 and F8_E8M0. store rounds as ipc/base does. */
void elem_store(void *array, enum dtype dtype, uint64_t index, double value);
double elem_load(const void *array, enum dtype dtype, uint64_t index);

/* desc_int4() - a group_k over k is one group. */
struct gk_desc desc_int4(uint32_t n, uint32_t k, uint32_t group_k, enum dtype scale_dtype,
                         enum dtype bias_dtype);
struct gk_desc desc_plain(uint32_t n, uint32_t k, enum dtype dtype, enum dtype bias_dtype);

/* A format: a descriptor without extents, in which a group of 0 is one over all of them. */
struct format_case {
    const char *name;
    struct gk_desc desc;
};

extern const struct format_case format_cases[];
extern const uint32_t n_format_cases;

/* format_desc() - of that shape; groups are cut to it. */
struct gk_desc format_desc(const struct format_case *format, uint32_t n, uint32_t k,
                           enum dtype bias_dtype);

/* canonical_random() - small finite scales, values in [-1, 1), every code but NaN.
 * canonical_fill() - every code, scale; zero points, perm and column scales that change nothing. */
void canonical_random(struct gk_canonical *canonical, const struct gk_desc *desc,
                      struct random *random);
void canonical_fill(struct gk_canonical *canonical, const struct gk_desc *desc, uint8_t code,
                    double scale);
