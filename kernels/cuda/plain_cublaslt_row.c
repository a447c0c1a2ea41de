/* plain_cublaslt_row.c - the registry's rows of the vendor's dense GEMM, for weights of f16 and
 * bf16.
 *
 *   y = x W^T + bias; x of the weight's own type; W k-major, as cuda_kmajor.h has it
 *   workspace: the library's own; x gathered (rows 16-byte aligned); y, or its sums in f32
 *
 * A batch takes three launches: the rows of x come together, the product, bias and rounding to
 * where y is. Prefill takes one where its rows of x and y lie as the library can have them, y of
 * x's own type and the bias too; else these go through the workspace. A call has no more rows than
 * the workspace holds. Which way rows go, and in how many calls, changes no bit of them. */
#include <math.h>
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

/* Could it, were there a plan, with x of the weight's own type? */
static int check_weight(const struct gk_problem *problem, struct reason *why)
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
    return gk_desc_check(&problem->desc, why);
}

static int check_types(const struct gk_problem *problem, struct reason *why)
{
    if (problem->x_dtype != gk_code_dtype(problem->desc.code) ||
        (problem->y_dtype != DTYPE_F32 && !is_half(problem->y_dtype))) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "x is %s and y %s, and cuBLASLt multiplies x of the weight's own type "
                          "only, %s: rounding x to that would change the product",
                          dtype_name(problem->x_dtype), dtype_name(problem->y_dtype),
                          dtype_name(gk_code_dtype(problem->desc.code)));
    }
    return 0;
}

static int check(const struct gk_problem *problem, struct reason *why)
{
    int r = check_weight(problem, why);
    return r != 0 ? r : check_types(problem, why);
}

static int check_rows(const struct gk_problem *problem, uint32_t rows_max, struct reason *why)
{
    if (problem->m == 0 || problem->m > rows_max) {
        return reason_set(why, STATUS_UNSUPPORTED, "a launch has 1 to %u rows, not %u", rows_max,
                          problem->m);
    }
    return 0;
}

static int check_plan(const struct gk_problem *problem, struct reason *why)
{
    const char *text;
    return plain_plan_find(problem, &text) != NULL
               ? 0
               : reason_set(why, STATUS_UNSUPPORTED, "%s", text);
}

/* Whatever x the model has: clients may bring x of the weight's own type all the same. */
static int plan(const struct gk_problem *problem, const void *packed, struct gk_planning *planning)
{
    return check_weight(problem, NULL) == 0 ? plain_plan_make(problem, packed, planning) : 0;
}

/* ---- workspace ---- */

struct room {
    uint64_t x_offset; /* behind the library's workspace */
    uint64_t y_offset;
    uint64_t total_bytes;
};

static struct room room_of(const struct cublaslt_gemm *gemm)
{
    struct room room = {.x_offset = CUBLASLT_WORKSPACE_BYTES};
    room.y_offset = room.x_offset + num_align_up(gemm->m * gemm->x_stride * 2, 256);
    room.total_bytes = room.y_offset + gemm->m * gemm->y_stride * dtype_bytes(gemm->y_dtype);
    return room;
}

/* Of a call for y of that type, of as many of m rows as it has. */
static uint64_t call_bytes(const struct gk_desc *desc, enum dtype y_dtype, uint32_t m)
{
    uint32_t n_rows = (uint32_t)num_min(m, plain_rows_max(desc, y_dtype));
    struct cublaslt_gemm gemm = plain_gemm_of(desc, y_dtype, n_rows);
    return room_of(&gemm).total_bytes;
}

/* ---- a call of the library ---- */

/* What comes from the workspace, but for where it goes. */
static struct finish_rows finish_of(const struct gk_launch *launch,
                                    const struct cublaslt_gemm *gemm,
                                    const struct cublaslt_pointers *at)
{
    const struct gk_desc *desc = &launch->problem.desc;
    return (struct finish_rows){
        .sums = at->y,
        .stride = gemm->y_stride,
        .bias = at->bias,
        .m = gemm->m,
        .n = desc->n,
        .sums_dtype = gemm->y_dtype,
        .bias_dtype = gemm->y_dtype == DTYPE_F32 ? desc->bias_dtype : DTYPE_NONE, /* is in */
        .y_dtype = launch->problem.y_dtype,
    };
}

static struct cublaslt_pointers pointers_of(const struct gk_launch *launch,
                                            const struct cublaslt_gemm *gemm)
{
    struct room room = room_of(gemm);
    uint8_t *workspace = launch->workspace;
    return (struct cublaslt_pointers){
        .w = launch->packed,
        .x = workspace + room.x_offset,
        .y = workspace + room.y_offset,
        .bias =
            (const uint8_t *)launch->packed + cuda_kmajor_shape(&launch->problem.desc).bias_offset,
        .workspace = workspace,
    };
}

/* ---- batches ---- */

static int can_batch(const struct gk_problem *problem, struct reason *why)
{
    int r = check(problem, why);
    r = r != 0 ? r : check_rows(problem, GK_BATCH_ROWS_MAX, why);
    return r != 0 ? r : check_plan(problem, why);
}

static uint64_t batch_workspace_bytes(const struct gk_problem *problem)
{
    return call_bytes(&problem->desc, DTYPE_F32, problem->m);
}

/* Three launches of 3 us, and the bytes at 4 TB/s. */
static double batch_predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    return 9.0 + (double)problem->layout->packed_bytes(&problem->desc) / 4.0e6;
}

static int enqueue_batch(const struct gk_launch *launch, void *stream)
{
    const struct gk_problem *problem = &launch->problem;
    const char *text;
    const struct plain_plan *plan = plain_plan_find(problem, &text);
    struct cublaslt_gemm gemm = plain_gemm_of(&problem->desc, DTYPE_F32, problem->m);
    struct cublaslt_pointers at = pointers_of(launch, &gemm);
    struct finish_rows finish = finish_of(launch, &gemm, &at);
    memcpy(finish.y, launch->y_rows, gemm.m * sizeof(finish.y[0]));
    int error = gk_cuda_stage_rows(launch->x_rows, gemm.m, (uint64_t)gemm.k * 2,
                                   (void *)(uintptr_t)at.x, gemm.x_stride * 2, stream);
    error = error != 0 ? error
                       : cublaslt_enqueue(&gemm, &at, plain_algorithm(&plan->sums, gemm.m), stream);
    return error != 0 ? error : finish_rows_enqueue(&finish, stream);
}

/* ---- prefill ---- */

static int can_prefill(const struct gk_problem *problem, struct reason *why)
{
    int r = check(problem, why);
    r = r != 0 ? r : check_rows(problem, GK_PREFILL_ROWS_MAX, why);
    if (r == 0 && !problem->is_prefill) {
        r = reason_set(why, STATUS_UNSUPPORTED, "it is for requests of more than %u rows",
                       GK_BATCH_ROWS_MAX);
    }
    return r != 0 ? r : check_plan(problem, why);
}

/* For either kind of call: a plan may lack those that round. */
static uint64_t prefill_workspace_bytes(const struct gk_problem *problem)
{
    uint64_t sums_bytes = call_bytes(&problem->desc, DTYPE_F32, problem->m);
    return num_max(sums_bytes, call_bytes(&problem->desc, problem->x_dtype, problem->m));
}

/* A launch, and what takes longer of reading the weight at 4 TB/s and multiplying at a rate that
 * was seen on an H200. */
static double prefill_predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)n_threads;
    double read_usec = (double)problem->layout->packed_bytes(&problem->desc) / 4.0e6;
    double multiply_usec = 2.0 * problem->m * problem->desc.n * problem->desc.k / 0.72e9;
    return 5.0 + fmax(read_usec, multiply_usec);
}

static bool is_aligned(const void *rows, uint64_t stride_bytes)
{
    return (uintptr_t)rows % CUBLASLT_ALIGNMENT == 0 && stride_bytes % CUBLASLT_ALIGNMENT == 0;
}

/* gemm->m rows of x, a stride apart, to `target`: as many at a time as a table has. */
static int gather(const struct cublaslt_gemm *gemm, const uint8_t *x, uint64_t stride_bytes,
                  uint8_t *target, void *stream)
{
    const void *rows[GK_BATCH_ROWS_MAX];
    uint32_t n_rows;
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < gemm->m; i += n_rows) {
        n_rows = (uint32_t)num_min(gemm->m - i, GK_BATCH_ROWS_MAX);
        for (uint32_t j = 0; j < n_rows; j++) {
            rows[j] = x + (i + j) * stride_bytes;
        }
        error = gk_cuda_stage_rows(rows, n_rows, (uint64_t)gemm->k * 2,
                                   target + i * gemm->x_stride * 2, gemm->x_stride * 2, stream);
    }
    return error;
}

/* Rows first_m.. of a launch: gemm.m of them. */
static int enqueue_call(const struct gk_launch *launch, struct cublaslt_gemm gemm, uint32_t first_m,
                        const cublasLtMatmulAlgo_t *algorithm, void *stream)
{
    const struct gk_prefill *rows = &launch->prefill;
    const uint8_t *x = (const uint8_t *)rows->x + first_m * rows->x_stride_bytes;
    uint8_t *y = (uint8_t *)rows->y + first_m * rows->y_stride_bytes;
    struct cublaslt_pointers at = pointers_of(launch, &gemm);
    struct finish_rows finish = finish_of(launch, &gemm, &at);
    bool is_in_place = gemm.y_dtype != DTYPE_F32 && gemm.n == launch->problem.desc.n &&
                       is_aligned(y, rows->y_stride_bytes);
    int error = 0;
    if (is_aligned(x, rows->x_stride_bytes)) {
        at.x = x;
        gemm.x_stride = rows->x_stride_bytes / 2;
    } else {
        error = gather(&gemm, x, rows->x_stride_bytes, (uint8_t *)(uintptr_t)at.x, stream);
    }
    if (is_in_place) {
        at.y = y;
        gemm.y_stride = rows->y_stride_bytes / 2;
    }
    error = error != 0 ? error : cublaslt_enqueue(&gemm, &at, algorithm, stream);
    if (error != 0 || is_in_place) {
        return error;
    }
    finish.first_y = y;
    finish.y_stride_bytes = rows->y_stride_bytes;
    return finish_rows_enqueue(&finish, stream);
}

static int enqueue_prefill(const struct gk_launch *launch, void *stream)
{
    const struct gk_problem *problem = &launch->problem;
    const char *text;
    const struct plain_plan *plan = plain_plan_find(problem, &text);
    bool is_rounded = problem->y_dtype == problem->x_dtype && plan->rounded.rows_max != 0;
    const struct plain_choice *choice = is_rounded ? &plan->rounded : &plan->sums;
    enum dtype y_dtype = is_rounded ? problem->y_dtype : DTYPE_F32;
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < problem->m; i += choice->rows_max) {
        uint32_t m = (uint32_t)num_min(problem->m - i, choice->rows_max);
        error = enqueue_call(launch, plain_gemm_of(&problem->desc, y_dtype, m), i,
                             plain_algorithm(choice, m), stream);
    }
    return error;
}

const struct gk_kernel cuda_plain_cublaslt_prefill = {
    .name = "cuda_plain_cublaslt_prefill",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "as cuBLASLt has it",
    .numerics = "cublaslt",
    .can_implement = can_prefill,
    .workspace_bytes = prefill_workspace_bytes,
    .predicted_usec = prefill_predicted_usec,
    .load = finish_rows_load,
    .plan = plan,
    .enqueue = enqueue_prefill,
};

const struct gk_kernel cuda_plain_cublaslt = {
    .name = "cuda_plain_cublaslt",
    .device_kind = GK_DEVICE_CUDA,
    .tile = "as cuBLASLt has it",
    .numerics = "cublaslt",
    .can_implement = can_batch,
    .workspace_bytes = batch_workspace_bytes,
    .predicted_usec = batch_predicted_usec,
    .load = finish_rows_load,
    .plan = plan,
    .enqueue = enqueue_batch,
};
