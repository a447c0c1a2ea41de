/* output.c - what becomes of a panel's sums: scales, bias, rounding, in the order of
 * kernels/NUMERICS.md. */
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/host/panel.h"

/* Where a panel's rows of one value a column lie, widened. */
struct columns {
    _Alignas(64) float values[HOST_PANEL_N];
};

static void convert_sums(struct host_totals *totals, uint32_t m)
{
    for (uint32_t i_m = 0; i_m < m; i_m++) {
        int32_t sums[HOST_PANEL_N];
        memcpy(sums, totals->values[i_m], sizeof(sums));
        for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
            totals->values[i_m][i_n] = (float)sums[i_n];
        }
    }
}

static void multiply(struct host_totals *totals, uint32_t m, const struct columns *columns)
{
    for (uint32_t i_m = 0; i_m < m; i_m++) {
        for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
            totals->values[i_m][i_n] *= columns->values[i_n];
        }
    }
}

static void divide(struct host_totals *totals, uint32_t m, const struct columns *columns)
{
    for (uint32_t i_m = 0; i_m < m; i_m++) {
        for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
            totals->values[i_m][i_n] /= columns->values[i_n];
        }
    }
}

static void add(struct host_totals *totals, uint32_t m, const struct columns *columns)
{
    for (uint32_t i_m = 0; i_m < m; i_m++) {
        for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
            totals->values[i_m][i_n] += columns->values[i_n];
        }
    }
}

static void scale_rows(struct host_totals *totals, uint32_t m, const struct host_input *input)
{
    for (uint32_t i_m = 0; i_m < m; i_m++) {
        float scale = input->scales[(uint64_t)i_m * input->n_scales];
        for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
            totals->values[i_m][i_n] *= scale;
        }
    }
}

/* Through a buffer, since y rows are aligned to their elements only and the last panel is narrower.
 */
static void store_panel(const struct host_ops *ops, const struct gk_launch *launch,
                        uint32_t i_panel, const struct host_totals *totals)
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

static void apply_scales(const struct gk_launch *launch, const struct host_ops *ops,
                         const uint8_t *panel, struct host_totals *totals)
{
    const struct gk_desc *desc = &launch->problem.desc;
    struct host_panel_shape shape = host_panel_shape(desc);
    uint32_t m = launch->problem.m;
    struct columns columns;
    if (!gk_code_is_plain(desc->code) && !host_is_scaled_by_block(desc)) {
        ops->widen(panel + shape.scales_offset, desc->scale_dtype, HOST_PANEL_N, columns.values);
        multiply(totals, m, &columns);
    }
    if (desc->column_scale != GK_COLUMN_SCALE_NONE) {
        ops->widen(panel + shape.column_scales_offset, DTYPE_F32, HOST_PANEL_N, columns.values);
        (desc->column_scale == GK_COLUMN_SCALE_DIVIDES ? divide : multiply)(totals, m, &columns);
    }
}

void host_finish_panel(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_panel,
                       struct host_totals *totals)
{
    const struct gk_problem *problem = &launch->problem;
    const struct gk_desc *desc = &problem->desc;
    struct host_panel_shape shape = host_panel_shape(desc);
    const uint8_t *panel =
        (const uint8_t *)launch->packed + shape.panels_offset + i_panel * shape.panel_bytes;
    if (gk_act_is_int8(desc->act)) {
        convert_sums(totals, problem->m);
    }
    apply_scales(launch, ops, panel, totals);
    if (desc->act != GK_ACT_FLOAT && desc->act != GK_ACT_FP8_GROUP) {
        struct host_input input = host_input(problem, launch->workspace);
        scale_rows(totals, problem->m, &input);
    }
    if (desc->bias_dtype != DTYPE_NONE) {
        struct columns bias;
        ops->widen(panel + shape.bias_offset, desc->bias_dtype, HOST_PANEL_N, bias.values);
        add(totals, problem->m, &bias);
    }
    store_panel(ops, launch, i_panel, totals);
}
