/* panel.c - run() of every host kernel: the walk over panels, groups and blocks.
 *
 * A panel goes block by block, all rows of a block before the next, so a packed weight is read from
 * memory once whatever m is: a block (at most 32 KiB) stays in the cache over its rows. Which part
 * computes a panel changes nothing in its arithmetic, so the bits do not depend on n_parts. */
#include "kernels/host/panel.h"

#include <string.h>

#include "ipc/base/num.h"

/* Multiplying by it changes nothing: the scales of blocks whose sums are scaled later. */
#define ONE4  1.0f, 1.0f, 1.0f, 1.0f
#define ONE16 ONE4, ONE4, ONE4, ONE4
static const float ones[HOST_PANEL_N] = {ONE16, ONE16, ONE16, ONE16};

bool host_is_scaled_by_block(const struct gk_desc *desc)
{
    return gk_desc_groups(desc) > 1 || desc->act == GK_ACT_FP8_GROUP;
}

/* The walk through a panel: the block that comes next, and what it points to. */
struct walk {
    const struct host_ops *ops;
    const struct gk_desc *desc;
    struct host_panel_shape shape;
    struct host_input input;
    const uint8_t *panel;
    struct host_block block;
    _Alignas(64) float scales[HOST_PANEL_N];
    _Alignas(64) float zeros[HOST_PANEL_N];
};

/* The block's scales and zero points become those of a group. */
static void enter_group(struct walk *walk, uint32_t i_group)
{
    const struct gk_desc *desc = walk->desc;
    uint64_t i_row = (uint64_t)i_group * HOST_PANEL_N;
    if (desc->has_zeros) {
        walk->ops->widen(walk->panel + walk->shape.zeros_offset + i_row, DTYPE_U8, HOST_PANEL_N,
                         walk->zeros);
    }
    if (host_is_scaled_by_block(desc)) {
        const uint8_t *scales = walk->panel + walk->shape.scales_offset;
        walk->ops->widen(scales + i_row * dtype_bytes(desc->scale_dtype), desc->scale_dtype,
                         HOST_PANEL_N, walk->scales);
    }
    if (desc->act == GK_ACT_FP8_GROUP) {
        walk->block.x_scales = walk->input.scales + i_group;
    }
}

/* Rows of one group, in blocks. */
static void run_group(struct walk *walk, uint32_t n_k, struct host_totals *totals)
{
    struct host_block *block = &walk->block;
    for (uint32_t i_k = 0; i_k < n_k; i_k += HOST_BLOCK_K) {
        block->n_k = (uint32_t)num_min(HOST_BLOCK_K, n_k - i_k);
        walk->ops->block(block, totals->values[0]);
        block->weights += (uint64_t)block->n_k * walk->shape.row_bytes;
        block->x += block->n_k;
    }
}

/* A plain weight is one group. */
static void run_panel(struct walk *walk, struct host_totals *totals)
{
    const struct gk_desc *desc = walk->desc;
    uint32_t group_k = gk_code_is_plain(desc->code) ? desc->k : desc->group_k;
    walk->block.weights = walk->panel;
    walk->block.x = walk->input.x;
    memset(totals->values, 0, walk->block.m * sizeof(totals->values[0]));
    for (uint32_t i_k = 0, i_group = 0; i_k < desc->k; i_group++) {
        uint32_t n_k = (uint32_t)num_min(group_k, desc->k - i_k);
        enter_group(walk, i_group);
        run_group(walk, n_k, totals);
        i_k += n_k;
    }
}

static void walk_init(struct walk *walk, const struct gk_launch *launch, const struct host_ops *ops)
{
    const struct gk_problem *problem = &launch->problem;
    const struct gk_desc *desc = &problem->desc;
    *walk = (struct walk){.ops = ops,
                          .desc = desc,
                          .shape = host_panel_shape(desc),
                          .input = host_input(problem, launch->workspace)};
    walk->block = (struct host_block){.code = desc->code,
                                      .zeros = desc->has_zeros ? walk->zeros : NULL,
                                      .scales = ones,
                                      .x_stride_elems = walk->input.stride_elems,
                                      .x_scale_stride = walk->input.n_scales,
                                      .m = problem->m};
    if (gk_act_is_int8(desc->act)) {
        walk->block.scales = NULL;
    } else if (host_is_scaled_by_block(desc)) {
        walk->block.scales = walk->scales;
    }
}

void host_run(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_part,
              uint32_t n_parts)
{
    struct walk walk;
    walk_init(&walk, launch, ops);
    uint32_t n_panels = walk.shape.n_panels;
    uint32_t first = (uint32_t)((uint64_t)n_panels * i_part / n_parts);
    uint32_t end = (uint32_t)((uint64_t)n_panels * (i_part + 1) / n_parts);
    struct host_totals totals;
    for (uint32_t i_panel = first; i_panel < end; i_panel++) {
        walk.panel = (const uint8_t *)launch->packed + walk.shape.panels_offset +
                     i_panel * walk.shape.panel_bytes;
        run_panel(&walk, &totals);
        host_finish_panel(launch, ops, i_panel, &totals);
    }
}
