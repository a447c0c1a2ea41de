/* host_plain.c - "host-plain-n64": f32, f16 or bf16 values as they are, in panels of 64 columns. A
 * row of a panel is the 64 columns' values at one k, in order. Padding columns are zero. */
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/layout/host_panel.h"

#define K_STEP 64u /* rows moved per pass over the columns: both sides stay in the L1 cache */

static bool fits(const struct gk_desc *desc)
{
    return gk_code_is_plain(desc->code);
}

/* A transposition of 16- or 32-bit elements. source: n_columns columns, k apart. */
static void pack_step(const char *source, uint64_t column_bytes, uint32_t n_columns, uint32_t n_k,
                      uint32_t elem_bytes, char *rows)
{
    for (uint32_t i_column = 0; i_column < n_columns; i_column++, source += column_bytes) {
        for (uint32_t i_k = 0; i_k < n_k; i_k++) {
            memcpy(rows + ((uint64_t)i_k * HOST_PANEL_N + i_column) * elem_bytes,
                   source + (uint64_t)i_k * elem_bytes, elem_bytes);
        }
    }
}

static void pack(const struct gk_canonical *canonical, void *packed)
{
    const struct gk_desc *desc = &canonical->desc;
    struct host_panel_shape shape = host_panel_shape(desc);
    uint32_t elem_bytes = gk_code_bits(desc->code) / 8;
    uint64_t column_bytes = (uint64_t)desc->k * elem_bytes;
    for (uint32_t i_panel = 0; i_panel < shape.n_panels; i_panel++) {
        char *panel = (char *)packed + i_panel * shape.panel_bytes;
        uint64_t first = (uint64_t)i_panel * HOST_PANEL_N;
        uint32_t n_columns = (uint32_t)num_min(HOST_PANEL_N, desc->n - first);
        const char *columns = (const char *)canonical->codes + first * column_bytes;
        if (n_columns < HOST_PANEL_N) {
            memset(panel, 0, shape.scales_offset);
        }
        for (uint32_t i_k = 0; i_k < desc->k; i_k += K_STEP) {
            pack_step(columns + (uint64_t)i_k * elem_bytes, column_bytes, n_columns,
                      (uint32_t)num_min(K_STEP, desc->k - i_k), elem_bytes,
                      panel + (uint64_t)i_k * shape.row_bytes);
        }
    }
    host_panel_pack_columns(canonical, packed);
}

static void unpack(const void *packed, struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    struct host_panel_shape shape = host_panel_shape(desc);
    uint32_t elem_bytes = gk_code_bits(desc->code) / 8;
    char *value = canonical->codes;
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        const char *source = (const char *)packed + i_n / HOST_PANEL_N * shape.panel_bytes +
                             (uint64_t)(i_n % HOST_PANEL_N) * elem_bytes;
        for (uint32_t i_k = 0; i_k < desc->k; i_k++, value += elem_bytes) {
            memcpy(value, source + (uint64_t)i_k * shape.row_bytes, elem_bytes);
        }
    }
    host_panel_unpack_columns(packed, canonical);
}

const struct gk_layout host_plain_layout = {
    .tag = "host-plain-n64",
    .version = 1,
    .device_kind = GK_DEVICE_HOST,
    .fits = fits,
    .packed_bytes = host_panel_packed_bytes,
    .pack = pack,
    .unpack = unpack,
};
