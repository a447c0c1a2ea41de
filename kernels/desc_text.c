/* desc_text.c - a format in a few words, as status reports and logs show it. */
#include <stdio.h>

#include "gk/gk.h"

static const char *code_name(enum gk_code code)
{
    switch (code) {
    case GK_CODE_U4:
        return "int4";
    case GK_CODE_U8:
        return "int8";
    case GK_CODE_E4M3:
        return "fp8";
    case GK_CODE_E2M1:
        return "fp4";
    default:
        return "?";
    }
}

static const char *act_name(enum gk_act act)
{
    switch (act) {
    case GK_ACT_FP8_TENSOR:
        return "fp8 tensor";
    case GK_ACT_FP8_TOKEN:
        return "fp8 token";
    case GK_ACT_FP8_GROUP:
        return "fp8 group";
    case GK_ACT_INT8_TENSOR:
        return "int8 tensor";
    case GK_ACT_INT8_TOKEN:
        return "int8 token";
    case GK_ACT_INT8_TOKEN_ZERO:
        return "int8 token asym";
    default:
        return "float";
    }
}

/* What one scale covers: "channel", "tensor", "g128" or "128x128" (n by k). */
static void format_group(const struct gk_desc *desc, char *text, size_t size_bytes)
{
    bool is_whole_k = desc->group_k == desc->k;
    if (desc->group_n == 1 && is_whole_k) {
        (void)snprintf(text, size_bytes, "channel");
    } else if (desc->group_n == 1) {
        (void)snprintf(text, size_bytes, "g%u", desc->group_k);
    } else if (desc->group_n == desc->n && is_whole_k) {
        (void)snprintf(text, size_bytes, "tensor");
    } else {
        (void)snprintf(text, size_bytes, "%ux%u", desc->group_n, desc->group_k);
    }
}

void gk_desc_format(const struct gk_desc *desc, char *text, uint32_t size_bytes)
{
    if (gk_code_is_plain(desc->code)) {
        (void)snprintf(text, size_bytes, "plain %s", dtype_name(gk_code_dtype(desc->code)));
        return;
    }
    bool is_symmetric = gk_code_is_int(desc->code) && !desc->has_zeros;
    bool is_quantised = desc->act != GK_ACT_FLOAT;
    char group[32];
    format_group(desc, group, sizeof(group));
    (void)snprintf(
        text, size_bytes, "%s%s %s%s %s%s%s%s%s", code_name(desc->code), is_symmetric ? " sym" : "",
        group, desc->has_perm ? " act-order" : "", dtype_name(desc->scale_dtype),
        desc->column_scale != GK_COLUMN_SCALE_NONE ? " x column" : "", is_quantised ? ", " : "",
        is_quantised ? act_name(desc->act) : "", is_quantised ? " activations" : "");
}
