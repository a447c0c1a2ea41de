/* plain_cublaslt_row.c - the registry's row of the vendor's dense GEMM, for weights of f16 and
 * bf16.
 *
 *   y = x W^T + bias; x of the weight's own type; W k-major, as cuda_kmajor.h has it
 *   workspace: x gathered (rows 16-byte aligned), sums (m, n) in f32, the library's own
 *
 * Three launches: the rows of x come together, the product, bias and rounding to where y is. */
#include <string.h>

#include "gk/cuda.h"
#include "ipc/base/num.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/finish_rows.h"
#include "kernels/cuda/plain_plan.h"
#include "kernels/cuda/registry.h"
#include "kernels/layout/cuda_kmajor.h"
#include "kernels/layout/cuda_swizzle.h"

static bool is_half(enum dtype dtype)
{
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* Could it, were there a plan? */
static int check(const struct gk_problem *problem, struct reason *why)
{
    if (problem->layout == &cuda_swizzle_layout) {
        return reason_set(
            why, STATUS_UNSUPPORTED,
            "cuBLASLt reads 8-bit codes in rows, and bringing packed ones there takes "
            "longer than it would save");
    }
    if (problem->layout != &cuda_kmajor_layout || !is_half(gk_code_dtype(problem->desc.code))) {
        return reason_set(why, STATUS_UNSUPPORTED, "it is for plain f16 and bf16 weights");
    }
    if (problem->m == 0 || problem->m > GK_BATCH_ROWS_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "a launch has 1 to %u rows, not %u",
                          GK_BATCH_ROWS_MAX, problem->m);
    }
    if (problem->x_dtype != gk_code_dtype(problem->desc.code) ||
        (problem->y_dtype != DTYPE_F32 && !is_half(problem->y_dtype))) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "x of type %s and y of type %s; only x of the weight's own type, %s",
                          dtype_name(problem->x_dtype), dtype_name(problem->y_dtype),
                          dtype_name(gk_code_dtype(problem->desc.code)));
    }
    return gk_desc_check(&problem->desc, why);
}

static int can_implement(const struct gk_problem *problem, struct reason *why)
{
    const char *text;
    int r = check(problem, why);
    if (r == 0 && plain_plan_find(problem, &text) == NULL) {
        r = reason_set(why, STATUS_UNSUPPORTED, "%s", text);
    }
    return r;
}

/* ---- a launch ---- */

struct parts {
    uint64_t x_offset; /* behind the library's workspace */
    uint64_t y_offset;
    uint64_t total_bytes;
};

static struct parts parts_of(const struct cublaslt_gemm *gemm)
{
    struct parts parts = {.x_offset = CUBLASLT_WORKSPACE_BYTES};
    parts.y_offset = parts.x_offset + num_align_up(gemm->m * gemm->x_stride * 2, 256);
    parts.total_bytes = parts.y_offset + gemm->m * gemm->y_stride * sizeof(float);
    return parts;
}

static uint64_t workspace_bytes(const struct gk_problem *problem)
{
    struct cublaslt_gemm gemm = plain_gemm_of(problem);
    return parts_of(&gemm).total_bytes;
}

/* Three launches of 3 us, and the bytes at 4 TB/s. */
static double predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    return 9.0 + (double)problem->layout->packed_bytes(&problem->desc) / 4.0e6;
}

static int finish(const struct gk_launch *launch, const struct cublaslt_gemm *gemm,
                  const float *sums, void *stream)
{
    const struct gk_desc *desc = &launch->problem.desc;
    struct finish_rows rows = {
        .sums = sums,
        .stride = gemm->y_stride,
        .bias = (const uint8_t *)launch->packed + cuda_kmajor_shape(desc).bias_offset,
        .m = gemm->m,
        .n = desc->n,
        .bias_dtype = desc->bias_dtype,
        .y_dtype = launch->problem.y_dtype,
    };
    memcpy(rows.y, launch->y_rows, gemm->m * sizeof(rows.y[0]));
    return finish_rows_enqueue(&rows, stream);
}

static int enqueue(const struct gk_launch *launch, void *stream)
{
    const struct gk_problem *problem = &launch->problem;
    struct cublaslt_gemm gemm = plain_gemm_of(problem);
    struct parts parts = parts_of(&gemm);
    uint8_t *workspace = launch->workspace;
    const char *text;
    const cublasLtMatmulAlgo_t *algorithm = plain_plan_find(problem, &text);
    const struct cublaslt_pointers at = {
        .w = launch->packed,
        .x = workspace + parts.x_offset,
        .y = (float *)(void *)(workspace + parts.y_offset),
        .workspace = workspace,
    };
    int error = gk_cuda_stage_rows(launch->x_rows, gemm.m, (uint64_t)gemm.k * 2,
                                   workspace + parts.x_offset, gemm.x_stride * 2, stream);
    error = error != 0 ? error : cublaslt_enqueue(&gemm, &at, algorithm, stream);
    return error != 0 ? error : finish(launch, &gemm, at.y, stream);
}

static int plan(const struct gk_problem *problem, const void *packed)
{
    return check(problem, NULL) == 0 ? plain_plan(problem, packed) : 0;
}

const struct gk_kernel cuda_plain_cublaslt = {
    .name = "cuda_plain_cublaslt",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "as cuBLASLt has it",
    .numerics = "cublaslt",
    .can_implement = can_implement,
    .workspace_bytes = workspace_bytes,
    .predicted_usec = predicted_usec,
    .load = finish_rows_load,
    .plan = plan,
    .enqueue = enqueue,
};
