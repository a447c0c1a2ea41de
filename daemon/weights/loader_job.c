/* loader_job.c - what the jobs do: load, reload, verify, bench. A job works on a model of its own;
 * the store sees the result, whole, or nothing. */
#include "daemon/weights/loader_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/bench.h"
#include "daemon/weights/model_load.h"
#include "daemon/weights/shaping.h"
#include "daemon/weights/verify.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"

static const char *kind_name(enum loader_job_kind kind)
{
    static const char *const names[] = {"load", "reload", "verify", "bench"};
    return names[kind];
}

static const char *state_name(enum job_state state)
{
    static const char *const names[] = {"queued", "running", "done", "failed", "cancelled"};
    return names[state];
}

bool job_has_ended(const struct job *job)
{
    return job->state >= JOB_DONE;
}

bool job_is_loading(const struct loader_request *request)
{
    return request->kind == LOADER_JOB_LOAD || request->kind == LOADER_JOB_RELOAD;
}

int job_new(const struct loader_request *request, struct job **ret_job)
{
    struct job *job = calloc(1, sizeof(*job));
    if (!job) {
        return err_raise(-ENOMEM);
    }
    list_init(&job->link);
    job->request = *request;
    size_t length = strlen(job->request.path);
    while (length > 1 && job->request.path[length - 1] == '/') {
        job->request.path[--length] = '\0';
    }
    progress_init(&job->progress);
    *ret_job = job;
    return 0;
}

struct job *job_free(struct job *job)
{
    list_remove(&job->link);
    warnings_finish(&job->warnings);
    (void)msg_bench_result_free(job->bench);
    progress_finish(&job->progress);
    free(job);
    return NULL;
}

/* ---- running ---- */

int job_check_served(struct store *store, const struct loader_request *request, bool *ret_is_served,
                     struct reason *why)
{
    struct store_model *held = store_hold(store, request->name);
    int r = 0;
    if (held && strcmp(store_held(held)->path, request->path) != 0) {
        r = reason_set(why, STATUS_EXISTS, "model '%.100s' is loaded from another path, '%.150s'",
                       request->name, store_held(held)->path);
    } else if (held && !shaping_is_same(&store_held(held)->shaping, &request->shaping)) {
        r = reason_set(why, STATUS_EXISTS, "model '%.100s' is loaded in another shape",
                       request->name);
    } else {
        *ret_is_served = held != NULL;
    }
    store_release(held);
    return r;
}

/* A part of the load: without them a model is not kept. */
static int digest(struct job *job, struct model *model, struct reason *why)
{
    uint64_t start_nsec = clock_now_nsec();
    int r = keep_digest(model, why);
    uint64_t end_nsec = progress_spend(&job->progress, MSG_LOAD_PREPARE, start_nsec);
    model->load_seconds += 1e-9 * (double)(end_nsec - start_nsec);
    return r;
}

static void report_load(struct job *job, const struct model *model)
{
    const double *shares = model->load_shares;
    double gigabytes = 1e-9 * (double)model->load_bytes;
    (void)snprintf(job->report, sizeof(job->report),
                   "model '%s': %u weights, %.2f GB in %.2f s, %.1f GB/s (reading %.0f %%, copying "
                   "%.0f %%, packing %.0f %%, preparing %.0f %%), %u warnings",
                   job->request.name, model->n_weights, gigabytes, model->load_seconds,
                   model->load_seconds > 0 ? gigabytes / model->load_seconds : 0.0,
                   1e2 * shares[MSG_LOAD_READ], 1e2 * shares[MSG_LOAD_COPY],
                   1e2 * shares[MSG_LOAD_PACK], 1e2 * shares[MSG_LOAD_PREPARE], job->warnings.n);
}

static int hand_over(struct store *store, struct job *job, struct model *model, struct reason *why)
{
    int r = warnings_copy(job->warnings.items, job->warnings.n, &model->warnings);
    if (r != 0) {
        return r;
    }
    model->n_warnings = job->warnings.n;
    r = store_keeps(store) ? digest(job, model, why) : 0;
    r = r != 0 ? r : progress_check(&job->progress, why);
    if (r != 0) {
        return r;
    }
    model->load_bytes = atomic_load(&job->progress.done_bytes);
    progress_shares(&job->progress, model->load_shares);
    report_load(job, model);
    return job->request.kind == LOADER_JOB_RELOAD ? store_replace(store, model, why)
                                                  : store_publish(store, model);
}

/* Where a model comes from, and what it becomes. */
struct origin {
    char path[MSG_PATH_BYTES];
    struct device *device;
    struct msg_shaping shaping;
};

static int load_from(struct store *store, struct job *job, const struct origin *origin,
                     struct reason *why)
{
    struct model *model;
    int r = model_load(job->request.name, origin->path, origin->device, &origin->shaping,
                       &job->progress, &job->warnings, &model, why);
    if (r == 0) {
        r = hand_over(store, job, model, why);
        if (r != 0) {
            model_free(model);
        }
    }
    if (r > 0) {
        reason_prefix(why, "model '%.100s'", job->request.name);
    }
    return r;
}

void job_report_served(struct job *job)
{
    (void)snprintf(job->report, sizeof(job->report), "model '%s' is served already",
                   job->request.name);
}

/* What serves the name is asked again: it may have changed while the job waited. */
static int run_load(struct store *store, struct job *job, struct reason *why)
{
    bool is_served = false;
    int r = job_check_served(store, &job->request, &is_served, why);
    if (r != 0) {
        return r;
    }
    if (is_served) {
        job_report_served(job);
        return 0;
    }
    struct origin origin = {.device = job->request.device, .shaping = job->request.shaping};
    memcpy(origin.path, job->request.path, sizeof(origin.path));
    return load_from(store, job, &origin, why);
}

/* The model that a RELOAD or VERIFY is about; a VERIFY's name may go on with "/module.path". */
static struct store_model *hold_subject(struct store *store, const struct loader_request *request)
{
    char model[MSG_NAME_BYTES];
    (void)snprintf(model, sizeof(model), "%.*s", (int)strcspn(request->name, "/"), request->name);
    return store_hold(store, model);
}

static int no_model(struct store *store, const struct loader_request *request, struct reason *why)
{
    char model[MSG_NAME_BYTES];
    (void)snprintf(model, sizeof(model), "%.*s", (int)strcspn(request->name, "/"), request->name);
    return store_no_model(store, model, why);
}

int job_check_subject(struct store *store, const struct loader_request *request, struct reason *why)
{
    if (request->kind == LOADER_JOB_BENCH) {
        return 0;
    }
    struct store_model *held = hold_subject(store, request);
    store_release(held);
    if (!held) {
        return no_model(store, request, why);
    }
    if (strchr(request->name, '/')) {
        struct weight *weight = store_find(store, request->name);
        weight_unref(weight);
        if (!weight) {
            return store_no_weight(store, request->name, why);
        }
    }
    return 0;
}

static int run_reload(struct store *store, struct job *job, struct reason *why)
{
    struct store_model *held = hold_subject(store, &job->request);
    if (!held) {
        return no_model(store, &job->request, why);
    }
    struct origin origin = {.device = store_held(held)->device,
                            .shaping = store_held(held)->shaping};
    memcpy(origin.path, store_held(held)->path, sizeof(origin.path));
    store_release(held); /* held through the load, it would keep the old memory past its last use */
    return load_from(store, job, &origin, why);
}

static int run_verify(struct store *store, struct job *job, struct reason *why)
{
    struct store_model *held = hold_subject(store, &job->request);
    if (!held) {
        return no_model(store, &job->request, why);
    }
    const char *name = job->request.name;
    int r = verify_model(store_held(held), strchr(name, '/') ? name : NULL, &job->progress,
                         &job->warnings, job->report, why);
    store_release(held);
    return r;
}

static int run_bench(struct store *store, struct job *job, struct reason *why)
{
    (void)store; /* not of its business */
    const struct msg_bench *bench = &job->request.bench;
    int r = bench_run(job->request.device, bench, &job->progress, &job->warnings, &job->bench, why);
    if (r == 0) {
        (void)snprintf(job->report, sizeof(job->report),
                       "%s, %u x %u on %s: %u measurements over %u copies of the weight",
                       bench->format, bench->n, bench->k, job->request.device->name,
                       job->bench->n_rows, job->bench->n_copies);
    }
    return r;
}

static void log_outcome(const struct job *job, const struct reason *why)
{
    for (uint32_t i = 0; i < job->warnings.n; i++) {
        log_write(LOG_LEVEL_WARNING, "loader", "%s '%s': %s", kind_name(job->request.kind),
                  job->request.name, job->warnings.items[i]);
    }
    if (why->status == STATUS_OK) {
        log_write(LOG_LEVEL_NOTICE, "loader", "%s: %s", kind_name(job->request.kind), job->report);
        return;
    }
    char subject[MSG_NAME_BYTES + 4] = "";
    if (!job_is_loading(&job->request)) { /* refusals to load say of which model they are */
        (void)snprintf(subject, sizeof(subject), " '%s'", job->request.name);
    }
    bool is_cancelled = why->status == STATUS_CANCELLED;
    log_event(is_cancelled ? LOG_EVENT_NONE : LOG_EVENT_JOB_FAILED,
              is_cancelled ? LOG_LEVEL_NOTICE : LOG_LEVEL_ERROR, "loader", "%s%s: %s",
              kind_name(job->request.kind), subject, why->text);
}

struct reason job_run(struct store *store, struct job *job)
{
    static int (*const runners[])(struct store *, struct job *,
                                  struct reason *) = {run_load, run_reload, run_verify, run_bench};
    struct reason why = REASON_NULL;
    int r = runners[job->request.kind](store, job, &why);
    if (r < 0) {
        (void)reason_errno(&why, r, "%s of '%s'", kind_name(job->request.kind), job->request.name);
    } else if (r == 0) {
        why = REASON_NULL; /* the outcome is r; a sentence that somebody left behind is not one */
    }
    log_outcome(job, &why);
    return why;
}

enum job_state job_state_of(const struct reason *why)
{
    switch (why->status) {
    case STATUS_OK:
        return JOB_DONE;
    case STATUS_CANCELLED:
        return JOB_CANCELLED;
    default:
        return JOB_FAILED;
    }
}

/* ---- describing ---- */

int job_describe(struct job *job, struct msg_job *ret_message)
{
    struct msg_job message = {
        .job_id = job->id,
        .done_bytes = atomic_load(&job->progress.done_bytes),
        .total_bytes = atomic_load(&job->progress.total_bytes),
    };
    if (job_has_ended(job)) {
        int r = warnings_copy(job->warnings.items, job->warnings.n, &message.warnings);
        if (r != 0) {
            return r;
        }
        message.n_warnings = job->warnings.n;
        r = job->bench ? msg_bench_result_copy(job->bench, &message.bench) : 0;
        if (r != 0) {
            (void)warnings_list_free(message.warnings, message.n_warnings);
            return r;
        }
        message.status = job->why.status;
        (void)snprintf(message.text, sizeof(message.text), "%s",
                       job->state == JOB_DONE ? job->report : job->why.text);
    }
    (void)snprintf(message.kind, sizeof(message.kind), "%s", kind_name(job->request.kind));
    (void)snprintf(message.state, sizeof(message.state), "%s", state_name(job->state));
    progress_get_step(&job->progress, message.step);
    *ret_message = message;
    return 0;
}
