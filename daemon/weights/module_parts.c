/* See module_parts.h. */
#include "daemon/weights/module_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

/* ---- tensors beside a weight ---- */

int module_split_name(const struct checkpoint_tensor *at, char **ret_prefix, const char **ret_leaf)
{
    const char *dot = strrchr(at->tensor->name, '.');
    if (!dot || dot == at->tensor->name) {
        return 0;
    }
    char *prefix = strndup(at->tensor->name, (size_t)(dot - at->tensor->name));
    if (!prefix) {
        return err_raise(-ENOMEM);
    }
    *ret_prefix = prefix;
    *ret_leaf = dot + 1;
    return 0;
}

int module_take(struct module_draft *draft, enum module_role role, const char *leaf,
                struct reason *why)
{
    CLEAN_FREE char *name = NULL;
    if (asprintf(&name, "%s.%s", draft->module.name, leaf) < 0) {
        name = NULL;
        return err_raise(-ENOMEM);
    }
    const struct checkpoint_tensor *at = checkpoint_find(draft->search->checkpoint, name);
    const struct checkpoint_tensor **place = &draft->module.tensors[role];
    if (at && *place) {
        return BAD(why, "both '%s' and '%s' are there: which one counts?", (*place)->tensor->name,
                   at->tensor->name);
    }
    if (at) {
        *place = at;
    }
    return 0;
}

int module_need(struct module_draft *draft, enum module_role role, const char *leaf,
                struct reason *why)
{
    int r = module_take(draft, role, leaf, why);
    if (r == 0 && !draft->module.tensors[role]) {
        return BAD(why, "tensor '%s.%s' is missing beside '%s'", draft->module.name, leaf,
                   draft->module.tensors[MODULE_WEIGHT]->tensor->name);
    }
    return r;
}

/* ---- types and shapes ---- */

int module_check_float(const struct checkpoint_tensor *at, struct reason *why)
{
    enum dtype dtype = at->tensor->dtype;
    if (dtype != DTYPE_F32 && dtype != DTYPE_F16 && dtype != DTYPE_BF16) {
        return UNSUPPORTED(why, "tensor '%s' is %s; known: F32, F16, BF16", at->tensor->name,
                           at->tensor->dtype_text);
    }
    return 0;
}

int module_check_words(const struct checkpoint_tensor *at, struct reason *why)
{
    if (at->tensor->dtype != DTYPE_I32 && at->tensor->dtype != DTYPE_U32) {
        return UNSUPPORTED(why, "tensor '%s' is %s; known: I32", at->tensor->name,
                           at->tensor->dtype_text);
    }
    return 0;
}

int module_check_dtype(const struct checkpoint_tensor *at, enum dtype dtype, struct reason *why)
{
    if (at->tensor->dtype != dtype) {
        return UNSUPPORTED(why, "tensor '%s' is %s; known: %s", at->tensor->name,
                           at->tensor->dtype_text, dtype_safetensors_name(dtype));
    }
    return 0;
}

int module_check_matrix(const struct checkpoint_tensor *at, uint64_t limit, struct reason *why)
{
    const struct safetensors_tensor *tensor = at->tensor;
    char shape[96];
    if (tensor->n_dims != 2 || tensor->dims[0] > limit || tensor->dims[1] > limit) {
        return BAD(why, "tensor '%s' is %s, expected two dimensions of at most %" PRIu64,
                   tensor->name, safetensors_shape(tensor, shape, sizeof(shape)), limit);
    }
    if (tensor->dims[0] == 0 || tensor->dims[1] == 0) {
        return BAD(why, "tensor '%s' is %s: a weight without elements", tensor->name,
                   safetensors_shape(tensor, shape, sizeof(shape)));
    }
    return 0;
}

static int refuse_shape(const struct module_draft *draft, const struct checkpoint_tensor *at,
                        const struct safetensors_tensor *right, struct reason *why)
{
    const struct gk_desc *desc = &draft->module.desc;
    char found[96];
    char expected[96];
    char extent[64];
    return BAD(why,
               "tensor '%s' is %s, expected %s (n %u, k %u, a scale for each %s by the settings)",
               at->tensor->name, safetensors_shape(at->tensor, found, sizeof(found)),
               safetensors_shape(right, expected, sizeof(expected)), desc->n, desc->k,
               quant_extent_format(draft->scheme->group_n, draft->scheme->group_k, extent,
                                   sizeof(extent)));
}

int module_check_shape(const struct module_draft *draft, const struct checkpoint_tensor *at,
                       uint64_t n_rows, uint64_t n_cols, struct reason *why)
{
    const struct safetensors_tensor right = {.n_dims = n_cols ? 2 : 1, .dims = {n_rows, n_cols}};
    const struct safetensors_tensor *tensor = at->tensor;
    bool is_right = tensor->n_dims == right.n_dims && tensor->dims[0] == n_rows &&
                    (right.n_dims == 1 || tensor->dims[1] == n_cols);
    return is_right ? 0 : refuse_shape(draft, at, &right, why);
}

/* The sides that are not 1, as (n_dims, dims). */
static struct safetensors_tensor real_sides(const struct safetensors_tensor *tensor)
{
    struct safetensors_tensor sides = {.n_dims = 0};
    if (tensor->n_dims > SAFETENSORS_DIMS_KEPT) {
        return *tensor;
    }
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        if (tensor->dims[i] != 1) {
            sides.dims[sides.n_dims++] = tensor->dims[i];
        }
    }
    return sides;
}

static bool are_same_sides(const struct safetensors_tensor *a, const struct safetensors_tensor *b)
{
    const struct safetensors_tensor x = real_sides(a);
    const struct safetensors_tensor y = real_sides(b);
    return x.n_dims == y.n_dims && memcmp(x.dims, y.dims, sizeof(x.dims)) == 0;
}

int module_check_sides(const struct module_draft *draft, const struct checkpoint_tensor *at,
                       uint64_t n_rows, uint64_t n_cols, struct reason *why)
{
    const struct safetensors_tensor right = {.n_dims = n_cols ? 2 : 1, .dims = {n_rows, n_cols}};
    return are_same_sides(at->tensor, &right) ? 0 : refuse_shape(draft, at, &right, why);
}

/* ---- extents ---- */

static uint32_t extent_of(uint32_t said, uint32_t side)
{
    return said < side ? said : side; /* a group longer than its side is one group over all of it */
}

static int infer_extent(struct module_draft *draft, struct reason *why)
{
    struct gk_desc *desc = &draft->module.desc;
    const struct checkpoint_tensor *scales = draft->module.tensors[MODULE_SCALES];
    const struct safetensors_tensor one = {.n_dims = 0};
    const struct safetensors_tensor each = {.n_dims = 1, .dims = {desc->n}};
    char shape[96];
    desc->group_k = desc->k;
    desc->group_n = 1;
    if (are_same_sides(scales->tensor, &each)) {
        return 0;
    }
    desc->group_n = desc->n;
    if (are_same_sides(scales->tensor, &one)) {
        return 0;
    }
    return BAD(why,
               "tensor '%s' is %s, neither one scale nor one for each of the %u rows, and the "
               "settings say nothing of groups",
               scales->tensor->name, safetensors_shape(scales->tensor, shape, sizeof(shape)),
               desc->n);
}

int module_set_extent(struct module_draft *draft, struct reason *why)
{
    struct gk_desc *desc = &draft->module.desc;
    const struct quant_scheme *scheme = draft->scheme;
    if (scheme->group_n == QUANT_UNSAID || scheme->group_k == QUANT_UNSAID) {
        return infer_extent(draft, why);
    }
    desc->group_n = extent_of(scheme->group_n, desc->n);
    desc->group_k = extent_of(scheme->group_k, desc->k);
    return 0;
}

int module_take_bias(struct module_draft *draft, struct reason *why)
{
    int r = module_take(draft, MODULE_BIAS, "bias", why);
    const struct checkpoint_tensor *bias = draft->module.tensors[MODULE_BIAS];
    if (r != 0 || !bias) {
        return r;
    }
    r = module_check_float(bias, why);
    if (r == 0) {
        r = module_check_shape(draft, bias, draft->module.desc.n, 0, why);
    }
    if (r == 0) {
        draft->module.desc.bias_dtype = bias->tensor->dtype;
    }
    return r;
}

/* ---- single numbers and activations ---- */

static int decode_number(const struct safetensors_tensor *tensor, const void *bytes,
                         double *ret_value, struct reason *why)
{
    uint16_t half;
    float single;
    int32_t whole;
    memcpy(&half, bytes, sizeof(half));
    memcpy(&single, bytes, sizeof(single));
    memcpy(&whole, bytes, sizeof(whole));
    switch (tensor->dtype) {
    case DTYPE_F32:
        *ret_value = (double)single;
        return 0;
    case DTYPE_F16:
        *ret_value = (double)half_to_f32(half);
        return 0;
    case DTYPE_BF16:
        *ret_value = (double)bf16_to_f32(half);
        return 0;
    case DTYPE_I8:
        *ret_value = *(const int8_t *)bytes;
        return 0;
    case DTYPE_I32:
        *ret_value = whole;
        return 0;
    default:
        return UNSUPPORTED(why, "tensor '%s' is %s; known: F32, F16, BF16, I8, I32", tensor->name,
                           tensor->dtype_text);
    }
}

int module_read_number(const struct checkpoint_tensor *at, double *ret_value, struct reason *why)
{
    const struct safetensors_tensor *tensor = at->tensor;
    const struct safetensors_tensor one = {.n_dims = 0};
    uint8_t bytes[8] = {0};
    char shape[96];
    if (!are_same_sides(tensor, &one) || tensor->size_bytes > sizeof(bytes)) {
        return BAD(why, "tensor '%s' is %s, expected one number", tensor->name,
                   safetensors_shape(tensor, shape, sizeof(shape)));
    }
    int r = safetensors_read(at->file, tensor, 0, bytes, tensor->size_bytes, why);
    return r != 0 ? r : decode_number(tensor, bytes, ret_value, why);
}

static int read_act_scale(struct module_draft *draft, struct reason *why)
{
    const struct checkpoint_tensor *at = draft->module.tensors[MODULE_INPUT_SCALE];
    double value;
    int r = module_check_float(at, why);
    r = r != 0 ? r : module_read_number(at, &value, why);
    if (r == 0 && !(value > 0 && isfinite(value))) {
        return BAD(why, "tensor '%s' is %g; it must be positive and finite", at->tensor->name,
                   value);
    }
    if (r == 0) {
        draft->module.desc.act_scale = (float)value; /* exact: no type of it is wider */
    }
    return r;
}

static int read_act_zero(struct module_draft *draft, struct reason *why)
{
    const struct checkpoint_tensor *at = draft->module.tensors[MODULE_INPUT_ZERO];
    if (!at) {
        return 0;
    }
    double value;
    int r = module_read_number(at, &value, why);
    if (r == 0 && !(value >= -128 && value <= 127 && value == rint(value))) {
        return BAD(why, "tensor '%s' is %g; it must be a whole number in -128..127",
                   at->tensor->name, value);
    }
    if (r == 0) {
        draft->module.desc.act_zero = (int32_t)value;
    }
    return r;
}

static int refuse_act_tensor(const struct module_draft *draft, struct reason *why)
{
    const struct checkpoint_tensor *at = draft->module.tensors[MODULE_INPUT_SCALE];
    at = at ? at : draft->module.tensors[MODULE_INPUT_ZERO];
    return BAD(why, "tensor '%s' is there, but %s says that activations are %s", at->tensor->name,
               draft->search->rules->place,
               draft->scheme->act == GK_ACT_FLOAT ? "not quantised" : "dynamic");
}

int module_take_act(struct module_draft *draft, struct reason *why)
{
    enum gk_act act = draft->scheme->act;
    draft->module.desc.act = act;
    draft->module.desc.is_act_scale_pow2 = draft->scheme->is_act_scale_pow2;
    bool is_static = act == GK_ACT_FP8_TENSOR || act == GK_ACT_INT8_TENSOR;
    int r = is_static ? module_need(draft, MODULE_INPUT_SCALE, "input_scale", why)
                      : module_take(draft, MODULE_INPUT_SCALE, "input_scale", why);
    if (r == 0 && act != GK_ACT_FP8_TENSOR) {
        r = module_take(draft, MODULE_INPUT_ZERO, "input_zero_point", why);
    }
    if (r != 0) {
        return r;
    }
    if (is_static) {
        r = read_act_scale(draft, why);
        return r != 0 ? r : read_act_zero(draft, why);
    }
    const struct checkpoint_tensor *const *tensors = draft->module.tensors;
    return tensors[MODULE_INPUT_SCALE] || tensors[MODULE_INPUT_ZERO] ? refuse_act_tensor(draft, why)
                                                                     : 0;
}
