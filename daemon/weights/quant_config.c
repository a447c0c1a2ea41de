/* From text to rules: parsing, and the choice of the method. */
#include "daemon/weights/quant_config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/weights/quant_method.h"
#include "ipc/base/num.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

struct method {
    const char *name;
    int (*parse)(const struct quant_settings *settings, struct quant_rules *rules,
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

static int parse_method(const struct quant_settings *settings, struct quant_rules *rules,
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
            (void)snprintf(rules->method, sizeof(rules->method), "%s", name);
            return methods[i].parse(settings, rules, warnings, why);
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
        (void)snprintf(config->rules.place, sizeof(config->rules.place), "%s", settings.place);
        r = parse_method(&settings, &config->rules, warnings, why);
    }
    quant_settings_finish(&settings);
    return r;
}

void quant_config_finish(struct quant_config *config)
{
    quant_rules_finish(&config->rules);
    *config = QUANT_CONFIG_NULL;
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
