/* scales.c - see scales.h. Scales keep their type and their bits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/format/scales.h"
#include "kernels/scalar.h"

struct scales_place scales_place(const struct gk_desc *desc, uint32_t i_group, uint32_t i_column)
{
    struct scales_place place;
    uint32_t first = i_column * desc->group_n;
    uint32_t last = (uint32_t)num_min(first + (uint64_t)desc->group_n, desc->n) - 1;
    if (first == last) {
        (void)snprintf(place.text, sizeof(place.text), "group %u, column %u", i_group, first);
        return place;
    }
    (void)snprintf(place.text, sizeof(place.text), "group %u, columns %u to %u", i_group, first,
                   last);
    return place;
}

/* A scale of 0 is let through: quantisers write it for a group of nothing but zeros, and the
 * product is the 0 that was meant. */
static int check_scale(const struct gk_canonical *canonical, uint32_t i_group, uint32_t i_column,
                       struct reason *why)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t i_scale = (uint64_t)i_group * gk_desc_scale_columns(desc) + i_column;
    float scale = scalar_load(canonical->scales, desc->scale_dtype, i_scale);
    if (isfinite(scale) && scale >= 0.0f) {
        return 0;
    }
    return reason_set(why, STATUS_BAD_CHECKPOINT,
                      "scale of %s is %g; it must be finite and not negative",
                      scales_place(desc, i_group, i_column).text, (double)scale);
}

/* Which one it is that is bad. */
static int check_each(const struct gk_canonical *canonical, struct reason *why)
{
    uint32_t n_groups = gk_desc_groups(&canonical->desc);
    uint32_t n_columns = gk_desc_scale_columns(&canonical->desc);
    for (uint32_t i_group = 0; i_group < n_groups; i_group++) {
        for (uint32_t i_column = 0; i_column < n_columns; i_column++) {
            int r = check_scale(canonical, i_group, i_column, why);
            if (r != 0) {
                return r;
            }
        }
    }
    return 0;
}

/* The rule of check_scale() in bits, for loops that nobody waits for: below the first that is no
 * number, or -0. */
#define ALL_GOOD(bits)                                                                             \
    static bool all_good_##bits(const uint##bits##_t *scales, uint64_t n, uint##bits##_t limit)    \
    {                                                                                              \
        const uint##bits##_t minus_zero = (uint##bits##_t)(UINT64_C(1) << ((bits)-1));             \
        uint32_t is_bad = 0;                                                                       \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            is_bad |= (uint32_t)(scales[i] >= limit) & (uint32_t)(scales[i] != minus_zero);        \
        }                                                                                          \
        return is_bad == 0;                                                                        \
    }
ALL_GOOD(8)
ALL_GOOD(16)
ALL_GOOD(32)

static bool are_all_good(const void *scales, enum dtype dtype, uint64_t n)
{
    switch (dtype) {
    case DTYPE_F32:
        return all_good_32(scales, n, 0x7f800000u);
    case DTYPE_F16:
        return all_good_16(scales, n, 0x7c00u);
    case DTYPE_BF16:
        return all_good_16(scales, n, 0x7f80u);
    case DTYPE_F8_E4M3:
        return all_good_8(scales, n, 0x7fu);
    default:
        return memchr(scales, 0xff, n) == NULL;
    }
}

/* (columns, groups) to (groups, columns), a few columns at a time: their lines stay in the cache.
 */
static inline __attribute__((always_inline)) void
transpose(const char *from, uint64_t n_groups, uint64_t n_columns, uint32_t elem_bytes, char *to)
{
    enum { TILE = 32 };
    for (uint64_t first = 0; first < n_columns; first += TILE) {
        uint64_t n = num_min(TILE, n_columns - first);
        for (uint64_t i_group = 0; i_group < n_groups; i_group++) {
            const char *source = from + (first * n_groups + i_group) * elem_bytes;
            char *target = to + (i_group * n_columns + first) * elem_bytes;
            for (uint64_t i = 0; i < n; i++) {
                memcpy(target + i * elem_bytes, source + i * n_groups * elem_bytes, elem_bytes);
            }
        }
    }
}

int scales_read(const void *scales, enum scale_order order, struct gk_canonical *canonical,
                struct reason *why)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_groups = gk_desc_groups(desc);
    uint64_t n_columns = gk_desc_scale_columns(desc);
    uint32_t elem_bytes = dtype_bytes(desc->scale_dtype);
    if (order == SCALE_ORDER_GROUPS || n_groups == 1 || n_columns == 1) {
        memcpy(canonical->scales, scales, n_groups * n_columns * elem_bytes);
    } else if (elem_bytes == 1) {
        transpose(scales, n_groups, n_columns, 1, canonical->scales);
    } else if (elem_bytes == 2) {
        transpose(scales, n_groups, n_columns, 2, canonical->scales);
    } else {
        transpose(scales, n_groups, n_columns, 4, canonical->scales);
    }
    bool is_good = are_all_good(canonical->scales, desc->scale_dtype, n_groups * n_columns);
    return is_good ? 0 : check_each(canonical, why);
}

int scales_check_zeros(const struct gk_desc *desc, const void *zeros, struct reason *why)
{
    if (desc->has_zeros && zeros == NULL) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          "zero points are declared, but there are none");
    }
    if (!desc->has_zeros && zeros != NULL) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          "there are zero points, but the weight is declared symmetric");
    }
    return 0;
}
