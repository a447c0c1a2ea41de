/* plain_plan.c - see plain_plan.h.
 *
 * Plans are kept for ever in a table of fixed size, by shape, types, compute capability and number
 * of multiprocessors: GPUs of one kind share them. A slot is written once, under the mutex, and
 * published by its state. */
#include "kernels/cuda/plain_plan.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "ipc/base/num.h"
#include "kernels/cuda/plain_retrial.h"
#include "kernels/cuda/plain_text.h"
#include "kernels/cuda/plain_trial.h"
#include "kernels/layout/cuda_kmajor.h"

#define SLOTS_MAX   512u
#define Y_BYTES_MAX (64ull << 20) /* of a call: 1024 rows of 28672 in 16 bits fit */

enum state { EMPTY = 0, READY, FAILED };

struct slot {
    _Atomic int state;
    uint32_t n, k, cuda_arch, n_sms;
    enum gk_code code;
    enum dtype bias_dtype;
    struct reason why; /* FAILED: there is none */
    struct plain_plan plan;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of making plans */
static struct slot slots[SLOTS_MAX];

/* ---- what is asked of the library ---- */

struct cublaslt_gemm plain_gemm_of(const struct gk_desc *desc, enum dtype y_dtype, uint32_t m)
{
    struct cuda_kmajor_shape shape = cuda_kmajor_shape(desc);
    return (struct cublaslt_gemm){
        .m = m,
        .n = shape.n_stride,
        .k = desc->k,
        .dtype = gk_code_dtype(desc->code),
        .y_dtype = y_dtype,
        .bias_dtype = y_dtype == DTYPE_F32 ? DTYPE_NONE : desc->bias_dtype,
        .w_stride = shape.n_stride,
        .x_stride = num_align_up((uint64_t)desc->k * 2, CUBLASLT_ALIGNMENT) / 2,
        .y_stride = shape.n_stride,
    };
}

bool plain_can_round(const struct gk_desc *desc)
{
    return desc->bias_dtype == DTYPE_NONE || desc->bias_dtype == gk_code_dtype(desc->code);
}

uint32_t plain_rows_max(const struct gk_desc *desc, enum dtype y_dtype)
{
    uint64_t row_bytes = (uint64_t)cuda_kmajor_shape(desc).n_stride * dtype_bytes(y_dtype);
    uint32_t rows = GK_BATCH_ROWS_MAX;
    while (rows < GK_PREFILL_ROWS_MAX && 2 * rows * row_bytes <= Y_BYTES_MAX) {
        rows *= 2;
    }
    return rows;
}

/* ---- the table ---- */

static bool is_of(const struct slot *slot, const struct gk_problem *problem)
{
    return slot->n == problem->desc.n && slot->k == problem->desc.k &&
           slot->code == problem->desc.code && slot->bias_dtype == problem->desc.bias_dtype &&
           slot->cuda_arch == problem->cuda_arch && slot->n_sms == problem->n_sms;
}

/* The slot of a problem, or the first empty one; NULL: the table is full. */
static struct slot *find(const struct gk_problem *problem)
{
    for (uint32_t i = 0; i < SLOTS_MAX; i++) {
        struct slot *slot = &slots[i];
        if (atomic_load_explicit(&slot->state, memory_order_acquire) == EMPTY ||
            is_of(slot, problem)) {
            return slot;
        }
    }
    return NULL;
}

const struct plain_plan *plain_plan_find(const struct gk_problem *problem, const char **ret_text)
{
    const struct slot *slot = find(problem);
    int state = slot != NULL ? atomic_load_explicit(&slot->state, memory_order_acquire) : EMPTY;
    if (state == READY) {
        return &slot->plan;
    }
    *ret_text = state == FAILED ? slot->why.text : "no weight of that shape has been planned for";
    return NULL;
}

/* ---- planning ---- */

/* What is asked of the library for a shape. */
struct calls {
    struct cublaslt_gemm sums;
    struct cublaslt_gemm rounded; /* m of 0: it cannot round */
};

static struct calls calls_of(const struct gk_desc *desc)
{
    enum dtype dtype = gk_code_dtype(desc->code);
    uint32_t rounded_max = plain_can_round(desc) ? plain_rows_max(desc, dtype) : 0;
    return (struct calls){.sums = plain_gemm_of(desc, DTYPE_F32, plain_rows_max(desc, DTYPE_F32)),
                          .rounded = plain_gemm_of(desc, dtype, rounded_max)};
}

/* The plan of an earlier process, if there is one and it holds; else planning->note says why not.
 */
static int recall(const struct calls *calls, const void *packed, struct gk_planning *planning,
                  struct plain_plan *ret_plan)
{
    struct reason why = REASON_NULL;
    int error = cudaSuccess;
    if (plain_text_parse(planning->kept, cublaslt_version(), calls->sums.m, calls->rounded.m,
                         ret_plan, &why) == 0) {
        error = plain_retrial(&calls->sums, &calls->rounded, packed, ret_plan, &why);
    }
    if (why.status != 0) {
        ret_plan->sums.rows_max = 0;
        (void)reason_set(&planning->note, why.status, "the kept plan is thrown away: %s", why.text);
    }
    return error;
}

static int try(const struct calls *calls, const void *packed, struct gk_planning *planning,
               struct slot *slot)
{
    struct reason note = REASON_NULL;
    int error = plain_trial(&calls->sums, &calls->rounded, packed, &slot->plan, &note);
    if (error != cudaSuccess || note.status == 0) {
        return error;
    }
    planning->note = note;
    slot->why = note;
    return cudaSuccess;
}

/* slot->plan, or slot->why where there is none. */
static int make(const struct gk_problem *problem, const void *packed, struct gk_planning *planning,
                struct slot *slot)
{
    const struct calls calls = calls_of(&problem->desc);
    const char *text = cublaslt_open();
    slot->plan.sums.rows_max = 0;
    if (text != NULL) {
        (void)reason_set(&slot->why, STATUS_UNSUPPORTED, "%s", text);
        return cudaSuccess;
    }
    int error =
        planning->kept != NULL ? recall(&calls, packed, planning, &slot->plan) : cudaSuccess;
    if (error != cudaSuccess || slot->plan.sums.rows_max != 0) {
        return error;
    }
    error = try(&calls, packed, planning, slot);
    if (error == cudaSuccess && slot->plan.sums.rows_max != 0) {
        plain_text_format(&slot->plan, cublaslt_version(), planning->text);
    }
    return error;
}

static int make_locked(const struct gk_problem *problem, const void *packed,
                       struct gk_planning *planning)
{
    struct slot *slot = find(problem);
    int state = slot != NULL ? atomic_load(&slot->state) : FAILED; /* full: other kernels serve */
    if (state == READY) { /* perhaps by another GPU of the kind: handles are each one's own */
        return cublaslt_open() == NULL ? cudaSuccess : cudaErrorNotSupported;
    }
    if (state == FAILED) {
        return cudaSuccess;
    }
    int error = make(problem, packed, planning, slot);
    if (error != cudaSuccess) {
        return error; /* of the device: whoever comes next may have more luck */
    }
    slot->n = problem->desc.n;
    slot->k = problem->desc.k;
    slot->code = problem->desc.code;
    slot->bias_dtype = problem->desc.bias_dtype;
    slot->cuda_arch = problem->cuda_arch;
    slot->n_sms = problem->n_sms;
    state = slot->plan.sums.rows_max != 0 ? READY : FAILED;
    atomic_store_explicit(&slot->state, state, memory_order_release);
    return cudaSuccess;
}

int plain_plan_make(const struct gk_problem *problem, const void *packed,
                    struct gk_planning *planning)
{
    pthread_mutex_lock(&mutex);
    int error = make_locked(problem, packed, planning);
    pthread_mutex_unlock(&mutex);
    return error;
}
