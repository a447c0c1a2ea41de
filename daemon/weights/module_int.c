/* Integers packed into words: GPTQ, AWQ, and "pack-quantized" of compressed-tensors. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/module_parts.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define BAD(why, ...) reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)

#define K_MAX 0x7fffffffu

/* ---- act-order ---- */

static int judge_g_idx(struct module_draft *draft, const int32_t *g_idx, struct reason *why)
{
    struct module *module = &draft->module;
    const char *name = module->tensors[MODULE_G_IDX]->tensor->name;
    CLEAN_FREE uint32_t *perm = calloc(module->desc.k, sizeof(*perm));
    if (!perm) {
        return err_raise(-ENOMEM);
    }
    enum gk_g_idx kind;
    int r = gk_g_idx_read(g_idx, module->desc.k, module->desc.group_k, draft->scheme->is_act_order,
                          perm, &kind, why);
    if (r > 0) {
        reason_prefix(why, "tensor '%s'", name);
    }
    if (r != 0) {
        return r;
    }
    if (kind == GK_G_IDX_UNSET || kind == GK_G_IDX_ZEROS) {
        warnings_add(draft->search->warnings, "tensor '%s' is %d throughout and taken as k / %u",
                     name, kind == GK_G_IDX_UNSET ? -1 : 0, module->desc.group_k);
    }
    module->desc.has_perm = kind == GK_G_IDX_ORDER;
    module->perm = module->desc.has_perm ? steal_ptr(&perm) : NULL;
    return 0;
}

/* Needed where act-order is declared and there is more than one group to choose from. */
static int take_g_idx(struct module_draft *draft, const char *leaf, struct reason *why)
{
    bool is_needed = draft->scheme->is_act_order && gk_desc_groups(&draft->module.desc) > 1;
    int r = is_needed ? module_need(draft, MODULE_G_IDX, leaf, why)
                      : module_take(draft, MODULE_G_IDX, leaf, why);
    const struct checkpoint_tensor *at = draft->module.tensors[MODULE_G_IDX];
    if (r != 0 || !at) {
        return r;
    }
    r = module_check_words(at, why);
    if (r == 0) {
        r = module_check_shape(draft, at, draft->module.desc.k, 0, why);
    }
    if (r != 0) {
        return r;
    }
    CLEAN_FREE int32_t *g_idx = malloc(at->tensor->size_bytes);
    if (!g_idx) {
        return err_raise(-ENOMEM);
    }
    r = safetensors_read(at->file, at->tensor, 0, g_idx, at->tensor->size_bytes, why);
    return r != 0 ? r : judge_g_idx(draft, g_idx, why);
}

/* ---- what the three share ---- */

/* The description, once n and k are known. */
static int describe(struct module_draft *draft, uint64_t n, uint64_t k, struct reason *why)
{
    struct module *module = &draft->module;
    const struct quant_scheme *scheme = draft->scheme;
    const char *weight = module->tensors[MODULE_WEIGHT]->tensor->name;
    if (n > K_MAX || k > K_MAX) {
        return BAD(why, "tensor '%s': n %llu or k %llu is over %u", weight, (unsigned long long)n,
                   (unsigned long long)k, K_MAX);
    }
    module->desc = (struct gk_desc){
        .n = (uint32_t)n,
        .k = (uint32_t)k,
        .code = scheme->bits == 4 ? GK_CODE_U4 : GK_CODE_U8,
        .scale_dtype = module->tensors[MODULE_SCALES]->tensor->dtype,
    };
    int r = module_check_float(module->tensors[MODULE_SCALES], why);
    return r != 0 ? r : module_set_extent(draft, why);
}

static int finish(struct module_draft *draft, const char *g_idx_leaf, struct reason *why)
{
    int r = take_g_idx(draft, g_idx_leaf, why);
    if (r == 0) {
        r = module_take_act(draft, why);
    }
    return r != 0 ? r : module_take_bias(draft, why);
}

/* ---- GPTQ and AWQ ---- */

/* qzeros (groups, n / fields), both in GPTQ and in AWQ. */
static int check_qzeros(const struct module_draft *draft, struct reason *why)
{
    const struct gk_desc *desc = &draft->module.desc;
    const struct checkpoint_tensor *qzeros = draft->module.tensors[MODULE_ZEROS];
    uint32_t n_fields = 32 / draft->scheme->bits;
    if (!qzeros) {
        return 0;
    }
    if (desc->n % n_fields != 0) {
        return BAD(why, "n %u is not a multiple of %u, so tensor '%s' cannot be packed right",
                   desc->n, n_fields, qzeros->tensor->name);
    }
    int r = module_check_words(qzeros, why);
    return r != 0
               ? r
               : module_check_shape(draft, qzeros, gk_desc_groups(desc), desc->n / n_fields, why);
}

/* AWQ: zero points count whenever they are there, as they need no convention. GPTQ: a symmetric
 * file has them too, and its reader holds them against the one value that they must have. */
static int judge_symmetry(struct module_draft *draft, struct reason *why)
{
    struct module *module = &draft->module;
    const char *weight = module->tensors[MODULE_WEIGHT]->tensor->name;
    bool is_there = module->tensors[MODULE_ZEROS] != NULL;
    if (!is_there && !draft->scheme->is_symmetric) {
        return BAD(why, "tensor '%s.qzeros' is missing beside '%s', which is not symmetric by %s",
                   module->name, weight, draft->search->rules->place);
    }
    bool is_awq = draft->scheme->family == QUANT_AWQ;
    if (is_awq && draft->scheme->is_symmetric) {
        warnings_add(draft->search->warnings,
                     "%s has no zero points by the settings, and tensor '%s.qzeros' is %s",
                     module->name, module->name, is_there ? "there: it counts" : "not");
    }
    module->desc.has_zeros = is_awq ? is_there : !draft->scheme->is_symmetric;
    return 0;
}

/* GPTQ packs along k, AWQ along n. */
static int find_qweight(struct module_draft *draft, struct reason *why)
{
    struct module *module = &draft->module;
    const struct safetensors_tensor *qweight = module->tensors[MODULE_WEIGHT]->tensor;
    uint64_t n_fields = 32 / draft->scheme->bits;
    bool is_awq = draft->scheme->family == QUANT_AWQ;
    int r = module_need(draft, MODULE_SCALES, "scales", why);
    if (r == 0) {
        r = module_take(draft, MODULE_ZEROS, "qzeros", why);
    }
    if (r == 0) {
        r = is_awq ? describe(draft, qweight->dims[1] * n_fields, qweight->dims[0], why)
                   : describe(draft, qweight->dims[1], qweight->dims[0] * n_fields, why);
    }
    if (r == 0) {
        r = module_check_shape(draft, module->tensors[MODULE_SCALES], gk_desc_groups(&module->desc),
                               module->desc.n, why);
    }
    if (r == 0) {
        r = check_qzeros(draft, why);
    }
    if (r == 0) {
        r = judge_symmetry(draft, why);
    }
    module->is_v1 = draft->scheme->is_v1;
    return r != 0 ? r : finish(draft, "g_idx", why);
}

/* ---- compressed-tensors ---- */

/* weight_shape says n and k where packing has rounded k up. */
static int read_shape(const struct module_draft *draft, uint64_t *ret_n, uint64_t *ret_k,
                      struct reason *why)
{
    const struct checkpoint_tensor *shape = draft->module.tensors[MODULE_SHAPE];
    const struct safetensors_tensor *packed = draft->module.tensors[MODULE_WEIGHT]->tensor;
    uint64_t n_fields = 32 / draft->scheme->bits;
    int64_t sides[2] = {(int64_t)packed->dims[0], (int64_t)(packed->dims[1] * n_fields)};
    if (shape) {
        int r = module_check_dtype(shape, DTYPE_I64, why);
        if (r == 0) {
            r = module_check_shape(draft, shape, 2, 0, why);
        }
        if (r == 0) {
            r = safetensors_read(shape->file, shape->tensor, 0, sides, sizeof(sides), why);
        }
        if (r != 0) {
            return r;
        }
    }
    if (sides[0] != (int64_t)packed->dims[0] || sides[1] < 1 ||
        num_div_up((uint64_t)sides[1], n_fields) != packed->dims[1]) {
        char found[96];
        return BAD(why, "tensor '%s' says [%lld, %lld], and '%s' is %s with %u values a word",
                   shape->tensor->name, (long long)sides[0], (long long)sides[1], packed->name,
                   safetensors_shape(packed, found, sizeof(found)), (unsigned)n_fields);
    }
    *ret_n = (uint64_t)sides[0];
    *ret_k = (uint64_t)sides[1];
    return 0;
}

static int check_ct_zeros(struct module_draft *draft, struct reason *why)
{
    struct module *module = &draft->module;
    const struct checkpoint_tensor *zeros = module->tensors[MODULE_ZEROS];
    uint32_t n_fields = 32 / draft->scheme->bits;
    module->desc.has_zeros = !draft->scheme->is_symmetric;
    if (!zeros) {
        return 0;
    }
    if (draft->scheme->is_symmetric) {
        return BAD(why, "tensor '%s' is there, and '%s' is symmetric by %s", zeros->tensor->name,
                   module->tensors[MODULE_WEIGHT]->tensor->name, draft->search->rules->place);
    }
    int r = module_check_words(zeros, why);
    uint64_t n_words = num_div_up(gk_desc_scale_columns(&module->desc), n_fields);
    return r != 0 ? r
                  : module_check_shape(draft, zeros, n_words, gk_desc_groups(&module->desc), why);
}

static int find_packed(struct module_draft *draft, struct reason *why)
{
    struct module *module = &draft->module;
    uint64_t n = 0;
    uint64_t k = 0;
    int r = module_need(draft, MODULE_SCALES, "weight_scale", why);
    if (r == 0) {
        r = draft->scheme->is_symmetric
                ? module_take(draft, MODULE_ZEROS, "weight_zero_point", why)
                : module_need(draft, MODULE_ZEROS, "weight_zero_point", why);
    }
    if (r == 0) {
        r = module_take(draft, MODULE_SHAPE, "weight_shape", why);
    }
    if (r == 0) {
        r = read_shape(draft, &n, &k, why);
    }
    if (r == 0) {
        r = describe(draft, n, k, why);
    }
    if (r == 0) {
        r = module_check_sides(draft, module->tensors[MODULE_SCALES],
                               gk_desc_scale_columns(&module->desc), gk_desc_groups(&module->desc),
                               why);
    }
    if (r == 0) {
        r = check_ct_zeros(draft, why);
    }
    return r != 0 ? r : finish(draft, "weight_g_idx", why);
}

int module_find_int(struct module_draft *draft, struct reason *why)
{
    const struct checkpoint_tensor *weight = draft->module.tensors[MODULE_WEIGHT];
    int r = module_check_words(weight, why);
    if (r == 0) {
        r = module_check_matrix(weight, K_MAX, why);
    }
    if (r != 0) {
        return r;
    }
    return draft->scheme->family == QUANT_PACKED ? find_packed(draft, why)
                                                 : find_qweight(draft, why);
}
