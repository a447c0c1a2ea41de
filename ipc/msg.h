/* msg.h - control messages as plain structs. Generated protobuf types stop at codec*.[ch];
 * everybody else sees these. Fixed-size strings are NUL-terminated; a longer one on the wire is
 * refused. */
#pragma once

#include <stdint.h>

#include "ipc/base/dtype.h"
#include "ipc/base/reason.h"
#include "ipc/request.h"

#define MSG_NAME_BYTES    256 /* model names and MODEL/module.path, NUL included */
#define MSG_PATH_BYTES    4096
#define MSG_WORD_BYTES    64
#define MSG_TEXT_BYTES    4096
#define MSG_SHAPING_BYTES 1024
#define MSG_EXPLAIN_M_MAX 32
#define MSG_WARNINGS_MAX  64
#define MSG_MODELS_MAX    1024
#define MSG_WEIGHTS_MAX   65536
#define MSG_DECLINED_MAX  64

/* X(NAME, lower-case name): the order gives enum msg_verb, from 1. */
#define MSG_VERB_LIST(X)                                                                           \
    X(PING, ping)                                                                                  \
    X(STATUS, status)                                                                              \
    X(MODEL_LIST, model_list)                                                                      \
    X(WEIGHT_LIST, weight_list)                                                                    \
    X(WEIGHT_FIND, weight_find)                                                                    \
    X(LOAD, load)                                                                                  \
    X(UNLOAD, unload)                                                                              \
    X(RELOAD, reload)                                                                              \
    X(JOB_STATUS, job_status)                                                                      \
    X(JOB_CANCEL, job_cancel)                                                                      \
    X(SUBMIT, submit)                                                                              \
    X(CANCEL, cancel)                                                                              \
    X(EXPLAIN, explain)                                                                            \
    X(VERIFY, verify)                                                                              \
    X(DRAIN, drain)

enum msg_verb {
    MSG_VERB_NONE = 0,
#define MSG_VERB_X(NAME, name) MSG_VERB_##NAME,
    MSG_VERB_LIST(MSG_VERB_X)
#undef MSG_VERB_X
        MSG_VERB_END,
};

/* msg_verb_name() - "weight_find" for MSG_VERB_WEIGHT_FIND; "?" for what is no verb. Static. */
const char *msg_verb_name(enum msg_verb verb);

/* How modules of a checkpoint become weights: which rank's slice of them, which are fused, and
 * along what they are cut. PROTOCOL.md has the two texts' syntax; empty: nothing. */
struct msg_shaping {
    uint32_t tp_rank;
    uint32_t tp_size; /* 0 or 1: whole */
    char fuse[MSG_SHAPING_BYTES];
    char split[MSG_SHAPING_BYTES];
};

struct msg_load {
    char name[MSG_NAME_BYTES];
    char path[MSG_PATH_BYTES];
    char device[MSG_WORD_BYTES];
    struct msg_shaping shaping;
};

struct msg_explain {
    char weight[MSG_NAME_BYTES];
    uint32_t m[MSG_EXPLAIN_M_MAX];
    uint32_t n_m;
};

struct msg_request {
    uint64_t request_id;
    enum msg_verb verb;
    union {
        char name[MSG_NAME_BYTES]; /* weight_list, weight_find, unload, reload, verify */
        struct msg_load load;
        uint64_t job_id; /* job_status, job_cancel */
        struct request_desc submit;
        uint64_t cancel_request_id;
        struct msg_explain explain;
    };
};

struct msg_model {
    char name[MSG_NAME_BYTES];
    char path[MSG_PATH_BYTES];
    char device[MSG_WORD_BYTES];
    char state[MSG_WORD_BYTES];
    char origin[MSG_WORD_BYTES];
    uint64_t generation;
    uint32_t n_weights;
    uint64_t packed_bytes;
    double load_seconds;
    uint32_t n_warnings;
    enum dtype act_dtype;
};

/* What a weight does to its activations: enum gk_act, for those who do not know the kernels. A
 * later daemon may know more. */
enum msg_act {
    MSG_ACT_FLOAT = 0,
    MSG_ACT_FP8_TENSOR = 1,
    MSG_ACT_FP8_TOKEN = 2,
    MSG_ACT_FP8_GROUP = 3,
    MSG_ACT_INT8_TENSOR = 4,
    MSG_ACT_INT8_TOKEN = 5,
    MSG_ACT_INT8_TOKEN_ZERO = 6,
};

struct msg_weight {
    uint64_t weight_id;
    char name[MSG_NAME_BYTES];
    uint64_t generation;
    uint32_t n;
    uint32_t k;
    uint32_t device_index;
    char format[MSG_WORD_BYTES];
    char layout[MSG_WORD_BYTES];
    uint64_t packed_bytes;
    uint32_t has_bias;
    enum dtype act_dtype;
    uint32_t act; /* enum msg_act */
};

struct msg_job {
    uint64_t job_id;
    char kind[MSG_WORD_BYTES];
    char state[MSG_WORD_BYTES];
    uint64_t done_bytes;
    uint64_t total_bytes;
    char step[MSG_NAME_BYTES];
    int status;
    char text[MSG_TEXT_BYTES];
    char **warnings; /* owned */
    uint32_t n_warnings;
};

struct msg_declined {
    char kernel[MSG_WORD_BYTES];
    char reason[REASON_TEXT_BYTES];
};

struct msg_choice {
    uint32_t m;
    char kernel[MSG_WORD_BYTES];
    char tile[MSG_WORD_BYTES];
    double predicted_usec;
    double measured_usec;          /* 0: not known */
    double floor_usec;             /* 0: not known */
    struct msg_declined *declined; /* owned */
    uint32_t n_declined;
};

enum msg_body {
    MSG_BODY_NONE = 0,
    MSG_BODY_PONG,
    MSG_BODY_STATUS,
    MSG_BODY_MODELS,
    MSG_BODY_WEIGHTS,
    MSG_BODY_JOB,
    MSG_BODY_SUBMITTED,
    MSG_BODY_EXPLANATION,
};

struct msg_reply {
    uint64_t request_id;
    int status;
    char text[REASON_TEXT_BYTES];
    enum msg_body body;
    union {
        char version[MSG_WORD_BYTES]; /* PONG */
        char *json;                   /* STATUS; owned */
        struct {
            struct msg_model *items; /* owned */
            uint32_t n;
        } models;
        struct {
            struct msg_weight *items; /* owned */
            uint32_t n;
        } weights;
        struct msg_job job;
        struct request_result submitted; /* request_id, batch_*, *_nsec; status and text above */
        struct {
            struct msg_weight weight;
            struct msg_choice *choices; /* owned */
            uint32_t n_choices;
        } explanation;
    };
};

#define MSG_REPLY_NULL ((struct msg_reply){0})

/* msg_reply_finish() - free what the reply owns; safe on MSG_REPLY_NULL and
 * on a half-filled one; leaves MSG_REPLY_NULL. */
void msg_reply_finish(struct msg_reply *reply);

/* msg_name_check() - a model name or MODEL/module.path: 1..255 bytes of valid UTF-8 without control
 * characters. 0 or STATUS_INVALID_ARGUMENT. */
int msg_name_check(const char *name, const char *what, struct reason *why);
