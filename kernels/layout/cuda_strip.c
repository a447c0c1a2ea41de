/* cuda_strip.c - packing and unpacking of "cuda-strip16"; strip.h has the picture. Runs on the CPU,
 * once a load. */
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/layout/cuda_strip.h"
#include "kernels/layout/strip.h"

#define ALIGNMENT 256u

/* Elements along k that share a scale as packed: at most 128. */
static uint32_t packed_group_k(const struct gk_desc *desc)
{
    return (uint32_t)num_min(desc->group_k, STRIP_GROUP_MAX);
}

static bool fits(const struct gk_desc *desc)
{
    uint32_t group_k = desc->group_k;
    bool is_group_known =
        group_k == 32 || group_k == 64 || group_k % STRIP_GROUP_MAX == 0 || group_k == desc->k;
    bool is_scale_known = desc->scale_dtype == DTYPE_F16 || desc->scale_dtype == DTYPE_BF16;
    return gk_code_is_int(desc->code) && desc->act == GK_ACT_FLOAT && is_group_known &&
           is_scale_known;
}

static uint32_t step_slices(const struct strip_shape *shape, uint32_t i_step)
{
    return (uint32_t)num_min(STRIP_STEP_SLICES, shape->n_slices - i_step * STRIP_STEP_SLICES);
}

static uint32_t record_bytes(const struct strip_shape *shape, uint32_t n_step_slices)
{
    uint32_t slice_bytes =
        STRIP_CODES_BYTES_OF(shape->code_bits) + shape->slice_scale_bytes + shape->slice_zero_bytes;
    return strip_align(n_step_slices * slice_bytes);
}

/* Where a step begins; for the step after the last, where the records end. All but the last are
 * whole. */
static uint64_t step_offset(const struct strip_shape *shape, uint32_t i_step)
{
    uint32_t n_whole = (uint32_t)num_min(i_step, shape->n_slices / STRIP_STEP_SLICES);
    uint64_t offset = shape->records_offset +
                      (uint64_t)n_whole * shape->n_strips * record_bytes(shape, STRIP_STEP_SLICES);
    if (i_step > n_whole) {
        offset +=
            (uint64_t)shape->n_strips * record_bytes(shape, shape->n_slices % STRIP_STEP_SLICES);
    }
    return offset;
}

struct strip_shape strip_shape(const struct gk_desc *desc)
{
    struct strip_shape shape = {
        .n_strips = (uint32_t)num_div_up(desc->n, STRIP_N),
        .n_slices = (uint32_t)num_div_up(desc->k, STRIP_SLICE_K),
        .code_bits = gk_code_bits(desc->code),
    };
    uint32_t group_k = packed_group_k(desc);
    shape.n_slice_groups = group_k == 32 || group_k == 64 ? STRIP_SLICE_K / group_k : 2;
    shape.slice_scale_bytes = 8 * shape.n_slice_groups * 4;
    shape.slice_zero_bytes = desc->has_zeros ? 8 * shape.n_slice_groups * 2 : 0;
    uint64_t perm_bytes = desc->has_perm ? (uint64_t)desc->k * sizeof(uint32_t) : 0;
    uint64_t column_scale_bytes =
        desc->column_scale != GK_COLUMN_SCALE_NONE ? (uint64_t)desc->n * sizeof(float) : 0;
    shape.records_offset = num_align_up(perm_bytes, ALIGNMENT);
    shape.column_scales_offset = num_align_up(
        step_offset(&shape, (uint32_t)num_div_up(shape.n_slices, STRIP_STEP_SLICES)), ALIGNMENT);
    shape.bias_offset = num_align_up(shape.column_scales_offset + column_scale_bytes, ALIGNMENT);
    shape.packed_bytes = num_align_up(
        shape.bias_offset + (uint64_t)desc->n * dtype_bytes(desc->bias_dtype), ALIGNMENT);
    return shape;
}

/* Where a slice's parts lie. */
struct slice_place {
    uint64_t codes;
    uint64_t scales;
    uint64_t zeros;
};

static struct slice_place slice_place(const struct strip_shape *shape, uint32_t i_strip,
                                      uint32_t i_slice)
{
    uint32_t i_step = i_slice / STRIP_STEP_SLICES;
    uint32_t i = i_slice % STRIP_STEP_SLICES;
    uint32_t n = step_slices(shape, i_step);
    uint64_t record = step_offset(shape, i_step) + (uint64_t)i_strip * record_bytes(shape, n);
    uint64_t codes_bytes = STRIP_CODES_BYTES_OF(shape->code_bits);
    uint64_t scales = record + n * codes_bytes;
    uint64_t zeros = scales + (uint64_t)n * shape->slice_scale_bytes;
    return (struct slice_place){
        .codes = record + i * codes_bytes,
        .scales = scales + (uint64_t)i * shape->slice_scale_bytes,
        .zeros = zeros + (uint64_t)i * shape->slice_zero_bytes,
    };
}

/* ---- codes -------------------------------------------------------------------------------------
 */

static uint32_t rotate_left(uint32_t word, uint32_t n_bits)
{
    return word << n_bits | word >> (32 - n_bits) % 32;
}

static uint8_t padding_code(const struct gk_desc *desc)
{
    return desc->has_zeros ? 0 : (uint8_t)(1u << (gk_code_bits(desc->code) - 1));
}

/* The codes of a slice, row after row, padded with what multiplies to 0. */
struct slice_codes {
    uint8_t rows[STRIP_N][STRIP_SLICE_K];
};

static void gather_codes(const struct gk_canonical *canonical, uint64_t first_n, uint64_t first_k,
                         struct slice_codes *codes)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_k = num_min(STRIP_SLICE_K, desc->k - first_k);
    memset(codes, padding_code(desc), sizeof(*codes));
    for (uint64_t i_row = 0; i_row < STRIP_N && first_n + i_row < desc->n; i_row++) {
        const uint8_t *row = (const uint8_t *)canonical->codes + (first_n + i_row) * desc->k;
        memcpy(codes->rows[i_row], row + first_k, n_k);
    }
}

static uint32_t load_word(const uint8_t *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

/* Four codes of a row, a byte each: the even pair's nibbles 0 and 4, the odd pair's 2 and 6. */
static uint32_t nibbles_of(uint32_t bytes)
{
    return (bytes & 0xff0000ffu) | (bytes >> 8 & 0xff00u) | (bytes << 8 & 0xff0000u);
}

/* The word of a lane that begins at k, of rows g and g + 8. */
static uint32_t word_of(const struct slice_codes *codes, uint32_t g, uint32_t i_k)
{
    uint32_t upper = nibbles_of(load_word(codes->rows[g] + i_k));
    uint32_t lower = nibbles_of(load_word(codes->rows[g + 8] + i_k));
    return rotate_left(upper | lower << 4, STRIP_ROTATION);
}

/* Four consecutive k of a row always share a word, so that is the step. */
static void pack_slice(const struct gk_canonical *canonical, uint64_t first_n, uint64_t first_k,
                       uint8_t *slice)
{
    struct slice_codes codes;
    gather_codes(canonical, first_n, first_k, &codes);
    bool is_nibbles = gk_code_bits(canonical->desc.code) == 4;
    for (uint32_t g = 0; g < STRIP_N / 2; g++) {
        for (uint32_t i_k = 0; i_k < STRIP_SLICE_K; i_k += 4) {
            if (is_nibbles) {
                uint32_t word = word_of(&codes, g, i_k);
                memcpy(slice + strip_place_of(g, i_k).word_offset, &word, sizeof(word));
            } else {
                memcpy(slice + strip_byte_of(g, i_k), codes.rows[g] + i_k, 4);
                memcpy(slice + strip_byte_of(g + 8, i_k), codes.rows[g + 8] + i_k, 4);
            }
        }
    }
}

static uint8_t packed_code(const uint8_t *slice, uint32_t code_bits, uint32_t i_row, uint32_t i_k)
{
    if (code_bits == 8) {
        return slice[strip_byte_of(i_row, i_k)];
    }
    struct strip_place place = strip_place_of(i_row, i_k);
    uint32_t word;
    memcpy(&word, slice + place.word_offset, sizeof(word));
    return rotate_left(word, 32 - STRIP_ROTATION) >> place.shift & 15;
}

static void unpack_slice(const uint8_t *slice, uint32_t first_n, uint32_t first_k,
                         struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint8_t *codes = canonical->codes;
    uint32_t n_rows = (uint32_t)num_min(STRIP_N, desc->n - first_n);
    uint32_t n_k = (uint32_t)num_min(STRIP_SLICE_K, desc->k - first_k);
    for (uint32_t i_row = 0; i_row < n_rows; i_row++) {
        uint8_t *row = codes + (uint64_t)(first_n + i_row) * desc->k + first_k;
        for (uint32_t i = 0; i < n_k; i++) {
            row[i] = packed_code(slice, gk_code_bits(desc->code), i_row, i);
        }
    }
}

/* ---- scales and zero points --------------------------------------------------------------------
 */

/* Where the scale of a packed group lies, and its zero point: [g][group][half] of its slice. */
static struct slice_place scale_place(const struct strip_shape *shape, uint32_t i_n,
                                      uint32_t i_packed_group)
{
    uint32_t n_groups = shape->n_slice_groups;
    uint32_t i_row = i_n % STRIP_N;
    uint32_t index = 2 * (i_row % 8 * n_groups + i_packed_group % n_groups) + i_row / 8;
    struct slice_place place = slice_place(shape, i_n / STRIP_N, i_packed_group / n_groups);
    place.scales += 2 * (uint64_t)index;
    place.zeros += index;
    return place;
}

/* The index of a packed group's scale in the canonical arrays. */
static uint64_t canonical_index(const struct gk_desc *desc, uint32_t i_n, uint32_t i_packed_group)
{
    uint64_t i_k = (uint64_t)i_packed_group * packed_group_k(desc);
    return i_k / desc->group_k * gk_desc_scale_columns(desc) + i_n / desc->group_n;
}

/* n_k of the packed groups that hold real elements; the rest of the last slice is padding, left 0.
 */
static uint32_t packed_groups(const struct gk_desc *desc)
{
    return (uint32_t)num_div_up(desc->k, packed_group_k(desc));
}

static void pack_scales(const struct gk_canonical *canonical, const struct strip_shape *shape,
                        uint8_t *packed)
{
    const struct gk_desc *desc = &canonical->desc;
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        for (uint32_t i_group = 0; i_group < packed_groups(desc); i_group++) {
            struct slice_place to = scale_place(shape, i_n, i_group);
            uint64_t from = canonical_index(desc, i_n, i_group);
            memcpy(packed + to.scales, (const uint16_t *)canonical->scales + from, 2);
            if (desc->has_zeros) {
                packed[to.zeros] = canonical->zeros[from];
            }
        }
    }
}

static void unpack_scales(const uint8_t *packed, const struct strip_shape *shape,
                          struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        for (uint32_t i_group = 0; i_group < packed_groups(desc); i_group++) {
            struct slice_place from = scale_place(shape, i_n, i_group);
            uint64_t to = canonical_index(desc, i_n, i_group);
            memcpy((uint16_t *)canonical->scales + to, packed + from.scales, 2);
            if (desc->has_zeros) {
                canonical->zeros[to] = packed[from.zeros];
            }
        }
    }
}

/* ---- columns -----------------------------------------------------------------------------------
 */

static void pack_columns(const struct gk_canonical *canonical, const struct strip_shape *shape,
                         uint8_t *packed)
{
    const struct gk_desc *desc = &canonical->desc;
    if (desc->column_scale != GK_COLUMN_SCALE_NONE) {
        memcpy(packed + shape->column_scales_offset, canonical->column_scales,
               desc->n * sizeof(float));
    }
    if (desc->bias_dtype != DTYPE_NONE) {
        memcpy(packed + shape->bias_offset, canonical->bias,
               (uint64_t)desc->n * dtype_bytes(desc->bias_dtype));
    }
}

static void unpack_columns(const uint8_t *packed, const struct strip_shape *shape,
                           struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    if (desc->column_scale != GK_COLUMN_SCALE_NONE) {
        memcpy(canonical->column_scales, packed + shape->column_scales_offset,
               desc->n * sizeof(float));
    }
    if (desc->bias_dtype != DTYPE_NONE) {
        memcpy(canonical->bias, packed + shape->bias_offset,
               (uint64_t)desc->n * dtype_bytes(desc->bias_dtype));
    }
}

/* ---- the layout --------------------------------------------------------------------------------
 */

static uint64_t packed_bytes(const struct gk_desc *desc)
{
    return strip_shape(desc).packed_bytes;
}

static void pack(const struct gk_canonical *canonical, void *packed)
{
    const struct gk_desc *desc = &canonical->desc;
    struct strip_shape shape = strip_shape(desc);
    uint8_t *bytes = packed;
    memset(bytes, 0, shape.packed_bytes);
    if (desc->has_perm) {
        memcpy(bytes, canonical->perm, (uint64_t)desc->k * sizeof(*canonical->perm));
    }
    for (uint32_t i_strip = 0; i_strip < shape.n_strips; i_strip++) {
        for (uint32_t i_slice = 0; i_slice < shape.n_slices; i_slice++) {
            pack_slice(canonical, (uint64_t)i_strip * STRIP_N, (uint64_t)i_slice * STRIP_SLICE_K,
                       bytes + slice_place(&shape, i_strip, i_slice).codes);
        }
    }
    pack_scales(canonical, &shape, bytes);
    pack_columns(canonical, &shape, bytes);
}

static void unpack(const void *packed, struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    struct strip_shape shape = strip_shape(desc);
    const uint8_t *bytes = packed;
    if (desc->has_perm) {
        memcpy(canonical->perm, bytes, (uint64_t)desc->k * sizeof(*canonical->perm));
    }
    for (uint32_t i_strip = 0; i_strip < shape.n_strips; i_strip++) {
        for (uint32_t i_slice = 0; i_slice < shape.n_slices; i_slice++) {
            unpack_slice(bytes + slice_place(&shape, i_strip, i_slice).codes, i_strip * STRIP_N,
                         i_slice * STRIP_SLICE_K, canonical);
        }
    }
    unpack_scales(bytes, &shape, canonical);
    unpack_columns(bytes, &shape, canonical);
}

static bool fits_u4(const struct gk_desc *desc)
{
    return desc->code == GK_CODE_U4 && fits(desc);
}

static bool fits_u8(const struct gk_desc *desc)
{
    return desc->code == GK_CODE_U8 && fits(desc);
}

const struct gk_layout cuda_strip_u4_layout = {
    .tag = "cuda-strip16-u4",
    .version = 1,
    .device_kind = GK_DEVICE_CUDA,
    .fits = fits_u4,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .unpack = unpack,
};

const struct gk_layout cuda_strip_u8_layout = {
    .tag = "cuda-strip16-u8",
    .version = 1,
    .device_kind = GK_DEVICE_CUDA,
    .fits = fits_u8,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .unpack = unpack,
};
