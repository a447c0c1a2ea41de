/* host_panel.c - see host_panel.h. */
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/layout/host_panel.h"

#define ALIGNMENT 64u
#define N_PARTS   4u

struct host_panel_shape host_panel_shape(const struct gk_desc *desc)
{
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * HOST_PANEL_N;
    struct host_panel_shape shape = {
        .n_panels = (uint32_t)num_div_up(desc->n, HOST_PANEL_N),
        .row_bytes = HOST_PANEL_N * gk_code_bits(desc->code) / 8,
    };
    if (desc->has_perm) {
        shape.panels_offset = num_align_up((uint64_t)desc->k * sizeof(uint32_t), ALIGNMENT);
    }
    uint64_t end = num_align_up((uint64_t)desc->k * shape.row_bytes, ALIGNMENT);
    shape.scales_offset = end;
    end += n_scales * dtype_bytes(desc->scale_dtype);
    shape.zeros_offset = end;
    end += desc->has_zeros ? n_scales : 0;
    shape.column_scales_offset = end;
    end += desc->column_scale != GK_COLUMN_SCALE_NONE ? HOST_PANEL_N * sizeof(float) : 0;
    shape.bias_offset = end;
    shape.panel_bytes = end + HOST_PANEL_N * dtype_bytes(desc->bias_dtype);
    return shape;
}

static uint64_t packed_bytes(const struct gk_desc *desc)
{
    struct host_panel_shape shape = host_panel_shape(desc);
    return shape.panels_offset + shape.n_panels * shape.panel_bytes;
}

static bool fits(const struct gk_desc *desc)
{
    return gk_desc_check(desc, NULL) == 0;
}

/* An array of the canonical form that has a row of 64 in each panel for each of its own rows. */
struct part {
    char *array; /* (n_rows, n_columns); NULL: the format lacks it */
    uint32_t n_rows;
    uint32_t n_columns;
    uint32_t group_n; /* columns of y that share an element */
    uint32_t elem_bytes;
    uint64_t offset; /* in the panel */
};

static void list_parts(const struct gk_canonical *canonical, const struct host_panel_shape *shape,
                       struct part parts[N_PARTS])
{
    const struct gk_desc *desc = &canonical->desc;
    uint32_t n_groups = gk_desc_groups(desc);
    uint32_t n_columns = gk_desc_scale_columns(desc);
    parts[0] = (struct part){
        canonical->scales,   n_groups, n_columns, desc->group_n, dtype_bytes(desc->scale_dtype),
        shape->scales_offset};
    parts[1] = (struct part){(char *)canonical->zeros, n_groups, n_columns, desc->group_n, 1,
                             shape->zeros_offset};
    parts[2] = (struct part){(char *)canonical->column_scales, 1, desc->n, 1, sizeof(float),
                             shape->column_scales_offset};
    parts[3] = (struct part){canonical->bias,   1, desc->n, 1, dtype_bytes(desc->bias_dtype),
                             shape->bias_offset};
}

static void pack_part(const struct part *part, uint32_t first, uint32_t n_columns, char *panel)
{
    for (uint32_t i_row = 0; i_row < part->n_rows; i_row++) {
        const char *row = part->array + (uint64_t)i_row * part->n_columns * part->elem_bytes;
        char *target = panel + part->offset + (uint64_t)i_row * HOST_PANEL_N * part->elem_bytes;
        for (uint32_t i = 0; i < n_columns; i++) {
            uint64_t i_elem = (first + i) / part->group_n;
            memcpy(target + (uint64_t)i * part->elem_bytes, row + i_elem * part->elem_bytes,
                   part->elem_bytes);
        }
    }
}

/* Of the columns that share an element, each gives it back. */
static void unpack_part(const struct part *part, uint32_t first, uint32_t n_columns,
                        const char *panel)
{
    for (uint32_t i_row = 0; i_row < part->n_rows; i_row++) {
        char *row = part->array + (uint64_t)i_row * part->n_columns * part->elem_bytes;
        const char *source =
            panel + part->offset + (uint64_t)i_row * HOST_PANEL_N * part->elem_bytes;
        for (uint32_t i = 0; i < n_columns; i++) {
            uint64_t i_elem = (first + i) / part->group_n;
            memcpy(row + i_elem * part->elem_bytes, source + (uint64_t)i * part->elem_bytes,
                   part->elem_bytes);
        }
    }
}

/* The codes of a panel's first column. */
static char *panel_codes(const struct gk_canonical *canonical, uint32_t first)
{
    const struct gk_desc *desc = &canonical->desc;
    return (char *)canonical->codes + (uint64_t)first * desc->k * host_codes_bytes(desc->code);
}

static void pack(const struct gk_canonical *canonical, void *packed)
{
    const struct gk_desc *desc = &canonical->desc;
    struct host_panel_shape shape = host_panel_shape(desc);
    struct part parts[N_PARTS];
    list_parts(canonical, &shape, parts);
    memset(packed, 0, shape.panels_offset);
    if (desc->has_perm) {
        memcpy(packed, canonical->perm, (uint64_t)desc->k * sizeof(*canonical->perm));
    }
    char *panel = (char *)packed + shape.panels_offset;
    for (uint32_t i_panel = 0; i_panel < shape.n_panels; i_panel++, panel += shape.panel_bytes) {
        uint32_t first = i_panel * HOST_PANEL_N;
        uint32_t n_columns = (uint32_t)num_min(HOST_PANEL_N, desc->n - first);
        memset(panel, 0, shape.panel_bytes);
        host_codes_pack(desc, panel_codes(canonical, first), n_columns, panel);
        for (uint32_t i = 0; i < N_PARTS; i++) {
            if (parts[i].array != NULL) {
                pack_part(&parts[i], first, n_columns, panel);
            }
        }
    }
}

static void unpack(const void *packed, struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    struct host_panel_shape shape = host_panel_shape(desc);
    struct part parts[N_PARTS];
    list_parts(canonical, &shape, parts);
    if (desc->has_perm) {
        memcpy(canonical->perm, packed, (uint64_t)desc->k * sizeof(*canonical->perm));
    }
    const char *panel = (const char *)packed + shape.panels_offset;
    for (uint32_t i_panel = 0; i_panel < shape.n_panels; i_panel++, panel += shape.panel_bytes) {
        uint32_t first = i_panel * HOST_PANEL_N;
        uint32_t n_columns = (uint32_t)num_min(HOST_PANEL_N, desc->n - first);
        host_codes_unpack(desc, panel, n_columns, panel_codes(canonical, first));
        for (uint32_t i = 0; i < N_PARTS; i++) {
            if (parts[i].array != NULL) {
                unpack_part(&parts[i], first, n_columns, panel);
            }
        }
    }
}

const struct gk_layout host_panel_layout = {
    .tag = "host-n64",
    .version = 1,
    .device_kind = GK_DEVICE_HOST,
    .fits = fits,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .unpack = unpack,
};
