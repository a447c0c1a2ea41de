/* cuda_kmajor.c - see cuda_kmajor.h. A transposition of the codes; everything else is copied. */
#include "kernels/layout/cuda_kmajor.h"

#include <stddef.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/layout/parts.h"

#define COLUMN_ALIGNMENT 64u
#define K_STEP           64u /* rows of nibbles moved per pass over the columns: they stay in the cache */
#define TILE             64u /* rows and columns that are turned over at once */

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

/* A matrix of rows a stride of bytes apart; of codes of whole bytes. */
struct side {
    char *bytes;
    uint64_t stride_bytes;
};

/* Up to TILE by TILE of them: what is read and what is written are whole lines of the cache each,
 * since strides are often such that the lines of a column displace one another there. Inlined, that
 * elem_bytes is a constant: a call of memcpy() for each element would take most of the time. */
static inline __attribute__((always_inline)) void turn_tile(const struct side *source,
                                                            uint32_t n_rows, uint32_t n_columns,
                                                            const struct side *target,
                                                            uint32_t elem_bytes)
{
    char tile[TILE * TILE * sizeof(float)];
    for (uint32_t i = 0; i < n_rows; i++) {
        const char *row = source->bytes + i * source->stride_bytes;
        for (uint32_t j = 0; j < n_columns; j++) {
            memcpy(tile + (j * TILE + i) * elem_bytes, row + j * elem_bytes, elem_bytes);
        }
    }
    for (uint32_t j = 0; j < n_columns; j++) {
        memcpy(target->bytes + j * target->stride_bytes, tile + j * TILE * elem_bytes,
               n_rows * elem_bytes);
    }
}

/* Rows of `source` are columns of `target`. */
static inline __attribute__((always_inline)) void turn_over(const struct side *source,
                                                            uint32_t n_rows, uint32_t n_columns,
                                                            const struct side *target,
                                                            uint32_t elem_bytes)
{
    for (uint32_t j = 0; j < n_columns; j += TILE) {
        for (uint32_t i = 0; i < n_rows; i += TILE) {
            const struct side from = {source->bytes + i * source->stride_bytes + j * elem_bytes,
                                      source->stride_bytes};
            const struct side to = {target->bytes + j * target->stride_bytes + i * elem_bytes,
                                    target->stride_bytes};
            turn_tile(&from, (uint32_t)num_min(TILE, n_rows - i),
                      (uint32_t)num_min(TILE, n_columns - j), &to, elem_bytes);
        }
    }
}

static void transpose(const struct side *source, uint32_t n_rows, uint32_t n_columns,
                      const struct side *target, uint32_t elem_bytes)
{
    switch (elem_bytes) {
    case 1:
        turn_over(source, n_rows, n_columns, target, 1);
        return;
    case 2:
        turn_over(source, n_rows, n_columns, target, 2);
        return;
    default:
        turn_over(source, n_rows, n_columns, target, 4);
        return;
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

static struct side canonical_side(const struct gk_canonical *canonical)
{
    uint64_t elem_bytes = canonical_bytes(&canonical->desc);
    return (struct side){canonical->codes, canonical->desc.k * elem_bytes};
}

static void pack_codes(const struct gk_canonical *canonical, const struct cuda_kmajor_shape *shape,
                       char *packed)
{
    const struct gk_desc *desc = &canonical->desc;
    if (gk_code_bits(desc->code) != 4) {
        const struct side source = canonical_side(canonical);
        const struct side target = {packed, shape->row_bytes};
        transpose(&source, desc->n, desc->k, &target, canonical_bytes(desc));
        return;
    }
    for (uint32_t i_k = 0; i_k < desc->k; i_k += K_STEP) {
        pack_nibbles((const uint8_t *)canonical->codes + i_k, desc,
                     (uint32_t)num_min(K_STEP, desc->k - i_k),
                     (uint8_t *)packed + i_k * shape->row_bytes, shape->row_bytes);
    }
}

static void unpack_nibbles(const char *packed, const struct cuda_kmajor_shape *shape,
                           struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint8_t *target = canonical->codes;
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
            const char *row = packed + i_k * shape->row_bytes;
            *target++ = (uint8_t)row[i_n / 2] >> (i_n % 2 * 4) & 0xfu;
        }
    }
}

static void unpack_codes(const char *packed, const struct cuda_kmajor_shape *shape,
                         struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    if (gk_code_bits(desc->code) == 4) {
        unpack_nibbles(packed, shape, canonical);
        return;
    }
    const struct side source = {(char *)(uintptr_t)packed, shape->row_bytes};
    const struct side target = canonical_side(canonical);
    transpose(&source, desc->k, desc->n, &target, canonical_bytes(desc));
}

/* ---- the rest ---- */

void cuda_kmajor_parts(const struct gk_canonical *canonical, struct part ret_list[PARTS_MAX])
{
    struct cuda_kmajor_shape shape = cuda_kmajor_shape(&canonical->desc);
    const struct parts parts = {
        .scales_offset = shape.scales_offset,
        .zeros_offset = shape.zeros_offset,
        .perm_offset = shape.perm_offset,
        .column_scales_offset = shape.column_scales_offset,
        .bias_offset = shape.bias_offset,
    };
    parts_list(canonical, &parts, ret_list);
}

static void pack(const struct gk_canonical *canonical, void *packed)
{
    struct cuda_kmajor_shape shape = cuda_kmajor_shape(&canonical->desc);
    struct part list[PARTS_MAX];
    memset(packed, 0, shape.total_bytes);
    pack_codes(canonical, &shape, packed);
    cuda_kmajor_parts(canonical, list);
    parts_pack(list, packed);
}

static void unpack(const void *packed, struct gk_canonical *canonical)
{
    struct cuda_kmajor_shape shape = cuda_kmajor_shape(&canonical->desc);
    struct part list[PARTS_MAX];
    unpack_codes(packed, &shape, canonical);
    cuda_kmajor_parts(canonical, list);
    parts_unpack(packed, list);
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
