/* strip_batch_row.c - the registry's row of strip_batch.cu. */
#include "kernels/cuda/registry.h"
#include "kernels/cuda/strip_batch.h"
#include "kernels/cuda/strip_launch.h"
#include "kernels/layout/cuda_strip.h"
#include "kernels/layout/strip.h"

static int can_implement(const struct gk_problem *problem, struct reason *why)
{
    int r = strip_parts_check(problem, why);
    if (r != 0) {
        return r;
    }
    if (problem->desc.code == GK_CODE_U4 &&
        strip_shape(&problem->desc).n_slice_groups == STRIP_SLICE_K / STRIP_GROUP_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "4-bit integers it takes in groups of 32 and 64, not of %u",
                          problem->desc.group_k);
    }
    return 0;
}

static uint64_t workspace_bytes(const struct gk_problem *problem)
{
    return strip_batch_workspace_bytes(problem->m, problem->desc.n, problem->desc.k);
}

/* Seen on an H200: 6 us, 10 weights a ns, 6.5 TB/s, and 0.67 PFLOP/s; a sum of 32 products costs
 * half as much again. Rows that are not there are multiplied as well. */
static double predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    const struct gk_desc *desc = &problem->desc;
    double n_weights = (double)desc->n * desc->k;
    double bytes = (double)problem->layout->packed_bytes(desc);
    double n_rows = problem->m <= 32 ? 32.0 : 64.0;
    double pflops = desc->group_k == 32 ? 0.42 : 0.67;
    return 6.0 + n_weights / 10e6 + bytes / 6.5e6 + 2.0 * n_rows * n_weights / (pflops * 1e9);
}

static int enqueue(const struct gk_launch *launch, void *stream)
{
    struct strip_parts_args args = strip_parts_args_of(launch);
    return strip_batch_enqueue(&args, true, stream);
}

const struct gk_kernel cuda_strip_batch = {
    .name = "cuda_strip_batch",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "128n x 32m to 256n x 64m, k128",
    .numerics = "strip",
    .can_implement = can_implement,
    .workspace_bytes = workspace_bytes,
    .predicted_usec = predicted_usec,
    .load = strip_batch_load,
    .enqueue = enqueue,
};
