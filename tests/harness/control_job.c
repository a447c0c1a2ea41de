/* control_job.c - see control_job.h. */
#include "tests/harness/control_job.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define POLL_NSEC 2000000L

int control_verb(gemmd_client_t *client, enum msg_verb verb, const char *name)
{
    struct msg_request request = {.verb = verb};
    struct msg_reply reply = MSG_REPLY_NULL;
    if (name != NULL) {
        (void)snprintf(request.name, sizeof(request.name), "%s", name);
    }
    int r = control_call(client, &request, &reply);
    msg_reply_finish(&reply);
    return r;
}

static bool is_over(const struct msg_job *job)
{
    return strcmp(job->state, "queued") != 0 && strcmp(job->state, "running") != 0;
}

static int follow(gemmd_client_t *client, struct msg_request *request, char *ret_text)
{
    struct msg_reply reply = MSG_REPLY_NULL;
    int r = control_call(client, request, &reply);
    if (r != 0 && ret_text != NULL) {
        (void)snprintf(ret_text, MSG_TEXT_BYTES, "%s", gemmd_last_error());
    }
    while (r == 0 && !is_over(&reply.job)) {
        struct msg_request look = {.verb = MSG_VERB_JOB_STATUS, .job_id = reply.job.job_id};
        msg_reply_finish(&reply);
        reply = MSG_REPLY_NULL;
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_NSEC}, NULL);
        r = control_call(client, &look, &reply);
    }
    if (r == 0) {
        r = reply.job.status;
        if (ret_text != NULL) {
            (void)snprintf(ret_text, MSG_TEXT_BYTES, "%s", reply.job.text);
        }
    }
    msg_reply_finish(&reply);
    return r;
}

static struct msg_request load_of(const char *name, const char *path)
{
    struct msg_request request = {.verb = MSG_VERB_LOAD};
    (void)snprintf(request.load.name, sizeof(request.load.name), "%s", name);
    (void)snprintf(request.load.path, sizeof(request.load.path), "%s", path);
    return request;
}

int control_load_on(gemmd_client_t *client, const char *name, const char *path, const char *device,
                    char *ret_text)
{
    struct msg_request request = load_of(name, path);
    (void)snprintf(request.load.device, sizeof(request.load.device), "%s", device);
    return follow(client, &request, ret_text);
}

int control_load(gemmd_client_t *client, const char *name, const char *path,
                 const struct msg_shaping *shaping, char *ret_text)
{
    struct msg_request request = load_of(name, path);
    if (shaping != NULL) {
        request.load.shaping = *shaping;
    }
    return follow(client, &request, ret_text);
}

int control_job(gemmd_client_t *client, enum msg_verb verb, const char *name, const char *path,
                char *ret_text)
{
    if (verb == MSG_VERB_LOAD) {
        return control_load(client, name, path, NULL, ret_text);
    }
    struct msg_request request = {.verb = verb};
    (void)snprintf(request.name, sizeof(request.name), "%s", name);
    return follow(client, &request, ret_text);
}
