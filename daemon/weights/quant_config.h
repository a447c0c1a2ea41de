/* quant_config.h - what a checkpoint's settings say about each of its modules.
 *
 * Whatever the method, the settings become one ordered list of rules, "modules like this are
 * quantised so" or "are left alone"; the first that matches a module counts. Where they are looked
 * for: quant_settings.h. What each method's keys mean: README.md of this folder.
 *
 * A scheme is what is claimed. modules.h holds it against the tensors that are there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/weights/quant_pattern.h"
#include "daemon/weights/warnings.h"
#include "gk/gk.h"
#include "ipc/base/check.h"
#include "ipc/base/dtype.h"
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

struct quant_config {
    char method[32];          /* "": nobody says that anything is quantised */
    struct quant_rule *rules; /* owned */
    uint32_t n_rules;
    enum dtype act_dtype; /* F16, BF16, or NONE when config.json names another or none */
    char place[64];       /* where the settings were found, for messages */
};

#define QUANT_CONFIG_NULL ((struct quant_config){.rules = NULL})

/* A file's bytes; text NULL: there is no such file. */
struct quant_text {
    const char *text;
    size_t size_bytes;
};

struct quant_texts {
    struct quant_text config;          /* config.json */
    struct quant_text quantize_config; /* quantize_config.json */
    struct quant_text hf_quant_config; /* hf_quant_config.json */
};

/* quant_config_parse() - Return: 0, STATUS_BAD_CHECKPOINT (broken, contradictory, missing),
 * STATUS_UNSUPPORTED (understood and not served), or -ENOMEM. `warnings` may be NULL. */
int quant_config_parse(const struct quant_texts *texts, struct warnings *warnings,
                       struct quant_config *ret_config, struct reason *why) GD_MUST_CHECK;
void quant_config_finish(struct quant_config *config); /* safe on QUANT_CONFIG_NULL */

/* quant_config_find() - the rule for a module, by its path; NULL when none says anything about it.
 * The rule is marked as used. Return: 0, or as quant_pattern_match(). */
int quant_config_find(struct quant_config *config, const char *module,
                      const struct quant_rule **ret_rule, struct reason *why) GD_MUST_CHECK;

/* quant_config_tell_unused() - once all modules have been looked up: a warning for each rule that
 * applied to none and should have. */
void quant_config_tell_unused(const struct quant_config *config, struct warnings *warnings);

/* quant_rule_text() - the rule's pattern, or "every module"; never NULL. */
const char *quant_rule_text(const struct quant_rule *rule);

/* quant_extent_format() - an extent for people: "tensor", "channel", "group of 128",
 * "block of 128 x 128", "unsaid"; returns text. */
const char *quant_extent_format(uint32_t group_n, uint32_t group_k, char *text,
                                uint32_t size_bytes);
