/* strip_gemm_row.c - the registry's row of strip_gemm.cu. More than 16 rows of x are several
 * launches of 16: the weight then comes from the L2 cache where it fits. */
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/strip_gemm.h"
#include "kernels/layout/cuda_strip.h"

static bool is_x_known(enum dtype dtype)
{
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static bool is_y_known(enum dtype dtype)
{
    return dtype == DTYPE_F32 || is_x_known(dtype);
}

static int can_implement(const struct gk_problem *problem, struct reason *why)
{
    if (problem->layout != &cuda_strip_u4_layout) {
        return reason_set(why, STATUS_UNSUPPORTED, "it reads the layout %s, not %s",
                          cuda_strip_u4_layout.tag,
                          problem->layout != NULL ? problem->layout->tag : "none");
    }
    if (problem->cuda_arch < 80) {
        return reason_set(why, STATUS_UNSUPPORTED, "it needs compute capability 8.0, not %u.%u",
                          problem->cuda_arch / 10, problem->cuda_arch % 10);
    }
    if (problem->m == 0 || problem->m > GK_BATCH_ROWS_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "a launch has 1 to %u rows, not %u",
                          GK_BATCH_ROWS_MAX, problem->m);
    }
    if (!is_x_known(problem->x_dtype) || !is_y_known(problem->y_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "x of type %s and y of type %s; only f16 and bf16, and y f32",
                          dtype_name(problem->x_dtype), dtype_name(problem->y_dtype));
    }
    return gk_desc_check(&problem->desc, why);
}

static uint64_t workspace_bytes(const struct gk_problem *problem)
{
    (void)problem;
    return 0;
}

/* Seen on an H200: 1.5 us and the bytes at 4 TB/s, about half as much again for a second tile. */
static double predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    double stream_usec = (double)problem->layout->packed_bytes(&problem->desc) / 4.0e6;
    uint32_t n_full = problem->m / STRIP_TILE_M_MAX;
    uint32_t rest = problem->m % STRIP_TILE_M_MAX;
    double n_passes = 1.5 * n_full + (rest == 0 ? 0.0 : rest > 8 ? 1.5 : 1.0);
    return n_passes * (1.5 + stream_usec);
}

static struct strip_args args_of(const struct gk_launch *launch)
{
    const struct gk_problem *problem = &launch->problem;
    const struct gk_desc *desc = &problem->desc;
    struct strip_shape shape = strip_shape(desc);
    const uint8_t *packed = launch->packed;
    bool has_columns = desc->column_scale != GK_COLUMN_SCALE_NONE;
    return (struct strip_args){
        .records = packed + shape.records_offset,
        .perm = desc->has_perm ? (const uint32_t *)(const void *)packed : NULL,
        .column_scales =
            has_columns ? (const float *)(const void *)(packed + shape.column_scales_offset) : NULL,
        .bias = desc->bias_dtype != DTYPE_NONE ? packed + shape.bias_offset : NULL,
        .n = desc->n,
        .k = desc->k,
        .n_strips = shape.n_strips,
        .n_slices = shape.n_slices,
        .n_slice_groups = shape.n_slice_groups,
        .has_zeros = desc->has_zeros,
        .x_dtype = (uint8_t)problem->x_dtype,
        .y_dtype = (uint8_t)problem->y_dtype,
        .scale_dtype = (uint8_t)desc->scale_dtype,
        .bias_dtype = (uint8_t)desc->bias_dtype,
        .is_column_divisor = desc->column_scale == GK_COLUMN_SCALE_DIVIDES,
    };
}

static int enqueue(const struct gk_launch *launch, void *stream)
{
    struct strip_args args = args_of(launch);
    int r = 0;
    for (uint32_t i_m = 0; r == 0 && i_m < launch->problem.m; i_m += args.m) {
        args.m = (uint32_t)num_min(STRIP_TILE_M_MAX, launch->problem.m - i_m);
        memcpy(args.x_rows, launch->x_rows + i_m, args.m * sizeof(args.x_rows[0]));
        memcpy(args.y_rows, launch->y_rows + i_m, args.m * sizeof(args.y_rows[0]));
        r = strip_gemm_enqueue(&args, true, stream);
    }
    return r;
}

const struct gk_kernel cuda_strip_gemm = {
    .name = "cuda_u4_strip_gemm",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "16n x 8m or 16n x 16m, k256 a warp",
    .can_implement = can_implement,
    .workspace_bytes = workspace_bytes,
    .predicted_usec = predicted_usec,
    .load = strip_gemm_load,
    .enqueue = enqueue,
};
