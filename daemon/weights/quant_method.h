/* quant_method.h - one function for each quant_method: its settings into rules. Of this folder's
 * quant_*.c only. */
#pragma once

#include "daemon/weights/quant_rules.h"
#include "daemon/weights/quant_settings.h"

/* Each returns 0, STATUS_BAD_CHECKPOINT, STATUS_UNSUPPORTED or -ENOMEM, and appends to
 * rules. */
int quant_gptq_parse(const struct quant_settings *settings, struct quant_rules *rules,
                     struct warnings *warnings, struct reason *why) GD_MUST_CHECK;
int quant_awq_parse(const struct quant_settings *settings, struct quant_rules *rules,
                    struct warnings *warnings, struct reason *why) GD_MUST_CHECK;
int quant_ct_parse(const struct quant_settings *settings, struct quant_rules *rules,
                   struct warnings *warnings, struct reason *why) GD_MUST_CHECK;
int quant_fp8_parse(const struct quant_settings *settings, struct quant_rules *rules,
                    struct warnings *warnings, struct reason *why) GD_MUST_CHECK;
int quant_fbgemm_parse(const struct quant_settings *settings, struct quant_rules *rules,
                       struct warnings *warnings, struct reason *why) GD_MUST_CHECK;
int quant_modelopt_parse(const struct quant_settings *settings, struct quant_rules *rules,
                         struct warnings *warnings, struct reason *why) GD_MUST_CHECK;

/* quant_add_left_alone() - a rule for each entry of a list (NULL: none) of modules that are
 * not quantised. */
int quant_add_left_alone(struct quant_rules *rules, const struct quant_settings *settings,
                         const char *key, enum quant_pattern_kind kind,
                         struct reason *why) GD_MUST_CHECK;

/* quant_group_extent() - a group_size of the settings as the extent of a scale along k; `key` and
 * `place` for the refusal. -1: all of k. */
int quant_group_extent(int32_t group_size, const char *place, uint32_t *ret_group_k,
                       struct reason *why) GD_MUST_CHECK;
