/* quant_pattern.h - which modules a rule of a checkpoint's settings is about.
 *
 * Patterns come from checkpoints, so they are bounded: a regular expression or wildcard that needs
 * more than a fixed number of steps on a module's name is refused, whatever the name. Immutable
 * once made; any thread. */
#pragma once

#include <stdbool.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

enum quant_pattern_kind {
    QUANT_PATTERN_ANY,      /* every module; no text */
    QUANT_PATTERN_EXACT,    /* the whole path */
    QUANT_PATTERN_PATH,     /* the whole path, its end after a '.', or its start before one */
    QUANT_PATTERN_PART,     /* anywhere in the path */
    QUANT_PATTERN_CLASS,    /* a class of modules: "Linear" is every one we know, others are none */
    QUANT_PATTERN_REGEX,    /* PCRE2, anchored at the start only, as Python's re.match() is */
    QUANT_PATTERN_WILDCARD, /* the whole path, with the shell's *, ? and [...] */
};

#define QUANT_PATTERN_BYTES_MAX 1024

struct quant_pattern {
    enum quant_pattern_kind kind;
    char *text;                   /* owned; as the settings have it */
    struct pcre2_real_code_8 *re; /* owned; REGEX and WILDCARD */
};

#define QUANT_PATTERN_NULL ((struct quant_pattern){.text = NULL})

/* quant_pattern_init() - `text` is copied. Return: 0, STATUS_BAD_CHECKPOINT for an expression that
 * is none (with the place of the error in it) or too long, -ENOMEM. */
int quant_pattern_init(struct quant_pattern *pattern, enum quant_pattern_kind kind,
                       const char *text, struct reason *why) GD_MUST_CHECK;
void quant_pattern_finish(struct quant_pattern *pattern); /* safe on QUANT_PATTERN_NULL */

/* quant_pattern_match() - is that module meant? Return: 0, STATUS_BAD_CHECKPOINT when finding out
 * takes too many steps, -ENOMEM. */
int quant_pattern_match(const struct quant_pattern *pattern, const char *module, bool *ret_is_match,
                        struct reason *why) GD_MUST_CHECK;
