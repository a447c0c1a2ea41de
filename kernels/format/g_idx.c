/* g_idx.c - act-order: from the group of each element of k to the order that sorts them.
 *
 * Groups must have equal sizes, as every quantiser makes them: packed layouts find the scale of a
 * position by division. The sort is stable, as in every other reader of such files, so that
 * elements of one group stay in ascending order. */
#include <errno.h>

#include "gk/gk.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"
#include "kernels/format/fields.h"

/* What is read: k entries over n_groups groups. */
struct g_idx {
    const void *words;
    uint32_t k;
    uint32_t group_k;
    uint32_t n_groups;
};

static int32_t entry(const struct g_idx *g_idx, uint32_t i_k)
{
    return (int32_t)field_word(g_idx->words, i_k);
}

static bool is_constant(const struct g_idx *g_idx, int32_t value)
{
    for (uint32_t i_k = 0; i_k < g_idx->k; i_k++) {
        if (entry(g_idx, i_k) != value) {
            return false;
        }
    }
    return true;
}

static bool is_plain(const struct g_idx *g_idx)
{
    for (uint32_t i_k = 0; i_k < g_idx->k; i_k++) {
        if ((uint32_t)entry(g_idx, i_k) != i_k / g_idx->group_k) {
            return false;
        }
    }
    return true;
}

static int check_range(const struct g_idx *g_idx, struct reason *why)
{
    for (uint32_t i_k = 0; i_k < g_idx->k; i_k++) {
        int32_t i_group = entry(g_idx, i_k);
        if (i_group < 0 || (uint32_t)i_group >= g_idx->n_groups) {
            return reason_set(why, STATUS_BAD_CHECKPOINT,
                              "g_idx of element %u is %d, outside the %u groups", i_k, i_group,
                              g_idx->n_groups);
        }
    }
    return 0;
}

static int check_counts(const struct g_idx *g_idx, const uint32_t *counts, struct reason *why)
{
    for (uint32_t i_group = 0; i_group < g_idx->n_groups; i_group++) {
        uint32_t first = i_group * g_idx->group_k;
        uint32_t expected = (uint32_t)num_min(g_idx->group_k, g_idx->k - first);
        if (counts[i_group] != expected) {
            return reason_set(why, STATUS_UNSUPPORTED,
                              "g_idx puts %u elements into group %u, not %u: groups of unequal "
                              "size are not supported",
                              counts[i_group], i_group, expected);
        }
    }
    return 0;
}

/* With sizes checked, group i starts at position i * group_k. */
static int sort(const struct g_idx *g_idx, uint32_t *perm, struct reason *why)
{
    CLEAN_FREE uint32_t *counts = calloc(g_idx->n_groups, sizeof(*counts));
    if (counts == NULL) {
        return err_raise(-ENOMEM);
    }
    for (uint32_t i_k = 0; i_k < g_idx->k; i_k++) {
        counts[entry(g_idx, i_k)]++;
    }
    int r = check_counts(g_idx, counts, why);
    if (r != 0) {
        return r;
    }
    for (uint32_t i_k = g_idx->k; i_k-- > 0;) {
        uint32_t i_group = (uint32_t)entry(g_idx, i_k);
        perm[(uint64_t)i_group * g_idx->group_k + --counts[i_group]] = i_k;
    }
    return 0;
}

int gk_g_idx_read(const void *words, uint32_t k, uint32_t group_k, bool is_declared, uint32_t *perm,
                  enum gk_g_idx *ret_kind, struct reason *why)
{
    const struct g_idx g_idx = {words, k, group_k, (uint32_t)num_div_up(k, group_k)};
    if (is_constant(&g_idx, -1)) {
        *ret_kind = GK_G_IDX_UNSET;
        return 0;
    }
    int r = check_range(&g_idx, why);
    if (r != 0) {
        return r;
    }
    if (is_plain(&g_idx)) {
        *ret_kind = GK_G_IDX_PLAIN;
        return 0;
    }
    if (!is_declared && is_constant(&g_idx, 0)) {
        *ret_kind = GK_G_IDX_ZEROS;
        return 0;
    }
    r = sort(&g_idx, perm, why);
    if (r == 0) {
        *ret_kind = GK_G_IDX_ORDER;
    }
    return r;
}
