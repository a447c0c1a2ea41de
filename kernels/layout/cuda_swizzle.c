/* cuda_swizzle.c - packing and unpacking of "cuda-swizzle8"; swizzle.h has the picture. Runs on the
 * CPU, once a load. */
#include "kernels/layout/cuda_swizzle.h"

#include <stddef.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/layout/parts.h"
#include "kernels/layout/swizzle.h"

#define UNIT_K   16u  /* bytes that stay together */
#define SIGN_BIT 0x80 /* an unsigned code less 128 is a signed byte */

struct swizzle_shape swizzle_shape(const struct gk_desc *desc)
{
    struct swizzle_shape shape = {.n_groups = (uint32_t)num_div_up(desc->n, SWIZZLE_ROWS),
                                  .n_blocks = (uint32_t)num_div_up(desc->k, SWIZZLE_K)};
    uint64_t *total = &shape.total_bytes;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    bool is_int = gk_code_is_int(desc->code);
    bool has_columns = desc->column_scale != GK_COLUMN_SCALE_NONE;
    (void)parts_reserve(total, (uint64_t)shape.n_groups * shape.n_blocks, SWIZZLE_ATOM_BYTES);
    shape.scales_offset = parts_reserve(total, n_scales, dtype_bytes(desc->scale_dtype));
    shape.zeros_offset = parts_reserve(total, n_scales, desc->has_zeros ? 1 : 0);
    shape.code_sums_offset = parts_reserve(total, desc->n, is_int ? sizeof(int32_t) : 0);
    shape.column_scales_offset = parts_reserve(total, desc->n, has_columns ? sizeof(float) : 0);
    shape.bias_offset = parts_reserve(total, desc->n, dtype_bytes(desc->bias_dtype));
    return shape;
}

static bool fits(const struct gk_desc *desc)
{
    bool is_fp8 = desc->code == GK_CODE_E4M3 && gk_act_is_fp8(desc->act);
    bool is_int8 = desc->code == GK_CODE_U8 && gk_act_is_int8(desc->act);
    bool is_one_group = desc->group_k == desc->k && desc->act != GK_ACT_FP8_GROUP;
    bool is_block_known = desc->group_n == desc->n || desc->group_n % SWIZZLE_K == 0;
    bool is_blocks = (desc->group_k == SWIZZLE_K || desc->group_k == desc->k) && is_block_known;
    return !desc->has_perm && ((is_fp8 && (is_one_group || is_blocks)) || is_int8);
}

static uint64_t packed_bytes(const struct gk_desc *desc)
{
    return swizzle_shape(desc).total_bytes;
}

/* ---- codes ---- */

/* Where a unit of 16 elements of a row begins. */
static uint64_t unit_offset(const struct swizzle_shape *shape, uint32_t i_n, uint32_t i_k)
{
    uint64_t i_atom = (uint64_t)(i_k / SWIZZLE_K) * shape->n_groups + i_n / SWIZZLE_ROWS;
    return i_atom * SWIZZLE_ATOM_BYTES + swizzle_byte_of(i_n % SWIZZLE_ROWS, i_k % SWIZZLE_K);
}

/* A row's codes; integer ones change their sign bit, which is 128 taken off or put back. */
static void pack_row(const struct gk_desc *desc, const struct swizzle_shape *shape,
                     const uint8_t *codes, uint32_t i_n, uint8_t *packed)
{
    uint8_t flipped = gk_code_is_int(desc->code) ? SIGN_BIT : 0;
    for (uint32_t i_k = 0; i_k < desc->k; i_k += UNIT_K) {
        uint8_t *unit = packed + unit_offset(shape, i_n, i_k);
        uint32_t n_bytes = (uint32_t)num_min(UNIT_K, desc->k - i_k);
        for (uint32_t i = 0; i < n_bytes; i++) {
            unit[i] = codes[i_k + i] ^ flipped;
        }
    }
}

static void unpack_row(const struct gk_desc *desc, const struct swizzle_shape *shape,
                       const uint8_t *packed, uint32_t i_n, uint8_t *codes)
{
    uint8_t flipped = gk_code_is_int(desc->code) ? SIGN_BIT : 0;
    for (uint32_t i_k = 0; i_k < desc->k; i_k += UNIT_K) {
        const uint8_t *unit = packed + unit_offset(shape, i_n, i_k);
        uint32_t n_bytes = (uint32_t)num_min(UNIT_K, desc->k - i_k);
        for (uint32_t i = 0; i < n_bytes; i++) {
            codes[i_k + i] = unit[i] ^ flipped;
        }
    }
}

/* Of a row's signed bytes: what a zero point of x is multiplied with. */
static int32_t sum_of_row(const struct gk_desc *desc, const uint8_t *codes)
{
    int32_t sum = 0;
    for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
        sum += codes[i_k] - 128;
    }
    return sum;
}

/* ---- the rest ---- */

void swizzle_parts(const struct gk_canonical *canonical, struct part ret_list[PARTS_MAX])
{
    struct swizzle_shape shape = swizzle_shape(&canonical->desc);
    const struct parts parts = {
        .scales_offset = shape.scales_offset,
        .zeros_offset = shape.zeros_offset,
        .column_scales_offset = shape.column_scales_offset,
        .bias_offset = shape.bias_offset,
    };
    parts_list(canonical, &parts, ret_list);
}

static void pack(const struct gk_canonical *canonical, void *packed)
{
    const struct gk_desc *desc = &canonical->desc;
    struct swizzle_shape shape = swizzle_shape(desc);
    struct part list[PARTS_MAX];
    uint8_t *bytes = packed;
    memset(bytes, 0, shape.total_bytes);
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        const uint8_t *codes = (const uint8_t *)canonical->codes + (uint64_t)i_n * desc->k;
        pack_row(desc, &shape, codes, i_n, bytes);
        if (gk_code_is_int(desc->code)) {
            int32_t sum = sum_of_row(desc, codes);
            memcpy(bytes + shape.code_sums_offset + i_n * sizeof(sum), &sum, sizeof(sum));
        }
    }
    swizzle_parts(canonical, list);
    parts_pack(list, packed);
}

static void unpack(const void *packed, struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    struct swizzle_shape shape = swizzle_shape(desc);
    struct part list[PARTS_MAX];
    const uint8_t *bytes = packed;
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        unpack_row(desc, &shape, bytes, i_n, (uint8_t *)canonical->codes + (uint64_t)i_n * desc->k);
    }
    swizzle_parts(canonical, list);
    parts_unpack(packed, list);
}

const struct gk_layout cuda_swizzle_layout = {
    .tag = "cuda-swizzle8",
    .version = 1,
    .device_kind = GK_DEVICE_CUDA,
    .fits = fits,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .unpack = unpack,
};
