/* status.c - see status.h. json_pack() gives NULL when anything in it was NULL, so that one check
 * at the end notices every failed allocation on the way. JSON is UTF-8, paths need not be, and a
 * sentence may have been cut in the middle of a character: text() mends both. */
#include "daemon/server/status.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/server/accept_guard.h"
#include "daemon/server/message_guard.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/num.h"
#include "ipc/side.h"
#include "ipc/utf8.h"

#define JOBS_SHOWN (LOADER_ACTIVE_MAX + 15u)

static double seconds(uint64_t nsec)
{
    return (double)nsec / 1e9;
}

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *text(const char *raw)
{
    CLEAN_FREE char *copy = strdup(raw);
    if (copy == NULL) {
        return NULL;
    }
    utf8_mend(copy, strlen(copy));
    return json_string(copy);
}

/* ---- devices ---- */

static json_t *rows_histogram(const struct worker_stats *stats)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < WORKER_BATCH_BUCKETS; i++) {
        if (json_object_set_new(object, stats_rows_name(i), integer(stats->launches_by_rows[i])) <
            0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

/* Launches that were queued before their rows were known, and what became of them. */
static json_t *ahead_object(const struct worker_stats *stats)
{
    json_t *disarmed = json_object();
    for (uint32_t i = 0; i < WORKER_DISARMS; i++) {
        (void)json_object_set_new(disarmed, stats_disarm_name(i), integer(stats->n_disarmed[i]));
    }
    return json_pack("{s:o, s:o, s:o}", "armed", integer(stats->n_armed), "fired",
                     integer(stats->n_fired), "disarmed", disarmed);
}

/* What the scheduler decided: why launches took no more, what is held and was, and why. */
static json_t *scheduling_object(const struct worker_stats *stats)
{
    static const char *const closes[SCHED_CLOSES] = {[SCHED_CLOSE_FULL] = "full",
                                                     [SCHED_CLOSE_DEADLINE] = "deadline",
                                                     [SCHED_CLOSE_WINDOW] = "window",
                                                     [SCHED_CLOSE_COMPLETE] = "complete",
                                                     [SCHED_CLOSE_IDLE] = "idle"};
    static const char *const holds[SCHED_HOLDS] = {[SCHED_HOLD_CATCH_UP] = "catch_up",
                                                   [SCHED_HOLD_ARRIVAL] = "arrival",
                                                   [SCHED_HOLD_PREFILL] = "prefill"};
    json_t *closed = json_object();
    for (uint32_t i = 0; i < SCHED_CLOSES; i++) {
        (void)json_object_set_new(closed, closes[i], integer(stats->n_closed[i]));
    }
    json_t *held = json_object();
    for (uint32_t i = 0; i < SCHED_HOLDS; i++) {
        (void)json_object_set_new(held, holds[i],
                                  json_pack("{s:o, s:f}", "decisions", integer(stats->n_holds[i]),
                                            "idle_seconds", seconds(stats->hold_idle_nsec[i])));
    }
    return json_pack("{s:o, s:o, s:i, s:i, s:i, s:o}", "closed", closed, "holds", held, "held",
                     (int)stats->n_held, "passes", (int)stats->n_passes, "in_step",
                     (int)stats->n_in_step, "ahead", ahead_object(stats));
}

static json_t *last_ok(const struct worker_stats *stats)
{
    return stats->last_ok_nsec == 0 ? json_null()
                                    : json_real(seconds(clock_now_nsec() - stats->last_ok_nsec));
}

static json_t *times_array(const struct stats_times *times)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < STATS_TIME_BUCKETS; i++) {
        if (json_array_append_new(array, integer(stats_read(&times->counts[i]))) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* The upper limits of such an array, all but its last element's, which has none. */
static json_t *bounds_array(void)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < STATS_TIME_BUCKETS - 1; i++) {
        if (json_array_append_new(array, json_real(1e-6 * (double)(1u << i))) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *worker_object(struct worker *worker, const struct stats_worker *counters)
{
    struct worker_stats stats;
    worker_stats(worker, &stats);
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:o, s:o, s:i, s:i, s:o, "
        "s:o, s:o, s:o, s:o, s:o}",
        "requests", integer(stats.n_requests), "ok", integer(stats.n_ok), "refused",
        integer(stats.n_refused), "cancelled", integer(stats.n_cancelled), "timed_out",
        integer(stats.n_timed_out), "failed", integer(stats.n_failed), "rows",
        integer(stats.n_rows), "launches", integer(stats.n_launches), "shared_launches",
        integer(stats.n_shared_launches), "launches_by_rows", rows_histogram(&stats),
        "busy_seconds", seconds(stats.busy_nsec), "queue_seconds", seconds(stats.queue_nsec),
        "sleeps", integer(stats.n_sleeps), "corrupt_lanes", integer(stats.n_corrupt_lanes),
        "in_flight", (int)stats.n_in_flight, "lanes", (int)stats.n_lanes, "last_ok_seconds_ago",
        last_ok(&stats), "launch_rows", integer(stats_read(&counters->launch_rows)), "queue_times",
        times_array(&counters->queue), "request_times", times_array(&counters->request),
        "stall_times", times_array(&counters->stall), "scheduling", scheduling_object(&stats));
}

static json_t *device_object(const struct core *core, uint32_t i)
{
    const struct device *device = core->devices[i];
    return json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:o}", "index", (int)i, "name", device->name,
                     "uuid", device->uuid, "kind",
                     device->ops->kind == GK_DEVICE_HOST ? "host" : "cuda", "description",
                     device->description, "threads", (int)device->n_threads, "worker",
                     worker_object(core->workers[i], &core->stats->workers[i]));
}

static json_t *device_array(const struct core *core)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < core->n_devices; i++) {
        if (json_array_append_new(array, device_object(core, i)) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* ---- models and jobs ---- */

static json_t *shares_object(const struct msg_model *model)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < MSG_LOAD_PHASES; i++) {
        (void)json_object_set_new(object, msg_load_phase_name((enum msg_load_phase)i),
                                  json_real(model->load_shares[i]));
    }
    return object;
}

static json_t *model_object(const struct msg_model *model, const struct stats_page *stats)
{
    const struct stats_model *served = stats_model_find(stats, model->name);
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:o, s:i, s:o, s:f, s:o, s:o, s:i, s:s, s:o, s:o}",
                     "name", model->name, "path", text(model->path), "device", model->device,
                     "state", model->state, "origin", model->origin, "generation",
                     integer(model->generation), "weights", (int)model->n_weights, "packed_bytes",
                     integer(model->packed_bytes), "load_seconds", model->load_seconds,
                     "load_bytes", integer(model->load_bytes), "load_shares", shares_object(model),
                     "warnings", (int)model->n_warnings, "act_dtype", dtype_name(model->act_dtype),
                     "requests", integer(served != NULL ? stats_read(&served->n_requests) : 0),
                     "rows", integer(served != NULL ? stats_read(&served->n_rows) : 0));
}

static json_t *model_array(const struct core *core)
{
    struct msg_model *models = NULL;
    uint32_t n = 0;
    if (store_list_models(core->store, &models, &n) != 0) {
        return NULL;
    }
    json_t *array = json_array();
    for (uint32_t i = 0; i < n && array != NULL; i++) {
        if (json_array_append_new(array, model_object(&models[i], core->stats)) < 0) {
            json_decref(array);
            array = NULL;
        }
    }
    free(models);
    return array;
}

static json_t *resident_object(const struct core *core)
{
    struct store_totals totals;
    store_totals(core->store, &totals);
    return json_pack("{s:o, s:o, s:o, s:o}", "models", integer(totals.n_models), "weights",
                     integer(totals.n_weights), "packed_bytes", integer(totals.packed_bytes),
                     "retired_bytes", integer(totals.retired_bytes));
}

/* From exec to being ready, and what of it was spent on weights that an earlier process left. */
static json_t *start_object(const struct core *core)
{
    const struct adoption *adoption = &core->adoption;
    json_t *ready = core->ready_nsec == 0 ? json_null()
                                          : json_real(seconds(core->ready_nsec - core->start_nsec));
    return json_pack("{s:o, s:b, s:i, s:i, s:i, s:o, s:f, s:f}", "ready_seconds", ready, "is_kept",
                     core->keep.ops != NULL, "refused_models", (int)adoption->n_refused,
                     "adopted_models", (int)adoption->n_models, "adopted_weights",
                     (int)adoption->n_weights, "adopted_bytes", integer(adoption->n_bytes),
                     "adopt_seconds", adoption->seconds, "digest_seconds",
                     adoption->digest_seconds);
}

static json_t *job_object(const struct msg_job *job)
{
    return json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:s, s:o}", "id", integer(job->job_id), "kind",
                     job->kind, "state", job->state, "step", text(job->step), "done_bytes",
                     integer(job->done_bytes), "total_bytes", integer(job->total_bytes), "status",
                     status_name(job->status), "text", text(job->text));
}

/* What the loader has forgotten since it was listed is left out. */
static json_t *job_array(const struct core *core)
{
    uint64_t ids[JOBS_SHOWN];
    json_t *array = json_array();
    uint32_t n = core->loader != NULL ? loader_list(core->loader, JOBS_SHOWN, ids) : 0;
    for (uint32_t i = 0; i < n && array != NULL; i++) {
        struct msg_reply holder = {.body = MSG_BODY_JOB};
        if (loader_status(core->loader, ids[i], &holder.job, NULL) != 0) {
            continue;
        }
        if (json_array_append_new(array, job_object(&holder.job)) < 0) {
            json_decref(array);
            array = NULL;
        }
        msg_reply_finish(&holder);
    }
    return array;
}

/* ---- sessions and limits ---- */

static json_t *session_object(const struct session *session)
{
    static const char *const states[] = {"new", "live", "refused", "closing"};
    return json_pack("{s:o, s:o, s:o, s:s, s:s, s:i, s:o, s:i, s:i, s:i}", "id",
                     integer(session->id), "uid", integer(session->peer.uid), "pid",
                     integer((uint64_t)session->peer.pid), "name", session->name, "state",
                     states[session->state], "buffers", (int)buffers_count(session->buffers),
                     "buffer_bytes", integer(buffers_bytes(session->buffers)), "lanes",
                     (int)session->n_lanes, "requests", (int)session->replies.n_pending,
                     "unsent_replies", (int)session->replies.n_unsent);
}

static json_t *session_array(const struct session_table *table)
{
    json_t *array = json_array();
    list_for_each (node, &table->all) {
        const struct session *session = LIST_OWNER(node, struct session, in_all);
        if (json_array_append_new(array, session_object(session)) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *quota_object(const struct core *core)
{
    uint64_t held[QUOTA_KINDS];
    uint32_t n_accounts;
    quota_totals(core->quota, held, &n_accounts);
    json_t *object = json_pack("{s:i}", "users", (int)n_accounts);
    for (uint32_t i = 0; i < QUOTA_KINDS; i++) {
        json_t *row =
            json_pack("{s:o, s:o, s:o}", "held", integer(held[i]), "user_limit",
                      integer(core->limits.per_user[i]), "limit", integer(core->limits.total[i]));
        if (json_object_set_new(object, quota_kind_name((enum quota_kind)i), row) < 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *fd_object(void)
{
    return json_pack("{s:o, s:o, s:o}", "used", integer(accept_guard_used()), "limit",
                     integer(accept_guard_limit()), "shed", integer(accept_guard_shed()));
}

static json_t *counter_object(const struct core_counters *counters)
{
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "sessions",
        integer(counters->n_sessions), "sessions_refused", integer(counters->n_sessions_refused),
        "sessions_dropped", integer(counters->n_sessions_dropped), "messages",
        integer(counters->n_messages), "bad_messages", integer(counters->n_bad_messages),
        "bad_framing", integer(counters->n_bad_framing), "endless_messages",
        integer(message_guard_cut()), "unknown_senders", integer(counters->n_unknown_senders),
        "refused", integer(counters->n_refused), "replies_held", integer(counters->n_replies_held),
        "replies_lost", integer(counters->n_replies_lost));
}

char *status_document(const struct core *core, const struct session_table *table)
{
    json_t *document = json_pack(
        "{s:s, s:i, s:i, s:f, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "version",
        GEMMD_VERSION, "protocol", (int)SIDE_VERSION_MAX, "pid", (int)getpid(), "uptime_seconds",
        seconds(clock_now_nsec() - core->start_nsec), "state", core_phase_name(core->phase),
        "start", start_object(core), "time_bounds_seconds", bounds_array(), "devices",
        device_array(core), "models", model_array(core), "resident", resident_object(core), "jobs",
        job_array(core), "sessions", session_array(table), "quotas", quota_object(core), "fds",
        fd_object(), "counters", counter_object(&core->counters));
    if (document == NULL) {
        return NULL;
    }
    char *dumped = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(12));
    json_decref(document);
    return dumped;
}
