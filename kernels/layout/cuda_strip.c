/* cuda_strip.c - packing and unpacking of "cuda-strip16"; strip.h has the picture. Runs on the CPU,
 * once a load. */
#include "kernels/layout/cuda_strip.h"

#include <stddef.h>
#include <string.h>

#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "kernels/layout/strip_codes.h"
#include "kernels/scalar.h"

#define ALIGNMENT    256u
#define E8M0_GROUP_K 32u
#define E4M3_GROUP_K 16u

/* ---- what fits ---- */

/* Groups of `size`, or one that is all of a shorter k. */
static bool has_groups_of(const struct gk_desc *desc, uint32_t size)
{
    return desc->group_n == 1 && desc->group_k == num_min(size, desc->k);
}

static bool has_float_scales(const struct gk_desc *desc)
{
    return desc->scale_dtype == DTYPE_F32 || desc->scale_dtype == DTYPE_F16 ||
           desc->scale_dtype == DTYPE_BF16;
}

static bool fits_int(const struct gk_desc *desc, enum gk_code code)
{
    uint32_t group_k = desc->group_k;
    bool is_group_known =
        group_k == 32 || group_k == 64 || group_k % STRIP_GROUP_MAX == 0 || group_k == desc->k;
    bool is_scale_known = desc->scale_dtype == DTYPE_F16 || desc->scale_dtype == DTYPE_BF16;
    return desc->code == code && is_group_known && is_scale_known;
}

/* x in e4m3 with a scale a row, whose products are summed for 128 of k at a time. */
static bool has_fp8_rows(const struct gk_desc *desc)
{
    bool is_row_scaled = desc->act == GK_ACT_FP8_TOKEN || desc->act == GK_ACT_FP8_TENSOR;
    bool is_group_long = desc->group_k != 32 && desc->group_k != 64;
    return is_row_scaled && is_group_long && !desc->has_perm;
}

static bool fits_u4(const struct gk_desc *desc)
{
    return fits_int(desc, GK_CODE_U4) && (desc->act == GK_ACT_FLOAT || has_fp8_rows(desc));
}

static bool fits_u8(const struct gk_desc *desc)
{
    return fits_int(desc, GK_CODE_U8) && desc->act == GK_ACT_FLOAT;
}

static bool fits_e4m3(const struct gk_desc *desc)
{
    if (desc->code != GK_CODE_E4M3 || desc->act != GK_ACT_FLOAT) {
        return false;
    }
    if (desc->scale_dtype == DTYPE_F8_E8M0) {
        return has_groups_of(desc, E8M0_GROUP_K);
    }
    bool is_block = desc->group_k % STRIP_GROUP_MAX == 0 &&
                    (desc->group_n % STRIP_N == 0 || desc->group_n == desc->n);
    return has_float_scales(desc) && (desc->group_k == desc->k || is_block);
}

static bool fits_e2m1(const struct gk_desc *desc)
{
    if (desc->code != GK_CODE_E2M1 || desc->act != GK_ACT_FLOAT) {
        return false;
    }
    return desc->scale_dtype == DTYPE_F8_E8M0
               ? has_groups_of(desc, E8M0_GROUP_K)
               : desc->scale_dtype == DTYPE_F8_E4M3 && has_groups_of(desc, E4M3_GROUP_K);
}

/* ---- the shape ---- */

static enum strip_scaling scaling_of(const struct gk_desc *desc)
{
    if (gk_code_is_int(desc->code)) {
        return STRIP_SCALES_PAIRS;
    }
    if (desc->scale_dtype == DTYPE_F8_E8M0) {
        return STRIP_SCALES_E8M0;
    }
    return desc->scale_dtype == DTYPE_F8_E4M3 ? STRIP_SCALES_E4M3 : STRIP_SCALES_STRIP;
}

/* Elements along k that share a scale as packed. */
static uint32_t packed_group_k(const struct gk_desc *desc)
{
    switch (scaling_of(desc)) {
    case STRIP_SCALES_E8M0:
        return E8M0_GROUP_K;
    case STRIP_SCALES_E4M3:
        return E4M3_GROUP_K;
    case STRIP_SCALES_STRIP:
        return STRIP_GROUP_MAX;
    default:
        return desc->group_k == 32 || desc->group_k == 64 ? desc->group_k : STRIP_GROUP_MAX;
    }
}

static uint32_t scale_bytes(const struct gk_desc *desc)
{
    static const uint32_t rows[] = {[STRIP_SCALES_PAIRS] = STRIP_N * 2,
                                    [STRIP_SCALES_STRIP] = sizeof(float),
                                    [STRIP_SCALES_E8M0] = STRIP_N,
                                    [STRIP_SCALES_E4M3] = STRIP_N};
    return rows[scaling_of(desc)] * (STRIP_SLICE_K / packed_group_k(desc));
}

/* Where the records end, counted from their start. */
static uint64_t records_bytes(const struct strip_records *lie)
{
    uint32_t slice_bytes =
        STRIP_CODES_BYTES_OF(lie->code_bits) + lie->slice_scale_bytes + lie->slice_zero_bytes;
    uint32_t n_whole = lie->n_slices / STRIP_STEP_SLICES;
    uint32_t n_rest = lie->n_slices % STRIP_STEP_SLICES;
    return lie->n_strips * ((uint64_t)n_whole * strip_align(STRIP_STEP_SLICES * slice_bytes) +
                            strip_align(n_rest * slice_bytes));
}

static uint64_t row_scales_bytes(const struct gk_desc *desc)
{
    return (uint64_t)gk_desc_scale_columns(desc) * dtype_bytes(desc->scale_dtype);
}

struct strip_records strip_records_of(const struct strip_shape *shape, const void *packed)
{
    const uint8_t *bytes = packed;
    return (struct strip_records){
        .records = bytes != NULL ? bytes + shape->records_offset : NULL,
        .n_strips = shape->n_strips,
        .n_slices = shape->n_slices,
        .code_bits = shape->code_bits,
        .slice_scale_bytes = shape->slice_scale_bytes,
        .slice_zero_bytes = shape->slice_zero_bytes,
    };
}

struct strip_shape strip_shape(const struct gk_desc *desc)
{
    struct strip_shape shape = {
        .n_strips = (uint32_t)num_div_up(desc->n, STRIP_N),
        .n_slices = (uint32_t)num_div_up(desc->k, STRIP_SLICE_K),
        .code_bits = gk_code_bits(desc->code),
        .scaling = scaling_of(desc),
        .slice_scale_bytes = scale_bytes(desc),
    };
    uint32_t group_k = packed_group_k(desc);
    shape.packed_group_k = group_k;
    /* Scales of groups of 16 are multiplied into the codes: sums are those of 128. */
    shape.n_slice_groups = group_k == E4M3_GROUP_K ? 2 : STRIP_SLICE_K / group_k;
    shape.slice_zero_bytes = desc->has_zeros ? 8 * shape.n_slice_groups * 2 : 0;
    shape.has_row_scales = shape.scaling == STRIP_SCALES_STRIP && desc->group_k == desc->k;
    uint64_t perm_bytes = desc->has_perm ? (uint64_t)desc->k * sizeof(uint32_t) : 0;
    uint64_t column_scale_bytes =
        desc->column_scale != GK_COLUMN_SCALE_NONE ? (uint64_t)desc->n * sizeof(float) : 0;
    shape.records_offset = num_align_up(perm_bytes, ALIGNMENT);
    struct strip_records lie = strip_records_of(&shape, NULL);
    shape.row_scales_offset = num_align_up(shape.records_offset + records_bytes(&lie), ALIGNMENT);
    shape.column_scales_offset = num_align_up(
        shape.row_scales_offset + (shape.has_row_scales ? row_scales_bytes(desc) : 0), ALIGNMENT);
    shape.bias_offset = num_align_up(shape.column_scales_offset + column_scale_bytes, ALIGNMENT);
    shape.packed_bytes = num_align_up(
        shape.bias_offset + (uint64_t)desc->n * dtype_bytes(desc->bias_dtype), ALIGNMENT);
    return shape;
}

/* ---- scales and zero points ---- */

/* A packed scale and the canonical one that it stands for. */
struct scale_pair {
    uint64_t packed; /* bytes from the start of the weight */
    uint64_t packed_zero;
    uint64_t canonical; /* index */
};

/* Row i_n, packed group i_group. */
static struct scale_pair scale_pair(const struct gk_desc *desc, const struct strip_shape *shape,
                                    uint32_t i_n, uint32_t i_group)
{
    static const uint32_t sizes[] = {[STRIP_SCALES_PAIRS] = 2,
                                     [STRIP_SCALES_STRIP] = sizeof(float),
                                     [STRIP_SCALES_E8M0] = 1,
                                     [STRIP_SCALES_E4M3] = 1};
    uint32_t i_k = i_group * shape->packed_group_k;
    struct strip_records lie = strip_records_of(shape, NULL);
    struct strip_slice_parts parts = strip_slice_parts(&lie, i_n / STRIP_N, i_k / STRIP_SLICE_K);
    uint32_t index = strip_scale_index(shape->scaling, shape->n_slice_groups, i_n, i_k);
    return (struct scale_pair){
        .packed = shape->records_offset + parts.scales + (uint64_t)index * sizes[shape->scaling],
        .packed_zero = shape->records_offset + parts.zeros + index,
        .canonical =
            (uint64_t)(i_k / desc->group_k) * gk_desc_scale_columns(desc) + i_n / desc->group_n,
    };
}

static void pack_scale(const struct gk_canonical *canonical, const struct strip_shape *shape,
                       const struct scale_pair *pair, uint8_t *packed)
{
    const uint8_t *scales = canonical->scales;
    if (shape->scaling == STRIP_SCALES_PAIRS) {
        memcpy(packed + pair->packed, scales + 2 * pair->canonical, 2);
        return;
    }
    if (shape->scaling != STRIP_SCALES_STRIP) {
        packed[pair->packed] = scales[pair->canonical];
        return;
    }
    float scale = shape->has_row_scales
                      ? 1.0f
                      : scalar_load(scales, canonical->desc.scale_dtype, pair->canonical);
    memcpy(packed + pair->packed, &scale, sizeof(scale));
}

/* A float that came from that type. */
static void narrow(float value, enum dtype dtype, void *array, uint64_t index)
{
    if (dtype == DTYPE_F32) {
        memcpy((float *)array + index, &value, sizeof(value));
        return;
    }
    uint16_t bits = dtype == DTYPE_F16 ? half_from_f32(value) : bf16_from_f32(value);
    memcpy((uint16_t *)array + index, &bits, sizeof(bits));
}

static void unpack_scale(const uint8_t *packed, const struct strip_shape *shape,
                         const struct scale_pair *pair, struct gk_canonical *canonical)
{
    uint8_t *scales = canonical->scales;
    if (shape->scaling == STRIP_SCALES_PAIRS) {
        memcpy(scales + 2 * pair->canonical, packed + pair->packed, 2);
        return;
    }
    if (shape->scaling != STRIP_SCALES_STRIP) {
        scales[pair->canonical] = packed[pair->packed];
        return;
    }
    float scale;
    memcpy(&scale, packed + pair->packed, sizeof(scale));
    narrow(scale, canonical->desc.scale_dtype, scales, pair->canonical);
}

/* Packed groups that hold real elements; the rest of the last slice is padding, left 0. */
static uint32_t packed_groups(const struct gk_desc *desc, const struct strip_shape *shape)
{
    return (uint32_t)num_div_up(desc->k, shape->packed_group_k);
}

static void pack_scales(const struct gk_canonical *canonical, const struct strip_shape *shape,
                        uint8_t *packed)
{
    const struct gk_desc *desc = &canonical->desc;
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        for (uint32_t i_group = 0; i_group < packed_groups(desc, shape); i_group++) {
            struct scale_pair pair = scale_pair(desc, shape, i_n, i_group);
            pack_scale(canonical, shape, &pair, packed);
            if (desc->has_zeros) {
                packed[pair.packed_zero] = canonical->zeros[pair.canonical];
            }
        }
    }
}

static void unpack_scales(const uint8_t *packed, const struct strip_shape *shape,
                          struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    for (uint32_t i_n = 0; !shape->has_row_scales && i_n < desc->n; i_n++) {
        for (uint32_t i_group = 0; i_group < packed_groups(desc, shape); i_group++) {
            struct scale_pair pair = scale_pair(desc, shape, i_n, i_group);
            unpack_scale(packed, shape, &pair, canonical);
            if (desc->has_zeros) {
                canonical->zeros[pair.canonical] = packed[pair.packed_zero];
            }
        }
    }
}

/* ---- what lies outside the records ---- */

void strip_list_parts(const struct gk_canonical *canonical, const struct strip_shape *shape,
                      struct part ret_list[PARTS_MAX])
{
    const struct gk_desc *desc = &canonical->desc;
    bool has_columns = desc->column_scale != GK_COLUMN_SCALE_NONE;
    ret_list[0] = (struct part){canonical->perm, 0,
                                desc->has_perm ? (uint64_t)desc->k * sizeof(*canonical->perm) : 0};
    ret_list[1] = (struct part){canonical->scales, shape->row_scales_offset,
                                shape->has_row_scales ? row_scales_bytes(desc) : 0};
    ret_list[2] = (struct part){canonical->column_scales, shape->column_scales_offset,
                                has_columns ? (uint64_t)desc->n * sizeof(float) : 0};
    ret_list[3] = (struct part){canonical->bias, shape->bias_offset,
                                (uint64_t)desc->n * dtype_bytes(desc->bias_dtype)};
    ret_list[4] = (struct part){NULL, 0, 0};
}

/* ---- the layouts ---- */

static uint64_t packed_bytes(const struct gk_desc *desc)
{
    return strip_shape(desc).packed_bytes;
}

static void pack(const struct gk_canonical *canonical, void *packed)
{
    struct strip_shape shape = strip_shape(&canonical->desc);
    struct strip_records lie = strip_records_of(&shape, NULL);
    uint8_t *bytes = packed;
    uint8_t *records = bytes + shape.records_offset;
    struct part list[PARTS_MAX];
    memset(bytes, 0, shape.packed_bytes);
    for (uint32_t i_strip = 0; i_strip < shape.n_strips; i_strip++) {
        for (uint32_t i_slice = 0; i_slice < shape.n_slices; i_slice++) {
            strip_pack_codes(canonical, i_strip * STRIP_N, i_slice * STRIP_SLICE_K,
                             records + strip_slice_parts(&lie, i_strip, i_slice).codes);
        }
    }
    pack_scales(canonical, &shape, bytes);
    strip_list_parts(canonical, &shape, list);
    parts_pack(list, packed);
}

static void unpack(const void *packed, struct gk_canonical *canonical)
{
    struct strip_shape shape = strip_shape(&canonical->desc);
    struct strip_records lie = strip_records_of(&shape, packed);
    const uint8_t *bytes = packed;
    struct part list[PARTS_MAX];
    for (uint32_t i_strip = 0; i_strip < shape.n_strips; i_strip++) {
        for (uint32_t i_slice = 0; i_slice < shape.n_slices; i_slice++) {
            strip_unpack_codes(lie.records + strip_slice_parts(&lie, i_strip, i_slice).codes,
                               i_strip * STRIP_N, i_slice * STRIP_SLICE_K, canonical);
        }
    }
    unpack_scales(bytes, &shape, canonical);
    strip_list_parts(canonical, &shape, list);
    parts_unpack(packed, list);
}

#define STRIP_LAYOUT(code_, version_)                                                              \
    const struct gk_layout cuda_strip_##code_##_layout = {                                         \
        .tag = "cuda-strip16-" #code_,                                                             \
        .version = (version_),                                                                     \
        .device_kind = GK_DEVICE_CUDA,                                                             \
        .fits = fits_##code_,                                                                      \
        .packed_bytes = packed_bytes,                                                              \
        .pack = pack,                                                                              \
        .unpack = unpack,                                                                          \
    }

STRIP_LAYOUT(u4, 1);
STRIP_LAYOUT(u8, 1);
STRIP_LAYOUT(e4m3, 1);
STRIP_LAYOUT(e2m1, 2);

bool cuda_strip_is_layout(const struct gk_layout *layout)
{
    return layout == &cuda_strip_u4_layout || layout == &cuda_strip_u8_layout ||
           layout == &cuda_strip_e4m3_layout || layout == &cuda_strip_e2m1_layout;
}
