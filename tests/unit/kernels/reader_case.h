/* reader_case.h - a random weight by element, which each test packs its own way and reads back. */
#pragma once

#include "gk/gk.h"
#include "kernel_case.h"

#define READER_TENSORS_MAX 8

struct reader_case {
    struct gk_desc desc;
    uint8_t *codes;                /* (n, k): as canonical, but in the order of x */
    uint8_t *zeros;                /* (groups, scale_columns), without desc.has_zeros too */
    uint8_t *scales;               /* (groups, scale_columns) of scale_dtype */
    uint32_t *g_idx;               /* (k): the group of each element */
    struct gk_canonical canonical; /* what is read */
    void *tensors[READER_TENSORS_MAX];
    uint32_t n_tensors;
    struct reason why;
};

/* reader_case_init() - random codes over all their values, zero points (the symmetric ones without
 * has_zeros), positive scales, and g_idx: shuffled with has_perm, else k / group_k. */
void reader_case_init(struct reader_case *reader, const struct gk_desc *desc,
                      struct random *random);
void reader_case_finish(struct reader_case *reader);

/* reader_tensor() - zeroed bytes of a checkpoint, one off any alignment and with nothing behind
 * them, so that a sanitizer sees a read too far. Owned by the case. */
uint8_t *reader_tensor(struct reader_case *reader, uint64_t size_bytes);

/* reader_put() - value into n_bits bits from bit i_bit of a little-endian stream. */
void reader_put(uint8_t *bytes, uint64_t i_bit, uint32_t n_bits, uint32_t value);

/* reader_scales_by_column() - a tensor of the scales as (scale_columns, groups). reader_zeros() -
 * the zero points as (scale_columns, groups) bytes with `add` added. */
uint8_t *reader_scales_by_column(struct reader_case *reader);
uint8_t *reader_zeros_by_column(struct reader_case *reader, uint8_t add);

/* reader_assert() - what was read is the weight, element by element. */
void reader_assert(struct reader_case *reader, int status);
/* reader_assert_refused() - that status, and a sentence that has `text`. */
void reader_assert_refused(struct reader_case *reader, int status, int expected, const char *text);
