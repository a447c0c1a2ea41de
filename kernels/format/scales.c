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

int scales_read(const void *scales, enum scale_order order, struct gk_canonical *canonical,
                struct reason *why)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_groups = gk_desc_groups(desc);
    uint64_t n_columns = gk_desc_scale_columns(desc);
    uint32_t elem_bytes = dtype_bytes(desc->scale_dtype);
    char *to = canonical->scales;
    for (uint32_t i_group = 0; i_group < n_groups; i_group++) {
        for (uint32_t i_column = 0; i_column < n_columns; i_column++) {
            uint64_t i_from = order == SCALE_ORDER_GROUPS ? i_group * n_columns + i_column
                                                          : i_column * n_groups + i_group;
            memcpy(to, (const char *)scales + i_from * elem_bytes, elem_bytes);
            to += elem_bytes;
            int r = check_scale(canonical, i_group, i_column, why);
            if (r != 0) {
                return r;
            }
        }
    }
    return 0;
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
