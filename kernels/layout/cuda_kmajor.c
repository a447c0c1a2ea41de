/* cuda_kmajor.c - see cuda_kmajor.h. A transposition of the codes; everything else is copied. */
#include "kernels/layout/cuda_kmajor.h"

#include <stddef.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/layout/parts.h"

#define COLUMN_ALIGNMENT 64u
#define K_STEP           64u /* rows moved per pass over the columns: both sides stay in the L1 cache */

struct cuda_kmajor_shape cuda_kmajor_shape(const struct gk_desc *desc)
{
    struct cuda_kmajor_shape shape = {.n_stride =
                                          (uint32_t)num_align_up(desc->n, COLUMN_ALIGNMENT)};
    uint64_t *total = &shape.total_bytes;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    shape.row_bytes = (uint64_t)shape.n_stride * gk_code_bits(desc->code) / 8;
    (void)parts_reserve(total, desc->k, shape.row_bytes);
    shape.scales_offset = parts_reserve(total, n_scales, dtype_bytes(desc->scale_dtype));
    shape.zeros_offset = parts_reserve(total, n_scales, desc->has_zeros ? 1 : 0);
    shape.perm_offset = parts_reserve(total, desc->k, desc->has_perm ? sizeof(uint32_t) : 0);
    shape.column_scales_offset = parts_reserve(
        total, desc->n, desc->column_scale != GK_COLUMN_SCALE_NONE ? sizeof(float) : 0);
    shape.bias_offset = parts_reserve(total, desc->n, dtype_bytes(desc->bias_dtype));
    return shape;
}

static bool fits(const struct gk_desc *desc)
{
    return gk_code_bits(desc->code) != 0;
}

static uint64_t packed_bytes(const struct gk_desc *desc)
{
    return cuda_kmajor_shape(desc).total_bytes;
}

/* ---- codes ---- */

/* Codes of whole bytes, elem_bytes each; source: columns, k apart; rows: where row i_k goes. */
static void pack_bytes(const char *source, const struct gk_desc *desc, uint32_t n_k,
                       uint32_t elem_bytes, char *rows, uint64_t row_bytes)
{
    for (uint32_t i_n = 0; i_n < desc->n; i_n++, source += (uint64_t)desc->k * elem_bytes) {
        for (uint32_t i_k = 0; i_k < n_k; i_k++) {
            memcpy(rows + i_k * row_bytes + (uint64_t)i_n * elem_bytes,
                   source + (uint64_t)i_k * elem_bytes, elem_bytes);
        }
    }
}

static void pack_nibbles(const uint8_t *source, const struct gk_desc *desc, uint32_t n_k,
                         uint8_t *rows, uint64_t row_bytes)
{
    for (uint32_t i_n = 0; i_n < desc->n; i_n++, source += desc->k) {
        for (uint32_t i_k = 0; i_k < n_k; i_k++) {
            uint8_t *byte = rows + i_k * row_bytes + i_n / 2;
            *byte = (uint8_t)(*byte | source[i_k] << (i_n % 2 * 4));
        }
    }
}

/* Bytes of a code in canonical form, where 4-bit ones take a byte too. */
static uint32_t canonical_bytes(const struct gk_desc *desc)
{
    return gk_code_is_plain(desc->code) ? dtype_bytes(gk_code_dtype(desc->code)) : 1;
}

static void pack_codes(const struct gk_canonical *canonical, const struct cuda_kmajor_shape *shape,
                       char *packed)
{
    const struct gk_desc *desc = &canonical->desc;
    uint32_t elem_bytes = canonical_bytes(desc);
    for (uint32_t i_k = 0; i_k < desc->k; i_k += K_STEP) {
        const char *source = (const char *)canonical->codes + (uint64_t)i_k * elem_bytes;
        char *rows = packed + i_k * shape->row_bytes;
        uint32_t n_k = (uint32_t)num_min(K_STEP, desc->k - i_k);
        if (gk_code_bits(desc->code) == 4) {
            pack_nibbles((const uint8_t *)source, desc, n_k, (uint8_t *)rows, shape->row_bytes);
        } else {
            pack_bytes(source, desc, n_k, elem_bytes, rows, shape->row_bytes);
        }
    }
}

static void unpack_codes(const char *packed, const struct cuda_kmajor_shape *shape,
                         struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint32_t elem_bytes = canonical_bytes(desc);
    bool is_nibble = gk_code_bits(desc->code) == 4;
    char *target = canonical->codes;
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        for (uint32_t i_k = 0; i_k < desc->k; i_k++, target += elem_bytes) {
            const char *row = packed + i_k * shape->row_bytes;
            if (is_nibble) {
                *(uint8_t *)target = (uint8_t)row[i_n / 2] >> (i_n % 2 * 4) & 0xfu;
            } else {
                memcpy(target, row + (uint64_t)i_n * elem_bytes, elem_bytes);
            }
        }
    }
}

/* ---- the rest ---- */

static struct parts parts_of(const struct cuda_kmajor_shape *shape)
{
    return (struct parts){
        .scales_offset = shape->scales_offset,
        .zeros_offset = shape->zeros_offset,
        .perm_offset = shape->perm_offset,
        .column_scales_offset = shape->column_scales_offset,
        .bias_offset = shape->bias_offset,
    };
}

static void pack(const struct gk_canonical *canonical, void *packed)
{
    struct cuda_kmajor_shape shape = cuda_kmajor_shape(&canonical->desc);
    struct parts parts = parts_of(&shape);
    memset(packed, 0, shape.total_bytes);
    pack_codes(canonical, &shape, packed);
    parts_pack(canonical, &parts, packed);
}

static void unpack(const void *packed, struct gk_canonical *canonical)
{
    struct cuda_kmajor_shape shape = cuda_kmajor_shape(&canonical->desc);
    struct parts parts = parts_of(&shape);
    unpack_codes(packed, &shape, canonical);
    parts_unpack(packed, &parts, canonical);
}

const struct gk_layout cuda_kmajor_layout = {
    .tag = "cuda-kmajor",
    .version = 1,
    .device_kind = GK_DEVICE_CUDA,
    .fits = fits,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .unpack = unpack,
};
