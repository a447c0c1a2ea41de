/* quant_rules.h - what a checkpoint's settings say about each of its modules.
 *
 * Whatever the method, settings become one ordered list of rules, "modules like this are quantised
 * so" or "are left alone"; the first that matches a module counts. A scheme is what is claimed:
 * modules.h holds it against the tensors that are there. Threads: one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/weights/quant_pattern.h"
#include "daemon/weights/warnings.h"
#include "gk/gk.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"

/* Which tensors a quantised module is made of. */
enum quant_family {
    QUANT_NONE = 0, /* left as it is */
    QUANT_GPTQ,     /* qweight along k, qzeros, scales, g_idx */
    QUANT_AWQ,      /* qweight along n, qzeros, scales */
    QUANT_PACKED,   /* compressed-tensors: weight_packed, weight_scale, weight_zero_point */
    QUANT_INT8,     /* weight I8, weight_scale */
    QUANT_FP8,      /* weight F8_E4M3, weight_scale or weight_scale_inv */
    QUANT_NVFP4,    /* e2m1, a scale for each 16 of k, a global one */
    QUANT_MXFP4,    /* e2m1, a power of two for each 32 of k */
    QUANT_MXFP8,    /* F8_E4M3, a power of two for each 32 of k */
};

#define QUANT_UNSAID 0u         /* of an extent: the shape of the scales tells */
#define QUANT_WHOLE  UINT32_MAX /* of an extent: all of that side */

struct quant_scheme {
    enum quant_family family;
    uint32_t bits;    /* GPTQ, AWQ, PACKED */
    uint32_t group_n; /* a scale covers group_n x group_k of (n, k) */
    uint32_t group_k;
    bool is_symmetric;
    bool is_v1;        /* GPTQ: zero points are stored minus one */
    bool is_act_order; /* a map from k to groups must be there */
    enum gk_act act;
    bool is_act_scale_pow2;
};

struct quant_rule {
    struct quant_pattern pattern;
    struct quant_scheme scheme;
    bool is_told_if_unused; /* warn when it applies to no module */
    bool is_used;
};

struct quant_rules {
    struct quant_rule *items; /* owned */
    uint32_t n;
    char method[32]; /* "": nobody says that anything is quantised */
    char place[64];  /* where the settings were found, for messages */
};

#define QUANT_RULES_NULL ((struct quant_rules){.items = NULL})

/* quant_rules_add() - append a rule; `text` may be NULL for QUANT_PATTERN_ANY. Return as
 * quant_pattern_init(), and STATUS_BAD_CHECKPOINT for too many. */
int quant_rules_add(struct quant_rules *rules, enum quant_pattern_kind kind, const char *text,
                    const struct quant_scheme *scheme, bool is_told_if_unused,
                    struct reason *why) GD_MUST_CHECK;
void quant_rules_finish(struct quant_rules *rules); /* safe on QUANT_RULES_NULL */

/* quant_rules_find() - the rule for a module, by its path; NULL when none says anything about it.
 * The rule is marked as used. Return: 0, or as quant_pattern_match(). */
int quant_rules_find(struct quant_rules *rules, const char *module,
                     const struct quant_rule **ret_rule, struct reason *why) GD_MUST_CHECK;

/* quant_rules_tell_unused() - once all modules have been looked up: a warning for each rule that
 * applied to none and should have. */
void quant_rules_tell_unused(const struct quant_rules *rules, struct warnings *warnings);

/* quant_rule_text() - the rule's pattern, or "every module"; never NULL. */
const char *quant_rule_text(const struct quant_rule *rule);

/* quant_extent_format() - an extent for people: "tensor", "channel", "group of 128",
 * "block of 128 x 128", "unsaid"; returns text. */
const char *quant_extent_format(uint32_t group_n, uint32_t group_k, char *text,
                                uint32_t size_bytes);
