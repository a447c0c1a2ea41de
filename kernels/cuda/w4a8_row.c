/* w4a8_row.c - the registry's rows of 4-bit integers with e4m3 activations, a scale a row of x.
 *
 * More than 64 rows are w4a8_prefill.cu's. Up to 64 are bound by memory, where there is nothing to
 * gain from the tensor core's e4m3: x is rounded to e4m3 and multiplied as f16, which holds it
 * exactly, by the kernels that have x as it comes. */
#include <stddef.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/strip_launch.h"
#include "kernels/cuda/w4a8.h"
#include "kernels/cuda/w8a8.h"
#include "kernels/layout/cuda_strip.h"
#include "kernels/layout/swizzle.h"

#define ALIGNMENT 256u /* of workspaces */

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static int check(const struct gk_problem *problem, struct reason *why)
{
    if (problem->layout != &cuda_strip_u4_layout || !gk_act_is_fp8(problem->desc.act)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "it is for weights in the layout %s whose x is quantised to e4m3, and "
                          "the layout is %s",
                          cuda_strip_u4_layout.tag,
                          problem->layout != NULL ? problem->layout->tag : "none");
    }
    bool is_x = is_float(problem->x_dtype) || problem->x_dtype == DTYPE_F8_E4M3;
    if (!is_x || !is_float(problem->y_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "x of type %s and y of type %s; only f32, f16, bf16, and x in f8_e4m3",
                          dtype_name(problem->x_dtype), dtype_name(problem->y_dtype));
    }
    return gk_desc_check(&problem->desc, why);
}

/* Its codes and scales, but for where they go. */
static struct w8a8_lay_out_args lay_out_args(const struct gk_problem *problem)
{
    const struct gk_desc *desc = &problem->desc;
    return (struct w8a8_lay_out_args){
        .m = problem->m,
        .k = desc->k,
        .kind = W8A8_FP8,
        .rule = {desc->act, desc->is_act_scale_pow2, desc->act_scale, desc->act_zero},
        .x_dtype = problem->x_dtype,
    };
}

/* ---- more than 64 rows ---- */

static int can_prefill(const struct gk_problem *problem, struct reason *why)
{
    int r = check(problem, why);
    return r != 0 ? r : strip_check_prefill(problem, why);
}

/* The last few rows of a prefill are laid out as more of them are. */
static struct w8a8_x prefill_x_of(const struct gk_problem *problem, void *workspace)
{
    uint32_t m = (uint32_t)num_max(problem->m, GK_BATCH_ROWS_MAX + 1);
    return w8a8_x_of(W8A8_FP8, m, problem->desc.n, problem->desc.k, workspace);
}

static uint64_t prefill_workspace_bytes(const struct gk_problem *problem)
{
    uint32_t m = (uint32_t)num_max(problem->m, GK_BATCH_ROWS_MAX + 1);
    return w8a8_x_bytes(W8A8_FP8, m, problem->desc.n, problem->desc.k);
}

/* Seen on an H200: 12 us, and whole tiles of 128 rows at 1.1 PFLOP/s. */
static double predicted_prefill_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    double n_rows = (double)((problem->m + 127) / 128 * 128);
    return 12.0 + 2.0 * n_rows * problem->desc.n * problem->desc.k / 1.1e9;
}

static int enqueue_prefill(const struct gk_launch *launch, void *stream)
{
    const struct gk_prefill *prefill = &launch->prefill;
    struct w8a8_lay_out_args lay_out = lay_out_args(&launch->problem);
    lay_out.x = prefill_x_of(&launch->problem, launch->workspace);
    lay_out.form = W8A8_X_STRIPS;
    lay_out.prefill = (struct w8a8_prefill_x){
        prefill->x, prefill->x_scales, prefill->x_stride_bytes, prefill->x_scale_stride_bytes};
    struct w4a8_args args = {
        .base = strip_args_of(launch),
        .x = lay_out.x,
        .m = launch->problem.m,
        .y = prefill->y,
        .y_stride_bytes = prefill->y_stride_bytes,
    };
    int r = w8a8_lay_out_enqueue(&lay_out, true, stream);
    return r != 0 ? r : w4a8_enqueue(&args, true, stream);
}

static int load_prefill(void)
{
    int r = w8a8_lay_out_load();
    return r != 0 ? r : w4a8_load();
}

const struct gk_kernel cuda_w4a8_prefill = {
    .name = "cuda_w4a8_prefill",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "128n x 64m to 128n x 256m, k128",
    .numerics = "cuda-w4a8-prefill",
    .can_implement = can_prefill,
    .workspace_bytes = prefill_workspace_bytes,
    .predicted_usec = predicted_prefill_usec,
    .load = load_prefill,
    .enqueue = enqueue_prefill,
};

/* ---- up to 64 rows ----
 * The workspace: rows of f16, their scales, and what the kernel that multiplies has there. */

static struct gk_problem float_problem(const struct gk_problem *problem)
{
    struct gk_problem rounded = *problem;
    rounded.desc.act = GK_ACT_FLOAT;
    rounded.desc.is_act_scale_pow2 = false;
    rounded.desc.act_scale = 0;
    rounded.x_dtype = DTYPE_F16;
    return rounded;
}

static int can_multiply(const struct gk_problem *problem, const struct gk_kernel *kernel,
                        struct reason *why)
{
    int r = check(problem, why);
    struct gk_problem rounded = float_problem(problem);
    return r != 0 ? r : kernel->can_implement(&rounded, why);
}

static uint32_t row_bytes(const struct gk_desc *desc)
{
    return (uint32_t)num_align_up(desc->k, SWIZZLE_K) * 2;
}

static uint64_t rows_bytes(const struct gk_problem *problem)
{
    uint64_t scales_and_zeros = (uint64_t)problem->m * (sizeof(float) + sizeof(int32_t));
    return num_align_up((uint64_t)problem->m * row_bytes(&problem->desc) + scales_and_zeros,
                        ALIGNMENT);
}

static uint64_t workspace_bytes(const struct gk_problem *problem, const struct gk_kernel *kernel)
{
    struct gk_problem rounded = float_problem(problem);
    return rows_bytes(problem) + kernel->workspace_bytes(&rounded);
}

/* Rounding x costs a launch: seen on an H200. */
static double predicted_usec(const struct gk_problem *problem, const struct gk_kernel *kernel)
{
    struct gk_problem rounded = float_problem(problem);
    return 3.0 + kernel->predicted_usec(&rounded, 1);
}

static struct w8a8_x rows_in(const struct gk_problem *problem, uint8_t *workspace)
{
    uint32_t stride = row_bytes(&problem->desc);
    float *scales = (float *)(void *)(workspace + (uint64_t)problem->m * stride);
    return (struct w8a8_x){
        .n_rows = problem->m,
        .stage_blocks = 1,
        .stage_bytes = stride,
        .stages = workspace,
        .scales = scales,
        .zeros = (int32_t *)(void *)(scales + problem->m),
    };
}

static int enqueue(const struct gk_launch *launch, const struct gk_kernel *kernel, void *stream)
{
    const void *x_rows[GK_BATCH_ROWS_MAX];
    const float *scale_rows[GK_BATCH_ROWS_MAX];
    uint32_t m = launch->problem.m;
    struct w8a8_lay_out_args lay_out = lay_out_args(&launch->problem);
    lay_out.x = rows_in(&launch->problem, launch->workspace);
    lay_out.form = W8A8_X_ROWS;
    memcpy(lay_out.rows, launch->x_rows, m * sizeof(lay_out.rows[0]));
    if (launch->x_scale_rows != NULL) {
        memcpy(lay_out.scale_rows, launch->x_scale_rows, m * sizeof(lay_out.scale_rows[0]));
    }
    int r = w8a8_lay_out_enqueue(&lay_out, true, stream);
    for (uint32_t i = 0; i < m; i++) {
        x_rows[i] = lay_out.x.stages + (uint64_t)i * lay_out.x.stage_bytes;
        scale_rows[i] = lay_out.x.scales + i;
    }
    struct gk_launch rounded = *launch;
    rounded.problem = float_problem(&launch->problem);
    rounded.x_rows = x_rows;
    rounded.x_scale_rows = scale_rows;
    rounded.workspace = (uint8_t *)launch->workspace + rows_bytes(&launch->problem);
    return r != 0 ? r : kernel->enqueue(&rounded, stream);
}

/* One for each kernel that multiplies. */
#define ROUNDED_ROW(name_, kernel_)                                                                \
    static int can_##name_(const struct gk_problem *problem, struct reason *why)                   \
    {                                                                                              \
        return can_multiply(problem, &(kernel_), why);                                             \
    }                                                                                              \
    static uint64_t name_##_workspace_bytes(const struct gk_problem *problem)                      \
    {                                                                                              \
        return workspace_bytes(problem, &(kernel_));                                               \
    }                                                                                              \
    static double predicted_##name_##_usec(const struct gk_problem *problem, uint32_t n_threads)   \
    {                                                                                              \
        (void)n_threads;                                                                           \
        return predicted_usec(problem, &(kernel_));                                                \
    }                                                                                              \
    static int load_##name_(void)                                                                  \
    {                                                                                              \
        int r = w8a8_lay_out_load();                                                               \
        return r != 0 ? r : (kernel_).load();                                                      \
    }                                                                                              \
    static int enqueue_##name_(const struct gk_launch *launch, void *stream)                       \
    {                                                                                              \
        return enqueue(launch, &(kernel_), stream);                                                \
    }

#define ROUNDED_KERNEL(name_, tile_)                                                               \
    {                                                                                              \
        .name = "cuda_w4a8_" #name_, .device_kind = GK_DEVICE_CUDA, .tile = (tile_),               \
        .numerics = "w4a8-strip", .can_implement = can_##name_,                                    \
        .workspace_bytes = name_##_workspace_bytes, .predicted_usec = predicted_##name_##_usec,    \
        .load = load_##name_, .enqueue = enqueue_##name_,                                          \
    }

ROUNDED_ROW(strip_gemm, cuda_strip_gemm)
ROUNDED_ROW(strip_wide, cuda_strip_wide)

const struct gk_kernel cuda_w4a8_strip_gemm =
    ROUNDED_KERNEL(strip_gemm, "16n x 8m or 16n x 16m, k256 a warp");
const struct gk_kernel cuda_w4a8_strip_wide =
    ROUNDED_KERNEL(strip_wide, "128n x 32m to 256n x 64m, k256");
