/* any_gemm_simple_row.c - the registry's row of any_gemm_simple.cu. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "kernels/cuda/any_gemm_simple.h"
#include "kernels/cuda/registry.h"
#include "kernels/layout/cuda_kmajor.h"
#include "kernels/layout/cuda_strip.h"

static_assert(CUDA_ROWS_MAX == GK_BATCH_ROWS_MAX, "a launch's rows fit the tables");
/* The device code has enums of its own. */
static_assert(GK_CODE_F32 == 1 && GK_CODE_F16 == 2 && GK_CODE_BF16 == 3 && GK_CODE_U4 == 4 &&
                  GK_CODE_U8 == 5 && GK_CODE_E4M3 == 6 && GK_CODE_E2M1 == 7,
              "any_gemm_simple.cu counts the codes so");
static_assert(GK_COLUMN_SCALE_MULTIPLIES == 1 && GK_COLUMN_SCALE_DIVIDES == 2,
              "any_gemm_simple.cu counts the column scales so");

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static int can_implement(const struct gk_problem *problem, struct reason *why)
{
    if (problem->layout != &cuda_kmajor_layout && problem->layout != &cuda_strip_u4_layout) {
        return reason_set(why, STATUS_UNSUPPORTED, "it reads the layouts %s and %s, not %s",
                          cuda_kmajor_layout.tag, cuda_strip_u4_layout.tag,
                          problem->layout != NULL ? problem->layout->tag : "none");
    }
    if (problem->m == 0 || problem->m > GK_BATCH_ROWS_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "a launch has 1 to %u rows, not %u",
                          GK_BATCH_ROWS_MAX, problem->m);
    }
    if (problem->desc.act != GK_ACT_FLOAT) {
        return reason_set(why, STATUS_UNSUPPORTED, "it does not quantise activations");
    }
    if (!is_float(problem->x_dtype) || !is_float(problem->y_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "x of type %s and y of type %s; only f32, f16, bf16",
                          dtype_name(problem->x_dtype), dtype_name(problem->y_dtype));
    }
    return gk_desc_check(&problem->desc, why);
}

static uint64_t workspace_bytes(const struct gk_problem *problem)
{
    (void)problem;
    return 0;
}

/* Seen on an H200: about 60 multiply-adds a nanosecond, and 5 us of launching. */
static double predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    return 5.0 + (double)problem->m * problem->desc.n * problem->desc.k / 60e3;
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
    gemm.strips = (struct any_gemm_strips){packed + shape.records_offset, shape.n_strips,
                                           shape.n_slices, shape.n_slice_groups};
    set_common_parts(&gemm, &problem->desc, packed, 0, shape.column_scales_offset,
                     shape.bias_offset);
    return gemm;
}

static int enqueue(const struct gk_launch *launch, void *stream)
{
    const struct gk_problem *problem = &launch->problem;
    struct any_gemm gemm = problem->layout == &cuda_strip_u4_layout
                               ? gemm_of_strips(problem, launch->packed)
                               : gemm_of_kmajor(problem, launch->packed);
    memcpy(gemm.rows.x, launch->x_rows, gemm.m * sizeof(gemm.rows.x[0]));
    memcpy(gemm.rows.y, launch->y_rows, gemm.m * sizeof(gemm.rows.y[0]));
    return any_gemm_simple_enqueue(&gemm, stream);
}

const struct gk_kernel cuda_any_gemm_simple = {
    .name = "cuda_any_gemm_simple",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "32n x 1m, k128",
    .can_implement = can_implement,
    .workspace_bytes = workspace_bytes,
    .predicted_usec = predicted_usec,
    .load = any_gemm_simple_load,
    .enqueue = enqueue,
};
