/* loader.c - the queue of jobs and the thread that runs them, one after the other: disk and memory
 * bandwidth are what they need, and two at once would only take turns.
 *
 * One mutex guards the list of jobs and what loader_internal.h says of each. Lock order: the
 * loader's mutex, then the store's. */
#include "daemon/weights/loader_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/bench.h"
#include "daemon/weights/shaping.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"

struct loader {
    struct store *store;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a job was queued or has ended, or the loader stops */
    struct list jobs;       /* in the order in which they came or, once ended, did that */
    uint64_t last_id;
    bool is_stopping;

    struct tuner *tuner;             /* the thread's own */
    struct progress tuning_progress; /* cancelled by whoever has a job */
    bool has_untuned;                /* models that the tuner has not seen to their end */
};

/* ---- jobs ---- */

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
        if (job_has_ended(job)) {
            oldest = oldest ? oldest : job;
            n_ended++;
        }
    }
    if (n_ended > LOADER_ENDED_MAX) {
        job_free(oldest);
    }
}

/* A job that took long is no older news than those which came and ended meanwhile. At the very end
 * the list stays as it is, for whoever goes through it. */
static void end_job(struct loader *loader, struct job *job, enum job_state state)
{
    job->state = state;
    if (!loader->is_stopping) {
        list_remove(&job->link);
        list_append(&loader->jobs, &job->link);
        forget_oldest(loader);
    }
    pthread_cond_broadcast(&loader->changed);
}

/* ---- running ---- */

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

/* Under the mutex, which is given up meanwhile. */
static void run_job(struct loader *loader, struct job *job)
{
    job->state = JOB_RUNNING;
    pthread_mutex_unlock(&loader->mutex);
    struct reason why = job_run(loader->store, job);
    pthread_mutex_lock(&loader->mutex);
    job->why = why;
    loader->has_untuned |= loader->tuner && job_is_loading(&job->request);
    end_job(loader, job, job_state_of(&why));
}

/* Every model that serves; false: not to the end, because somebody has a job. */
static bool tune_all(struct loader *loader)
{
    struct store_model **held = NULL;
    uint32_t n = 0;
    struct reason why = REASON_NULL;
    int r = store_hold_all(loader->store, NULL, &held, &n);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        r = tuner_run(loader->tuner, store_held(held[i]), &loader->tuning_progress, &why);
    }
    for (uint32_t i = 0; i < n; i++) {
        store_release(held[i]);
    }
    free(held);
    if (r < 0) {
        log_write(LOG_LEVEL_WARNING, "tuner", "kernels are not measured: %s", strerror(-r));
    }
    return r != STATUS_CANCELLED;
}

/* Under the mutex, which is given up meanwhile. */
static void run_tuner(struct loader *loader)
{
    loader->has_untuned = false;
    atomic_store(&loader->tuning_progress.is_cancelled, false);
    pthread_mutex_unlock(&loader->mutex);
    bool is_whole = tune_all(loader);
    pthread_mutex_lock(&loader->mutex);
    loader->has_untuned |= !is_whole;
}

static void *run_jobs(void *userdata)
{
    struct loader *loader = userdata;
    pthread_mutex_lock(&loader->mutex);
    while (!loader->is_stopping) {
        struct job *job = next_queued(loader);
        if (job) {
            run_job(loader, job);
        } else if (loader->has_untuned) {
            run_tuner(loader);
        } else {
            pthread_cond_wait(&loader->changed, &loader->mutex);
        }
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* ---- the loader ---- */

int loader_new(struct store *store, struct tuner *tuner, struct loader **ret_loader)
{
    struct loader *loader = calloc(1, sizeof(*loader));
    if (!loader) {
        return err_raise(-ENOMEM);
    }
    loader->store = store;
    loader->tuner = tuner;
    list_init(&loader->jobs);
    progress_init(&loader->tuning_progress);
    (void)pthread_mutex_init(&loader->mutex, NULL); /* these two cannot fail without attributes */
    (void)pthread_cond_init(&loader->changed, NULL);
    int error = pthread_create(&loader->thread, NULL, run_jobs, loader);
    if (error != 0) {
        (void)pthread_cond_destroy(&loader->changed);
        (void)pthread_mutex_destroy(&loader->mutex);
        progress_finish(&loader->tuning_progress);
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
        if (job_is_loading(&job->request)) {
            reason_prefix(&job->why, "model '%.100s'", job->request.name);
        }
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
    atomic_store(&loader->tuning_progress.is_cancelled, true);
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
    progress_finish(&loader->tuning_progress);
    (void)tuner_free(loader->tuner);
    free(loader);
    return NULL;
}

/* ---- starting ---- */

static int check_request(const struct loader_request *request, struct reason *why)
{
    int r = job_is_loading(request) ? msg_model_name_check(request->name, "model name", why)
                                    : msg_name_check(request->name, "model name", why);
    if (r != 0) {
        return r;
    }
    if (request->kind == LOADER_JOB_BENCH) {
        return bench_check(request->device, &request->bench, why);
    }
    if (request->kind != LOADER_JOB_LOAD) {
        return 0;
    }
    if (request->path[0] == '\0') {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "model '%s': the path is empty",
                          request->name);
    }
    struct shaping shaping;
    return shaping_parse(&request->shaping, &shaping, why);
}

/* A job that makes the new one needless: a LOAD of the same name that nobody has cancelled, a
 * RELOAD of it that has not begun. */
static struct job *find_twin(struct loader *loader, const struct loader_request *request)
{
    list_for_each (node, &loader->jobs) {
        struct job *job = LIST_OWNER(node, struct job, link);
        bool can_share = request->kind == LOADER_JOB_LOAD
                             ? !job_has_ended(job) && !atomic_load(&job->progress.is_cancelled)
                             : job->state == JOB_QUEUED;
        if (can_share && job_is_loading(request) && job->request.kind == request->kind &&
            strcmp(job->request.name, request->name) == 0) {
            return job;
        }
    }
    return NULL;
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
                ? job_check_served(loader->store, request, ret_is_served, why)
                : job_check_subject(loader->store, request, why);
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
    if (twin && !shaping_is_same(&twin->request.shaping, &job->request.shaping)) {
        return reason_set(why, STATUS_EXISTS, "model '%.100s' is being loaded in another shape",
                          twin->request.name);
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
    atomic_store(&loader->tuning_progress.is_cancelled, true);
    if (is_served) {
        job_report_served(job);
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

void loader_tune(struct loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    loader->has_untuned = loader->tuner != NULL;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
}

/* ---- watching ---- */

static int unknown_job(uint64_t job_id, struct reason *why)
{
    return reason_set(why, STATUS_NOT_FOUND, "there is no job %llu", (unsigned long long)job_id);
}

int loader_status(struct loader *loader, uint64_t job_id, struct msg_job *ret_job,
                  struct reason *why)
{
    pthread_mutex_lock(&loader->mutex);
    struct job *job = find_job(loader, job_id);
    int r = job ? job_describe(job, ret_job) : unknown_job(job_id, why);
    pthread_mutex_unlock(&loader->mutex);
    return r;
}

static uint32_t list_latest(struct loader *loader, bool has_ended, uint32_t n_max,
                            uint64_t *ret_ids)
{
    uint32_t n = 0;
    for (struct list *node = loader->jobs.prev; node != &loader->jobs && n < n_max;
         node = node->prev) {
        const struct job *job = LIST_OWNER(node, struct job, link);
        if (job_has_ended(job) == has_ended) {
            ret_ids[n++] = job->id;
        }
    }
    return n;
}

uint32_t loader_list(struct loader *loader, uint32_t n_max, uint64_t *ret_ids)
{
    pthread_mutex_lock(&loader->mutex);
    uint32_t n = list_latest(loader, false, n_max, ret_ids);
    n += list_latest(loader, true, n_max - n, ret_ids + n);
    pthread_mutex_unlock(&loader->mutex);
    return n;
}

int loader_cancel(struct loader *loader, uint64_t job_id, struct reason *why)
{
    int r = 0;
    pthread_mutex_lock(&loader->mutex);
    struct job *job = find_job(loader, job_id);
    if (!job) {
        r = unknown_job(job_id, why);
    } else if (!job_has_ended(job)) {
        cancel_job(loader, job);
    }
    pthread_mutex_unlock(&loader->mutex);
    return r;
}

int loader_wait(struct loader *loader, uint64_t job_id, struct reason *why)
{
    pthread_mutex_lock(&loader->mutex);
    struct job *job = find_job(loader, job_id);
    while (job && !job_has_ended(job)) {
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
