/* quant_config.h - config.json, quantize_config.json and hf_quant_config.json: from text to rules
 * about modules. Where settings are looked for: quant_settings.h. What each method's keys mean:
 * README.md of this folder. */
#pragma once

#include <stddef.h>

#include "daemon/weights/quant_rules.h"
#include "daemon/weights/warnings.h"
#include "ipc/base/check.h"
#include "ipc/base/dtype.h"
#include "ipc/base/reason.h"

struct quant_config {
    struct quant_rules rules;
    enum dtype act_dtype; /* F16, BF16, or NONE when config.json names another or none */
};

#define QUANT_CONFIG_NULL ((struct quant_config){.rules = QUANT_RULES_NULL})

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
