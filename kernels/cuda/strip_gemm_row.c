/* strip_gemm_row.c - the registry's row of strip_gemm.cu. More than 16 rows of x are several
 * launches of 16: the weight then comes from the L2 cache where it fits. */
#include <stddef.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/strip_gemm.h"
#include "kernels/cuda/strip_launch.h"
#include "kernels/layout/cuda_strip.h"
#include "kernels/layout/strip.h"

/* 163 KiB on A100 and Orin, 227 KiB from Hopper on; the GPUs of workstations have 99. */
static bool has_large_shared_memory(uint32_t cuda_arch)
{
    return cuda_arch == 80 || cuda_arch == 87 || (cuda_arch >= 90 && cuda_arch < 120);
}

#define SMALL_SHARED_KIB 95u /* of 99, 4 are left to others: strip_gemm.cu */

/* At least, for 8 rows of x: a warp has two stages of 2 KiB of codes, with scales and zero points
 * for each of its lanes, what groups start from, and 512 bytes of sums. */
static uint32_t least_shared_kib(const struct gk_desc *desc)
{
    struct strip_shape shape = strip_shape(desc);
    bool is_int = shape.scaling == STRIP_SCALES_PAIRS;
    uint32_t lane_bytes = is_int ? shape.n_slice_groups * (desc->has_zeros ? 6 : 4) : 16;
    uint32_t starts_bytes = is_int ? 32 * shape.n_slice_groups : 0;
    uint32_t warp_bytes = 2 * (STRIP_CODES_BYTES + 32 * lane_bytes) + starts_bytes + 512;
    return (STRIP_STEP_SLICES * warp_bytes + 1023) / 1024;
}

static int can_implement(const struct gk_problem *problem, struct reason *why)
{
    int r = strip_check(problem, GK_BATCH_ROWS_MAX, why);
    if (r != 0) {
        return r;
    }
    uint32_t n_kib = least_shared_kib(&problem->desc);
    if (n_kib > SMALL_SHARED_KIB && !has_large_shared_memory(problem->cuda_arch)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "it needs %u KiB of shared memory for such groups, and compute "
                          "capability %u.%u has %u",
                          n_kib, problem->cuda_arch / 10, problem->cuda_arch % 10,
                          SMALL_SHARED_KIB);
    }
    return 0;
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
