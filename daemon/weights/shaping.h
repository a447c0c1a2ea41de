/* shaping.h - what somebody wants of a checkpoint's modules beyond serving each as it is: some of
 * them fused into one weight, of each only a tensor-parallel rank's slice, and x quantised.
 *
 * fuse:  rules apart by blanks, each NAME=PART,PART,... of last parts of module paths, in the order
 *        of their rows: "qkv_proj=q_proj,k_proj,v_proj". "usual" stands for that one and
 *        "gate_up_proj=gate_proj,up_proj".
 * split: rules apart by blanks, each MODULE=n, MODULE=k or MODULE=whole; MODULE is a path or its
 *        end after a '.': "o_proj=k". What it does not name is cut by its usual name.
 * act:   rules (activations=) apart by blanks, each MODULE=fp8 or MODULE=float, or without MODULE
 * for all that are not named: "fp8 down_proj=float". See act_rules.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gk/gk.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"
#include "ipc/msg.h"

#define SHAPING_RULES_MAX 16
#define SHAPING_PARTS_MAX 8

enum shaping_axis {
    SHAPING_UNSAID,
    SHAPING_WHOLE,
    SHAPING_N, /* rows of W: a rank has some of the columns of y */
    SHAPING_K, /* columns of W: a rank has a summand of y, rank 0 with the bias */
};

struct shaping_fuse {
    char name[MSG_WORD_BYTES];
    char parts[SHAPING_PARTS_MAX][MSG_WORD_BYTES];
    uint32_t n_parts;
    bool is_usual; /* nobody spelt it out: where parts are missing, it does not apply */
};

struct shaping_split {
    char module[MSG_NAME_BYTES];
    enum shaping_axis axis;
};

struct shaping_act {
    char module[MSG_NAME_BYTES]; /* "": all that no other rule names */
    enum gk_act act;             /* FLOAT or FP8_TOKEN */
};

struct shaping {
    uint32_t tp_rank;
    uint32_t tp_size; /* at least 1 */
    struct shaping_fuse fuses[SHAPING_RULES_MAX];
    uint32_t n_fuses;
    struct shaping_split splits[SHAPING_RULES_MAX];
    uint32_t n_splits;
    struct shaping_act acts[SHAPING_RULES_MAX];
    uint32_t n_acts;
};

/* shaping_parse() - 0, or STATUS_INVALID_ARGUMENT naming what cannot be read. */
int shaping_parse(const struct msg_shaping *message, struct shaping *ret_shaping,
                  struct reason *why) GD_MUST_CHECK;

/* shaping_is_same() - in the same words; a size of 0 is one of 1. */
bool shaping_is_same(const struct msg_shaping *a, const struct msg_shaping *b);

/* shaping_axis_of() - along what a module is cut: as a rule says, else by the name of its kind (q_,
 * k_, v_, gate_ and up_proj and the like along n; o_ and down_proj and the like along k). Names
 * that do not tell are SHAPING_UNSAID: among them those of modules that a checkpoint has fused
 * already, whose rows belong to several projections. */
enum shaping_axis shaping_axis_of(const struct shaping *shaping, const char *module);

/* shaping_act_of() - the rule about a module's activations: the first that names it, else the first
 * about all; NULL: none. shaping_is_about() - does that name it, or an end of its path? */
const struct shaping_act *shaping_act_of(const struct shaping *shaping, const char *module);
bool shaping_is_about(const struct shaping_act *act, const char *module);
