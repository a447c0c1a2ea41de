/* msg.h - control messages as plain structs. Generated protobuf types stop at codec*.[ch];
 * everybody else sees these. Fixed-size strings are NUL-terminated; a longer one on the wire is
 * refused. */
#pragma once

#include <stdint.h>

#include "ipc/base/check.h"
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
#define MSG_BENCH_M_MAX   32
#define MSG_BENCH_OFF_MAX 16   /* kernels that a bench leaves out */
#define MSG_BENCH_ROW_MAX 1024 /* every m with every kernel of a build */

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
    X(DRAIN, drain)                                                                                \
    X(BENCH, bench)

enum msg_verb {
    MSG_VERB_NONE = 0,
#define MSG_VERB_X(NAME, name) MSG_VERB_##NAME,
    MSG_VERB_LIST(MSG_VERB_X)
#undef MSG_VERB_X
        MSG_VERB_END,
};

/* msg_verb_name() - "weight_find" for MSG_VERB_WEIGHT_FIND; "?" for what is no verb. Static. */
const char *msg_verb_name(enum msg_verb verb);

/* How modules of a checkpoint become weights: which rank's slice of them, which are fused, along
 * what they are cut, and of which x is quantised. PROTOCOL.md has the texts' syntax; empty:
 * nothing.
 */
struct msg_shaping {
    uint32_t tp_rank;
    uint32_t tp_size; /* 0 or 1: whole */
    char fuse[MSG_SHAPING_BYTES];
    char split[MSG_SHAPING_BYTES];
    char act[MSG_SHAPING_BYTES];
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

/* Time every kernel over a made-up weight (n, k) of a format, at each m. */
struct msg_bench {
    char device[MSG_WORD_BYTES]; /* "": the first */
    char format[MSG_WORD_BYTES]; /* "int4-g128" */
    uint32_t n;
    uint32_t k;
    uint32_t m[MSG_BENCH_M_MAX];
    uint32_t n_m;
    enum dtype act_dtype; /* of x and y, F16 or BF16; NONE: BF16 */
    uint32_t budget_usec; /* about how long one measurement takes; 0: the daemon's own choice */
    char off[MSG_BENCH_OFF_MAX][MSG_WORD_BYTES]; /* kernels as if they were disabled */
    uint32_t n_off;
    uint32_t is_check; /* 1: only say whether it would be refused; no body */
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
        struct msg_bench bench;
    };
};

/* What a load spends its time on. */
enum msg_load_phase {
    MSG_LOAD_READ,    /* the checkpoint's files */
    MSG_LOAD_COPY,    /* to the device, as far as that is waited for */
    MSG_LOAD_PACK,    /* into the layout of the kernels */
    MSG_LOAD_PREPARE, /* memory, scratch, digests */
    MSG_LOAD_PHASES
};
const char *msg_load_phase_name(enum msg_load_phase phase); /* static: "read", ... */

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
    uint64_t load_bytes;                 /* read from the checkpoint; 0 if adopted */
    double load_shares[MSG_LOAD_PHASES]; /* of the time of all threads that loaded it; or all 0 */
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

/* One kernel at one m. */
struct msg_bench_row {
    uint32_t m;
    char kernel[MSG_WORD_BYTES];
    double usec;         /* for all of m */
    uint32_t n_launches; /* m rows take so many */
    uint32_t
        is_eligible; /* may serve: gives a row the same bits as the kernel that serves one alone */
    uint32_t is_chosen; /* what a weight gets that nobody has measured kernels for */
};

struct msg_bench_result {
    char device[MSG_NAME_BYTES]; /* in words, driver included */
    char format[MSG_WORD_BYTES]; /* in words */
    char layout[MSG_WORD_BYTES];
    uint64_t packed_bytes;
    uint32_t n_copies;          /* taken in turn, so that none is in a cache */
    double floor_usec;          /* a launch, and reading the packed weight once; 0: not known */
    uint64_t flops;             /* of one row */
    struct msg_bench_row *rows; /* owned; by m, then kernel */
    uint32_t n_rows;
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
    struct msg_bench_result *bench; /* owned; NULL: the job is no bench that is done */
};

struct msg_declined {
    char kernel[MSG_WORD_BYTES];
    char reason[REASON_TEXT_BYTES];
};

struct msg_choice {
    uint32_t m;
    char kernel[MSG_WORD_BYTES];
    char tile[MSG_WORD_BYTES];
    double predicted_usec;         /* 0: not known */
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
            char ahead[REASON_TEXT_BYTES]; /* of launches before their rows come */
        } explanation;
    };
};

#define MSG_REPLY_NULL ((struct msg_reply){0})

/* msg_bench_result_copy() - *ret_copy is for msg_bench_result_free(), which takes NULL too. 0 or
 * -ENOMEM. */
int msg_bench_result_copy(const struct msg_bench_result *result,
                          struct msg_bench_result **ret_copy) GD_MUST_CHECK;
struct msg_bench_result *msg_bench_result_free(struct msg_bench_result *result);

/* msg_reply_finish() - free what the reply owns; safe on MSG_REPLY_NULL and
 * on a half-filled one; leaves MSG_REPLY_NULL. */
void msg_reply_finish(struct msg_reply *reply);

/* msg_name_check() - a model name or MODEL/module.path: 1..255 bytes of valid UTF-8 without control
 * characters. 0 or STATUS_INVALID_ARGUMENT. */
int msg_name_check(const char *name, const char *what, struct reason *why);

/* msg_model_name_check() - the same for what a model is to be called: no '/', which ends the
 * model's name in that of a weight. */
int msg_model_name_check(const char *name, const char *what, struct reason *why);
