/* startup.c - see startup.h. */
#include "daemon/server/startup.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server/model_options.h"
#include "ipc/base/error.h"

static int start_next(struct startup *startup, struct reason *why)
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
    r = core_load(startup->core, &request, &startup->job_id, why);
    if (r > 0) {
        reason_prefix(why, "model '%s'", request.name);
    }
    return r;
}

/* 0 when the job is done and the next may start. Its log lines are the loader's. */
static int judge(const struct msg_job *job, const char *item, struct reason *why)
{
    if (strcmp(job->state, "done") == 0) {
        return 0;
    }
    if (strcmp(job->state, "failed") == 0 || strcmp(job->state, "cancelled") == 0) {
        int status = job->status != 0 ? job->status : STATUS_CANCELLED;
        return reason_set(why, status, "model '%.*s': %.240s", (int)strcspn(item, "="), item,
                          job->text);
    }
    return -EAGAIN; /* an answer, not a fault */
}

int startup_poll(struct startup *startup, struct reason *why)
{
    const struct config_list *models = &startup->core->config->models;
    while (startup->i_model < models->n) {
        if (startup->job_id == 0) {
            int r = start_next(startup, why);
            if (r != 0) {
                return r;
            }
        }
        struct msg_reply holder = {.body = MSG_BODY_JOB};
        int r = loader_status(startup->core->loader, startup->job_id, &holder.job, why);
        r = r != 0 ? r : judge(&holder.job, models->items[startup->i_model], why);
        msg_reply_finish(&holder);
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
    const struct config_list *models = &startup->core->config->models;
    const char *item = startup->i_model < models->n ? models->items[startup->i_model] : "";
    if (startup->job_id != 0) {
        int r = loader_status(startup->core->loader, startup->job_id, &holder.job, NULL);
        holder.body = r == 0 ? MSG_BODY_JOB : MSG_BODY_NONE;
    }
    (void)snprintf(text, size_bytes, "loading '%.*s' (%u of %u): %s", (int)strcspn(item, "="), item,
                   startup->i_model + 1, models->n, holder.job.step);
    msg_reply_finish(&holder);
}
