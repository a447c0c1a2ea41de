/* code.c - what is known of each way to store an element of a weight, and of each activation
 * scheme. */
#include <stddef.h>

#include "gk/gk.h"
#include "ipc/base/num.h"

struct code_row {
    uint32_t bits;
    enum dtype dtype; /* plain codes */
};

static const struct code_row codes[] = {
    [GK_CODE_F32] = {32, DTYPE_F32},   [GK_CODE_F16] = {16, DTYPE_F16},
    [GK_CODE_BF16] = {16, DTYPE_BF16}, [GK_CODE_U4] = {4, DTYPE_NONE},
    [GK_CODE_U8] = {8, DTYPE_NONE},    [GK_CODE_E4M3] = {8, DTYPE_NONE},
    [GK_CODE_E2M1] = {4, DTYPE_NONE},
};

bool gk_code_is_plain(enum gk_code code)
{
    return gk_code_dtype(code) != DTYPE_NONE;
}

bool gk_code_is_int(enum gk_code code)
{
    return code == GK_CODE_U4 || code == GK_CODE_U8;
}

uint32_t gk_code_bits(enum gk_code code)
{
    return (size_t)code < ARRAY_LENGTH(codes) ? codes[code].bits : 0;
}

enum dtype gk_code_dtype(enum gk_code code)
{
    return (size_t)code < ARRAY_LENGTH(codes) ? codes[code].dtype : DTYPE_NONE;
}

enum gk_code gk_code_of_dtype(enum dtype dtype)
{
    for (uint32_t i = GK_CODE_F32; i < ARRAY_LENGTH(codes); i++) {
        if (codes[i].dtype == dtype && dtype != DTYPE_NONE) {
            return (enum gk_code)i;
        }
    }
    return 0;
}

bool gk_act_is_int8(enum gk_act act)
{
    return act == GK_ACT_INT8_TENSOR || act == GK_ACT_INT8_TOKEN || act == GK_ACT_INT8_TOKEN_ZERO;
}

bool gk_act_is_fp8(enum gk_act act)
{
    return act == GK_ACT_FP8_TENSOR || act == GK_ACT_FP8_TOKEN || act == GK_ACT_FP8_GROUP;
}

uint32_t gk_desc_x_scales(const struct gk_desc *desc)
{
    switch (desc->act) {
    case GK_ACT_FP8_GROUP:
        return (uint32_t)num_div_up(desc->k, GK_ACT_GROUP_K);
    case GK_ACT_FP8_TOKEN:
    case GK_ACT_INT8_TOKEN:
    case GK_ACT_INT8_TOKEN_ZERO:
        return 1;
    default:
        return 0;
    }
}

enum dtype gk_act_dtype(enum gk_act act)
{
    if (gk_act_is_int8(act)) {
        return DTYPE_I8;
    }
    return gk_act_is_fp8(act) ? DTYPE_F8_E4M3 : DTYPE_NONE;
}
