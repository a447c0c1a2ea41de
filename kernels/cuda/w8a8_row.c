/* w8a8_row.c - the registry's rows of w8a8_gemm.cu: one for e4m3, whose sums are the tensor core's,
 * and one for int8, whose sums are exact and so have the host's bits.
 *
 * The alternative not taken: a row for cuBLASLt, whose sums have the same bits where tried. It
 * reads whole rows of W, and what brings the packed codes there takes longer, for as many rows of x
 * as a launch has, than any of its algorithms saves; a second copy of the weight is not kept. */
#include <stddef.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/w8a8.h"
#include "kernels/layout/cuda_swizzle.h"

/* With more rows, quantising x once is cheaper than a launch less: seen on an H200. */
#define GATHER_M_MAX 1u

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static int check(const struct gk_problem *problem, struct reason *why)
{
    const struct gk_desc *desc = &problem->desc;
    if (problem->layout != &cuda_swizzle_layout) {
        return reason_set(why, STATUS_UNSUPPORTED, "it reads the layout %s, not %s",
                          cuda_swizzle_layout.tag,
                          problem->layout != NULL ? problem->layout->tag : "none");
    }
    if (problem->cuda_arch != 90) {
        return reason_set(why, STATUS_UNSUPPORTED, "it needs compute capability 9.0, not %u.%u",
                          problem->cuda_arch / 10, problem->cuda_arch % 10);
    }
    uint32_t m_max = problem->is_prefill ? GK_PREFILL_ROWS_MAX : GK_BATCH_ROWS_MAX;
    if (problem->m == 0 || problem->m > m_max) {
        return reason_set(why, STATUS_UNSUPPORTED, "a launch has 1 to %u rows, not %u", m_max,
                          problem->m);
    }
    bool is_x = is_float(problem->x_dtype) || problem->x_dtype == gk_act_dtype(desc->act);
    if (!is_x || !is_float(problem->y_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "x of type %s and y of type %s; only f32, f16, bf16, and x as the weight "
                          "quantises it",
                          dtype_name(problem->x_dtype), dtype_name(problem->y_dtype));
    }
    return gk_desc_check(desc, why);
}

static int check_code(const struct gk_problem *problem, enum gk_code code, struct reason *why)
{
    int r = check(problem, why);
    if (r == 0 && problem->desc.code != code) {
        r = reason_set(why, STATUS_UNSUPPORTED, "it is for %s codes",
                       code == GK_CODE_E4M3 ? "e4m3" : "8-bit integer");
    }
    return r;
}

static int can_implement_fp8(const struct gk_problem *problem, struct reason *why)
{
    return check_code(problem, GK_CODE_E4M3, why);
}

static int can_implement_int8(const struct gk_problem *problem, struct reason *why)
{
    return check_code(problem, GK_CODE_U8, why);
}

static enum w8a8_kind kind_of(const struct gk_desc *desc)
{
    if (gk_act_is_int8(desc->act)) {
        return W8A8_INT8;
    }
    bool is_grouped = desc->act == GK_ACT_FP8_GROUP || gk_desc_groups(desc) > 1;
    return is_grouped ? W8A8_FP8_GROUP : W8A8_FP8;
}

/* There is nothing to gain for few rows; but the last few of a prefill are summed as all of it. */
static bool accumulates_fast(const struct gk_problem *problem)
{
    return problem->may_accumulate_fast && problem->is_prefill &&
           kind_of(&problem->desc) == W8A8_FP8;
}

static bool is_for_prefill_kernel(const struct gk_problem *problem)
{
    return problem->m > GK_BATCH_ROWS_MAX || accumulates_fast(problem);
}

/* The number of rows by which x is laid out. */
static uint32_t n_rows_of(const struct gk_problem *problem)
{
    return is_for_prefill_kernel(problem) ? (uint32_t)num_max(problem->m, GK_BATCH_ROWS_MAX + 1)
                                          : problem->m;
}

static uint64_t workspace_bytes(const struct gk_problem *problem)
{
    const struct gk_desc *desc = &problem->desc;
    return w8a8_x_bytes(kind_of(desc), n_rows_of(problem), desc->n, desc->k);
}

/* Seen on an H200, x to be quantised: 5 us, and the bytes at 4.4 TB/s or the sums at 1200 TFLOP/s.
 */
static double predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    const struct gk_desc *desc = &problem->desc;
    double memory = (double)problem->layout->packed_bytes(desc) / 4.4e6;
    double sums = 2.0 * problem->m * desc->n * desc->k / 1.2e9;
    return 5.0 + (memory > sums ? memory : sums);
}

static struct w8a8_lay_out_args lay_out_args(const struct gk_launch *launch, const struct w8a8_x *x)
{
    const struct gk_problem *problem = &launch->problem;
    const struct gk_desc *desc = &problem->desc;
    struct w8a8_lay_out_args args = {
        .x = *x,
        .m = problem->m,
        .k = desc->k,
        .kind = kind_of(desc),
        .rule = {desc->act, desc->is_act_scale_pow2, desc->act_scale, desc->act_zero},
        .has_sums = desc->has_zeros,
        .x_dtype = problem->x_dtype,
    };
    if (is_for_prefill_kernel(problem)) {
        args.prefill = (struct w8a8_prefill_x){launch->prefill.x, launch->prefill.x_scales,
                                               launch->prefill.x_stride_bytes,
                                               launch->prefill.x_scale_stride_bytes};
        return args;
    }
    memcpy(args.rows, launch->x_rows, problem->m * sizeof(args.rows[0]));
    if (launch->x_scale_rows != NULL) {
        memcpy(args.scale_rows, launch->x_scale_rows, problem->m * sizeof(args.scale_rows[0]));
    }
    return args;
}

/* The weight of a launch: offsets count only for parts that are there. */
static struct w8a8_gemm_args gemm_args(const struct gk_launch *launch, const struct w8a8_x *x)
{
    const struct gk_desc *desc = &launch->problem.desc;
    const uint8_t *packed = launch->packed;
    struct swizzle_shape shape = swizzle_shape(desc);
    bool has_columns = desc->column_scale != GK_COLUMN_SCALE_NONE;
    struct w8a8_gemm_args args = {
        .x = *x,
        .m = launch->problem.m,
        .n = desc->n,
        .k = desc->k,
        .kind = kind_of(desc),
        .group_n = desc->group_n,
        .scale_columns = gk_desc_scale_columns(desc),
        .codes = packed,
        .scales = packed + shape.scales_offset,
        .zeros = desc->has_zeros ? packed + shape.zeros_offset : NULL,
        .code_sums = (const int32_t *)(const void *)(packed + shape.code_sums_offset),
        .column_scales =
            has_columns ? (const float *)(const void *)(packed + shape.column_scales_offset) : NULL,
        .bias = desc->bias_dtype != DTYPE_NONE ? packed + shape.bias_offset : NULL,
        .scale_dtype = (uint8_t)desc->scale_dtype,
        .bias_dtype = (uint8_t)desc->bias_dtype,
        .y_dtype = (uint8_t)launch->problem.y_dtype,
        .is_column_divisor = desc->column_scale == GK_COLUMN_SCALE_DIVIDES,
        .is_fast = accumulates_fast(&launch->problem),
    };
    if (is_for_prefill_kernel(&launch->problem)) {
        args.prefill_y = launch->prefill.y;
        args.y_stride_bytes = launch->prefill.y_stride_bytes;
    } else {
        memcpy(args.y, launch->y_rows, args.m * sizeof(args.y[0]));
    }
    return args;
}

static int enqueue(const struct gk_launch *launch, void *stream)
{
    const struct gk_desc *desc = &launch->problem.desc;
    struct w8a8_x x =
        w8a8_x_of(kind_of(desc), n_rows_of(&launch->problem), desc->n, desc->k, launch->workspace);
    struct w8a8_lay_out_args lay_out = lay_out_args(launch, &x);
    struct w8a8_gemm_args gemm = gemm_args(launch, &x);
    bool is_large = is_for_prefill_kernel(&launch->problem);
    if (launch->problem.m <= GATHER_M_MAX && !lay_out.has_sums && !is_large) {
        return w8a8_gather_gemm_enqueue(&gemm, &lay_out, true, stream);
    }
    int r = w8a8_lay_out_enqueue(&lay_out, true, stream);
    if (r != 0) {
        return r;
    }
    return is_large ? w8a8_prefill_enqueue(&gemm, true, stream)
                    : w8a8_gemm_enqueue(&gemm, true, stream);
}

static int load(void)
{
    int r = w8a8_lay_out_load();
    r = r != 0 ? r : w8a8_gemm_load();
    return r != 0 ? r : w8a8_prefill_load();
}

#define ROW(name_, can_implement_, numerics_)                                                      \
    {                                                                                              \
        .name = (name_), .device_kind = GK_DEVICE_CUDA,                                            \
        .tile = "8n to 256n x 64m, or 64n to 256n x 128m, k128", .numerics = (numerics_),          \
        .can_implement = (can_implement_), .workspace_bytes = workspace_bytes,                     \
        .predicted_usec = predicted_usec, .accumulates_fast = accumulates_fast, .load = load,      \
        .enqueue = enqueue,                                                                        \
    }

const struct gk_kernel cuda_fp8_gemm = ROW("cuda_fp8_wgmma_gemm", can_implement_fp8, "fp8");
const struct gk_kernel cuda_int8_gemm = ROW("cuda_int8_wgmma_gemm", can_implement_int8, "host");
