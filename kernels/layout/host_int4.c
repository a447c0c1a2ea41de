/* host_int4.c - "host-int4-n64": 4-bit codes in panels of 64 columns.
 *
 * A row of a panel is 16 little-endian words of 16 bits; word i holds the codes of columns i, 16 +
 * i, 32 + i and 48 + i in its four nibbles, low first. AVX-512 widens the words to sixteen lanes
 * and finds the code of column 16 * j + lane in nibble j of each; AVX2 looks the nibbles up as
 * bytes. Padding columns hold the zero point. */
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/layout/host_panel.h"

#define WORDS_PER_ROW 16u
#define K_STEP        64u /* rows packed per pass over the columns: both sides stay in the L1 cache */

/* Which byte of a row, and how far up in it. */
static uint32_t byte_of(uint32_t i_column)
{
    return 2 * (i_column % WORDS_PER_ROW) + i_column / (2 * WORDS_PER_ROW);
}

static uint32_t shift_of(uint32_t i_column)
{
    return 4 * (i_column / WORDS_PER_ROW % 2);
}

static bool fits(const struct gk_desc *desc)
{
    return desc->code == GK_CODE_U4 && !desc->has_zeros && !desc->has_perm && desc->group_n == 1 &&
           desc->column_scale == GK_COLUMN_SCALE_NONE && desc->act == GK_ACT_FLOAT;
}

/* codes: the panel's columns, k apart; rows: where row i_k of the panel goes. */
static void pack_step(const uint8_t *codes, uint64_t k, uint32_t n_columns, uint32_t n_k,
                      uint8_t *rows, uint32_t row_bytes)
{
    memset(rows, 0, (uint64_t)n_k * row_bytes);
    for (uint32_t i_column = 0; i_column < HOST_PANEL_N; i_column++) {
        const uint8_t *column = i_column < n_columns ? codes + i_column * k : NULL;
        uint8_t *byte = rows + byte_of(i_column);
        uint32_t shift = shift_of(i_column);
        for (uint32_t i_k = 0; i_k < n_k; i_k++, byte += row_bytes) {
            uint8_t code = column != NULL ? column[i_k] : 8;
            *byte = (uint8_t)(*byte | code << shift);
        }
    }
}

static void pack(const struct gk_canonical *canonical, void *packed)
{
    const struct gk_desc *desc = &canonical->desc;
    struct host_panel_shape shape = host_panel_shape(desc);
    uint64_t weights_bytes = (uint64_t)desc->k * shape.row_bytes;
    for (uint32_t i_panel = 0; i_panel < shape.n_panels; i_panel++) {
        uint8_t *panel = (uint8_t *)packed + i_panel * shape.panel_bytes;
        uint64_t first = (uint64_t)i_panel * HOST_PANEL_N;
        uint32_t n_columns = (uint32_t)num_min(HOST_PANEL_N, desc->n - first);
        for (uint32_t i_k = 0; i_k < desc->k; i_k += K_STEP) {
            pack_step((const uint8_t *)canonical->codes + first * desc->k + i_k, desc->k, n_columns,
                      (uint32_t)num_min(K_STEP, desc->k - i_k),
                      panel + (uint64_t)i_k * shape.row_bytes, shape.row_bytes);
        }
        memset(panel + weights_bytes, 0, shape.scales_offset - weights_bytes);
    }
    host_panel_pack_columns(canonical, packed);
}

static void unpack(const void *packed, struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    struct host_panel_shape shape = host_panel_shape(desc);
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        const uint8_t *byte = (const uint8_t *)packed + i_n / HOST_PANEL_N * shape.panel_bytes +
                              byte_of(i_n % HOST_PANEL_N);
        uint8_t *codes = (uint8_t *)canonical->codes + (uint64_t)i_n * desc->k;
        uint32_t shift = shift_of(i_n % HOST_PANEL_N);
        for (uint32_t i_k = 0; i_k < desc->k; i_k++, byte += shape.row_bytes) {
            codes[i_k] = *byte >> shift & 15;
        }
    }
    host_panel_unpack_columns(packed, canonical);
}

const struct gk_layout host_int4_layout = {
    .tag = "host-int4-n64",
    .version = 1,
    .device_kind = GK_DEVICE_HOST,
    .fits = fits,
    .packed_bytes = host_panel_packed_bytes,
    .pack = pack,
    .unpack = unpack,
};
