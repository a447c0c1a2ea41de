/* One element a byte or a nibble, row by row, with scales beside it: INT8, FP8, and e2m1. */
#include <string.h>

#include "daemon/weights/module_parts.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

#define SIDE_MAX 0x7fffffffu

static int check_scales(const struct module_draft *draft, struct reason *why)
{
    const struct gk_desc *desc = &draft->module.desc;
    return module_check_sides(draft, draft->module.tensors[MODULE_SCALES],
                              gk_desc_scale_columns(desc), gk_desc_groups(desc), why);
}

/* ---- INT8 ---- */

/* A tool leaves zero points out when all of them are 0. */
static int check_int8_zeros(struct module_draft *draft, struct reason *why)
{
    struct module *module = &draft->module;
    const struct checkpoint_tensor *zeros = module->tensors[MODULE_ZEROS];
    module->desc.has_zeros = zeros != NULL;
    if (!zeros) {
        return 0;
    }
    if (draft->scheme->is_symmetric) {
        return BAD(why, "tensor '%s' is there, and '%s' is symmetric by %s", zeros->tensor->name,
                   module->tensors[MODULE_WEIGHT]->tensor->name, draft->search->rules->place);
    }
    int r = module_check_dtype(zeros, DTYPE_I8, why);
    return r != 0 ? r
                  : module_check_sides(draft, zeros, gk_desc_scale_columns(&module->desc),
                                       gk_desc_groups(&module->desc), why);
}

static int find_int8(struct module_draft *draft, struct reason *why)
{
    struct gk_desc *desc = &draft->module.desc;
    desc->code = GK_CODE_U8;
    int r = module_need(draft, MODULE_SCALES, "weight_scale", why);
    if (r == 0) {
        r = module_take(draft, MODULE_ZEROS, "weight_zero_point", why);
    }
    if (r == 0) {
        r = module_check_float(draft->module.tensors[MODULE_SCALES], why);
    }
    if (r != 0) {
        return r;
    }
    desc->scale_dtype = draft->module.tensors[MODULE_SCALES]->tensor->dtype;
    r = module_set_extent(draft, why);
    if (r == 0) {
        r = check_scales(draft, why);
    }
    if (r == 0) {
        r = check_int8_zeros(draft, why);
    }
    return r != 0 ? r : module_take_act(draft, why);
}

/* ---- FP8 ---- */

/* Powers of two are stored as F8_E8M0, or as bytes without a type. */
static int check_pow2_scales(struct module_draft *draft, struct reason *why)
{
    const struct safetensors_tensor *scales = draft->module.tensors[MODULE_SCALES]->tensor;
    if (scales->dtype != DTYPE_F8_E8M0 && scales->dtype != DTYPE_U8) {
        return UNSUPPORTED(why, "tensor '%s' is %s; known: F8_E8M0, U8", scales->name,
                           scales->dtype_text);
    }
    draft->module.desc.scale_dtype = DTYPE_F8_E8M0;
    return 0;
}

static int check_float_scales(struct module_draft *draft, struct reason *why)
{
    draft->module.desc.scale_dtype = draft->module.tensors[MODULE_SCALES]->tensor->dtype;
    return module_check_float(draft->module.tensors[MODULE_SCALES], why);
}

/* weight_scale and weight_scale_inv are one thing, and both multiply. */
static int find_fp8(struct module_draft *draft, struct reason *why)
{
    draft->module.desc.code = GK_CODE_E4M3;
    int r = module_take(draft, MODULE_SCALES, "weight_scale_inv", why);
    if (r == 0) {
        r = draft->module.tensors[MODULE_SCALES]
                ? module_take(draft, MODULE_SCALES, "weight_scale", why)
                : module_need(draft, MODULE_SCALES, "weight_scale", why);
    }
    if (r == 0) {
        r = draft->scheme->family == QUANT_MXFP8 ? check_pow2_scales(draft, why)
                                                 : check_float_scales(draft, why);
    }
    if (r == 0) {
        r = module_set_extent(draft, why);
    }
    if (r == 0) {
        r = check_scales(draft, why);
    }
    /* A scale of microscaled activations is for formats that are served as weight-only. */
    return r != 0 || draft->scheme->family == QUANT_MXFP8 ? r : module_take_act(draft, why);
}

/* ---- e2m1 ---- */

/* The global scale divides where it is called weight_global_scale, and multiplies where it is
 * called weight_scale_2. */
static int find_global_scale(struct module_draft *draft, bool is_packed, struct reason *why)
{
    struct module *module = &draft->module;
    const char *leaf = is_packed ? "weight_global_scale" : "weight_scale_2";
    int r = module_need(draft, MODULE_GLOBAL_SCALE, leaf, why);
    if (r != 0) {
        return r;
    }
    double value;
    r = module_check_dtype(module->tensors[MODULE_GLOBAL_SCALE], DTYPE_F32, why);
    module->desc.column_scale = is_packed ? GK_COLUMN_SCALE_DIVIDES : GK_COLUMN_SCALE_MULTIPLIES;
    return r != 0 ? r : module_read_number(module->tensors[MODULE_GLOBAL_SCALE], &value, why);
}

static int find_nvfp4(struct module_draft *draft, bool is_packed, struct reason *why)
{
    draft->module.desc.scale_dtype = DTYPE_F8_E4M3;
    int r = module_check_dtype(draft->module.tensors[MODULE_SCALES], DTYPE_F8_E4M3, why);
    return r != 0 ? r : find_global_scale(draft, is_packed, why);
}

static int find_fp4(struct module_draft *draft, bool is_packed, struct reason *why)
{
    draft->module.desc.code = GK_CODE_E2M1;
    draft->module.desc.k *= 2; /* two a byte */
    int r = module_need(draft, MODULE_SCALES, "weight_scale", why);
    if (r == 0) {
        r = draft->scheme->family == QUANT_NVFP4 ? find_nvfp4(draft, is_packed, why)
                                                 : check_pow2_scales(draft, why);
    }
    if (r == 0) {
        r = module_set_extent(draft, why);
    }
    return r != 0 ? r : check_scales(draft, why);
}

/* ---- all of them ---- */

static int find_by_family(struct module_draft *draft, struct reason *why)
{
    switch (draft->scheme->family) {
    case QUANT_INT8:
        return find_int8(draft, why);
    case QUANT_FP8:
    case QUANT_MXFP8:
        return find_fp8(draft, why);
    default:
        break;
    }
    const char *name = draft->module.tensors[MODULE_WEIGHT]->tensor->name;
    size_t prefix_bytes = strlen(draft->module.name);
    return find_fp4(draft, strcmp(name + prefix_bytes, ".weight_packed") == 0, why);
}

int module_find_scaled(struct module_draft *draft, struct reason *why)
{
    const struct checkpoint_tensor *weight = draft->module.tensors[MODULE_WEIGHT];
    int r = module_check_matrix(weight, SIDE_MAX / 2, why);
    if (r != 0) {
        return r;
    }
    draft->module.desc.n = (uint32_t)weight->tensor->dims[0];
    draft->module.desc.k = (uint32_t)weight->tensor->dims[1];
    r = find_by_family(draft, why);
    return r != 0 ? r : module_take_bias(draft, why);
}
