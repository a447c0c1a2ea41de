/* msg.c - what the plain message structs need besides being structs. Any thread. */
#include "ipc/msg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/error.h"
#include "ipc/utf8.h"

const char *msg_load_phase_name(enum msg_load_phase phase)
{
    static const char *const names[MSG_LOAD_PHASES] = {"read", "copy", "pack", "prepare"};
    return names[phase];
}

const char *msg_verb_name(enum msg_verb verb)
{
    switch (verb) {
#define MSG_VERB_X(NAME, name)                                                                     \
    case MSG_VERB_##NAME:                                                                          \
        return #name;
        MSG_VERB_LIST(MSG_VERB_X)
#undef MSG_VERB_X
    default:
        return "?";
    }
}

int msg_bench_result_copy(const struct msg_bench_result *result, struct msg_bench_result **ret_copy)
{
    struct msg_bench_result *copy = malloc(sizeof(*copy));
    struct msg_bench_row *rows =
        calloc(result->n_rows + 1u, sizeof(*rows)); /* +1: not of 0 bytes */
    if (copy == NULL || rows == NULL) {
        free(copy);
        free(rows);
        return err_raise(-ENOMEM);
    }
    *copy = *result;
    copy->rows = rows;
    for (uint32_t i = 0; i < result->n_rows; i++) {
        rows[i] = result->rows[i];
    }
    *ret_copy = copy;
    return 0;
}

struct msg_bench_result *msg_bench_result_free(struct msg_bench_result *result)
{
    if (result != NULL) {
        free(result->rows);
        free(result);
    }
    return NULL;
}

static void finish_job(struct msg_job *job)
{
    for (uint32_t i = 0; job->warnings != NULL && i < job->n_warnings; i++) {
        free(job->warnings[i]);
    }
    free(job->warnings);
    (void)msg_bench_result_free(job->bench);
}

static void finish_choices(struct msg_choice *choices, uint32_t n_choices)
{
    for (uint32_t i = 0; choices != NULL && i < n_choices; i++) {
        free(choices[i].declined);
    }
    free(choices);
}

void msg_reply_finish(struct msg_reply *reply)
{
    switch (reply->body) {
    case MSG_BODY_STATUS:
        free(reply->json);
        break;
    case MSG_BODY_MODELS:
        free(reply->models.items);
        break;
    case MSG_BODY_WEIGHTS:
        free(reply->weights.items);
        break;
    case MSG_BODY_JOB:
        finish_job(&reply->job);
        break;
    case MSG_BODY_EXPLANATION:
        finish_choices(reply->explanation.choices, reply->explanation.n_choices);
        break;
    case MSG_BODY_NONE:
    case MSG_BODY_PONG:
    case MSG_BODY_SUBMITTED:
        break;
    }
    *reply = MSG_REPLY_NULL;
}

int msg_name_check(const char *name, const char *what, struct reason *why)
{
    size_t n_bytes = strnlen(name, MSG_NAME_BYTES);
    if (n_bytes == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%s is empty", what);
    }
    if (n_bytes == MSG_NAME_BYTES) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%s is longer than %d bytes", what,
                          MSG_NAME_BYTES - 1);
    }
    size_t n_valid = utf8_valid_bytes(name, n_bytes);
    if (n_valid != n_bytes) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%s is not UTF-8 at byte %zu", what,
                          n_valid);
    }
    for (size_t i = 0; i < n_bytes; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) {
            return reason_set(why, STATUS_INVALID_ARGUMENT,
                              "%s has the control character 0x%02x at byte %zu", what,
                              (unsigned)(unsigned char)name[i], i);
        }
    }
    return 0;
}

int msg_model_name_check(const char *name, const char *what, struct reason *why)
{
    int r = msg_name_check(name, what, why);
    if (r == 0 && strchr(name, '/') != NULL) {
        r = reason_set(why, STATUS_INVALID_ARGUMENT, "%s '%s' contains a '/'", what, name);
    }
    return r;
}
