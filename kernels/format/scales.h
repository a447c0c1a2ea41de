/* scales.h - what all readers do with scales and zero points. */
#pragma once

#include "gk/gk.h"

/* How a checkpoint orders its scales: as the canonical form does, (groups, scale_columns), or the
 * other way round. */
enum scale_order { SCALE_ORDER_GROUPS, SCALE_ORDER_COLUMNS };

/* scales_read() - check and copy all scales. Return: 0 or STATUS_BAD_CHECKPOINT. */
int scales_read(const void *scales, enum scale_order order, struct gk_canonical *canonical,
                struct reason *why) GD_MUST_CHECK;

/* scales_check_zeros() - zero points are there exactly when desc has them. Return: 0 or
 * STATUS_BAD_CHECKPOINT. */
int scales_check_zeros(const struct gk_desc *desc, const void *zeros,
                       struct reason *why) GD_MUST_CHECK;

/* scales_place() - "group 1, column 5" or "group 1, columns 128 to 255": what a scale covers. */
struct scales_place {
    char text[64];
};
struct scales_place scales_place(const struct gk_desc *desc, uint32_t i_group, uint32_t i_column);
