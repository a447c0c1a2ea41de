/* From text to rules: parsing, the choice of the method, and the list of rules. */
#include "daemon/weights/quant_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/quant_method.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

#define RULES_MAX 100000u

struct method {
    const char *name;
    int (*parse)(const struct quant_settings *settings, struct quant_config *config,
                 struct warnings *warnings, struct reason *why);
};

static const struct method methods[] = {
    {"gptq", quant_gptq_parse},
    {"awq", quant_awq_parse},
    {"compressed-tensors", quant_ct_parse},
    {"fp8", quant_fp8_parse},
    {"fbgemm_fp8", quant_fbgemm_parse},
    {"modelopt", quant_modelopt_parse},
};

#define KNOWN                                                                                      \
    "known, in lower case: 'gptq', 'awq', 'compressed-tensors', 'fp8', 'fbgemm_fp8', 'modelopt'"

/* ---- rules -------------------------------------------------------------------------------------
 */

int quant_config_add(struct quant_config *config, enum quant_pattern_kind kind, const char *text,
                     const struct quant_scheme *scheme, bool is_told_if_unused, struct reason *why)
{
    if (config->n_rules >= RULES_MAX) {
        return BAD(why, "%s has more than %u rules about modules", config->place, RULES_MAX);
    }
    if ((config->n_rules & (config->n_rules - 1)) == 0) { /* a power of two: full, or empty */
        uint32_t n_places = config->n_rules ? 2 * config->n_rules : 1;
        struct quant_rule *rules = reallocarray(config->rules, n_places, sizeof(*rules));
        if (!rules) {
            return err_raise(-ENOMEM);
        }
        config->rules = rules;
    }
    struct quant_rule rule = {.scheme = *scheme, .is_told_if_unused = is_told_if_unused};
    int r = quant_pattern_init(&rule.pattern, kind, text ? text : "", why);
    if (r > 0) {
        reason_prefix(why, "%s", config->place);
    }
    if (r == 0) {
        config->rules[config->n_rules++] = rule;
    }
    return r;
}

int quant_config_add_left_alone(struct quant_config *config, const struct quant_settings *settings,
                                const char *key, enum quant_pattern_kind kind, struct reason *why)
{
    static const struct quant_scheme none = {.family = QUANT_NONE};
    const json_t *names;
    int r = quant_get_texts(settings->values, key, settings->place, &names, why);
    for (size_t i = 0; r == 0 && i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        r = quant_config_add(config, kind, name, &none, false, why);
    }
    return r;
}

int quant_group_extent(int32_t group_size, const char *place, uint32_t *ret_group_k,
                       struct reason *why)
{
    if (group_size == 0) {
        return BAD(why, "%s: group_size 0 makes no sense; -1 stands for all of k", place);
    }
    *ret_group_k = group_size < 0 ? QUANT_WHOLE : (uint32_t)group_size;
    return 0;
}

int quant_config_find(struct quant_config *config, const char *module,
                      const struct quant_rule **ret_rule, struct reason *why)
{
    *ret_rule = NULL;
    for (uint32_t i = 0; i < config->n_rules; i++) {
        bool is_match;
        int r = quant_pattern_match(&config->rules[i].pattern, module, &is_match, why);
        if (r != 0) {
            return r;
        }
        if (is_match) {
            config->rules[i].is_used = true;
            *ret_rule = &config->rules[i];
            return 0;
        }
    }
    return 0;
}

void quant_config_tell_unused(const struct quant_config *config, struct warnings *warnings)
{
    for (uint32_t i = 0; i < config->n_rules; i++) {
        const struct quant_rule *rule = &config->rules[i];
        if (rule->is_told_if_unused && !rule->is_used) {
            warnings_add(warnings, "%s: the rule '%s' applies to no module of the checkpoint",
                         config->place, quant_rule_text(rule));
        }
    }
}

const char *quant_rule_text(const struct quant_rule *rule)
{
    return rule->pattern.kind == QUANT_PATTERN_ANY ? "every module" : rule->pattern.text;
}

const char *quant_extent_format(uint32_t group_n, uint32_t group_k, char *text, uint32_t size_bytes)
{
    if (group_n == QUANT_UNSAID || group_k == QUANT_UNSAID) {
        (void)snprintf(text, size_bytes, "unsaid");
    } else if (group_k == QUANT_WHOLE) {
        (void)snprintf(text, size_bytes, "%s", group_n == QUANT_WHOLE ? "tensor" : "channel");
    } else if (group_n == 1) {
        (void)snprintf(text, size_bytes, "group of %u", group_k);
    } else {
        (void)snprintf(text, size_bytes, "block of %u x %u", group_n, group_k);
    }
    return text;
}

void quant_config_finish(struct quant_config *config)
{
    for (uint32_t i = 0; i < config->n_rules; i++) {
        quant_pattern_finish(&config->rules[i].pattern);
    }
    free(config->rules);
    *config = QUANT_CONFIG_NULL;
}

/* ---- parsing -----------------------------------------------------------------------------------
 */

static int parse_method(const struct quant_settings *settings, struct quant_config *config,
                        struct warnings *warnings, struct reason *why)
{
    const char *name = NULL;
    int r = quant_get_text(settings->values, "quant_method", settings->place, &name, why);
    if (r != 0) {
        return r;
    }
    if (!name) {
        return BAD(why, "%s: quant_method is missing; " KNOWN, settings->place);
    }
    for (uint32_t i = 0; i < ARRAY_LENGTH(methods); i++) {
        if (strcmp(name, methods[i].name) == 0) {
            (void)snprintf(config->method, sizeof(config->method), "%s", name);
            return methods[i].parse(settings, config, warnings, why);
        }
    }
    return UNSUPPORTED(why, "%s: quant_method '%.60s' is not served; " KNOWN, settings->place,
                       name);
}

/* The model's own 16-bit type. Other types say nothing about how it wants its activations. */
static enum dtype find_act_dtype(const json_t *config)
{
    const json_t *text_config = quant_get(config, "text_config");
    const json_t *texts[] = {quant_get(config, "torch_dtype"), quant_get(config, "dtype"),
                             quant_get(text_config, "torch_dtype"),
                             quant_get(text_config, "dtype")};
    for (uint32_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        const char *text = json_string_value(texts[i]);
        if (text && strcmp(text, "float16") == 0) {
            return DTYPE_F16;
        }
        if (text && strcmp(text, "bfloat16") == 0) {
            return DTYPE_BF16;
        }
    }
    return DTYPE_NONE;
}

static int parse_object(const struct quant_text *file, const char *name, json_t **ret_json,
                        struct reason *why)
{
    if (!file->text) {
        return 0;
    }
    json_error_t error;
    json_t *json = json_loadb(file->text, file->size_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json) {
        return BAD(why, "%s is not valid JSON: line %d: %s", name, error.line, error.text);
    }
    if (!json_is_object(json)) {
        json_decref(json);
        return BAD(why, "%s is not a JSON object", name);
    }
    *ret_json = json;
    return 0;
}

static int parse_files(json_t *const files[3], struct quant_config *config,
                       struct warnings *warnings, struct reason *why)
{
    struct quant_settings settings;
    config->act_dtype = find_act_dtype(files[0]);
    int r = quant_settings_collect(files[0], files[1], files[2], &settings, why);
    if (r != 0) {
        return r;
    }
    if (settings.place) {
        (void)snprintf(config->place, sizeof(config->place), "%s", settings.place);
        r = parse_method(&settings, config, warnings, why);
    }
    quant_settings_finish(&settings);
    return r;
}

int quant_config_parse(const struct quant_texts *texts, struct warnings *warnings,
                       struct quant_config *ret_config, struct reason *why)
{
    static const char *const names[] = {"config.json", "quantize_config.json",
                                        "hf_quant_config.json"};
    const struct quant_text *const places[] = {&texts->config, &texts->quantize_config,
                                               &texts->hf_quant_config};
    json_t *files[3] = {NULL};
    struct quant_config config = QUANT_CONFIG_NULL;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < ARRAY_LENGTH(files); i++) {
        r = parse_object(places[i], names[i], &files[i], why);
    }
    r = r == 0 ? parse_files(files, &config, warnings, why) : r;
    for (uint32_t i = 0; i < ARRAY_LENGTH(files); i++) {
        json_decref(files[i]);
    }
    if (r != 0) {
        quant_config_finish(&config);
        return r;
    }
    *ret_config = config;
    return 0;
}
