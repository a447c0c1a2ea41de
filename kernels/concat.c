/* concat.c - several weights as one, along n. The alternative everywhere else, to requantise all
 * parts to the largest scale, loses bits of the others; repeating scales row by row loses none. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gk/gk.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "kernels/canonical.h"
#include "kernels/rect.h"

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static int refuse(uint32_t i_part, const char *what, struct reason *why)
{
    return reason_set(why, STATUS_UNSUPPORTED,
                      "part %u cannot be fused with part 0: they differ in %s", i_part, what);
}

/* *dtype becomes the one that holds both exactly. NONE goes with everything. */
static bool widen(enum dtype *dtype, enum dtype other)
{
    if (*dtype == other || other == DTYPE_NONE) {
        return true;
    }
    if (*dtype == DTYPE_NONE) {
        *dtype = other;
        return true;
    }
    if (!is_float(*dtype) || !is_float(other)) {
        return false;
    }
    *dtype = DTYPE_F32;
    return true;
}

static int check_codes(const struct gk_desc *a, const struct gk_desc *b, uint32_t i_part,
                       struct reason *why)
{
    if (a->k != b->k) {
        return refuse(i_part, "k", why);
    }
    if (a->code != b->code) {
        return refuse(i_part, "their codes", why);
    }
    if (a->group_k != b->group_k) {
        return refuse(i_part, "group size", why);
    }
    if (a->has_perm != b->has_perm) {
        return refuse(i_part, "act-order", why);
    }
    return 0;
}

static int check_act(const struct gk_desc *a, const struct gk_desc *b, uint32_t i_part,
                     struct reason *why)
{
    if (a->act != b->act || a->is_act_scale_pow2 != b->is_act_scale_pow2) {
        return refuse(i_part, "how activations are quantised", why);
    }
    if (a->act_scale != b->act_scale || a->act_zero != b->act_zero) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "part %u cannot be fused with part 0: its static activation scale %g and "
                          "zero point %d differ from %g and %d, and one x is quantised one way",
                          i_part, (double)b->act_scale, b->act_zero, (double)a->act_scale,
                          a->act_zero);
    }
    return 0;
}

/* Take up part i into what parts 0 to i-1 made. group_n is left for later: it needs them all. */
static int add_part(struct gk_desc *desc, const struct gk_desc *part, uint32_t i_part,
                    struct reason *why)
{
    int r = check_codes(desc, part, i_part, why);
    if (r == 0) {
        r = check_act(desc, part, i_part, why);
    }
    if (r != 0) {
        return r;
    }
    if (!widen(&desc->scale_dtype, part->scale_dtype)) {
        return refuse(i_part, "the type of their scales", why);
    }
    if (!widen(&desc->bias_dtype, part->bias_dtype)) {
        return refuse(i_part, "the type of their bias", why);
    }
    if (desc->column_scale == GK_COLUMN_SCALE_NONE) {
        desc->column_scale = part->column_scale;
    }
    if (part->column_scale != GK_COLUMN_SCALE_NONE && part->column_scale != desc->column_scale) {
        return refuse(i_part, "whether global scales multiply or divide", why);
    }
    if (part->n > UINT32_MAX - desc->n) {
        return reason_set(why, STATUS_UNSUPPORTED, "the parts have more than %u rows", UINT32_MAX);
    }
    desc->n += part->n;
    desc->has_zeros |= part->has_zeros;
    return 0;
}

static uint32_t common_group_n(const struct gk_desc *parts, uint32_t n_parts)
{
    uint32_t group_n = parts[0].group_n;
    for (uint32_t i = 0; i < n_parts; i++) {
        bool is_cut = i + 1 < n_parts && group_n != 0 && parts[i].n % group_n != 0;
        if (parts[i].group_n != group_n || is_cut) {
            return 1;
        }
    }
    return group_n;
}

int gk_desc_concat_n(const struct gk_desc *parts, uint32_t n_parts, struct gk_desc *ret_desc,
                     struct reason *why)
{
    if (n_parts == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "there are no parts to fuse");
    }
    struct gk_desc desc = parts[0];
    for (uint32_t i = 1; i < n_parts; i++) {
        int r = add_part(&desc, &parts[i], i, why);
        if (r != 0) {
            return r;
        }
    }
    desc.group_n = common_group_n(parts, n_parts);
    int r = gk_desc_check(&desc, why);
    if (r == 0) {
        *ret_desc = desc;
    }
    return r;
}

static int check_perms(const struct gk_canonical *parts, uint32_t n_parts, struct reason *why)
{
    const struct gk_desc *desc = &parts[0].desc;
    for (uint32_t i = 1; i < n_parts && desc->has_perm; i++) {
        if (memcmp(parts[i].perm, parts[0].perm, desc->k * sizeof(*parts[0].perm)) != 0) {
            return refuse(i, "the order of their elements (act-order)", why);
        }
    }
    return 0;
}

static int desc_of_parts(const struct gk_canonical *parts, uint32_t n_parts,
                         struct gk_desc *ret_desc, struct reason *why)
{
    CLEAN_FREE struct gk_desc *descs = calloc(n_parts + 1, sizeof(*descs));
    if (descs == NULL) {
        return err_raise(-ENOMEM);
    }
    for (uint32_t i = 0; i < n_parts; i++) {
        descs[i] = parts[i].desc;
    }
    int r = gk_desc_concat_n(descs, n_parts, ret_desc, why);
    return r != 0 ? r : check_perms(parts, n_parts, why);
}

int gk_canonical_concat_n(const struct gk_canonical *parts, uint32_t n_parts,
                          struct gk_canonical *ret_canonical, struct reason *why)
{
    struct gk_desc desc;
    struct gk_canonical whole;
    int r = desc_of_parts(parts, n_parts, &desc, why);
    if (r == 0) {
        r = canonical_alloc_like(&whole, &desc, &parts[0]);
    }
    if (r != 0) {
        return r;
    }
    struct rect rect = {.k = desc.k};
    for (uint32_t i = 0; i < n_parts; i++) {
        rect.n = parts[i].desc.n;
        rect_copy(&parts[i], &rect, &whole);
        rect.to_n += rect.n;
    }
    *ret_canonical = whole;
    return 0;
}
