/* verbs_models.c - what is resident: lists, look-ups, loading and unloading. Loading is a job: the
 * answer names it, and JOB_STATUS tells how it goes. */
#include "daemon/server/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/bench.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"

int verb_model_list(struct call *call, GD_UNUSED struct reason *why)
{
    int r =
        store_list_models(call->core->store, &call->reply->models.items, &call->reply->models.n);
    call->reply->body = r == 0 ? MSG_BODY_MODELS : MSG_BODY_NONE;
    return r;
}

int verb_weight_list(struct call *call, struct reason *why)
{
    const char *model = call->request->name;
    int r = model[0] != '\0' ? msg_name_check(model, "the model's name", why) : 0;
    r = r != 0 ? r
               : store_list_weights(call->core->store, model, &call->reply->weights.items,
                                    &call->reply->weights.n, why);
    call->reply->body = r == 0 ? MSG_BODY_WEIGHTS : MSG_BODY_NONE;
    return r;
}

int verb_weight_find(struct call *call, struct reason *why)
{
    const char *name = call->request->name;
    int r = msg_name_check(name, "the weight's name", why);
    if (r != 0) {
        return r;
    }
    struct msg_weight *item = malloc(sizeof(*item));
    if (item == NULL) {
        return err_raise(-ENOMEM);
    }
    struct weight *weight = store_find(call->core->store, name);
    if (weight == NULL) {
        free(item);
        return store_no_weight(call->core->store, name, why);
    }
    weight_describe(weight, item);
    weight_unref(weight);
    call->reply->body = MSG_BODY_WEIGHTS;
    call->reply->weights.items = item;
    call->reply->weights.n = 1;
    return 0;
}

/* ---- jobs ---- */

static int reply_with_job(struct call *call, uint64_t job_id, struct reason *why)
{
    int r = loader_status(call->core->loader, job_id, &call->reply->job, why);
    call->reply->body = r == 0 ? MSG_BODY_JOB : MSG_BODY_NONE;
    return r;
}

static int start_job(struct call *call, const struct loader_request *request, struct reason *why)
{
    uint64_t job_id;
    int r = loader_start(call->core->loader, request, &job_id, why);
    if (r != 0) {
        return r;
    }
    log_write(LOG_LEVEL_NOTICE, "control", "session %ju: job %ju: %s '%s'",
              (uintmax_t)call->session->id, (uintmax_t)job_id, msg_verb_name(call->request->verb),
              request->name);
    return reply_with_job(call, job_id, why);
}

int verb_load(struct call *call, struct reason *why)
{
    const struct msg_load *load = &call->request->load;
    int r = msg_name_check(load->name, "the model's name", why);
    if (r != 0) {
        return r;
    }
    if (load->path[0] != '/') {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the path '%.200s' is not absolute: the daemon's folder is not yours",
                          load->path);
    }
    struct device *device = core_device(call->core, load->device, why);
    if (device == NULL) {
        return STATUS_NOT_FOUND;
    }
    struct loader_request request = {
        .kind = LOADER_JOB_LOAD, .device = device, .shaping = load->shaping};
    memcpy(request.name, load->name, sizeof(request.name));
    memcpy(request.path, load->path, sizeof(request.path));
    return start_job(call, &request, why);
}

static int start_named_job(struct call *call, enum loader_job_kind kind, struct reason *why)
{
    int r = msg_name_check(call->request->name, "the name", why);
    if (r != 0) {
        return r;
    }
    struct loader_request request = {.kind = kind};
    memcpy(request.name, call->request->name, sizeof(request.name));
    return start_job(call, &request, why);
}

int verb_reload(struct call *call, struct reason *why)
{
    return start_named_job(call, LOADER_JOB_RELOAD, why);
}

int verb_verify(struct call *call, struct reason *why)
{
    return start_named_job(call, LOADER_JOB_VERIFY, why);
}

int verb_bench(struct call *call, struct reason *why)
{
    const struct msg_bench *bench = &call->request->bench;
    struct device *device = core_device(call->core, bench->device, why);
    if (device == NULL) {
        return STATUS_NOT_FOUND;
    }
    if (bench->is_check) {
        return bench_check(device, bench, why);
    }
    struct loader_request request = {.kind = LOADER_JOB_BENCH, .device = device, .bench = *bench};
    (void)snprintf(request.name, sizeof(request.name), "%s %u x %u", bench->format, bench->n,
                   bench->k);
    return start_job(call, &request, why);
}

int verb_job_status(struct call *call, struct reason *why)
{
    return reply_with_job(call, call->request->job_id, why);
}

int verb_job_cancel(struct call *call, struct reason *why)
{
    int r = loader_cancel(call->core->loader, call->request->job_id, why);
    return r != 0 ? r : reply_with_job(call, call->request->job_id, why);
}

int verb_unload(struct call *call, struct reason *why)
{
    const char *name = call->request->name;
    int r = msg_name_check(name, "the model's name", why);
    r = r != 0 ? r : store_unpublish(call->core->store, name, why);
    if (r == STATUS_NOT_FOUND) {
        r = store_no_model(call->core->store, name, why);
    }
    if (r == 0) {
        log_write(LOG_LEVEL_NOTICE, "control", "session %ju: model '%s' is unloaded",
                  (uintmax_t)call->session->id, name);
    }
    return r;
}
