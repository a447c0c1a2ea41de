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

static bool is_over(const struct msg_job *job)
{
    return strcmp(job->state, "queued") != 0 && strcmp(job->state, "running") != 0;
}

/* Redrawn in place on a terminal; elsewhere nothing: how the job ended is said once, at its end. */
static void show_progress(const struct msg_job *job, void *userdata)
{
    char done[32], total[32];
    (void)userdata;
    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "\r\033[K%s %s: %s of %s, %s", job->kind, job->state,
                      tool_bytes(job->done_bytes, done), tool_bytes(job->total_bytes, total),
                      job->step);
    }
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

/* A job that has ended meanwhile cannot be cancelled; how it ended is asked next. */
static void ask_to_cancel(struct tool *tool, uint64_t job_id)
{
    struct msg_request request = {.verb = MSG_VERB_JOB_CANCEL, .job_id = job_id};
    struct msg_reply reply;
    (void)fprintf(stderr, "\ngemmctl: interrupted, cancelling job %llu\n",
                  (unsigned long long)job_id);
    if (control_call(tool->client, &request, &reply) == 0) {
        msg_reply_finish(&reply);
    }
}

static int poll_job(struct tool *tool, tool_progress_fn show, void *userdata,
                    struct msg_reply *reply)
{
    struct msg_request request = {.verb = MSG_VERB_JOB_STATUS, .job_id = reply->job.job_id};
    bool is_cancel_sent = false;
    while (!is_over(&reply->job)) {
        show(&reply->job, userdata);
        msg_reply_finish(reply);
        *reply = MSG_REPLY_NULL;
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MSEC * 1000000L}, NULL);
        if (is_interrupted && !is_cancel_sent) {
            ask_to_cancel(tool, request.job_id);
            is_cancel_sent = true;
        }
        int r = tool_call(tool, &request, MSG_BODY_JOB, reply);
        if (r != 0) {
            return r;
        }
    }
    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "\r\033[K");
    }
    return 0;
}

int tool_await_job(struct tool *tool, tool_progress_fn show, void *userdata,
                   struct msg_reply *reply)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    struct sigaction before;
    is_interrupted = 0;
    (void)sigaction(SIGINT, &action, &before);
    int r = poll_job(tool, show, userdata, reply);
    (void)sigaction(SIGINT, &before, NULL);
    return r;
}

int tool_follow_job(struct tool *tool, struct msg_reply *started)
{
    int r = tool_await_job(tool, show_progress, NULL, started);
    r = r != 0 ? r : report(tool, &started->job);
    msg_reply_finish(started);
    return r;
}
