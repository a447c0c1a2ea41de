/* parts.h - what a layout keeps as canonical form has it: scales, zero points, order of k, column
 * scales, bias. Each part is 256-byte aligned; those that are absent have no bytes. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"

/* Where they lie in the packed weight. That of an absent part is not looked at. */
struct parts {
    uint64_t scales_offset;
    uint64_t zeros_offset;
    uint64_t perm_offset;
    uint64_t column_scales_offset;
    uint64_t bias_offset;
};

/* One of them: a canonical array and its copy. */
struct part {
    void *canonical;
    uint64_t offset;  /* bytes from the start of the packed weight */
    uint64_t n_bytes; /* 0: there is none */
};
#define PARTS_MAX 5u

/* parts_reserve() - a part behind the *total_bytes that are there; its offset. */
uint64_t parts_reserve(uint64_t *total_bytes, uint64_t n_elems, uint64_t elem_bytes);

/* parts_list() - each part of a weight that has the arrays of `canonical`. */
void parts_list(const struct gk_canonical *canonical, const struct parts *parts,
                struct part ret_list[PARTS_MAX]);

/* parts_pack() and parts_unpack() - copy those that are there. */
void parts_pack(const struct part list[PARTS_MAX], void *packed);
void parts_unpack(const void *packed, const struct part list[PARTS_MAX]);
