/* strip_wide_row.c - the registry's row of strip_wide.cu. */
#include "kernels/cuda/registry.h"
#include "kernels/cuda/strip_launch.h"
#include "kernels/cuda/strip_wide.h"
#include "kernels/layout/strip.h"

static int can_implement(const struct gk_problem *problem, struct reason *why)
{
    int r = strip_parts_check(problem, why);
    if (r != 0) {
        return r;
    }
    if (problem->desc.code != GK_CODE_U4) {
        return reason_set(why, STATUS_UNSUPPORTED, "it is for 4-bit integer codes");
    }
    if (problem->desc.group_k < STRIP_GROUP_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "it takes groups of %u or more, not of %u",
                          STRIP_GROUP_MAX, problem->desc.group_k);
    }
    return 0;
}

static uint64_t workspace_bytes(const struct gk_problem *problem)
{
    return strip_wide_workspace_bytes(problem->m, problem->desc.n, problem->desc.k);
}

/* Seen on an H200: 6 us, the bytes at 4 TB/s, and 0.72 PFLOP/s. */
static double predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    double bytes = (double)problem->layout->packed_bytes(&problem->desc);
    double flops = 2.0 * problem->m * problem->desc.n * problem->desc.k;
    return 6.0 + bytes / 4e6 + flops / 0.72e9;
}

static int enqueue(const struct gk_launch *launch, void *stream)
{
    struct strip_parts_args args = strip_parts_args_of(launch);
    return strip_wide_enqueue(&args, true, stream);
}

const struct gk_kernel cuda_strip_wide = {
    .name = "cuda_u4_strip_wide",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "128n x 32m to 256n x 64m, k256",
    .numerics = "strip",
    .can_implement = can_implement,
    .workspace_bytes = workspace_bytes,
    .predicted_usec = predicted_usec,
    .load = strip_wide_load,
    .enqueue = enqueue,
};
