/* input.c - prepare() of every host kernel: rows of x become f32 in the workspace, once.
 *
 * Rows that are only widened are split along k, so that a single row keeps all parts busy. Rows
 * that are quantised here need all of their k for a scale, and with act-order all of it for the
 * gather: they are split by row. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/host/panel.h"

#define ALIGN_ELEMS 16u /* one cache line of f32 */

static bool comes_quantised(const struct gk_problem *problem)
{
    return problem->desc.act != GK_ACT_FLOAT && problem->x_dtype == gk_act_dtype(problem->desc.act);
}

static bool is_quantised_here(const struct gk_problem *problem)
{
    return problem->desc.act != GK_ACT_FLOAT && !comes_quantised(problem);
}

/* Reserve bytes, whole cache lines of them. */
static void *reserve(struct host_input *input, char *workspace, uint64_t n_bytes)
{
    void *start = workspace != NULL ? workspace + input->size_bytes : NULL;
    input->size_bytes += num_align_up(n_bytes, ALIGN_ELEMS * sizeof(float));
    return start;
}

struct host_input host_input(const struct gk_problem *problem, void *workspace)
{
    const struct gk_desc *desc = &problem->desc;
    bool is_quantised = is_quantised_here(problem);
    /* The further line keeps rows of k 1024 from meeting in the same sets of a cache. */
    uint64_t stride_elems = num_align_up(desc->k, ALIGN_ELEMS) + ALIGN_ELEMS;
    struct host_input input = {.stride_elems = stride_elems, .n_scales = quant_scales(desc)};
    uint64_t n_elems = problem->m * input.stride_elems;
    uint64_t n_scales = (uint64_t)problem->m * input.n_scales;
    input.x = reserve(&input, workspace, n_elems * sizeof(float));
    input.scales = reserve(&input, workspace, n_scales * sizeof(float));
    if (is_quantised || desc->has_perm) {
        input.values = reserve(&input, workspace, n_elems * sizeof(float));
    }
    if (is_quantised) {
        input.codes = reserve(&input, workspace, n_elems);
    }
    return input;
}

uint64_t host_workspace_bytes(const struct gk_problem *problem)
{
    return host_input(problem, NULL).size_bytes;
}

/* Scales that come with a row, or the weight's own. */
static void copy_scales(const struct gk_launch *launch, uint32_t i_m,
                        const struct host_input *input)
{
    const struct gk_desc *desc = &launch->problem.desc;
    bool is_static = desc->act == GK_ACT_FP8_TENSOR || desc->act == GK_ACT_INT8_TENSOR;
    memcpy(input->scales + (uint64_t)i_m * input->n_scales,
           is_static ? &desc->act_scale : launch->x_scale_rows[i_m],
           input->n_scales * sizeof(float));
}

/* The codes of a row, as they came or made here. */
static const uint8_t *row_codes(const struct gk_launch *launch, const struct host_ops *ops,
                                uint32_t i_m, const struct host_input *input, int32_t *ret_zero)
{
    const struct gk_problem *problem = &launch->problem;
    if (comes_quantised(problem)) {
        copy_scales(launch, i_m, input);
        *ret_zero = problem->desc.act_zero;
        return launch->x_rows[i_m];
    }
    float *values = input->values + i_m * input->stride_elems;
    uint8_t *codes = input->codes + i_m * input->stride_elems;
    ops->widen(launch->x_rows[i_m], problem->x_dtype, problem->desc.k, values);
    *ret_zero = quant_row(ops->quant, &problem->desc, values, codes,
                          input->scales + (uint64_t)i_m * input->n_scales);
    return codes;
}

/* Against integer codes an infinity counts as NaN: kernels that take a common offset of all codes
 * out of the sum have no other answer, and the rule is one for all. The loop has no branch to
 * vectorise around. */
static void spoil_infinities(const struct gk_desc *desc, float *values, uint64_t n)
{
    for (uint64_t i = 0; gk_code_is_int(desc->code) && i < n; i++) {
        values[i] = fabsf(values[i]) <= FLT_MAX ? values[i] : NAN;
    }
}

/* The row's values in the order of x, whatever its type. */
static void widen_row(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_m,
                      const struct host_input *input, float *values)
{
    const struct gk_problem *problem = &launch->problem;
    const struct gk_desc *desc = &problem->desc;
    if (desc->act == GK_ACT_FLOAT) {
        ops->widen(launch->x_rows[i_m], problem->x_dtype, desc->k, values);
        spoil_infinities(desc, values, desc->k);
        return;
    }
    int32_t zero;
    const uint8_t *codes = row_codes(launch, ops, i_m, input, &zero);
    ops->widen(codes, gk_act_dtype(desc->act), desc->k, values);
    for (uint32_t i_k = 0; zero != 0 && i_k < desc->k; i_k++) {
        values[i_k] -= (float)zero;
    }
}

static void prepare_row(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_m,
                        const struct host_input *input)
{
    const struct gk_desc *desc = &launch->problem.desc;
    float *x = input->x + i_m * input->stride_elems;
    if (!desc->has_perm) {
        widen_row(launch, ops, i_m, input, x);
        return;
    }
    const uint32_t *perm = launch->packed;
    float *values = input->values + i_m * input->stride_elems;
    widen_row(launch, ops, i_m, input, values);
    for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
        x[i_k] = values[perm[i_k]];
    }
}

static void widen_part(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_part,
                       uint32_t n_parts, const struct host_input *input)
{
    const struct gk_problem *problem = &launch->problem;
    uint64_t n_lines = num_div_up(problem->desc.k, ALIGN_ELEMS);
    uint64_t first = n_lines * i_part / n_parts * ALIGN_ELEMS;
    uint64_t end = num_min(n_lines * (i_part + 1) / n_parts * ALIGN_ELEMS, problem->desc.k);
    if (first >= end) {
        return;
    }
    for (uint32_t i_m = 0; i_m < problem->m; i_m++) {
        const char *row = launch->x_rows[i_m];
        float *values = input->x + i_m * input->stride_elems + first;
        ops->widen(row + first * dtype_bytes(problem->x_dtype), problem->x_dtype, end - first,
                   values);
        spoil_infinities(&problem->desc, values, end - first);
    }
}

void host_prepare(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_part,
                  uint32_t n_parts)
{
    const struct gk_problem *problem = &launch->problem;
    struct host_input input = host_input(problem, launch->workspace);
    if (problem->desc.act == GK_ACT_FLOAT && !problem->desc.has_perm) {
        widen_part(launch, ops, i_part, n_parts, &input);
        return;
    }
    uint32_t first = (uint32_t)((uint64_t)problem->m * i_part / n_parts);
    uint32_t end = (uint32_t)((uint64_t)problem->m * (i_part + 1) / n_parts);
    for (uint32_t i_m = first; i_m < end; i_m++) {
        prepare_row(launch, ops, i_m, &input);
    }
}
