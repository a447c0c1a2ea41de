/* verbs_gemm.c - the portable submit path, and the reasons for kernels. */
#include "daemon/server/verbs.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gk/gk.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

static const uint32_t standard_m[] = {1, 2, 4, 8, 16, 32, 64, 128, 512, 1024};

/* ---- submit and cancel ---- */

/* The worker of the device that the weight lies on. For an unknown weight any will do: the refusal
 * comes from the one function that judges requests of both paths, in the same words. */
static struct worker *find_worker(const struct core *core, uint64_t weight_id)
{
    struct weight *weight = store_acquire(core->store, weight_id);
    uint32_t i_device = weight != NULL ? weight->device->index : 0;
    (void)weight_unref(weight);
    return core->workers[i_device];
}

int verb_submit(struct call *call, struct reason *why)
{
    struct replies *replies = &call->session->replies;
    struct request_desc desc = call->request->submit;
    desc.op = REQUEST_OP_GEMM;
    if (replies_is_pending(replies, call->request->request_id, desc.request_id)) {
        return reason_set(why, STATUS_EXISTS, "request %ju is in flight already",
                          (uintmax_t)desc.request_id);
    }
    int r = replies_add_pending(replies, call->request->request_id, desc.request_id, call->route);
    if (r != 0) {
        return r;
    }
    struct worker_client client = session_as_client(call->session);
    r = worker_submit(find_worker(call->core, desc.weight_id), &client, &desc, why);
    if (r != 0) {
        free(replies_take_pending(replies, desc.request_id));
        return r;
    }
    call->is_deferred = true;
    return 0;
}

int verb_cancel(struct call *call, struct reason *why)
{
    uint64_t request_id = call->request->cancel_request_id;
    if (!replies_has_request(&call->session->replies, request_id)) {
        return reason_set(why, STATUS_NOT_FOUND, "request %ju is not in flight on this path",
                          (uintmax_t)request_id);
    }
    /* Once: else who asks over and over while the worker is busy would fill its inbox. */
    bool is_first = replies_cancel(&call->session->replies, request_id);
    for (uint32_t i = 0; is_first && i < call->core->n_devices; i++) {
        worker_cancel(call->core->workers[i], call->session->id, request_id);
    }
    return 0;
}

/* ---- explain ---- */

/* Types of the model's own: what most clients use. The first chunk of so many rows. */
static struct gk_problem problem_of(const struct weight *weight, uint32_t m)
{
    struct gk_problem problem = {
        .desc = weight->desc,
        .layout = weight->layout,
        .is_prefill = m > GK_BATCH_ROWS_MAX,
        .x_dtype = weight->act_dtype,
        .y_dtype = weight->act_dtype,
        .cuda_arch = weight->device->cuda_arch,
        .n_sms = weight->device->n_sms,
    };
    problem.m = (uint32_t)num_min(m, gk_rows_max(&problem));
    return problem;
}

static double floor_of(const struct weight *weight)
{
    return device_floor_usec(weight->device, weight->layout->packed_bytes(&weight->desc));
}

/* More rows than one launch takes are cut into chunks. A kernel knows its own speed, but not how
 * many of its kind share the memory: hence the floor. 0 on the host: what a CPU makes of a kernel's
 * assumed rates depends on the machine, and on what else it does, by several times. They are good
 * for cutting a launch into parts, not for telling anybody. */
static double predict(const struct gk_kernel *kernel, const struct weight *weight, uint32_t m)
{
    struct gk_problem problem = problem_of(weight, m);
    uint32_t n_threads = weight->device->n_threads;
    if (weight->device->ops->kind == GK_DEVICE_HOST) {
        return 0;
    }
    double usec = (m / problem.m) * kernel->predicted_usec(&problem, n_threads);
    problem.m = m % problem.m;
    if (problem.m != 0) {
        usec += kernel->predicted_usec(&problem, n_threads);
    }
    return fmax(usec, floor_of(weight));
}

static void explain_other(const struct gk_kernel *kernel, const struct weight *weight,
                          const struct msg_choice *choice, struct msg_declined *ret_declined)
{
    struct gk_problem problem = problem_of(weight, choice->m);
    struct reason why = REASON_NULL;
    (void)snprintf(ret_declined->kernel, sizeof(ret_declined->kernel), "%s", kernel->name);
    double usec = tuning_usec(atomic_load(&weight->tuning), kernel, choice->m);
    double predicted = predict(kernel, weight, choice->m);
    if (gk_judge(&problem, kernel, &why) == 0 && usec > 0) {
        (void)reason_set(&why, STATUS_OK, "it could, and is not faster: %.1f us measured", usec);
    } else if (why.status == STATUS_OK && predicted > 0) {
        (void)reason_set(&why, STATUS_OK, "it could, and is not preferred: %.1f us predicted",
                         predicted);
    } else if (why.status == STATUS_OK) {
        (void)reason_set(&why, STATUS_OK, "it could, and is not preferred");
    }
    (void)snprintf(ret_declined->reason, sizeof(ret_declined->reason), "%s", why.text);
}

static int explain_one(const struct weight *weight, uint32_t m, struct msg_choice *choice,
                       struct reason *why)
{
    struct gk_problem problem = problem_of(weight, m);
    const struct gk_kernel *chosen;
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(weight->device->ops->kind, &n_kernels);
    int r = weight_select(weight, &problem, &chosen, why);
    if (r != 0) {
        return r;
    }
    choice->m = m;
    choice->measured_usec = tuning_usec(atomic_load(&weight->tuning), chosen, m);
    choice->predicted_usec = predict(chosen, weight, m);
    choice->floor_usec = floor_of(weight);
    (void)snprintf(choice->kernel, sizeof(choice->kernel), "%s", chosen->name);
    (void)snprintf(choice->tile, sizeof(choice->tile), "%s", chosen->tile);
    choice->declined = calloc(n_kernels, sizeof(*choice->declined));
    if (choice->declined == NULL) {
        return err_raise(-ENOMEM);
    }
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (kernels[i] != chosen) {
            explain_other(kernels[i], weight, choice, &choice->declined[choice->n_declined++]);
        }
    }
    return 0;
}

/* The kernel that a launch of so many rows goes to, if it can wait for them on the device; else
 * *ret_unable is its name. */
static bool can_wait(const struct weight *weight, uint32_t m, const char **ret_unable)
{
    struct gk_problem problem = problem_of(weight, m);
    const struct gk_kernel *kernel;
    struct reason why;
    *ret_unable = "no kernel";
    if (weight_select(weight, &problem, &kernel, &why) != 0) {
        return false;
    }
    *ret_unable = kernel->name;
    return kernel->rows_ahead_max != NULL && m <= kernel->rows_ahead_max(&problem);
}

/* Which launches can be queued before their rows come (launch_ahead), and why not the others. */
static void explain_ahead(const struct call *call, const struct weight *weight,
                          char ret_text[REASON_TEXT_BYTES])
{
    const struct device *device = weight->device;
    const char *why = NULL;
    if (call->core->config->launch_ahead == 0) {
        why = "launch_ahead = no in gemmd.conf";
    } else if (device->ops->arm == NULL) {
        why = "the host queues none";
    } else if (device->cuda_arch < 90) {
        why = "that takes a GPU of compute capability 9.0";
    } else if (!device->has_mps) {
        why = "without MPS the clients' kernels would wait for those that wait";
    }
    if (why != NULL) {
        (void)snprintf(ret_text, REASON_TEXT_BYTES, "no launch: %s", why);
        return;
    }
    uint32_t n_rows = 0;
    const char *unable;
    while (n_rows < GK_BATCH_ROWS_MAX && can_wait(weight, n_rows + 1, &unable)) {
        n_rows++;
    }
    if (n_rows == GK_BATCH_ROWS_MAX) {
        (void)snprintf(ret_text, REASON_TEXT_BYTES, "launches of up to %u rows", n_rows);
    } else if (n_rows > 0) {
        (void)snprintf(ret_text, REASON_TEXT_BYTES,
                       "launches of up to %u rows; %s, which larger ones go to, cannot wait for "
                       "more",
                       n_rows, unable);
    } else {
        (void)snprintf(ret_text, REASON_TEXT_BYTES, "no launch: %s cannot wait for its rows",
                       unable);
    }
}

/* How many of standard_m the weight has launches of. */
static uint32_t standard_rows(const struct weight *weight, uint64_t rows_max)
{
    uint32_t n = (uint32_t)ARRAY_LENGTH(standard_m);
    while (n > 1 && (standard_m[n - 1] > rows_max ||
                     standard_m[n - 1] > problem_of(weight, standard_m[n - 1]).m)) {
        n--;
    }
    return n;
}

static int explain_weight(struct call *call, const struct weight *weight, struct reason *why)
{
    const struct msg_explain *explain = &call->request->explain;
    const uint32_t *m = explain->n_m != 0 ? explain->m : standard_m;
    uint32_t n_m =
        explain->n_m != 0 ? explain->n_m : standard_rows(weight, call->core->config->rows_max);
    struct msg_choice *choices = calloc(n_m, sizeof(*choices));
    if (choices == NULL) {
        return err_raise(-ENOMEM);
    }
    /* From here on the reply owns them, half-filled or not. */
    call->reply->body = MSG_BODY_EXPLANATION;
    call->reply->explanation.choices = choices;
    call->reply->explanation.n_choices = n_m;
    weight_describe(weight, &call->reply->explanation.weight);
    explain_ahead(call, weight, call->reply->explanation.ahead);
    for (uint32_t i = 0; i < n_m; i++) {
        if (m[i] == 0 || m[i] > call->core->config->rows_max) {
            return reason_set(why, STATUS_INVALID_ARGUMENT, "m %u is not between 1 and %ju", m[i],
                              (uintmax_t)call->core->config->rows_max);
        }
        int r = explain_one(weight, m[i], &choices[i], why);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

int verb_explain(struct call *call, struct reason *why)
{
    const char *name = call->request->explain.weight;
    int r = msg_name_check(name, "the weight's name", why);
    if (r != 0) {
        return r;
    }
    struct weight *weight = store_find(call->core->store, name);
    if (weight == NULL) {
        return store_no_weight(call->core->store, name, why);
    }
    r = explain_weight(call, weight, why);
    weight_unref(weight);
    return r;
}
