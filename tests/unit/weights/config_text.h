/* config_text.h - settings as tests write them: JSON text into rules. */
#pragma once

#include "daemon/weights/quant_config.h"

/* config_parse_texts() - of config.json, quantize_config.json and hf_quant_config.json; NULL: no
 * such file. As quant_config_parse(). */
int config_parse_texts(const char *config, const char *quantize_config, const char *hf_quant_config,
                       struct warnings *warnings, struct quant_config *ret_config,
                       struct reason *why) GD_MUST_CHECK;
