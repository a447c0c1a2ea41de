/* config_text.c - see config_text.h. */
#include "tests/unit/weights/config_text.h"

#include <string.h>

static struct quant_text text_of(const char *text)
{
    return (struct quant_text){text, text ? strlen(text) : 0};
}

int config_parse_texts(const char *config, const char *quantize_config, const char *hf_quant_config,
                       struct warnings *warnings, struct quant_config *ret_config,
                       struct reason *why)
{
    const struct quant_texts texts = {text_of(config), text_of(quantize_config),
                                      text_of(hf_quant_config)};
    return quant_config_parse(&texts, warnings, ret_config, why);
}
