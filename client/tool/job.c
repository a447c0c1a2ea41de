/* job.c - following a job of the daemon to its end. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/tool/tool.h"

#define POLL_MSEC 100

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    is_interrupted = 1;
}

static int job_call(struct tool *tool, enum msg_verb verb, uint64_t job_id,
                    struct msg_reply *ret_reply)
{
    struct msg_request request = {.verb = verb, .job_id = job_id};
    return control_call(tool->client, &request, ret_reply);
}

static bool is_over(const struct msg_job *job)
{
    return strcmp(job->state, "queued") != 0 && strcmp(job->state, "running") != 0;
}

/* Redrawn in place on a terminal; elsewhere a line whenever the step changes. */
static void show_progress(const struct msg_job *job, char last_step[MSG_NAME_BYTES])
{
    char done[32], total[32];
    bool is_terminal = isatty(STDERR_FILENO);
    if (is_terminal) {
        (void)fprintf(stderr, "\r\033[K%s %s: %s of %s, %s", job->kind, job->state,
                      tool_bytes(job->done_bytes, done), tool_bytes(job->total_bytes, total),
                      job->step);
    } else if (strcmp(last_step, job->state) != 0) {
        (void)fprintf(stderr, "%s %s\n", job->kind, job->state);
    }
    (void)snprintf(last_step, MSG_NAME_BYTES, "%s", job->state);
}

static json_t *job_json(const struct msg_job *job)
{
    json_t *warnings = json_array();
    for (uint32_t i = 0; i < job->n_warnings; i++) {
        json_array_append_new(warnings, json_string(job->warnings[i]));
    }
    return json_pack("{sI ss ss sI sI ss ss so}", "job_id", (json_int_t)job->job_id, "kind",
                     job->kind, "state", job->state, "done_bytes", (json_int_t)job->done_bytes,
                     "total_bytes", (json_int_t)job->total_bytes, "status",
                     gemmd_status_name(job->status), "text", job->text, "warnings", warnings);
}

static int report(struct tool *tool, const struct msg_job *job)
{
    for (uint32_t i = 0; i < job->n_warnings; i++) {
        (void)fprintf(stderr, "warning: %s\n", job->warnings[i]);
    }
    if (job->status != STATUS_OK) {
        if (tool->is_json) {
            (void)tool_print_json(job_json(job));
        }
        return tool_fail(client_refuse(job->status, "%s", job->text));
    }
    if (tool->is_json) {
        return tool_print_json(job_json(job));
    }
    (void)printf("%s\n", job->text);
    return TOOL_DONE;
}

static int follow(struct tool *tool, struct msg_reply *reply)
{
    char last_step[MSG_NAME_BYTES] = "";
    bool is_cancel_sent = false;
    while (!is_over(&reply->job)) {
        uint64_t job_id = reply->job.job_id;
        show_progress(&reply->job, last_step);
        msg_reply_finish(reply);
        *reply = MSG_REPLY_NULL;
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MSEC * 1000000L}, NULL);
        bool is_cancelling = is_interrupted && !is_cancel_sent;
        int r = job_call(tool, is_cancelling ? MSG_VERB_JOB_CANCEL : MSG_VERB_JOB_STATUS, job_id,
                         reply);
        if (r != 0) {
            return tool_fail(r);
        }
        is_cancel_sent |= is_cancelling;
    }
    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "\r\033[K");
    }
    return report(tool, &reply->job);
}

int tool_follow_job(struct tool *tool, struct msg_reply *started)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    struct sigaction before;
    if (started->body != MSG_BODY_JOB) {
        msg_reply_finish(started);
        return tool_fail(client_refuse(STATUS_BAD_MESSAGE, "the daemon's reply has no job in it"));
    }
    (void)sigaction(SIGINT, &action, &before);
    int r = follow(tool, started);
    (void)sigaction(SIGINT, &before, NULL);
    msg_reply_finish(started);
    return r;
}
