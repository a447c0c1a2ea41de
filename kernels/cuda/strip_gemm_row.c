/* strip_gemm_row.c - the registry's row of strip_gemm.cu. More than 16 rows of x are several
 * launches of 16: the weight then comes from the L2 cache where it fits. */
#include <stddef.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/strip_gemm.h"
#include "kernels/cuda/strip_launch.h"

static int can_implement(const struct gk_problem *problem, struct reason *why)
{
    return strip_check(problem, GK_BATCH_ROWS_MAX, why);
}

static uint64_t workspace_bytes(const struct gk_problem *problem)
{
    (void)problem;
    return 0;
}

/* Seen on an H200: 3 us and the bytes at 4 TB/s, about half as much again for a second tile. */
static double predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    double stream_usec = (double)problem->layout->packed_bytes(&problem->desc) / 4.0e6;
    uint32_t n_full = problem->m / STRIP_TILE_M_MAX;
    uint32_t rest = problem->m % STRIP_TILE_M_MAX;
    double n_passes = 1.5 * n_full + (rest == 0 ? 0.0 : rest > 8 ? 1.5 : 1.0);
    return n_passes * (3.0 + stream_usec);
}

static uint32_t rows_ahead_max(const struct gk_problem *problem)
{
    const struct gk_launch launch = {.problem = *problem};
    struct strip_args args = strip_args_of(&launch);
    return problem->cuda_arch >= 90 ? strip_gemm_rows_max(&args) : 0;
}

static int enqueue(const struct gk_launch *launch, void *stream)
{
    struct strip_args args = strip_args_of(launch);
    if (launch->ahead != NULL) {
        args.m = launch->problem.m;
        return strip_gemm_enqueue(&args, launch->ahead, true, stream);
    }
    uint32_t n_rows_max = strip_gemm_rows_max(&args);
    int r = 0;
    for (uint32_t i_m = 0; r == 0 && i_m < launch->problem.m; i_m += args.m) {
        args.m = (uint32_t)num_min(n_rows_max, launch->problem.m - i_m);
        args.x_scales = args.x_scales != NULL ? launch->x_scale_rows[i_m] : NULL;
        memcpy(args.x_rows, launch->x_rows + i_m, args.m * sizeof(args.x_rows[0]));
        memcpy(args.y_rows, launch->y_rows + i_m, args.m * sizeof(args.y_rows[0]));
        r = strip_gemm_enqueue(&args, NULL, true, stream);
    }
    return r;
}

const struct gk_kernel cuda_strip_gemm = {
    .name = "cuda_strip_gemm",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "16n x 8m or 16n x 16m, k256 a warp",
    .numerics = "strip",
    .can_implement = can_implement,
    .workspace_bytes = workspace_bytes,
    .predicted_usec = predicted_usec,
    .load = strip_gemm_load,
    .enqueue = enqueue,
    .rows_ahead_max = rows_ahead_max,
};
