/* cuda_strip.c - packing and unpacking of "cuda-strip16"; strip.h has
 * the picture. Runs on the
 * CPU, once a load. */
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

bool strip_fits(const struct gk_desc *desc)
{
    uint32_t group_k = desc->group_k;
    bool is_group_known =
        group_k == 32 || group_k == 64 || group_k % STRIP_GROUP_MAX == 0 || group_k == desc->k;
    bool is_scale_known = desc->scale_dtype == DTYPE_F16 || desc->scale_dtype == DTYPE_BF16;
    return desc->code == GK_CODE_U4 && desc->act == GK_ACT_FLOAT && is_group_known &&
           is_scale_known;
}

static uint32_t step_slices(const struct strip_shape *shape, uint32_t i_step)
{
    return (uint32_t)num_min(STRIP_STEP_SLICES, shape->n_slices - i_step * STRIP_STEP_SLICES);
}

uint32_t strip_record_bytes(const struct strip_shape *shape, uint32_t n_step_slices)
{
    uint32_t slice_bytes = STRIP_CODES_BYTES + shape->slice_scale_bytes + shape->slice_zero_bytes;
    return strip_align(n_step_slices * slice_bytes);
}

/* Where a step begins; for the step after the last, where the records end. All but the last are
 * whole. */
static uint64_t step_offset(const struct strip_shape *shape, uint32_t i_step)
{
    uint32_t n_whole = (uint32_t)num_min(i_step, shape->n_slices / STRIP_STEP_SLICES);
    uint64_t offset = shape->records_offset + (uint64_t)n_whole * shape->n_strips *
                                                  strip_record_bytes(shape, STRIP_STEP_SLICES);
    if (i_step > n_whole) {
        offset += (uint64_t)shape->n_strips *
                  strip_record_bytes(shape, shape->n_slices % STRIP_STEP_SLICES);
    }
    return offset;
}

struct strip_shape strip_shape(const struct gk_desc *desc)
{
    struct strip_shape shape = {
        .n_strips = (uint32_t)num_div_up(desc->n, STRIP_N),
        .n_slices = (uint32_t)num_div_up(desc->k, STRIP_SLICE_K),
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
    uint64_t record = step_offset(shape, i_step) + (uint64_t)i_strip * strip_record_bytes(shape, n);
    uint64_t scales = record + (uint64_t)n * STRIP_CODES_BYTES;
    uint64_t zeros = scales + (uint64_t)n * shape->slice_scale_bytes;
    return (struct slice_place){
        .codes = record + (uint64_t)i * STRIP_CODES_BYTES,
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

static void pack_slice(const struct gk_canonical *canonical, uint32_t i_strip, uint32_t i_slice,
                       uint8_t *slice)
{
    const struct gk_desc *desc = &canonical->desc;
    const uint8_t *codes = canonical->codes;
    uint32_t words[STRIP_CODES_BYTES / sizeof(uint32_t)] = {0};
    for (uint32_t i_row = 0; i_row < STRIP_N; i_row++) {
        uint64_t i_n = (uint64_t)i_strip * STRIP_N + i_row;
        for (uint32_t i = 0; i < STRIP_SLICE_K; i++) {
            uint64_t i_k = (uint64_t)i_slice * STRIP_SLICE_K + i;
            bool is_padding = i_n >= desc->n || i_k >= desc->k;
            uint32_t code = is_padding ? padding_code(desc) : codes[i_n * desc->k + i_k];
            struct strip_place place = strip_place_of(i_row, i);
            words[place.word_offset / sizeof(uint32_t)] |= code << place.shift;
        }
    }
    for (uint32_t i = 0; i < STRIP_CODES_BYTES / sizeof(uint32_t); i++) {
        words[i] = rotate_left(words[i], STRIP_ROTATION);
    }
    memcpy(slice, words, STRIP_CODES_BYTES);
}

static void unpack_slice(const uint8_t *slice, uint32_t i_strip, uint32_t i_slice,
                         struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint8_t *codes = canonical->codes;
    uint32_t first_n = i_strip * STRIP_N;
    uint32_t first_k = i_slice * STRIP_SLICE_K;
    uint32_t n_rows = (uint32_t)num_min(STRIP_N, desc->n - first_n);
    uint32_t n_k = (uint32_t)num_min(STRIP_SLICE_K, desc->k - first_k);
    for (uint32_t i_row = 0; i_row < n_rows; i_row++) {
        for (uint32_t i = 0; i < n_k; i++) {
            struct strip_place place = strip_place_of(i_row, i);
            uint32_t word;
            memcpy(&word, slice + place.word_offset, sizeof(word));
            word = rotate_left(word, 32 - STRIP_ROTATION);
            codes[(uint64_t)(first_n + i_row) * desc->k + first_k + i] = word >> place.shift & 15;
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
            pack_slice(canonical, i_strip, i_slice,
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
            unpack_slice(bytes + slice_place(&shape, i_strip, i_slice).codes, i_strip, i_slice,
                         canonical);
        }
    }
    unpack_scales(bytes, &shape, canonical);
    unpack_columns(bytes, &shape, canonical);
}

const struct gk_layout cuda_strip_u4_layout = {
    .tag = "cuda-strip16-u4",
    .version = 1,
    .device_kind = GK_DEVICE_CUDA,
    .fits = strip_fits,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .unpack = unpack,
};
