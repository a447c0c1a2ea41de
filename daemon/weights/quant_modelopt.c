/* ModelOpt: an algorithm by name for all modules, or for each in quantized_layers. Modules that
 * exclude_modules (in config.json: ignore) names with the shell's wildcards are left alone.
 *
 * The 4-bit algorithms serve as weight-only: their input_scale is for tensor cores that multiply
 * e2m1 by e2m1, and leaving x alone is never less exact. */
#include <string.h>

#include "daemon/weights/quant_method.h"
#include "ipc/base/num.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

#define GROUPS(n_, k_) .group_n = (n_), .group_k = (k_), .is_symmetric = true

static const struct {
    const char *name;
    struct quant_scheme scheme;
} algorithms[] = {
    {"FP8", {.family = QUANT_FP8, GROUPS(QUANT_WHOLE, QUANT_WHOLE), .act = GK_ACT_FP8_TENSOR}},
    {"FP8_PER_CHANNEL_PER_TOKEN",
     {.family = QUANT_FP8, GROUPS(1, QUANT_WHOLE), .act = GK_ACT_FP8_TOKEN}},
    {"FP8_PB_WO", {.family = QUANT_FP8, GROUPS(128, 128)}},
    {"NVFP4", {.family = QUANT_NVFP4, GROUPS(1, 16)}},
    {"W4A16_NVFP4", {.family = QUANT_NVFP4, GROUPS(1, 16)}},
    {"MXFP8", {.family = QUANT_MXFP8, GROUPS(1, 32)}},
};

#define KNOWN                                                                                      \
    "known: 'FP8', 'FP8_PER_CHANNEL_PER_TOKEN', 'FP8_PB_WO', 'NVFP4', 'W4A16_NVFP4', 'MXFP8'"

/* The scheme that quant_algo and group_size of an object name. */
static int read_algorithm(const json_t *object, const char *place, struct quant_scheme *ret_scheme,
                          struct reason *why)
{
    const char *name = NULL;
    int32_t group_size = 0;
    int r = quant_get_text(object, "quant_algo", place, &name, why);
    if (r == 0) {
        r = quant_get_count(object, "group_size", place, &group_size, why);
    }
    if (r != 0) {
        return r;
    }
    if (!name) {
        return BAD(why, "%s: quant_algo is missing; " KNOWN, place);
    }
    for (uint32_t i = 0; i < ARRAY_LENGTH(algorithms); i++) {
        const struct quant_scheme *scheme = &algorithms[i].scheme;
        if (strcmp(name, algorithms[i].name) != 0) {
            continue;
        }
        if (group_size > 0 && (uint32_t)group_size != scheme->group_k) {
            return UNSUPPORTED(why, "%s: group_size %d is not served with quant_algo '%s'", place,
                               group_size, name);
        }
        *ret_scheme = *scheme;
        return 0;
    }
    return UNSUPPORTED(why, "%s: quant_algo '%.60s' is not served; " KNOWN, place, name);
}

static int add_layers(const struct quant_settings *settings, struct quant_rules *rules,
                      struct reason *why)
{
    const json_t *layers;
    int r = quant_get_object(settings->values, "quantized_layers", settings->place, &layers, why);
    if (r == 0 && !layers) {
        r = BAD(why, "%s: quant_algo is 'MIXED_PRECISION', and quantized_layers is missing",
                settings->place);
    }
    json_t *items = (json_t *)(uintptr_t)layers; /* json_object_iter() only reads */
    for (void *at = r == 0 ? json_object_iter(items) : NULL; r == 0 && at;
         at = json_object_iter_next(items, at)) {
        struct quant_scheme scheme;
        const char *name = json_object_iter_key(at);
        r = read_algorithm(json_object_iter_value(at), settings->place, &scheme, why);
        if (r > 0) {
            reason_prefix(why, "quantized_layers '%.100s'", name);
        }
        r = r != 0 ? r : quant_rules_add(rules, QUANT_PATTERN_EXACT, name, &scheme, true, why);
    }
    return r;
}

static int add_excluded(const struct quant_settings *settings, struct quant_rules *rules,
                        struct reason *why)
{
    static const struct quant_scheme none = {.family = QUANT_NONE};
    const json_t *names;
    int r = quant_get_texts(settings->values, "ignore", settings->place, &names, why);
    for (size_t i = 0; r == 0 && i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        enum quant_pattern_kind kind =
            strpbrk(name, "*?[") ? QUANT_PATTERN_WILDCARD : QUANT_PATTERN_PATH;
        r = quant_rules_add(rules, kind, name, &none, false, why);
    }
    return r;
}

int quant_modelopt_parse(const struct quant_settings *settings, struct quant_rules *rules,
                         GD_UNUSED struct warnings *warnings, struct reason *why)
{
    struct quant_scheme scheme;
    const char *algorithm = json_string_value(quant_get(settings->values, "quant_algo"));
    int r = add_excluded(settings, rules, why);
    if (r != 0) {
        return r;
    }
    if (algorithm && strcmp(algorithm, "MIXED_PRECISION") == 0) {
        return add_layers(settings, rules, why);
    }
    r = read_algorithm(settings->values, settings->place, &scheme, why);
    return r != 0 ? r : quant_rules_add(rules, QUANT_PATTERN_ANY, NULL, &scheme, false, why);
}
