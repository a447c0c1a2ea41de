/* host_panel.c - geometry of panels, and the parts that do not depend on the kind of weight. */
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/layout/host_panel.h"

#define ALIGNMENT 64u

/* Rows of n columns in the checkpoint's order against rows of 64 in each panel. */
struct columns {
    uint32_t n_rows;
    uint32_t elem_bytes;
    uint64_t offset; /* in the panel */
};

static uint32_t row_bytes(const struct gk_desc *desc)
{
    return HOST_PANEL_N * gk_code_bits(desc->code) / 8;
}

struct host_panel_shape host_panel_shape(const struct gk_desc *desc)
{
    struct host_panel_shape shape = {
        .n_panels = (uint32_t)num_div_up(desc->n, HOST_PANEL_N),
        .row_bytes = row_bytes(desc),
    };
    uint64_t scale_bytes = dtype_bytes(desc->scale_dtype);
    uint64_t bias_bytes = dtype_bytes(desc->bias_dtype);
    shape.scales_offset = num_align_up((uint64_t)desc->k * shape.row_bytes, ALIGNMENT);
    shape.bias_offset = shape.scales_offset + gk_desc_groups(desc) * HOST_PANEL_N * scale_bytes;
    shape.panel_bytes = shape.bias_offset + HOST_PANEL_N * bias_bytes;
    return shape;
}

uint64_t host_panel_packed_bytes(const struct gk_desc *desc)
{
    struct host_panel_shape shape = host_panel_shape(desc);
    return shape.n_panels * shape.panel_bytes;
}

static struct columns scale_columns(const struct gk_desc *desc,
                                    const struct host_panel_shape *shape)
{
    return (struct columns){gk_desc_groups(desc), dtype_bytes(desc->scale_dtype),
                            shape->scales_offset};
}

static struct columns bias_columns(const struct gk_desc *desc, const struct host_panel_shape *shape)
{
    return (struct columns){1, dtype_bytes(desc->bias_dtype), shape->bias_offset};
}

static void pack_columns(const struct columns *columns, const struct host_panel_shape *shape,
                         uint32_t n, const char *source, char *packed)
{
    for (uint32_t i_panel = 0; i_panel < shape->n_panels; i_panel++) {
        uint32_t first = i_panel * HOST_PANEL_N;
        uint64_t used_bytes = num_min(HOST_PANEL_N, n - first) * columns->elem_bytes;
        uint64_t row = (uint64_t)HOST_PANEL_N * columns->elem_bytes;
        char *target = packed + i_panel * shape->panel_bytes + columns->offset;
        for (uint32_t i_row = 0; i_row < columns->n_rows; i_row++, target += row) {
            uint64_t i_source = (uint64_t)i_row * n + first;
            memcpy(target, source + i_source * columns->elem_bytes, used_bytes);
            memset(target + used_bytes, 0, row - used_bytes);
        }
    }
}

static void unpack_columns(const struct columns *columns, const struct host_panel_shape *shape,
                           uint32_t n, const char *packed, char *target)
{
    for (uint32_t i_panel = 0; i_panel < shape->n_panels; i_panel++) {
        uint32_t first = i_panel * HOST_PANEL_N;
        uint64_t used_bytes = num_min(HOST_PANEL_N, n - first) * columns->elem_bytes;
        const char *source = packed + i_panel * shape->panel_bytes + columns->offset;
        for (uint32_t i_row = 0; i_row < columns->n_rows; i_row++) {
            uint64_t i_target = (uint64_t)i_row * n + first;
            memcpy(target + i_target * columns->elem_bytes, source, used_bytes);
            source += (uint64_t)HOST_PANEL_N * columns->elem_bytes;
        }
    }
}

void host_panel_pack_columns(const struct gk_canonical *canonical, void *packed)
{
    const struct gk_desc *desc = &canonical->desc;
    struct host_panel_shape shape = host_panel_shape(desc);
    if (!gk_code_is_plain(desc->code)) {
        struct columns scales = scale_columns(desc, &shape);
        pack_columns(&scales, &shape, desc->n, canonical->scales, packed);
    }
    if (desc->bias_dtype != DTYPE_NONE) {
        struct columns bias = bias_columns(desc, &shape);
        pack_columns(&bias, &shape, desc->n, canonical->bias, packed);
    }
}

void host_panel_unpack_columns(const void *packed, struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    struct host_panel_shape shape = host_panel_shape(desc);
    if (!gk_code_is_plain(desc->code)) {
        struct columns scales = scale_columns(desc, &shape);
        unpack_columns(&scales, &shape, desc->n, packed, canonical->scales);
    }
    if (desc->bias_dtype != DTYPE_NONE) {
        struct columns bias = bias_columns(desc, &shape);
        unpack_columns(&bias, &shape, desc->n, packed, canonical->bias);
    }
}
