/* Jobs that read checkpoints, run one after the other by one thread: disk and memory bandwidth are
 * what they need, and two at once would only take turns. A job works on its own model; the store
 * sees the result, whole, or nothing.
 *
 * One mutex guards the list of jobs and everything in a job but its progress (which has its own
 * rules) and what only the thread touches while a job runs. Lock order: the loader's mutex, then
 * the store's. */
#include "daemon/weights/loader.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/model_load.h"
#include "daemon/weights/progress.h"
#include "daemon/weights/verify.h"
#include "daemon/weights/warnings.h"
#include "ipc/base/error.h"
#include "ipc/base/list.h"
#include "ipc/base/log.h"

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED };

struct job {
    struct list link;
    uint64_t id;
    enum job_state state;
    struct loader_request request; /* path without trailing slashes */
    struct progress progress;
    struct reason why; /* this and below: once it has ended */
    struct warnings warnings;
    char report[MSG_TEXT_BYTES];
};

struct loader {
    struct store *store;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a job was queued or has ended, or the loader stops */
    struct list jobs;       /* oldest first */
    uint64_t last_id;
    bool is_stopping;
};

static const char *kind_name(enum loader_job_kind kind)
{
    static const char *const names[] = {"load", "reload", "verify"};
    return names[kind];
}

static const char *state_name(enum job_state state)
{
    static const char *const names[] = {"queued", "running", "done", "failed", "cancelled"};
    return names[state];
}

static bool has_ended(const struct job *job)
{
    return job->state >= JOB_DONE;
}

/* ---- jobs --------------------------------------------------------------------------------------
 */

static int job_new(const struct loader_request *request, struct job **ret_job)
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

static struct job *job_free(struct job *job)
{
    list_remove(&job->link);
    warnings_finish(&job->warnings);
    progress_finish(&job->progress);
    free(job);
    return NULL;
}

static struct job *find_job(struct loader *loader, uint64_t job_id)
{
    list_for_each (node, &loader->jobs) {
        struct job *job = LIST_OWNER(node, struct job, link);
        if (job->id == job_id) {
            return job;
        }
    }
    return NULL;
}

static void forget_oldest(struct loader *loader)
{
    uint32_t n_ended = 0;
    struct job *oldest = NULL;
    list_for_each (node, &loader->jobs) {
        struct job *job = LIST_OWNER(node, struct job, link);
        if (has_ended(job)) {
            oldest = oldest ? oldest : job;
            n_ended++;
        }
    }
    if (n_ended > LOADER_ENDED_MAX) {
        job_free(oldest);
    }
}

static void end_job(struct loader *loader, struct job *job, enum job_state state)
{
    job->state = state;
    forget_oldest(loader);
    pthread_cond_broadcast(&loader->changed);
}

/* ---- running -----------------------------------------------------------------------------------
 */

/* Is the name served already? From another path, that is STATUS_EXISTS. */
static int check_served(struct store *store, const struct loader_request *request,
                        bool *ret_is_served, struct reason *why)
{
    struct store_model *held = store_hold(store, request->name);
    int r = 0;
    if (held && strcmp(store_held(held)->path, request->path) != 0) {
        r = reason_set(why, STATUS_EXISTS, "model '%.100s' is loaded from another path, '%.150s'",
                       request->name, store_held(held)->path);
    } else {
        *ret_is_served = held != NULL;
    }
    store_release(held);
    return r;
}

static int hand_over(struct loader *loader, struct job *job, struct model *model,
                     struct reason *why)
{
    int r = warnings_copy(job->warnings.items, job->warnings.n, &model->warnings);
    if (r != 0) {
        return r;
    }
    model->n_warnings = job->warnings.n;
    r = progress_check(&job->progress, why);
    if (r != 0) {
        return r;
    }
    return job->request.kind == LOADER_JOB_RELOAD ? store_replace(loader->store, model, why)
                                                  : store_publish(loader->store, model);
}

static int load_from(struct loader *loader, struct job *job, const char *path,
                     struct device *device, struct reason *why)
{
    struct model *model;
    int r =
        model_load(job->request.name, path, device, &job->progress, &job->warnings, &model, why);
    if (r != 0) {
        return r;
    }
    uint32_t n_weights = model->n_weights;
    double seconds = model->load_seconds;
    r = hand_over(loader, job, model, why);
    if (r != 0) {
        model_free(model);
        return r;
    }
    (void)snprintf(job->report, sizeof(job->report),
                   "model '%s': %u weights in %.2f s, %u warnings", job->request.name, n_weights,
                   seconds, job->warnings.n);
    return 0;
}

static void report_served(struct job *job)
{
    (void)snprintf(job->report, sizeof(job->report), "model '%s' is served already",
                   job->request.name);
}

/* What serves the name is asked again: it may have changed while the job waited. */
static int run_load(struct loader *loader, struct job *job, struct reason *why)
{
    bool is_served = false;
    int r = check_served(loader->store, &job->request, &is_served, why);
    if (r != 0) {
        return r;
    }
    if (is_served) {
        report_served(job);
        return 0;
    }
    return load_from(loader, job, job->request.path, job->request.device, why);
}

/* The model that a RELOAD or VERIFY is about; a VERIFY's name may go on with "/module.path". */
static struct store_model *hold_subject(struct loader *loader, const struct loader_request *request)
{
    char model[MSG_NAME_BYTES];
    (void)snprintf(model, sizeof(model), "%.*s", (int)strcspn(request->name, "/"), request->name);
    return store_hold(loader->store, model);
}

static int not_found(const struct loader_request *request, struct reason *why)
{
    return reason_set(why, STATUS_NOT_FOUND, "there is no model of '%s'", request->name);
}

static int run_reload(struct loader *loader, struct job *job, struct reason *why)
{
    struct store_model *held = hold_subject(loader, &job->request);
    if (!held) {
        return not_found(&job->request, why);
    }
    char path[MSG_PATH_BYTES];
    struct device *device = store_held(held)->device;
    memcpy(path, store_held(held)->path, sizeof(path));
    store_release(held); /* held through the load, it would keep the old memory past its last use */
    return load_from(loader, job, path, device, why);
}

static int run_verify(struct loader *loader, struct job *job, struct reason *why)
{
    struct store_model *held = hold_subject(loader, &job->request);
    if (!held) {
        return not_found(&job->request, why);
    }
    const char *name = job->request.name;
    int r = verify_model(store_held(held), strchr(name, '/') ? name : NULL, &job->progress,
                         &job->warnings, job->report, why);
    store_release(held);
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
    enum log_level level = why->status == STATUS_CANCELLED ? LOG_LEVEL_NOTICE : LOG_LEVEL_ERROR;
    log_write(level, "loader", "%s '%s': %s", kind_name(job->request.kind), job->request.name,
              why->text);
}

/* Without the mutex: nobody else touches a running job's warnings and report. */
static struct reason run_job(struct loader *loader, struct job *job)
{
    static int (*const runners[])(struct loader *, struct job *,
                                  struct reason *) = {run_load, run_reload, run_verify};
    struct reason why = REASON_NULL;
    int r = runners[job->request.kind](loader, job, &why);
    if (r < 0) {
        (void)reason_errno(&why, r, "%s of '%s'", kind_name(job->request.kind), job->request.name);
    } else if (r == 0) {
        why = REASON_NULL; /* the outcome is r; a sentence that somebody left behind is not one */
    }
    log_outcome(job, &why);
    return why;
}

static enum job_state state_of(const struct reason *why)
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

static struct job *next_queued(struct loader *loader)
{
    list_for_each (node, &loader->jobs) {
        struct job *job = LIST_OWNER(node, struct job, link);
        if (job->state == JOB_QUEUED) {
            return job;
        }
    }
    return NULL;
}

static void *run_jobs(void *userdata)
{
    struct loader *loader = userdata;
    pthread_mutex_lock(&loader->mutex);
    while (!loader->is_stopping) {
        struct job *job = next_queued(loader);
        if (!job) {
            pthread_cond_wait(&loader->changed, &loader->mutex);
            continue;
        }
        job->state = JOB_RUNNING;
        pthread_mutex_unlock(&loader->mutex);
        struct reason why = run_job(loader, job);
        pthread_mutex_lock(&loader->mutex);
        job->why = why;
        end_job(loader, job, state_of(&why));
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* ---- the loader --------------------------------------------------------------------------------
 */

int loader_new(struct store *store, struct loader **ret_loader)
{
    struct loader *loader = calloc(1, sizeof(*loader));
    if (!loader) {
        return err_raise(-ENOMEM);
    }
    loader->store = store;
    list_init(&loader->jobs);
    (void)pthread_mutex_init(&loader->mutex, NULL); /* these two cannot fail without attributes */
    (void)pthread_cond_init(&loader->changed, NULL);
    int error = pthread_create(&loader->thread, NULL, run_jobs, loader);
    if (error != 0) {
        (void)pthread_cond_destroy(&loader->changed);
        (void)pthread_mutex_destroy(&loader->mutex);
        free(loader);
        return err_raise(-error);
    }
    *ret_loader = loader;
    return 0;
}

static void cancel_job(struct loader *loader, struct job *job)
{
    atomic_store(&job->progress.is_cancelled, true);
    if (job->state == JOB_QUEUED) {
        (void)reason_set(&job->why, STATUS_CANCELLED, "cancelled");
        end_job(loader, job, JOB_CANCELLED);
    }
}

struct loader *loader_free(struct loader *loader)
{
    if (!loader) {
        return NULL;
    }
    pthread_mutex_lock(&loader->mutex);
    loader->is_stopping = true;
    list_for_each_safe (node, &loader->jobs) {
        cancel_job(loader, LIST_OWNER(node, struct job, link));
    }
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
    (void)pthread_join(loader->thread, NULL);
    list_for_each_safe (node, &loader->jobs) {
        job_free(LIST_OWNER(node, struct job, link));
    }
    (void)pthread_cond_destroy(&loader->changed);
    (void)pthread_mutex_destroy(&loader->mutex);
    free(loader);
    return NULL;
}

/* ---- starting ----------------------------------------------------------------------------------
 */

static int check_request(const struct loader_request *request, struct reason *why)
{
    int r = msg_name_check(request->name, "model name", why);
    if (r != 0) {
        return r;
    }
    if (request->kind != LOADER_JOB_VERIFY && strchr(request->name, '/')) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "model name '%s' contains a '/'",
                          request->name);
    }
    if (request->kind != LOADER_JOB_LOAD) {
        return 0;
    }
    if (request->path[0] == '\0') {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "model '%s': the path is empty",
                          request->name);
    }
    if (request->tp_size > 1) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "tensor-parallel slices (rank %u of %u) are not cut", request->tp_rank,
                          request->tp_size);
    }
    if (request->tp_rank > 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "rank %u is out of range for a size of 1",
                          request->tp_rank);
    }
    return 0;
}

/* A job that makes the new one needless: a LOAD of the same name that nobody has cancelled, a
 * RELOAD of it that has not begun. */
static struct job *find_twin(struct loader *loader, const struct loader_request *request)
{
    list_for_each (node, &loader->jobs) {
        struct job *job = LIST_OWNER(node, struct job, link);
        bool can_share = request->kind == LOADER_JOB_LOAD
                             ? !has_ended(job) && !atomic_load(&job->progress.is_cancelled)
                             : job->state == JOB_QUEUED;
        if (can_share && request->kind != LOADER_JOB_VERIFY && job->request.kind == request->kind &&
            strcmp(job->request.name, request->name) == 0) {
            return job;
        }
    }
    return NULL;
}

/* RELOAD and VERIFY are about something that is there. */
static int check_subject(struct loader *loader, const struct loader_request *request,
                         struct reason *why)
{
    struct store_model *held = hold_subject(loader, request);
    store_release(held);
    bool is_there = held != NULL;
    if (is_there && strchr(request->name, '/')) {
        struct weight *weight = store_find(loader->store, request->name);
        is_there = weight != NULL;
        weight_unref(weight);
    }
    return is_there ? 0 : not_found(request, why);
}

static int check_queue(struct loader *loader, struct reason *why)
{
    uint32_t n_queued = 0;
    if (loader->is_stopping) {
        return reason_set(why, STATUS_SHUTTING_DOWN, "the loader is stopping");
    }
    list_for_each (node, &loader->jobs) {
        n_queued += LIST_OWNER(node, struct job, link)->state == JOB_QUEUED;
    }
    if (n_queued >= LOADER_QUEUED_MAX) {
        return reason_set(why, STATUS_BUSY, "%u jobs are waiting already", n_queued);
    }
    return 0;
}

/* Everything that can refuse a job which has no twin. */
static int check_admission(struct loader *loader, const struct loader_request *request,
                           bool *ret_is_served, struct reason *why)
{
    int r = request->kind == LOADER_JOB_LOAD
                ? check_served(loader->store, request, ret_is_served, why)
                : check_subject(loader, request, why);
    return r != 0 || *ret_is_served ? r : check_queue(loader, why);
}

/* Under the mutex. On success the request is a job of the list: its twin, in which case `job` is
 * still the caller's, or `job` itself. */
static int admit_job(struct loader *loader, struct job *job, uint64_t *ret_job_id,
                     struct reason *why)
{
    struct job *twin = find_twin(loader, &job->request);
    if (twin && strcmp(twin->request.path, job->request.path) != 0) {
        return reason_set(why, STATUS_EXISTS, "model '%.100s' is being loaded from '%.150s'",
                          twin->request.name, twin->request.path);
    }
    if (twin) {
        *ret_job_id = twin->id;
        return 0;
    }
    bool is_served = false;
    int r = check_admission(loader, &job->request, &is_served, why);
    if (r != 0) {
        return r;
    }
    job->id = ++loader->last_id;
    *ret_job_id = job->id;
    list_append(&loader->jobs, &job->link);
    if (is_served) {
        report_served(job);
        end_job(loader, job, JOB_DONE);
    }
    pthread_cond_broadcast(&loader->changed);
    return 0;
}

int loader_start(struct loader *loader, const struct loader_request *request, uint64_t *ret_job_id,
                 struct reason *why)
{
    struct job *job = NULL;
    int r = check_request(request, why);
    if (r == 0) {
        r = job_new(request, &job);
    }
    if (r != 0) {
        return r;
    }
    pthread_mutex_lock(&loader->mutex);
    r = admit_job(loader, job, ret_job_id, why);
    bool is_taken = job->id != 0;
    pthread_mutex_unlock(&loader->mutex);
    if (!is_taken) {
        job_free(job);
    }
    return r;
}

/* ---- watching ----------------------------------------------------------------------------------
 */

static int unknown_job(uint64_t job_id, struct reason *why)
{
    return reason_set(why, STATUS_NOT_FOUND, "there is no job %llu", (unsigned long long)job_id);
}

static int describe_job(struct job *job, struct msg_job *ret_message)
{
    struct msg_job message = {
        .job_id = job->id,
        .done_bytes = atomic_load(&job->progress.done_bytes),
        .total_bytes = atomic_load(&job->progress.total_bytes),
    };
    if (has_ended(job)) {
        int r = warnings_copy(job->warnings.items, job->warnings.n, &message.warnings);
        if (r != 0) {
            return r;
        }
        message.n_warnings = job->warnings.n;
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

int loader_status(struct loader *loader, uint64_t job_id, struct msg_job *ret_job,
                  struct reason *why)
{
    pthread_mutex_lock(&loader->mutex);
    struct job *job = find_job(loader, job_id);
    int r = job ? describe_job(job, ret_job) : unknown_job(job_id, why);
    pthread_mutex_unlock(&loader->mutex);
    return r;
}

int loader_cancel(struct loader *loader, uint64_t job_id, struct reason *why)
{
    int r = 0;
    pthread_mutex_lock(&loader->mutex);
    struct job *job = find_job(loader, job_id);
    if (!job) {
        r = unknown_job(job_id, why);
    } else if (!has_ended(job)) {
        cancel_job(loader, job);
    }
    pthread_mutex_unlock(&loader->mutex);
    return r;
}

int loader_wait(struct loader *loader, uint64_t job_id, struct reason *why)
{
    pthread_mutex_lock(&loader->mutex);
    struct job *job = find_job(loader, job_id);
    while (job && !has_ended(job)) {
        pthread_cond_wait(&loader->changed, &loader->mutex);
        job = find_job(loader, job_id); /* it may have ended and been forgotten meanwhile */
    }
    int r = job ? job->why.status : unknown_job(job_id, why);
    if (job && r != 0 && why) {
        *why = job->why;
    }
    pthread_mutex_unlock(&loader->mutex);
    return r;
}
