/* slice.c - a part of a weight, for tensor parallelism. Scales are repeated where a cut goes
 * through what one of them covers; no code and no scale ever changes. */
#include "gk/gk.h"
#include "kernels/canonical.h"
#include "kernels/rect.h"

static int check_range(const char *name, uint32_t first, uint32_t extent, uint32_t of,
                       struct reason *why)
{
    if (extent == 0 || first >= of || extent > of - first) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "a slice of %u from %s %u is empty or not inside %u", extent, name, first,
                          of);
    }
    return 0;
}

static bool is_in_one_group(uint32_t first, uint32_t extent, uint32_t group)
{
    return first / group == (first + extent - 1) / group;
}

static uint32_t greatest_divisor(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* ---- along n ---- */

int gk_desc_slice_n(const struct gk_desc *whole, uint32_t first_n, uint32_t n,
                    struct gk_desc *ret_desc, struct reason *why)
{
    int r = check_range("row", first_n, n, whole->n, why);
    if (r != 0) {
        return r;
    }
    struct gk_desc desc = *whole;
    desc.n = n;
    if (whole->group_n != 0 && is_in_one_group(first_n, n, whole->group_n)) {
        desc.group_n = n;
    } else if (whole->group_n != 0 && first_n % whole->group_n != 0) {
        desc.group_n = 1;
    }
    *ret_desc = desc;
    return 0;
}

int gk_canonical_slice_n(const struct gk_canonical *whole, uint32_t first_n, uint32_t n,
                         struct gk_canonical *ret_canonical, struct reason *why)
{
    struct gk_desc desc;
    struct gk_canonical slice;
    int r = gk_desc_slice_n(&whole->desc, first_n, n, &desc, why);
    if (r == 0) {
        r = canonical_alloc_like(&slice, &desc, whole);
    }
    if (r != 0) {
        return r;
    }
    const struct rect rect = {.from_n = first_n, .n = n, .k = desc.k};
    rect_copy(whole, &rect, &slice);
    *ret_canonical = slice;
    return 0;
}

/* ---- along k ---- */

static int slice_group_k(const struct gk_desc *whole, uint32_t first_k, uint32_t k,
                         uint32_t *ret_group_k, struct reason *why)
{
    if (is_in_one_group(first_k, k, whole->group_k)) {
        *ret_group_k = k;
        return 0;
    }
    uint32_t group_k = greatest_divisor(whole->group_k, first_k);
    if (group_k != whole->group_k && group_k < GK_SLICE_GROUP_K_MIN) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "a cut at element %u of k straddles a group of %u: scales would have to "
                          "be repeated every %u, and %u is the least",
                          first_k, whole->group_k, group_k, GK_SLICE_GROUP_K_MIN);
    }
    *ret_group_k = group_k;
    return 0;
}

int gk_desc_slice_k(const struct gk_desc *whole, uint32_t first_k, uint32_t k,
                    struct gk_desc *ret_desc, struct reason *why)
{
    int r = check_range("element", first_k, k, whole->k, why);
    if (r != 0) {
        return r;
    }
    if (whole->has_perm && k != whole->k) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "a weight with act-order cannot be cut along k: elements of a group lie "
                          "all over it");
    }
    if (whole->act == GK_ACT_FP8_GROUP && first_k % GK_ACT_GROUP_K != 0) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "a cut at element %u of k straddles a group of activations; it must be "
                          "at a multiple of %u",
                          first_k, GK_ACT_GROUP_K);
    }
    struct gk_desc desc = *whole;
    desc.k = k;
    if (first_k != 0) {
        desc.bias_dtype = DTYPE_NONE;
    }
    if (whole->group_k != 0) {
        r = slice_group_k(whole, first_k, k, &desc.group_k, why);
    }
    if (r == 0) {
        *ret_desc = desc;
    }
    return r;
}

int gk_canonical_slice_k(const struct gk_canonical *whole, uint32_t first_k, uint32_t k,
                         struct gk_canonical *ret_canonical, struct reason *why)
{
    struct gk_desc desc;
    struct gk_canonical slice;
    int r = gk_desc_slice_k(&whole->desc, first_k, k, &desc, why);
    if (r == 0) {
        r = canonical_alloc_like(&slice, &desc, whole);
    }
    if (r != 0) {
        return r;
    }
    const struct rect rect = {.from_k = first_k, .n = desc.n, .k = k};
    rect_copy(whole, &rect, &slice);
    *ret_canonical = slice;
    return 0;
}
