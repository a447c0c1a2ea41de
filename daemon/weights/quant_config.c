/* Quantisation settings. Each place is first read as it stands (struct settings, with "absent" kept
 * apart from every value), then places are compared, and only then is it asked whether we serve
 * that: a contradiction is reported as one even where neither side could be served. */
#include "daemon/weights/quant_config.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "ipc/base/num.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

#define PLACES_MAX 5

/* One place's settings; values are borrowed from the JSON, NULL when absent. */
struct settings {
    const char *place;
    bool is_quantize_file;
    const json_t *method;
    const json_t *bits;
    const json_t *group_size;
    const json_t *sym;
    const json_t *format;
    const json_t *pack_dtype;
    const json_t *dynamic;
};

struct places {
    struct settings items[PLACES_MAX];
    uint32_t n;
};

static const json_t *get(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* The value of the first key that is there; two spellings with different values contradict. */
static int get_alias(const json_t *object, const char *place, const char *const *keys,
                     const json_t **ret_value, struct reason *why)
{
    const json_t *found = NULL;
    const char *found_key = NULL;
    for (; *keys; keys++) {
        const json_t *value = get(object, *keys);
        if (value && found && !json_equal(value, found)) {
            return BAD(why, "%s: '%s' and '%s' disagree", place, found_key, *keys);
        }
        if (value && !found) {
            found = value;
            found_key = *keys;
        }
    }
    *ret_value = found;
    return 0;
}

static int read_place(const json_t *object, const char *place, bool is_quantize_file,
                      struct places *places, struct reason *why)
{
    static const char *const bits_keys[] = {"bits", "w_bit", "wbits", NULL};
    static const char *const group_keys[] = {"group_size", "q_group_size", NULL};
    static const char *const format_keys[] = {"checkpoint_format", "format", NULL};
    if (!object) {
        return 0;
    }
    if (!json_is_object(object)) {
        return BAD(why, "%s is not an object", place);
    }
    struct settings *settings = &places->items[places->n];
    *settings = (struct settings){.place = place, .is_quantize_file = is_quantize_file};
    settings->method = get(object, "quant_method");
    settings->sym = get(object, "sym");
    settings->pack_dtype = get(object, "pack_dtype");
    settings->dynamic = get(object, "dynamic");
    int r = get_alias(object, place, bits_keys, &settings->bits, why);
    if (r == 0) {
        r = get_alias(object, place, group_keys, &settings->group_size, why);
    }
    if (r == 0) {
        r = get_alias(object, place, format_keys, &settings->format, why);
    }
    places->n += r == 0;
    return r;
}

static int collect_places(const json_t *config, const json_t *quantize_config,
                          struct places *places, struct reason *why)
{
    const json_t *text = get(config, "text_config");
    const struct {
        const json_t *object;
        const char *place;
        bool is_quantize_file;
    } candidates[PLACES_MAX] = {
        {get(config, "quantization_config"), "config.json quantization_config", false},
        {get(config, "compression_config"), "config.json compression_config", false},
        {get(text, "quantization_config"), "config.json text_config.quantization_config", false},
        {get(text, "compression_config"), "config.json text_config.compression_config", false},
        {quantize_config, "quantize_config.json", true},
    };
    for (uint32_t i = 0; i < PLACES_MAX; i++) {
        int r = read_place(candidates[i].object, candidates[i].place,
                           candidates[i].is_quantize_file, places, why);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

/* Where both places have the key, they must have the same value. */
static int compare_key(const struct settings *a, const struct settings *b, const char *key,
                       const json_t *of_a, const json_t *of_b, struct reason *why)
{
    if (of_a && of_b && !json_equal(of_a, of_b)) {
        return BAD(why, "%s and %s disagree about %s", a->place, b->place, key);
    }
    return 0;
}

static int compare_places(const struct settings *a, const struct settings *b, struct reason *why)
{
    const struct {
        const char *key;
        const json_t *of_a;
        const json_t *of_b;
    } keys[] = {
        {"quant_method", a->method, b->method},       {"bits", a->bits, b->bits},
        {"group_size", a->group_size, b->group_size}, {"sym", a->sym, b->sym},
        {"checkpoint_format", a->format, b->format},  {"pack_dtype", a->pack_dtype, b->pack_dtype},
        {"dynamic", a->dynamic, b->dynamic},
    };
    for (uint32_t i = 0; i < ARRAY_LENGTH(keys); i++) {
        int r = compare_key(a, b, keys[i].key, keys[i].of_a, keys[i].of_b, why);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

/* One settings out of all places: the first that has a key gives it. */
static int merge_places(const struct places *places, struct settings *ret_merged,
                        struct reason *why)
{
    struct settings merged = places->items[0];
    for (uint32_t i = 1; i < places->n; i++) {
        const struct settings *other = &places->items[i];
        for (uint32_t j = 0; j < i; j++) {
            int r = compare_places(&places->items[j], other, why);
            if (r != 0) {
                return r;
            }
        }
        merged.method = merged.method ? merged.method : other->method;
        merged.bits = merged.bits ? merged.bits : other->bits;
        merged.group_size = merged.group_size ? merged.group_size : other->group_size;
        merged.sym = merged.sym ? merged.sym : other->sym;
        merged.format = merged.format ? merged.format : other->format;
        merged.pack_dtype = merged.pack_dtype ? merged.pack_dtype : other->pack_dtype;
        merged.dynamic = merged.dynamic ? merged.dynamic : other->dynamic;
    }
    *ret_merged = merged;
    return 0;
}

static int check_method(const struct settings *settings, struct reason *why)
{
    if (!settings->method && settings->is_quantize_file) {
        return 0;
    }
    if (!settings->method) {
        return BAD(why, "%s: quant_method is missing; known: 'gptq'", settings->place);
    }
    const char *method = json_string_value(settings->method);
    if (!method) {
        return BAD(why, "%s: quant_method is not a string; known: 'gptq'", settings->place);
    }
    if (strcmp(method, "gptq") != 0) {
        return UNSUPPORTED(why, "%s: quant_method '%s' is not served; known, in lower case: 'gptq'",
                           settings->place, method);
    }
    return 0;
}

static int check_bits(const struct settings *settings, struct quant_config *config,
                      struct reason *why)
{
    if (!json_is_integer(settings->bits)) {
        return BAD(why, "%s: bits is %s", settings->place,
                   settings->bits ? "not a whole number" : "missing");
    }
    if (json_integer_value(settings->bits) != 4) {
        return UNSUPPORTED(why, "%s: bits %lld is not served; known: 4", settings->place,
                           json_integer_value(settings->bits));
    }
    config->bits = 4;
    return 0;
}

static int check_group_size(const struct settings *settings, struct quant_config *config,
                            struct reason *why)
{
    if (!json_is_integer(settings->group_size)) {
        return BAD(why, "%s: group_size is %s", settings->place,
                   settings->group_size ? "not a whole number"
                                        : "missing, and tools disagree about its default");
    }
    long long value = json_integer_value(settings->group_size);
    if (value == 0 || value < -1) {
        return BAD(why, "%s: group_size %lld makes no sense; -1 stands for all of k",
                   settings->place, value);
    }
    if (value != -1 && value != 32 && value != 64 && value != 128) {
        return UNSUPPORTED(why, "%s: group_size %lld is not served; known: -1, 32, 64, 128",
                           settings->place, value);
    }
    config->group_size = (int32_t)value;
    return 0;
}

static int check_sym(const struct settings *settings, struct quant_config *config,
                     struct reason *why)
{
    if (settings->sym && !json_is_boolean(settings->sym)) {
        return BAD(why, "%s: sym is neither true nor false", settings->place);
    }
    if (settings->sym && !json_is_true(settings->sym)) {
        return UNSUPPORTED(why, "%s: sym false (zero points that differ) is not served",
                           settings->place);
    }
    config->is_symmetric = true;
    return 0;
}

static int check_format(const struct settings *settings, struct quant_config *config,
                        struct reason *why)
{
    const char *format = settings->format ? json_string_value(settings->format) : "gptq";
    if (!format) {
        return BAD(why, "%s: checkpoint_format is not a string", settings->place);
    }
    if (strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0) {
        return UNSUPPORTED(why,
                           "%s: checkpoint_format '%s' is not served; known: 'gptq', 'gptq_v2'",
                           settings->place, format);
    }
    config->is_v1 = strcmp(format, "gptq") == 0;
    return 0;
}

static int check_layout_keys(const struct settings *settings, struct reason *why)
{
    const char *pack = settings->pack_dtype ? json_string_value(settings->pack_dtype) : "int32";
    if (!pack || strcmp(pack, "int32") != 0) {
        return UNSUPPORTED(why, "%s: pack_dtype '%s' is not served; known: 'int32'",
                           settings->place, pack ? pack : "?");
    }
    if (!settings->dynamic || json_object_size(settings->dynamic) == 0) {
        return settings->dynamic && !json_is_object(settings->dynamic)
                   ? BAD(why, "%s: dynamic is not an object", settings->place)
                   : 0;
    }
    void *first = json_object_iter((json_t *)(uintptr_t)settings->dynamic);
    return UNSUPPORTED(why, "%s: dynamic settings per module ('%s') are not served",
                       settings->place, json_object_iter_key(first));
}

static int interpret(const struct settings *settings, struct quant_config *config,
                     struct reason *why)
{
    int r = check_method(settings, why);
    if (r == 0) {
        r = check_bits(settings, config, why);
    }
    if (r == 0) {
        r = check_group_size(settings, config, why);
    }
    if (r == 0) {
        r = check_sym(settings, config, why);
    }
    if (r == 0) {
        r = check_format(settings, config, why);
    }
    if (r == 0) {
        r = check_layout_keys(settings, why);
    }
    config->is_quantised = true;
    (void)snprintf(config->place, sizeof(config->place), "%s", settings->place);
    return r;
}

/* The model's own 16-bit type. Other types say nothing about how it wants its activations. */
static enum dtype find_act_dtype(const json_t *config)
{
    const json_t *texts[] = {get(config, "torch_dtype"), get(config, "dtype"),
                             get(get(config, "text_config"), "torch_dtype"),
                             get(get(config, "text_config"), "dtype")};
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

static int parse_object(const char *text, size_t size_bytes, const char *file, json_t **ret_json,
                        struct reason *why)
{
    if (!text) {
        return 0;
    }
    json_error_t error;
    json_t *json = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json) {
        return BAD(why, "%s is not valid JSON: line %d: %s", file, error.line, error.text);
    }
    if (!json_is_object(json)) {
        json_decref(json);
        return BAD(why, "%s is not a JSON object", file);
    }
    *ret_json = json;
    return 0;
}

static int parse_both(const json_t *config, const json_t *quantize_config,
                      struct quant_config *result, struct reason *why)
{
    struct places places = {.n = 0};
    result->act_dtype = find_act_dtype(config);
    int r = collect_places(config, quantize_config, &places, why);
    if (r != 0 || places.n == 0) {
        return r;
    }
    struct settings merged;
    r = merge_places(&places, &merged, why);
    return r != 0 ? r : interpret(&merged, result, why);
}

int quant_config_parse(const char *config, size_t config_bytes, const char *quantize_config,
                       size_t quantize_config_bytes, struct quant_config *ret_config,
                       struct reason *why)
{
    json_t *main_json = NULL;
    json_t *quantize_json = NULL;
    struct quant_config result = {.is_quantised = false};
    int r = parse_object(config, config_bytes, "config.json", &main_json, why);
    if (r == 0) {
        r = parse_object(quantize_config, quantize_config_bytes, "quantize_config.json",
                         &quantize_json, why);
    }
    if (r == 0) {
        r = parse_both(main_json, quantize_json, &result, why);
    }
    json_decref(main_json);
    json_decref(quantize_json);
    if (r == 0) {
        *ret_config = result;
    }
    return r;
}
