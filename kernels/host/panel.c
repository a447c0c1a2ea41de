/* panel.c - prepare() and run() of every host kernel.
 *
 * prepare() widens x into the workspace once, split along k. run() walks its share of the panels; a
 * panel goes block by block, all rows of a block before the next, so a packed weight is read from
 * memory once whatever m is: a block (at most 32 KiB) stays in the cache over its rows. Which part
 * computes a panel changes nothing in its arithmetic, so the bits do not depend on n_parts. */
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/host/panel.h"

#define X_ALIGN_ELEMS 16u /* one cache line of f32 */

/* A panel's sums: 16 KiB of the stack at most, zeroed for as many rows as there are. */
struct totals {
    _Alignas(64) float values[GK_BATCH_ROWS_MAX][HOST_PANEL_N];
};

static uint64_t x_stride_elems(const struct gk_desc *desc)
{
    return num_align_up(desc->k, X_ALIGN_ELEMS);
}

uint64_t host_workspace_bytes(const struct gk_problem *problem)
{
    return problem->m * x_stride_elems(&problem->desc) * sizeof(float);
}

void host_prepare(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_part,
                  uint32_t n_parts)
{
    const struct gk_problem *problem = &launch->problem;
    uint64_t stride = x_stride_elems(&problem->desc);
    uint64_t n_lines = stride / X_ALIGN_ELEMS;
    uint64_t first = n_lines * i_part / n_parts * X_ALIGN_ELEMS;
    uint64_t end = num_min(n_lines * (i_part + 1) / n_parts * X_ALIGN_ELEMS, problem->desc.k);
    if (first >= end) {
        return;
    }
    for (uint32_t i_m = 0; i_m < problem->m; i_m++) {
        const char *row = launch->x_rows[i_m];
        ops->widen(row + first * dtype_bytes(problem->x_dtype), problem->x_dtype, end - first,
                   (float *)launch->workspace + i_m * stride + first);
    }
}

/* Rows of one group, or of the whole k of a plain weight, in blocks. */
static void run_group(const struct host_ops *ops, const struct gk_problem *problem,
                      struct host_block *block, uint32_t n_k, struct totals *totals)
{
    bool is_plain = gk_code_is_plain(problem->desc.code);
    uint32_t row_bytes = host_panel_shape(&problem->desc).row_bytes;
    for (uint32_t i_k = 0; i_k < n_k; i_k += HOST_BLOCK_K) {
        block->n_k = (uint32_t)num_min(HOST_BLOCK_K, n_k - i_k);
        (is_plain ? ops->plain_block : ops->int4_block)(block, totals->values[0]);
        block->weights += (uint64_t)block->n_k * row_bytes;
        block->x += block->n_k;
    }
}

static void run_groups(const struct host_ops *ops, const struct gk_launch *launch,
                       const uint8_t *panel, struct totals *totals)
{
    const struct gk_problem *problem = &launch->problem;
    const struct gk_desc *desc = &problem->desc;
    struct host_block block = {.weights = panel,
                               .value_dtype = gk_code_dtype(desc->code),
                               .x = launch->workspace,
                               .x_stride_elems = x_stride_elems(desc),
                               .m = problem->m};
    if (gk_code_is_plain(desc->code)) {
        run_group(ops, problem, &block, desc->k, totals);
        return;
    }
    const uint8_t *scales = panel + host_panel_shape(desc).scales_offset;
    _Alignas(64) float values[HOST_PANEL_N];
    block.scales = values;
    for (uint64_t i_k = 0; i_k < desc->k; i_k += desc->group_k) {
        ops->widen(scales, desc->scale_dtype, HOST_PANEL_N, values);
        run_group(ops, problem, &block, (uint32_t)num_min(desc->group_k, desc->k - i_k), totals);
        scales += HOST_PANEL_N * dtype_bytes(desc->scale_dtype);
    }
}

static void add_bias(const struct host_ops *ops, const struct gk_desc *desc, const uint8_t *bias,
                     uint32_t m, struct totals *totals)
{
    _Alignas(64) float values[HOST_PANEL_N];
    ops->widen(bias, desc->bias_dtype, HOST_PANEL_N, values);
    for (uint32_t i_m = 0; i_m < m; i_m++) {
        for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
            totals->values[i_m][i_n] += values[i_n];
        }
    }
}

/* Through a buffer, since y rows are aligned to their elements only and the last panel is narrower.
 */
static void store_panel(const struct host_ops *ops, const struct gk_launch *launch,
                        uint32_t i_panel, const struct totals *totals)
{
    const struct gk_problem *problem = &launch->problem;
    uint64_t first = (uint64_t)i_panel * HOST_PANEL_N;
    uint64_t n_columns = num_min(HOST_PANEL_N, problem->desc.n - first);
    uint32_t elem_bytes = dtype_bytes(problem->y_dtype);
    for (uint32_t i_m = 0; i_m < problem->m; i_m++) {
        _Alignas(64) char elems[HOST_PANEL_N * sizeof(float)];
        ops->narrow(totals->values[i_m], problem->y_dtype, elems);
        memcpy((char *)launch->y_rows[i_m] + first * elem_bytes, elems, n_columns * elem_bytes);
    }
}

void host_run(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_part,
              uint32_t n_parts)
{
    const struct gk_problem *problem = &launch->problem;
    const struct gk_desc *desc = &problem->desc;
    struct host_panel_shape shape = host_panel_shape(desc);
    uint32_t first = (uint32_t)((uint64_t)shape.n_panels * i_part / n_parts);
    uint32_t end = (uint32_t)((uint64_t)shape.n_panels * (i_part + 1) / n_parts);
    struct totals totals;
    for (uint32_t i_panel = first; i_panel < end; i_panel++) {
        const uint8_t *panel = (const uint8_t *)launch->packed + i_panel * shape.panel_bytes;
        memset(totals.values, 0, problem->m * sizeof(totals.values[0]));
        run_groups(ops, launch, panel, &totals);
        if (desc->bias_dtype != DTYPE_NONE) {
            add_bias(ops, desc, panel + shape.bias_offset, problem->m, &totals);
        }
        store_panel(ops, launch, i_panel, &totals);
    }
}
