/* strip_prefill_row.c - the registry's row of strip_prefill.cu. */
#include "kernels/cuda/registry.h"
#include "kernels/cuda/strip_launch.h"
#include "kernels/cuda/strip_prefill.h"

static int can_implement(const struct gk_problem *problem, struct reason *why)
{
    int r = strip_check(problem, GK_PREFILL_ROWS_MAX, why);
    return r != 0 ? r : strip_check_prefill(problem, why);
}

/* What rounding a weight costs is as much as rounding the result to the same type. An integer
 * code's scale of another type would have to be rounded itself; a float's is applied in f32, or is
 * exact. */
static int can_round(const struct gk_problem *problem, struct reason *why)
{
    int r = can_implement(problem, why);
    if (r != 0) {
        return r;
    }
    bool is_int = gk_code_is_int(problem->desc.code);
    if (problem->y_dtype != problem->x_dtype ||
        (is_int && problem->desc.scale_dtype != problem->x_dtype)) {
        return reason_set(
            why, STATUS_UNSUPPORTED,
            "it rounds weights, which is for x and y of one type, and scales of integer "
            "codes, not of %s, %s and %s",
            dtype_name(problem->x_dtype), dtype_name(problem->y_dtype),
            dtype_name(problem->desc.scale_dtype));
    }
    return 0;
}

static uint64_t workspace_bytes(const struct gk_problem *problem)
{
    return strip_prefill_workspace_bytes(problem->m, problem->desc.k);
}

/* Launching, and whole tiles of 128 rows at a rate. */
static double predict(const struct gk_problem *problem, double pflops)
{
    double n_rows = (double)((problem->m + 127) / 128 * 128);
    return 8.0 + 2.0 * n_rows * problem->desc.n * problem->desc.k / (pflops * 1e9);
}

/* Both rates were seen on an H200. */
static double predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    return predict(problem, 0.55);
}

static double predicted_rounded_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    return predict(problem, 0.72);
}

static int enqueue_tiles(const struct gk_launch *launch, bool is_rounded, void *stream)
{
    const struct gk_problem *problem = &launch->problem;
    struct strip_prefill_args args = {
        .base = strip_args_of(launch),
        .x = launch->prefill.x,
        .x_stride_bytes = launch->prefill.x_stride_bytes,
        .y = launch->prefill.y,
        .y_stride_bytes = launch->prefill.y_stride_bytes,
        .m = problem->m,
    };
    uint32_t i_tile = strip_prefill_best_tile(&args, is_rounded);
    return strip_prefill_enqueue(&args, i_tile, launch->workspace, stream);
}

static int enqueue(const struct gk_launch *launch, void *stream)
{
    return enqueue_tiles(launch, false, stream);
}

static int enqueue_rounded(const struct gk_launch *launch, void *stream)
{
    return enqueue_tiles(launch, true, stream);
}

const struct gk_kernel cuda_strip_prefill = {
    .name = "cuda_strip_prefill",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "64n x 128m to 128n x 192m, k64",
    .numerics = "cuda-strip-prefill",
    .can_implement = can_implement,
    .workspace_bytes = workspace_bytes,
    .predicted_usec = predicted_usec,
    .load = strip_prefill_load,
    .enqueue = enqueue,
};

const struct gk_kernel cuda_strip_prefill_rounded = {
    .name = "cuda_strip_prefill_rounded",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "64n x 64m to 128n x 256m, k64",
    .numerics = "cuda-strip-prefill-rounded",
    .can_implement = can_round,
    .workspace_bytes = workspace_bytes,
    .predicted_usec = predicted_rounded_usec,
    .load = strip_prefill_load,
    .enqueue = enqueue_rounded,
};
