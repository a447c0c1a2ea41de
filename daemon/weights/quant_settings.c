/* Gathering settings. Places are compared before anything is interpreted: a contradiction is
 * reported as one even where neither side could be served. */
#include "daemon/weights/quant_settings.h"

#include <errno.h>
#include <string.h>

#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define BAD(why, ...) reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)

#define PLACES_MAX    6
#define SPELLINGS_MAX 3

/* Every key that is read, by the spelling that we use, and what else it is called. */
static const char *const keys[][SPELLINGS_MAX + 1] = {
    {"quant_method"},
    {"bits", "w_bit", "wbits"},
    {"group_size", "q_group_size"},
    {"sym"},
    {"desc_act"},
    {"format", "checkpoint_format"},
    {"pack_dtype"},
    {"dynamic"},
    {"zero_point"},
    {"version"},
    {"modules_to_not_convert"},
    {"ignored_layers"},
    {"activation_scheme"},
    {"activation_scale_ub"},
    {"weight_block_size"},
    {"fmt"},
    {"scale_fmt"},
    {"config_groups"},
    {"ignore", "exclude_modules"},
    {"quant_algo"},
    {"quantized_layers"},
    {"sparsity_config"},
    {"transform_config"},
};

/* One place's object, with the method that its file implies. */
struct place {
    const char *name;
    const json_t *object;
    const char *method; /* NULL: the file has to say */
};

const json_t *quant_get(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* ---- gathering ---- */

/* The value of the first spelling that is there; two with different values contradict. */
static int get_any_spelling(const struct place *place, const char *const *spellings,
                            const json_t **ret_value, struct reason *why)
{
    const json_t *found = NULL;
    const char *found_key = NULL;
    for (; *spellings; spellings++) {
        const json_t *value = quant_get(place->object, *spellings);
        if (value && found && !json_equal(value, found)) {
            return BAD(why, "%s: '%s' and '%s' disagree", place->name, found_key, *spellings);
        }
        if (value && !found) {
            found = value;
            found_key = *spellings;
        }
    }
    *ret_value = found;
    return 0;
}

/* Put a value in, unless an earlier place (named in `sources`) has it already. */
static int merge_value(struct quant_settings *settings, json_t *sources, const struct place *place,
                       const char *key, const json_t *value, struct reason *why)
{
    const json_t *earlier = json_object_get(settings->values, key);
    if (earlier && !json_equal(earlier, value)) {
        return BAD(why, "%s and %s disagree about %s",
                   json_string_value(json_object_get(sources, key)), place->name, key);
    }
    if (earlier) {
        return 0;
    }
    /* Sharing a value changes nothing of it but its count. */
    if (json_object_set(settings->values, key, (json_t *)(uintptr_t)value) != 0 ||
        json_object_set_new(sources, key, json_string(place->name)) != 0) {
        return err_raise(-ENOMEM);
    }
    return 0;
}

static int merge_method(struct quant_settings *settings, json_t *sources, const struct place *place,
                        struct reason *why)
{
    if (!place->method || quant_get(place->object, "quant_method")) {
        return 0;
    }
    json_t *method = json_string(place->method);
    int r = method ? merge_value(settings, sources, place, "quant_method", method, why)
                   : err_raise(-ENOMEM);
    json_decref(method);
    return r;
}

static int merge_place(struct quant_settings *settings, json_t *sources, const struct place *place,
                       struct reason *why)
{
    if (!place->object) {
        return 0;
    }
    if (!json_is_object(place->object)) {
        return BAD(why, "%s is not an object", place->name);
    }
    settings->place = settings->place ? settings->place : place->name;
    for (uint32_t i = 0; i < ARRAY_LENGTH(keys); i++) {
        const json_t *value = NULL;
        int r = get_any_spelling(place, keys[i], &value, why);
        if (r == 0 && value) {
            r = merge_value(settings, sources, place, keys[i][0], value, why);
        }
        if (r != 0) {
            return r;
        }
    }
    return merge_method(settings, sources, place, why);
}

int quant_settings_collect(const json_t *config, const json_t *quantize_config,
                           const json_t *hf_quant_config, struct quant_settings *ret_settings,
                           struct reason *why)
{
    const json_t *text = quant_get(config, "text_config");
    const struct place places[PLACES_MAX] = {
        {"config.json quantization_config", quant_get(config, "quantization_config"), NULL},
        {"config.json compression_config", quant_get(config, "compression_config"), NULL},
        {"config.json text_config.quantization_config", quant_get(text, "quantization_config"),
         NULL},
        {"config.json text_config.compression_config", quant_get(text, "compression_config"), NULL},
        {"quantize_config.json", quantize_config, "gptq"},
        {"hf_quant_config.json", quant_get(hf_quant_config, "quantization"), "modelopt"},
    };
    struct quant_settings settings = {.values = json_object()};
    json_t *sources = json_object();
    int r = settings.values && sources ? 0 : err_raise(-ENOMEM);
    for (uint32_t i = 0; r == 0 && i < PLACES_MAX; i++) {
        r = merge_place(&settings, sources, &places[i], why);
    }
    json_decref(sources);
    if (r != 0) {
        quant_settings_finish(&settings);
        return r;
    }
    *ret_settings = settings;
    return 0;
}

void quant_settings_finish(struct quant_settings *settings)
{
    json_decref(settings->values);
    *settings = QUANT_SETTINGS_NULL;
}

/* ---- values ---- */

int quant_get_text(const json_t *object, const char *key, const char *place, const char **ret_value,
                   struct reason *why)
{
    const json_t *value = quant_get(object, key);
    if (value && !json_is_string(value)) {
        return BAD(why, "%s: %s is not a string", place, key);
    }
    if (value) {
        *ret_value = json_string_value(value);
    }
    return 0;
}

int quant_get_bool(const json_t *object, const char *key, const char *place, bool *ret_value,
                   struct reason *why)
{
    const json_t *value = quant_get(object, key);
    if (value && !json_is_boolean(value)) {
        return BAD(why, "%s: %s is neither true nor false", place, key);
    }
    if (value) {
        *ret_value = json_is_true(value);
    }
    return 0;
}

int quant_get_count(const json_t *object, const char *key, const char *place, int32_t *ret_value,
                    struct reason *why)
{
    const json_t *value = quant_get(object, key);
    if (!value) {
        return 0;
    }
    if (!json_is_integer(value)) {
        return BAD(why, "%s: %s is not a whole number", place, key);
    }
    json_int_t number = json_integer_value(value);
    if (number < -1 || number > INT32_MAX) {
        return BAD(why, "%s: %s %lld makes no sense", place, key, (long long)number);
    }
    *ret_value = (int32_t)number;
    return 0;
}

int quant_get_texts(const json_t *object, const char *key, const char *place,
                    const json_t **ret_array, struct reason *why)
{
    const json_t *array = quant_get(object, key);
    if (array && !json_is_array(array)) {
        return BAD(why, "%s: %s is not a list", place, key);
    }
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (!json_is_string(json_array_get(array, i))) {
            return BAD(why, "%s: entry %zu of %s is not a string", place, i, key);
        }
    }
    *ret_array = array;
    return 0;
}

int quant_get_object(const json_t *object, const char *key, const char *place,
                     const json_t **ret_object, struct reason *why)
{
    const json_t *value = quant_get(object, key);
    if (value && !json_is_object(value)) {
        return BAD(why, "%s: %s is not an object", place, key);
    }
    *ret_object = value;
    return 0;
}
