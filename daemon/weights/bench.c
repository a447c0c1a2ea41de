/* bench.c - see bench.h. */
#include "daemon/weights/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/bench_format.h"
#include "daemon/weights/bench_weight.h"
#include "daemon/weights/nearest.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define BUDGET_USEC 8000u
#define HOPELESS    16.0 /* times the fastest */

/* ---- what is asked ---- */

static int check_rows(const struct msg_bench *bench, struct reason *why)
{
    if (bench->n_m == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "there is no m to measure at");
    }
    for (uint32_t i = 0; i < bench->n_m; i++) {
        if (bench->m[i] == 0 || bench->m[i] > BENCH_ROWS_MAX) {
            return reason_set(why, STATUS_INVALID_ARGUMENT, "m %u is not between 1 and %u",
                              bench->m[i], BENCH_ROWS_MAX);
        }
    }
    return 0;
}

static int no_kernel(const char *name, struct reason *why)
{
    static const enum gk_device_kind kinds[] = {GK_DEVICE_HOST, GK_DEVICE_CUDA};
    struct nearest nearest;
    nearest_init(&nearest, name);
    for (uint32_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        uint32_t n_kernels;
        const struct gk_kernel *const *kernels = gk_kernels(kinds[i], &n_kernels);
        for (uint32_t j = 0; j < n_kernels; j++) {
            nearest_offer(&nearest, kernels[j]->name);
        }
    }
    (void)reason_set(why, STATUS_INVALID_ARGUMENT, "no kernel of this build is named '%s'", name);
    nearest_append(&nearest, why);
    return STATUS_INVALID_ARGUMENT;
}

static int check_numbers(const struct msg_bench *bench, struct reason *why)
{
    if ((uint64_t)bench->n * bench->k > BENCH_ELEMS_MAX) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "a weight of %u x %u is over the limit of %llu elements", bench->n,
                          bench->k, BENCH_ELEMS_MAX);
    }
    if (bench->budget_usec > BENCH_BUDGET_USEC_MAX) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "a budget of %u us is over the limit of %u",
                          bench->budget_usec, BENCH_BUDGET_USEC_MAX);
    }
    for (uint32_t i = 0; i < bench->n_off; i++) {
        if (!gk_kernel_named(bench->off[i])) {
            return no_kernel(bench->off[i], why);
        }
    }
    return check_rows(bench, why);
}

static int make_problem(const struct device *device, const struct msg_bench *bench,
                        struct gk_problem *ret_problem, struct reason *why)
{
    enum dtype dtype = bench->act_dtype == DTYPE_NONE ? DTYPE_BF16 : bench->act_dtype;
    if (dtype != DTYPE_BF16 && dtype != DTYPE_F16) {
        return reason_set(why, STATUS_UNSUPPORTED, "activations are bf16 or f16 here, not %s",
                          dtype_name(dtype));
    }
    struct gk_problem problem = {.m = 1,
                                 .x_dtype = dtype,
                                 .y_dtype = dtype,
                                 .cuda_arch = device->cuda_arch,
                                 .n_sms = device->n_sms};
    int r = bench_format_desc(bench->format, bench->n, bench->k, dtype, &problem.desc, why);
    if (r != 0) {
        return r;
    }
    problem.layout = gk_layout_for(&problem.desc, device->ops->kind);
    if (!problem.layout) {
        return reason_set(why, STATUS_UNSUPPORTED, "format '%s' has no layout on device %s",
                          bench->format, device->name);
    }
    *ret_problem = problem;
    return 0;
}

int bench_check(const struct device *device, const struct msg_bench *bench, struct reason *why)
{
    struct gk_problem problem;
    const struct gk_kernel *kernel;
    int r = make_problem(device, bench, &problem, why);
    r = r != 0 ? r : check_numbers(bench, why);
    return r != 0 ? r : gk_select(&problem, &kernel, why);
}

/* ---- one bench ---- */

struct bench {
    struct device *device;
    const struct msg_bench *request;
    struct progress *progress;
    struct warnings *warnings;
    struct gk_problem problem; /* at one row */
    struct bench_weight weight;
    uint32_t m[MSG_BENCH_M_MAX]; /* ascending, none twice */
    uint32_t n_m;
    const struct gk_kernel *const *kernels;
    uint32_t n_kernels;
    bool is_left_out[GK_KERNELS_MAX];
    double whole_usec[GK_KERNELS_MAX]; /* of a launch of prefill as large as may be; 0: unknown */
    struct msg_bench_result *result;
};

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sort_rows(struct bench *bench)
{
    uint32_t m[MSG_BENCH_M_MAX];
    memcpy(m, bench->request->m, sizeof(m));
    qsort(m, bench->request->n_m, sizeof(*m), compare);
    for (uint32_t i = 0; i < bench->request->n_m; i++) {
        if (i == 0 || m[i] != m[i - 1]) {
            bench->m[bench->n_m++] = m[i];
        }
    }
}

static bool is_off(const struct bench *bench, const struct gk_kernel *kernel)
{
    for (uint32_t i = 0; i < bench->request->n_off; i++) {
        if (strcmp(bench->request->off[i], kernel->name) == 0) {
            return true;
        }
    }
    return false;
}

/* A launch of m rows: of m and no more, or of a request that has more, which is prefill. */
static struct gk_problem problem_at(const struct bench *bench, uint32_t m, bool is_prefill)
{
    struct gk_problem problem = bench->problem;
    problem.m = m;
    problem.is_prefill = is_prefill;
    return problem;
}

static bool is_able(const struct gk_kernel *kernel, const struct gk_problem *problem)
{
    return kernel->can_implement(problem, NULL) == 0;
}

/* m rows in launches by one kernel, each as large as it takes: so many whole ones, and one with the
 * rest. */
struct launches {
    struct gk_problem whole;
    struct gk_problem rest; /* m 0: none */
    uint32_t n_whole;
};

static struct launches launches_of(const struct bench *bench, const struct gk_kernel *kernel,
                                   uint32_t m)
{
    if (m <= GK_BATCH_ROWS_MAX) {
        return (struct launches){.rest = problem_at(bench, m, false)};
    }
    struct gk_problem whole = problem_at(bench, GK_PREFILL_ROWS_MAX, true);
    if (!is_able(kernel, &whole)) {
        whole.m = GK_BATCH_ROWS_MAX;
    }
    return (struct launches){whole, problem_at(bench, m % whole.m, true), m / whole.m};
}

static bool can_serve(const struct launches *launches, const struct gk_kernel *kernel)
{
    return (launches->n_whole == 0 || is_able(kernel, &launches->whole)) &&
           (launches->rest.m == 0 || is_able(kernel, &launches->rest));
}

/* ---- measuring ---- */

static int time_launch(const struct bench *bench, const struct gk_kernel *kernel,
                       const struct gk_problem *problem, double *ret_usec, struct reason *why)
{
    uint32_t budget_usec = bench->request->budget_usec;
    struct device_trial trial = {.kernel = kernel,
                                 .problem = *problem,
                                 .packed = bench->weight.packed,
                                 .n_packed = bench->weight.n_copies,
                                 .budget_usec = budget_usec != 0 ? budget_usec : BUDGET_USEC};
    return device_time(bench->device, &trial, ret_usec, why);
}

static int time_rows(struct bench *bench, uint32_t i_kernel, const struct launches *launches,
                     double *ret_usec, struct reason *why)
{
    const struct gk_kernel *kernel = bench->kernels[i_kernel];
    double *whole_usec = &bench->whole_usec[i_kernel];
    double rest_usec = 0;
    int r = 0;
    if (launches->n_whole != 0 && *whole_usec == 0) {
        r = time_launch(bench, kernel, &launches->whole, whole_usec, why);
    }
    if (r == 0 && launches->rest.m != 0) {
        r = time_launch(bench, kernel, &launches->rest, &rest_usec, why);
    }
    if (r == 0) {
        *ret_usec = launches->n_whole * *whole_usec + rest_usec;
    }
    return r;
}

/* What a weight of that kind gets: the first of the candidates that is not off; NULL: none is left.
 */
static const struct gk_kernel *choose(const struct bench *bench, uint32_t m)
{
    struct gk_problem problem = problem_at(bench, m, m > GK_BATCH_ROWS_MAX);
    const struct gk_kernel *candidates[GK_KERNELS_MAX];
    problem.m = (uint32_t)num_min(m, gk_rows_max(&problem));
    uint32_t n = gk_candidates(&problem, candidates);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_off(bench, candidates[i])) {
            return candidates[i];
        }
    }
    return NULL;
}

static void add_row(struct bench *bench, const struct gk_kernel *kernel, uint32_t m,
                    const struct launches *launches, double usec)
{
    const struct gk_problem *largest = launches->n_whole != 0 ? &launches->whole : &launches->rest;
    struct msg_bench_row *row = &bench->result->rows[bench->result->n_rows++];
    *row = (struct msg_bench_row){
        .m = m,
        .usec = usec,
        .n_launches = launches->n_whole + (launches->rest.m != 0),
        .is_eligible = gk_judge(largest, kernel, NULL) == 0,
        .is_chosen = choose(bench, m) == kernel,
    };
    (void)snprintf(row->kernel, sizeof(row->kernel), "%s", kernel->name);
}

/* Nothing where the kernel cannot serve. */
static int measure(struct bench *bench, uint32_t i_kernel, uint32_t m, struct reason *why)
{
    const struct gk_kernel *kernel = bench->kernels[i_kernel];
    const struct launches launches = launches_of(bench, kernel, m);
    double usec = 0;
    int r = progress_check(bench->progress, why);
    if (r != 0 || !can_serve(&launches, kernel)) {
        return r;
    }
    progress_step(bench->progress, "%s, %u x %u: %s at %u rows", bench->request->format,
                  bench->request->n, bench->request->k, kernel->name, m);
    r = time_rows(bench, i_kernel, &launches, &usec, why);
    if (r == STATUS_NO_SPACE) {
        warnings_add(bench->warnings, "%s at %u rows: %s", kernel->name, m, why->text);
        return 0;
    }
    if (r == 0) {
        add_row(bench, kernel, m, &launches, usec);
    }
    return r;
}

/* After all kernels at one m: who is out of the race. The rows of that m begin at i_first. */
static void leave_out_hopeless(struct bench *bench, uint32_t i_first)
{
    const struct msg_bench_result *result = bench->result;
    double best = HUGE_VAL;
    for (uint32_t i = i_first; i < result->n_rows; i++) {
        best = fmin(best, result->rows[i].usec);
    }
    for (uint32_t i = i_first; i < result->n_rows; i++) {
        for (uint32_t j = 0; j < bench->n_kernels; j++) {
            if (result->rows[i].usec > HOPELESS * best &&
                strcmp(result->rows[i].kernel, bench->kernels[j]->name) == 0) {
                bench->is_left_out[j] = true;
            }
        }
    }
}

static int measure_all(struct bench *bench, struct reason *why)
{
    for (uint32_t i = 0; i < bench->n_m; i++) {
        uint32_t i_first = bench->result->n_rows;
        for (uint32_t j = 0; j < bench->n_kernels; j++) {
            int r = bench->is_left_out[j] ? 0 : measure(bench, j, bench->m[i], why);
            if (r != 0) {
                return r;
            }
            atomic_fetch_add(&bench->progress->done_bytes, 1);
        }
        leave_out_hopeless(bench, i_first);
    }
    return 0;
}

/* ---- from beginning to end ---- */

static int result_new(const struct bench *bench, struct msg_bench_result **ret_result)
{
    const struct device *device = bench->device;
    const struct gk_problem *problem = &bench->problem;
    struct msg_bench_result *result = calloc(1, sizeof(*result));
    struct msg_bench_row *rows = calloc(MSG_BENCH_M_MAX * GK_KERNELS_MAX, sizeof(*rows));
    if (!result || !rows) {
        free(result);
        free(rows);
        return err_raise(-ENOMEM);
    }
    result->rows = rows;
    result->packed_bytes = problem->layout->packed_bytes(&problem->desc);
    result->flops = 2ull * problem->desc.n * problem->desc.k;
    result->floor_usec = device_floor_usec(device, result->packed_bytes);
    (void)snprintf(result->device, sizeof(result->device), "%.60s: %s", device->name,
                   device->description);
    (void)snprintf(result->layout, sizeof(result->layout), "%s v%u", problem->layout->tag,
                   problem->layout->version);
    gk_desc_format(&problem->desc, result->format, sizeof(result->format));
    *ret_result = result;
    return 0;
}

static void find_kernels(struct bench *bench)
{
    bench->kernels = gk_kernels(bench->device->ops->kind, &bench->n_kernels);
    for (uint32_t i = 0; i < bench->n_kernels; i++) {
        bench->is_left_out[i] =
            gk_is_disabled(bench->kernels[i]) || is_off(bench, bench->kernels[i]);
    }
}

int bench_run(struct device *device, const struct msg_bench *request, struct progress *progress,
              struct warnings *warnings, struct msg_bench_result **ret_result, struct reason *why)
{
    struct bench bench = {
        .device = device, .request = request, .progress = progress, .warnings = warnings};
    static_assert(MSG_BENCH_M_MAX * GK_KERNELS_MAX <= MSG_BENCH_ROW_MAX, "all rows fit a reply");
    int r = make_problem(device, request, &bench.problem, why);
    r = r != 0 ? r : result_new(&bench, &bench.result);
    if (r != 0) {
        return r;
    }
    sort_rows(&bench);
    find_kernels(&bench);
    atomic_store(&progress->total_bytes, (uint64_t)bench.n_m * bench.n_kernels);
    progress_step(progress, "making a weight of %u x %u, %s", request->n, request->k,
                  request->format);
    r = bench_weight_init(&bench.weight, device, &bench.problem.desc, bench.problem.layout,
                          progress, why);
    bench.result->n_copies = bench.weight.n_copies;
    r = r != 0 ? r : device_plan(device, &bench.problem, bench.weight.packed[0], why);
    r = r != 0 ? r : measure_all(&bench, why);
    bench_weight_finish(&bench.weight);
    if (r != 0) {
        (void)msg_bench_result_free(bench.result);
        return r;
    }
    *ret_result = bench.result;
    return 0;
}
