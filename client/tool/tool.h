/* tool.h - what the commands of gemmctl share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client/client.h"

enum tool_exit {
    TOOL_DONE = 0,
    TOOL_USAGE = 2,
    TOOL_NO_DAEMON = 3,
    TOOL_REFUSED = 4,
    TOOL_FAILED = 5,
};

struct tool {
    const char *socket_dir; /* NULL: the library's default */
    gemmd_client_t *client; /* NULL until tool_connect() */
    bool is_json;
    bool is_patient; /* outlives a daemon that is started again */
};

/* One row a command. run() gets argv[0] = the command's name; returns an enum tool_exit. */
struct tool_command {
    const char *name;
    const char *arguments;
    const char *does;
    int (*run)(struct tool *tool, int argc, char **argv);
    const char *options;               /* a line each, for COMMAND --help; NULL: none */
    void (*print_notes)(FILE *stream); /* more for COMMAND --help; NULL: nothing */
};

/* command_*() - the rows of the table in main.c. */
int command_status(struct tool *tool, int argc, char **argv);
int command_load(struct tool *tool, int argc, char **argv);
int command_unload(struct tool *tool, int argc, char **argv);
int command_reload(struct tool *tool, int argc, char **argv);
int command_models(struct tool *tool, int argc, char **argv);
int command_weights(struct tool *tool, int argc, char **argv);
int command_gemm(struct tool *tool, int argc, char **argv);
int command_explain(struct tool *tool, int argc, char **argv);
int command_verify(struct tool *tool, int argc, char **argv);
int command_drain(struct tool *tool, int argc, char **argv);
int command_ready(struct tool *tool, int argc, char **argv);
int command_top(struct tool *tool, int argc, char **argv);
int command_bench(struct tool *tool, int argc, char **argv);
int command_doctor(struct tool *tool, int argc, char **argv);

/* bench_print_notes() - the presets and formats there are. */
void bench_print_notes(FILE *stream);

/* tool_connect() - open the session, once. A command calls it when its arguments are good, so that
 * a wrong command line is exit code 2 with or without a daemon. 0 or an enum tool_exit.
 * tool_call() - connect, then one verb whose reply must have that body (MSG_BODY_NONE: any). 0 with
 * *ret_reply to be finished, or an enum tool_exit with the reason printed. */
int tool_connect(struct tool *tool) GD_MUST_CHECK;
int tool_call(struct tool *tool, struct msg_request *request, enum msg_body body,
              struct msg_reply *ret_reply) GD_MUST_CHECK;

/* tool_fail() - the last call's sentence on standard error, one line; the exit code its status
 * means. */
int tool_fail(int status);
/* tool_usage() - "gemmctl: <sentence>" and where help is; TOOL_USAGE. tool_hint: the command whose
 * help that is, set by main(); NULL: gemmctl's own. */
extern const char *tool_hint;
int tool_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* tool_bad_option() - what getopt_long() gave '?' or ':' for, opterr being 0; TOOL_USAGE. */
int tool_bad_option(int key, char **argv);
/* tool_cannot_write() - what and why, an errno; TOOL_FAILED. */
int tool_cannot_write(const char *what, int error);
/* tool_flush() - standard output, at the end of a command. code, or TOOL_FAILED with the reason
 * printed if something that the command printed was lost. */
int tool_flush(int code);
/* tool_print_json() - one document and a line feed; takes the reference. */
int tool_print_json(json_t *document);
/* tool_bytes() - "6.1 MiB" in text. */
const char *tool_bytes(uint64_t n_bytes, char text[32]);
/* tool_plural() - what a noun behind n ends with: "" or "s"; static. */
const char *tool_plural(uint64_t n);

/* tool_name() - copy a name argument into a request, or say that it is too long, or no UTF-8. 0 or
 * TOOL_USAGE. */
int tool_name(const char *argument, char *ret_name, size_t size_bytes);

/* tool_act() - the activation type that text names, GEMMD_BF16 or GEMMD_F16 (f16, or fp16 as
 * checkpoints say). 0 or TOOL_USAGE. */
int tool_act(const char *text, enum gemmd_dtype *ret_dtype) GD_MUST_CHECK;

/* tool_take_number() - a number from 1 to UINT32_MAX at the start of text; *ret_end is what comes
 * behind it. False: there is none.
 * tool_rows() - of "--m 1,3,8..64", where .. doubles, into ret_m (n_max). 0 or TOOL_USAGE. */
bool tool_take_number(const char *text, uint32_t *ret_number, const char **ret_end);
int tool_rows(const char *text, uint32_t n_max, uint32_t *ret_m, uint32_t *ret_n) GD_MUST_CHECK;

/* tool_follow_job() - poll a job to its end, showing progress; an interrupt cancels it. started: a
 * reply with a job, taken over. Returns an enum tool_exit. */
int tool_follow_job(struct tool *tool, struct msg_reply *started);
/* tool_await_job() - the same without a word about how it ended: *reply, which had the started job,
 * has the ended one, for the caller to judge and to finish. 0, or an enum tool_exit with the reason
 * printed when the daemon cannot be asked. */
typedef void (*tool_progress_fn)(const struct msg_job *job, void *userdata);
int tool_await_job(struct tool *tool, tool_progress_fn show, void *userdata,
                   struct msg_reply *reply) GD_MUST_CHECK;
