/* startup.c - see startup.h. */
#include "daemon/server/startup.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server/model_options.h"
#include "daemon/weights/shaping.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"

static uint32_t n_configured(const struct startup *startup)
{
    return startup->core->config->models.n;
}

/* An adopted model of that name, from elsewhere or in another shape, is not what the operator wants
 * now. */
static int make_way(struct store *store, const struct loader_request *request, struct reason *why)
{
    struct store_model *held = store_hold(store, request->name);
    bool is_in_the_way = held != NULL && store_held(held)->is_adopted &&
                         (strcmp(store_held(held)->path, request->path) != 0 ||
                          !shaping_is_same(&store_held(held)->shaping, &request->shaping));
    store_release(held);
    if (!is_in_the_way) {
        return 0;
    }
    log_write(LOG_LEVEL_NOTICE, "server",
              "model '%s' is configured otherwise than the one adopted, and loaded anew",
              request->name);
    return store_unpublish(store, request->name, why);
}

/* Information: gemmctl load may have brought it, or it has been taken out of the file since. */
static int tell_unconfigured(const struct startup *startup)
{
    struct store_model **held;
    uint32_t n;
    int r = store_hold_all(startup->core->store, NULL, &held, &n);
    if (r != 0) {
        return r;
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *name = store_held(held[i])->name;
        if (!config_has_model(startup->core->config, name)) {
            log_write(LOG_LEVEL_NOTICE, "server",
                      "model '%s' is adopted and not in the configuration; gemmctl unload %s lets "
                      "go of it",
                      name, name);
        }
        store_release(held[i]);
    }
    free(held);
    return 0;
}

static int start_configured(struct startup *startup, struct reason *why)
{
    struct loader_request request = {.kind = LOADER_JOB_LOAD, .device = startup->core->devices[0]};
    const char *path;
    int r = config_split_model(startup->core->config->models.items[startup->i_model], request.name,
                               sizeof(request.name), &path, why);
    if (r != 0) {
        return r;
    }
    const struct config_list *options = &startup->core->config->model_options;
    r = model_options_find(options->items, options->n, request.name, &request.shaping, why);
    if (r != 0) {
        return r;
    }
    /* A reload later must find it whatever the working folder is then. What cannot be resolved is
     * passed on as it is: the loader says what is wrong with it. */
    char resolved[PATH_MAX];
    const char *wanted = realpath(path, resolved) != NULL ? resolved : path;
    (void)snprintf(request.path, sizeof(request.path), "%s", wanted);
    r = make_way(startup->core->store, &request, why);
    r = r != 0 ? r : loader_start(startup->core->loader, &request, &startup->job_id, why);
    if (r > 0) {
        reason_prefix(why, "model '%s'", request.name);
    }
    return r;
}

/* 0 when the job is done and the next may start. Its log lines are the loader's. */
static int judge(const struct msg_job *job, struct reason *why)
{
    if (strcmp(job->state, "done") == 0) {
        return 0;
    }
    if (strcmp(job->state, "failed") == 0 || strcmp(job->state, "cancelled") == 0) {
        int status = job->status != 0 ? job->status : STATUS_CANCELLED;
        return reason_set(why, status, "%s", job->text);
    }
    return -EAGAIN; /* an answer, not a fault */
}

static int poll_job(const struct startup *startup, struct reason *why)
{
    struct msg_reply holder = {.body = MSG_BODY_JOB};
    int r = loader_status(startup->core->loader, startup->job_id, &holder.job, why);
    r = r != 0 ? r : judge(&holder.job, why);
    msg_reply_finish(&holder);
    return r;
}

static int poll_configured(struct startup *startup, struct reason *why)
{
    int r = startup->job_id == 0 ? start_configured(startup, why) : 0;
    return r != 0 ? r : poll_job(startup, why);
}

/* What was kept and lost is loaded as far as it can be: nobody configured it, so it cannot be what
 * the daemon fails for. A reload is not waited for, since its model serves already. */
static int poll_lost(struct startup *startup)
{
    const struct loader_request *wanted =
        &startup->core->adoption.jobs[startup->i_model - n_configured(startup)];
    struct reason why = REASON_NULL;
    bool is_load = wanted->kind == LOADER_JOB_LOAD;
    if (startup->job_id == 0 && is_load && store_has_model(startup->core->store, wanted->name)) {
        return 0;
    }
    int r = startup->job_id == 0
                ? loader_start(startup->core->loader, wanted, &startup->job_id, &why)
                : 0;
    r = r == 0 && is_load ? poll_job(startup, &why) : r;
    if (r > 0) {
        log_write(LOG_LEVEL_ERROR, "server", "%s", why.text);
        return 0;
    }
    return r;
}

int startup_poll(struct startup *startup, struct reason *why)
{
    if (!startup->has_adopted) {
        int r = core_adopt(startup->core, why);
        r = r != 0 ? r : tell_unconfigured(startup);
        if (r != 0) {
            return r;
        }
        startup->has_adopted = true;
    }
    while (startup->i_model < n_configured(startup) + startup->core->adoption.n_jobs) {
        bool is_configured = startup->i_model < n_configured(startup);
        int r = is_configured ? poll_configured(startup, why) : poll_lost(startup);
        if (r != 0) {
            return r;
        }
        startup->i_model++;
        startup->job_id = 0;
    }
    return 0;
}

void startup_describe(const struct startup *startup, char *text, uint32_t size_bytes)
{
    struct msg_reply holder = {.body = MSG_BODY_JOB};
    uint32_t n = n_configured(startup) + startup->core->adoption.n_jobs;
    if (startup->job_id != 0) {
        int r = loader_status(startup->core->loader, startup->job_id, &holder.job, NULL);
        holder.body = r == 0 ? MSG_BODY_JOB : MSG_BODY_NONE;
    }
    (void)snprintf(text, size_bytes, "loading model %u of %u: %s", startup->i_model + 1, n,
                   holder.job.step);
    msg_reply_finish(&holder);
}
