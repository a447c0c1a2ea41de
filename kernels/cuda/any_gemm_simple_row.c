/* any_gemm_simple_row.c - the registry's row of any_gemm_simple.cu. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/cuda/any_gemm_simple.h"
#include "kernels/cuda/any_quantise.h"
#include "kernels/cuda/registry.h"
#include "kernels/layout/cuda_kmajor.h"
#include "kernels/layout/cuda_strip.h"
#include "kernels/layout/cuda_swizzle.h"

static_assert(CUDA_ROWS_MAX == GK_BATCH_ROWS_MAX, "a launch's rows fit the tables");
/* The device code has enums of its own. */
static_assert(GK_CODE_F32 == 1 && GK_CODE_F16 == 2 && GK_CODE_BF16 == 3 && GK_CODE_U4 == 4 &&
                  GK_CODE_U8 == 5 && GK_CODE_E4M3 == 6 && GK_CODE_E2M1 == 7,
              "any_gemm_simple.cu counts the codes so");
static_assert(GK_COLUMN_SCALE_MULTIPLIES == 1 && GK_COLUMN_SCALE_DIVIDES == 2,
              "any_gemm_simple.cu counts the column scales so");

static_assert(GK_ACT_FP8_TENSOR == 1 && GK_ACT_FP8_TOKEN == 2 && GK_ACT_FP8_GROUP == 3 &&
                  GK_ACT_INT8_TENSOR == 4 && GK_ACT_INT8_TOKEN == 5 && GK_ACT_INT8_TOKEN_ZERO == 6,
              "quantise_rules.cuh counts the schemes so");

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static bool is_known_layout(const struct gk_layout *layout)
{
    return layout == &cuda_kmajor_layout || layout == &cuda_swizzle_layout ||
           cuda_strip_is_layout(layout);
}

static bool is_x(const struct gk_desc *desc, enum dtype dtype)
{
    return is_float(dtype) || (dtype != DTYPE_NONE && dtype == gk_act_dtype(desc->act));
}

static int can_implement(const struct gk_problem *problem, struct reason *why)
{
    if (!is_known_layout(problem->layout)) {
        return reason_set(why, STATUS_UNSUPPORTED, "it cannot read the layout %s",
                          problem->layout != NULL ? problem->layout->tag : "none");
    }
    if (problem->m == 0 || problem->m > GK_BATCH_ROWS_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "a launch has 1 to %u rows, not %u",
                          GK_BATCH_ROWS_MAX, problem->m);
    }
    if (!is_x(&problem->desc, problem->x_dtype) || !is_float(problem->y_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "x of type %s and y of type %s; only f32, f16, bf16, and x as the weight "
                          "quantises it",
                          dtype_name(problem->x_dtype), dtype_name(problem->y_dtype));
    }
    return gk_desc_check(&problem->desc, why);
}

/* Scales of a quantised row; 0 where x is multiplied as it comes. */
static uint32_t scales_of(const struct gk_desc *desc)
{
    if (desc->act == GK_ACT_FLOAT) {
        return 0;
    }
    return desc->act == GK_ACT_FP8_GROUP ? (uint32_t)num_div_up(desc->k, GK_ACT_GROUP_K) : 1;
}

/* Quantised x, as f32, then its scales. */
static uint64_t workspace_bytes(const struct gk_problem *problem)
{
    uint32_t n_scales = scales_of(&problem->desc);
    return n_scales == 0 ? 0 : (uint64_t)problem->m * (problem->desc.k + n_scales) * sizeof(float);
}

/* A guess: 0.3 multiply-adds a picosecond, and 5 us of launching. */
static double predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    return 5.0 + (double)problem->m * problem->desc.n * problem->desc.k / 300e3;
}

/* What does not depend on the layout. */
static struct any_gemm gemm_base(const struct gk_problem *problem)
{
    const struct gk_desc *desc = &problem->desc;
    bool has_scales = !gk_code_is_plain(desc->code);
    return (struct any_gemm){
        .m = problem->m,
        .n = desc->n,
        .k = desc->k,
        .group_n = has_scales ? desc->group_n : 1,
        .group_k = has_scales ? desc->group_k : desc->k,
        .scale_columns = gk_desc_scale_columns(desc),
        .code = desc->code,
        .column_scale = desc->column_scale,
        .scale_dtype = desc->scale_dtype,
        .bias_dtype = desc->bias_dtype,
        .x_dtype = problem->x_dtype,
        .y_dtype = problem->y_dtype,
        .has_zeros = desc->has_zeros,
    };
}

/* Where the parts of a weight are; offsets count only for parts that are there. */
static void set_common_parts(struct any_gemm *gemm, const struct gk_desc *desc,
                             const uint8_t *packed, uint64_t perm_offset,
                             uint64_t column_scales_offset, uint64_t bias_offset)
{
    if (desc->has_perm) {
        gemm->perm = (const uint32_t *)(const void *)(packed + perm_offset);
    }
    if (desc->column_scale != GK_COLUMN_SCALE_NONE) {
        gemm->column_scales = (const float *)(const void *)(packed + column_scales_offset);
    }
    if (desc->bias_dtype != DTYPE_NONE) {
        gemm->bias = packed + bias_offset;
    }
}

static struct any_gemm gemm_of_kmajor(const struct gk_problem *problem, const uint8_t *packed)
{
    struct cuda_kmajor_shape shape = cuda_kmajor_shape(&problem->desc);
    struct any_gemm gemm = gemm_base(problem);
    gemm.n_stride = shape.n_stride;
    gemm.row_bytes = (uint32_t)shape.row_bytes;
    gemm.codes = packed;
    gemm.scales = packed + shape.scales_offset;
    gemm.zeros = packed + shape.zeros_offset;
    set_common_parts(&gemm, &problem->desc, packed, shape.perm_offset, shape.column_scales_offset,
                     shape.bias_offset);
    return gemm;
}

static struct any_gemm gemm_of_strips(const struct gk_problem *problem, const uint8_t *packed)
{
    struct strip_shape shape = strip_shape(&problem->desc);
    struct any_gemm gemm = gemm_base(problem);
    gemm.strips = (struct any_gemm_strips){
        .lie = strip_records_of(&shape, packed),
        .n_slice_groups = shape.n_slice_groups,
        .scaling = shape.scaling,
    };
    gemm.scales = shape.has_row_scales ? packed + shape.row_scales_offset : NULL;
    set_common_parts(&gemm, &problem->desc, packed, 0, shape.column_scales_offset,
                     shape.bias_offset);
    return gemm;
}

static struct any_gemm gemm_of_swizzle(const struct gk_problem *problem, const uint8_t *packed)
{
    struct swizzle_shape shape = swizzle_shape(&problem->desc);
    struct any_gemm gemm = gemm_base(problem);
    gemm.n_swizzle_groups = shape.n_groups;
    gemm.codes = packed;
    gemm.scales = packed + shape.scales_offset;
    gemm.zeros = packed + shape.zeros_offset;
    set_common_parts(&gemm, &problem->desc, packed, 0, shape.column_scales_offset,
                     shape.bias_offset);
    return gemm;
}

static struct any_gemm gemm_of(const struct gk_problem *problem, const uint8_t *packed)
{
    if (cuda_strip_is_layout(problem->layout)) {
        return gemm_of_strips(problem, packed);
    }
    return problem->layout == &cuda_swizzle_layout ? gemm_of_swizzle(problem, packed)
                                                   : gemm_of_kmajor(problem, packed);
}

static int quantise(const struct gk_launch *launch, const struct any_gemm *gemm, void *stream)
{
    const struct gk_desc *desc = &launch->problem.desc;
    struct any_quantise quantise = {
        .m = gemm->m,
        .k = gemm->k,
        .x_dtype = launch->problem.x_dtype,
        .group_k = desc->act == GK_ACT_FP8_GROUP ? GK_ACT_GROUP_K : desc->k,
        .n_scales = gemm->n_x_scales,
        .rule = {desc->act, desc->is_act_scale_pow2, desc->act_scale, desc->act_zero},
        .values = launch->workspace,
        .scales = (float *)launch->workspace + (uint64_t)gemm->m * gemm->k,
    };
    memcpy(quantise.rows, launch->x_rows, gemm->m * sizeof(quantise.rows[0]));
    if (launch->x_scale_rows != NULL) {
        memcpy(quantise.scale_rows, launch->x_scale_rows, gemm->m * sizeof(quantise.scale_rows[0]));
    }
    return any_quantise_enqueue(&quantise, stream);
}

/* From here on x is the workspace's. */
static void take_quantised(struct any_gemm *gemm, const struct gk_launch *launch)
{
    const float *values = launch->workspace;
    gemm->x_dtype = DTYPE_F32;
    gemm->x_scales = values + (uint64_t)gemm->m * gemm->k;
    for (uint32_t i = 0; i < gemm->m; i++) {
        gemm->rows.x[i] = values + (uint64_t)i * gemm->k;
    }
}

static enum any_x_scaling scaling_of(enum gk_act act)
{
    if (act == GK_ACT_FLOAT) {
        return ANY_X_NONE;
    }
    if (gk_act_is_int8(act)) {
        return ANY_X_WHOLE;
    }
    return act == GK_ACT_FP8_GROUP ? ANY_X_GROUP : ANY_X_ROW;
}

static int enqueue(const struct gk_launch *launch, void *stream)
{
    const struct gk_problem *problem = &launch->problem;
    struct any_gemm gemm = gemm_of(problem, launch->packed);
    gemm.x_scaling = scaling_of(problem->desc.act);
    gemm.n_x_scales = scales_of(&problem->desc);
    memcpy(gemm.rows.x, launch->x_rows, gemm.m * sizeof(gemm.rows.x[0]));
    memcpy(gemm.rows.y, launch->y_rows, gemm.m * sizeof(gemm.rows.y[0]));
    if (gemm.x_scaling != ANY_X_NONE) {
        int error = quantise(launch, &gemm, stream);
        if (error != 0) {
            return error;
        }
        take_quantised(&gemm, launch);
    }
    return any_gemm_simple_enqueue(&gemm, stream);
}

static int load(void)
{
    int error = any_quantise_load();
    return error != 0 ? error : any_gemm_simple_load();
}

const struct gk_kernel cuda_any_gemm_simple = {
    .name = "cuda_any_gemm_simple",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "32n x 1m, k128",
    .numerics = "host",
    .can_implement = can_implement,
    .workspace_bytes = workspace_bytes,
    .predicted_usec = predicted_usec,
    .load = load,
    .enqueue = enqueue,
};
