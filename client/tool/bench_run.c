/* bench_run.c - the jobs of a sweep: one a format, one after the other, as the daemon would run
 * them anyway. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/tool/bench.h"

/* Which job of how many, for the line on the terminal. */
struct step {
    uint32_t i_format;
    uint32_t n_formats;
};

static void show_progress(const struct msg_job *job, void *userdata)
{
    const struct step *step = userdata;
    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "\r\033[Kformat %u of %u, %s: %llu of %llu, %s", step->i_format + 1,
                      step->n_formats, job->state, (unsigned long long)job->done_bytes,
                      (unsigned long long)job->total_bytes, job->step);
    }
}

static int take_result(const struct msg_job *job, const char *format, struct bench_sweep *sweep)
{
    for (uint32_t i = 0; i < job->n_warnings; i++) {
        (void)fprintf(stderr, "warning: %s\n", job->warnings[i]);
    }
    if (job->status != STATUS_OK) {
        return tool_fail(client_refuse(job->status, "%s", job->text));
    }
    if (!job->bench) {
        return tool_fail(client_refuse(STATUS_BAD_MESSAGE, "the daemon's bench has no result"));
    }
    return bench_sweep_add(sweep, format, job->bench) == 0
               ? 0
               : tool_fail(client_refuse(STATUS_NO_MEMORY, "out of memory"));
}

static struct msg_request request_of(const struct bench_options *options,
                                     const struct bench_shape *shape, const char *format)
{
    struct msg_request request = {.verb = MSG_VERB_BENCH, .bench = options->request};
    request.bench.n = shape->n;
    request.bench.k = shape->k;
    (void)snprintf(request.bench.format, sizeof(request.bench.format), "%s", format);
    return request;
}

int bench_check_sweep(struct tool *tool, const struct bench_options *options,
                      const struct bench_shape *shape)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < options->n_formats; i++) {
        struct msg_request request = request_of(options, shape, options->formats[i]);
        struct msg_reply reply;
        request.bench.is_check = 1;
        r = tool_call(tool, &request, MSG_BODY_NONE, &reply);
        if (r == 0) {
            msg_reply_finish(&reply);
        }
    }
    return r;
}

static int run_format(struct tool *tool, const struct bench_options *options, struct step *step,
                      struct bench_sweep *sweep)
{
    const char *format = options->formats[step->i_format];
    struct msg_request request = request_of(options, &sweep->shape, format);
    struct msg_reply reply;
    int r = tool_call(tool, &request, MSG_BODY_JOB, &reply);
    if (r != 0) {
        return r;
    }
    r = tool_await_job(tool, show_progress, step, &reply);
    r = r != 0 ? r : take_result(&reply.job, format, sweep);
    msg_reply_finish(&reply);
    return r;
}

int bench_run_sweep(struct tool *tool, const struct bench_options *options,
                    const struct bench_shape *shape, struct bench_sweep *ret_sweep)
{
    struct step step = {.n_formats = options->n_formats};
    int r = 0;
    *ret_sweep = (struct bench_sweep){
        .shape = *shape, .act_dtype = options->request.act_dtype, .baseline = options->formats[0]};
    for (; r == 0 && step.i_format < options->n_formats; step.i_format++) {
        r = run_format(tool, options, &step, ret_sweep);
    }
    return r;
}
