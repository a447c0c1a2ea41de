/* desc.c - format descriptors: what can be packed at all.
 *
 * A descriptor has one spelling: fields that a format does not use are 0, so that two weights of
 * one format compare equal field by field. */
#include <math.h>

#include "gk/gk.h"
#include "ipc/base/num.h"

/* Keeps every size of a weight (at most n * k * 4 bytes and its scales) far inside 64 bits. */
#define EXTENT_MAX (1u << 24)

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static int check_extent(const struct gk_desc *desc, struct reason *why)
{
    if (desc->n == 0 || desc->k == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "a weight of %u x %u has no elements",
                          desc->n, desc->k);
    }
    if (desc->n > EXTENT_MAX || desc->k > EXTENT_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "a weight of %u x %u is over the limit of %u",
                          desc->n, desc->k, EXTENT_MAX);
    }
    return 0;
}

static int check_plain(const struct gk_desc *desc, struct reason *why)
{
    if (desc->group_n != 0 || desc->group_k != 0 || desc->scale_dtype != DTYPE_NONE ||
        desc->has_zeros || desc->has_perm || desc->column_scale != GK_COLUMN_SCALE_NONE) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "plain weights have no scales, zero points or act-order");
    }
    if (desc->act != GK_ACT_FLOAT) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "plain weights take activations as they come, not quantised");
    }
    return 0;
}

/* ---- scales and zero points ---- */

static int check_group(const char *name, uint32_t size, uint32_t extent, struct reason *why)
{
    if (size == 0 || size > extent) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "%s is %u; a scale covers 1 to %u elements along that side", name, size,
                          extent);
    }
    return 0;
}

static int check_scale_dtype(const struct gk_desc *desc, struct reason *why)
{
    if (is_float(desc->scale_dtype)) {
        return 0;
    }
    bool is_small = desc->scale_dtype == DTYPE_F8_E4M3 || desc->scale_dtype == DTYPE_F8_E8M0;
    if (is_small && !gk_code_is_int(desc->code)) {
        return 0;
    }
    return reason_set(why, STATUS_UNSUPPORTED, "scales of type %s; only f32, f16 and bf16%s",
                      dtype_name(desc->scale_dtype),
                      gk_code_is_int(desc->code) ? " go with integer codes"
                                                 : ", f8_e4m3 and f8_e8m0 go with float codes");
}

static int check_scales(const struct gk_desc *desc, struct reason *why)
{
    int r = check_group("group_k", desc->group_k, desc->k, why);
    if (r == 0) {
        r = check_group("group_n", desc->group_n, desc->n, why);
    }
    if (r == 0) {
        r = check_scale_dtype(desc, why);
    }
    if (r == 0 && desc->has_zeros && !gk_code_is_int(desc->code)) {
        r = reason_set(why, STATUS_INVALID_ARGUMENT, "only integer codes have zero points");
    }
    if (r == 0 && (unsigned)desc->column_scale > GK_COLUMN_SCALE_DIVIDES) {
        r = reason_set(why, STATUS_INVALID_ARGUMENT, "column scales of unknown kind %d",
                       (int)desc->column_scale);
    }
    return r;
}

/* ---- activation schemes ---- */

/* The largest |x - zero| * |code - zero| of a scheme, by which k is bounded: sums are int32. */
static uint32_t int8_product_max(const struct gk_desc *desc)
{
    uint32_t x_max = desc->act == GK_ACT_INT8_TOKEN ? 128 : 255;
    uint32_t w_max = desc->has_zeros ? 255 : 128;
    return x_max * w_max;
}

static int check_int8(const struct gk_desc *desc, struct reason *why)
{
    if (desc->code != GK_CODE_U8) {
        return reason_set(why, STATUS_UNSUPPORTED, "int8 activations need 8-bit integer codes");
    }
    if (desc->group_k != desc->k) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "int8 activations need one scale over all of k %u, not groups of %u",
                          desc->k, desc->group_k);
    }
    if (desc->has_perm) {
        return reason_set(why, STATUS_UNSUPPORTED, "int8 activations do not go with act-order");
    }
    uint32_t k_max = INT32_MAX / int8_product_max(desc);
    if (desc->k > k_max) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "k %u with int8 activations is over %u: sums might not fit 32 bits",
                          desc->k, k_max);
    }
    return 0;
}

static int check_fp8(const struct gk_desc *desc, struct reason *why)
{
    if (desc->code != GK_CODE_E4M3 && desc->code != GK_CODE_U4) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "fp8 activations need fp8 or 4-bit integer codes");
    }
    if (desc->act != GK_ACT_FP8_GROUP) {
        return 0;
    }
    uint32_t group_k = (uint32_t)num_min(desc->k, GK_ACT_GROUP_K);
    if (desc->group_k != group_k) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "fp8 activations in groups need scales over %u of k, not %u", group_k,
                          desc->group_k);
    }
    if (desc->has_perm) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "fp8 activations in groups do not go with act-order");
    }
    return 0;
}

static int check_act_numbers(const struct gk_desc *desc, struct reason *why)
{
    bool is_static = desc->act == GK_ACT_FP8_TENSOR || desc->act == GK_ACT_INT8_TENSOR;
    if (is_static && (!isfinite(desc->act_scale) || desc->act_scale <= 0)) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the activation scale is %g; it must be finite and positive",
                          (double)desc->act_scale);
    }
    if (!is_static && desc->act_scale != 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "an activation scale of %g, but the scheme has none of its own",
                          (double)desc->act_scale);
    }
    bool has_zero = desc->act == GK_ACT_INT8_TENSOR;
    if (desc->act_zero < (has_zero ? INT8_MIN : 0) || desc->act_zero > (has_zero ? INT8_MAX : 0)) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "an activation zero point of %d",
                          desc->act_zero);
    }
    if (desc->is_act_scale_pow2 && desc->act != GK_ACT_FP8_TOKEN && desc->act != GK_ACT_FP8_GROUP) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "only scales of fp8 activations, a token or a group, can be rounded up "
                          "to powers of two");
    }
    return 0;
}

static int check_act(const struct gk_desc *desc, struct reason *why)
{
    int r = 0;
    if (gk_act_is_int8(desc->act)) {
        r = check_int8(desc, why);
    } else if (gk_act_is_fp8(desc->act)) {
        r = check_fp8(desc, why);
    } else if (desc->act != GK_ACT_FLOAT) {
        r = reason_set(why, STATUS_INVALID_ARGUMENT, "an activation scheme of unknown kind %d",
                       (int)desc->act);
    }
    return r != 0 ? r : check_act_numbers(desc, why);
}

int gk_desc_check(const struct gk_desc *desc, struct reason *why)
{
    int r = check_extent(desc, why);
    if (r != 0) {
        return r;
    }
    if (desc->bias_dtype != DTYPE_NONE && !is_float(desc->bias_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED, "a bias of type %s; only f32, f16 and bf16",
                          dtype_name(desc->bias_dtype));
    }
    if (gk_code_bits(desc->code) == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "codes of unknown kind %d",
                          (int)desc->code);
    }
    if (gk_code_is_plain(desc->code)) {
        r = check_plain(desc, why);
    } else {
        r = check_scales(desc, why);
    }
    return r != 0 ? r : check_act(desc, why);
}

uint32_t gk_desc_groups(const struct gk_desc *desc)
{
    return desc->group_k == 0 ? 0 : (uint32_t)num_div_up(desc->k, desc->group_k);
}

uint32_t gk_desc_scale_columns(const struct gk_desc *desc)
{
    return desc->group_n == 0 ? 0 : (uint32_t)num_div_up(desc->n, desc->group_n);
}
