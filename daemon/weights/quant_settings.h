/* quant_settings.h - the quantisation settings of a checkpoint, as JSON, out of all the places
 * where tools put them.
 *
 * Looked for in config.json under quantization_config, compression_config,
 * text_config.quantization_config and text_config.compression_config; in quantize_config.json (old
 * GPTQ tools); and in hf_quant_config.json under quantization (ModelOpt). More than one place may
 * speak; where two of them have a key that we read, they must agree, else both and the key are
 * named in the refusal. An absent key and null are the same. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

struct quant_settings {
    const char *place; /* the first that speaks, for messages; NULL: none does */
    json_t *values;    /* owned: an object with one spelling of each key; values are shared */
};

#define QUANT_SETTINGS_NULL ((struct quant_settings){.place = NULL})

/* quant_settings_collect() - any of the files may be NULL. quant_method is filled in for the files
 * that do not have to name it. Return: 0, STATUS_BAD_CHECKPOINT, -ENOMEM. */
int quant_settings_collect(const json_t *config, const json_t *quantize_config,
                           const json_t *hf_quant_config, struct quant_settings *ret_settings,
                           struct reason *why) GD_MUST_CHECK;
void quant_settings_finish(struct quant_settings *settings); /* safe on QUANT_SETTINGS_NULL */

/* quant_get() - NULL when absent or null. */
const json_t *quant_get(const json_t *object, const char *key);

/* quant_get_text(), quant_get_bool(), quant_get_count() - a key of `object`, which lies in `place`.
 * Absent: 0, and *ret_value is untouched. STATUS_BAD_CHECKPOINT for a value of another type; a
 * count is -1..2^31-1. */
int quant_get_text(const json_t *object, const char *key, const char *place, const char **ret_value,
                   struct reason *why) GD_MUST_CHECK;
int quant_get_bool(const json_t *object, const char *key, const char *place, bool *ret_value,
                   struct reason *why) GD_MUST_CHECK;
int quant_get_count(const json_t *object, const char *key, const char *place, int32_t *ret_value,
                    struct reason *why) GD_MUST_CHECK;

/* quant_get_texts() - an array of texts, checked; NULL when absent. quant_get_object() likewise. */
int quant_get_texts(const json_t *object, const char *key, const char *place,
                    const json_t **ret_array, struct reason *why) GD_MUST_CHECK;
int quant_get_object(const json_t *object, const char *key, const char *place,
                     const json_t **ret_object, struct reason *why) GD_MUST_CHECK;
