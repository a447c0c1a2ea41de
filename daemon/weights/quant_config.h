/* quant_config.h - what config.json and quantize_config.json say about a model's numbers.
 *
 * Quantisation settings are looked for in config.json under quantization_config,
 * compression_config, text_config.quantization_config and text_config.compression_config, and in
 * quantize_config.json. More than one place may speak; places that disagree are refused, naming
 * both and the key.
 *
 * Rules:
 *   quant_method       "gptq", exactly so; needed everywhere but in quantize_config.json, a file of
 *                      GPTQ tools from before the key was there
 *   bits               (w_bit, wbits) needed; 4
 *   group_size         (q_group_size) needed: tools disagree about its default; -1, 32, 64, 128
 *   sym                true when absent; false is not served
 *   desc_act           false when absent; only a note, g_idx decides
 *   checkpoint_format  (format) "gptq" when absent, or "gptq_v2"
 *   pack_dtype         "int32" when absent
 *   dynamic            absent or empty: settings per module are not served
 * An absent key and null are the same. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/dtype.h"
#include "ipc/base/reason.h"

struct quant_config {
    bool is_quantised; /* false: nobody says that anything is; the rest is then zero */
    uint32_t bits;
    int32_t group_size; /* -1: one group over all of k */
    bool is_symmetric;
    bool is_v1;           /* zero points are stored minus one */
    enum dtype act_dtype; /* F16, BF16, or NONE when the config names another or none */
    char place[64];       /* where the settings were found, for messages */
};

/* quant_config_parse() - either text may be NULL (no such file).
 * Return: 0, STATUS_BAD_CHECKPOINT (broken, contradictory, missing), STATUS_UNSUPPORTED (understood
 * and not served), or -ENOMEM. */
int quant_config_parse(const char *config, size_t config_bytes, const char *quantize_config,
                       size_t quantize_config_bytes, struct quant_config *ret_config,
                       struct reason *why) GD_MUST_CHECK;
