/* Any bytes as config.json, and after each NUL byte as quantize_config.json and then as
 * hf_quant_config.json. What is accepted has rules that can be asked about any module and only
 * schemes that a family of modules could have. */
#include <stdint.h>
#include <string.h>

#include "ipc/base/check.h"
#include "ipc/base/num.h"

#include "daemon/weights/quant_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* The text up to the next NUL byte or the end; moves on behind it. NULL at the end. */
static struct quant_text next_text(const char **at, const char *end)
{
    struct quant_text text = {*at, 0};
    if (*at == NULL || *at == end) {
        *at = NULL;
        return (struct quant_text){NULL, 0};
    }
    const char *nul = memchr(*at, '\0', (size_t)(end - *at));
    text.size_bytes = (size_t)((nul ? nul : end) - *at);
    *at = nul ? nul + 1 : NULL;
    return text;
}

static void check_scheme(const struct quant_scheme *scheme)
{
    if (scheme->family == QUANT_NONE) {
        return;
    }
    GD_ASSERT(scheme->family <= QUANT_MXFP8);
    GD_ASSERT((scheme->group_n == QUANT_UNSAID) == (scheme->group_k == QUANT_UNSAID));
    bool is_packed = scheme->family == QUANT_GPTQ || scheme->family == QUANT_AWQ ||
                     scheme->family == QUANT_PACKED;
    GD_ASSERT(!is_packed || scheme->bits == 4 || scheme->bits == 8);
    GD_ASSERT(scheme->act <= GK_ACT_INT8_TOKEN_ZERO);
}

static void ask_about_modules(struct quant_config *config)
{
    static const char *const modules[] = {"lm_head", "model.layers.0.self_attn.q_proj",
                                          "model.layers.11.mlp.down_proj", "aaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < ARRAY_LENGTH(modules); i++) {
        const struct quant_rule *rule;
        struct reason why = REASON_NULL;
        int r = quant_rules_find(&config->rules, modules[i], &rule, &why);
        GD_ASSERT(r == why.status);
        if (r == 0 && rule) {
            GD_ASSERT(rule->is_used);
            check_scheme(&rule->scheme);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const char *at = (const char *)data;
    const char *end = at + n_bytes;
    struct quant_texts texts;
    texts.config = next_text(&at, end);
    texts.quantize_config = next_text(&at, end);
    texts.hf_quant_config = next_text(&at, end);
    struct quant_config config;
    struct warnings warnings = WARNINGS_NULL;
    struct reason why = REASON_NULL;
    int r = quant_config_parse(&texts, &warnings, &config, &why);
    if (r != 0) {
        GD_ASSERT(r == why.status && why.text[0] != '\0');
    } else {
        ask_about_modules(&config);
        quant_rules_tell_unused(&config.rules, &warnings);
        quant_config_finish(&config);
    }
    warnings_finish(&warnings);
    return 0;
}
