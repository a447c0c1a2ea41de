/* "fp8" (one scale a tensor, a channel, or a block of 128 x 128) and "fbgemm_fp8" (a scale a
 * channel). Without weight_block_size the shape of the scales tells which: tools write the same
 * settings for both. */
#include <string.h>

#include "daemon/weights/quant_method.h"
#include "ipc/base/num.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

static int read_block(const struct quant_settings *settings, struct quant_scheme *scheme,
                      struct reason *why)
{
    const json_t *block = quant_get(settings->values, "weight_block_size");
    if (!block) {
        return 0;
    }
    uint32_t sides[2];
    for (size_t i = 0; i < ARRAY_LENGTH(sides); i++) {
        json_int_t side = json_integer_value(json_array_get(block, i));
        if (json_array_size(block) != 2 || side < 1 || side > INT32_MAX) {
            return BAD(why, "%s: weight_block_size is not a pair of sizes", settings->place);
        }
        sides[i] = (uint32_t)side;
    }
    if (sides[1] != GK_ACT_GROUP_K) {
        return UNSUPPORTED(why, "%s: weight_block_size [%u, %u] is not served; known: [128, 128]",
                           settings->place, sides[0], sides[1]);
    }
    scheme->group_n = sides[0];
    scheme->group_k = sides[1];
    return 0;
}

/* The format of weights and, separately, of scales, which are floats unless it says otherwise. */
static int read_formats(const struct quant_settings *settings, struct quant_scheme *scheme,
                        struct reason *why)
{
    const char *fmt = NULL, *scale_fmt = NULL;
    int r = quant_get_text(settings->values, "fmt", settings->place, &fmt, why);
    if (r == 0) {
        r = quant_get_text(settings->values, "scale_fmt", settings->place, &scale_fmt, why);
    }
    if (r != 0) {
        return r;
    }
    if (fmt && strcmp(fmt, "e4m3") != 0) {
        return UNSUPPORTED(why, "%s: fmt '%.60s' is not served; known: 'e4m3'", settings->place,
                           fmt);
    }
    scheme->is_act_scale_pow2 = scale_fmt && strcmp(scale_fmt, "ue8m0") == 0;
    if (scale_fmt && !scheme->is_act_scale_pow2 && strcmp(scale_fmt, "float") != 0) {
        return UNSUPPORTED(why, "%s: scale_fmt '%.60s' is not served; known: 'float', 'ue8m0'",
                           settings->place, scale_fmt);
    }
    return 0;
}

static int read_activations(const struct quant_settings *settings, struct quant_scheme *scheme,
                            struct reason *why)
{
    const char *text = NULL;
    int r = quant_get_text(settings->values, "activation_scheme", settings->place, &text, why);
    if (r != 0) {
        return r;
    }
    if (!text) {
        return BAD(why, "%s: activation_scheme is missing; known: 'static', 'dynamic'",
                   settings->place);
    }
    bool is_block = scheme->group_n != QUANT_UNSAID;
    if (strcmp(text, "dynamic") == 0) {
        scheme->act = is_block ? GK_ACT_FP8_GROUP : GK_ACT_FP8_TOKEN;
        return 0;
    }
    if (strcmp(text, "static") != 0 || is_block) {
        return UNSUPPORTED(why, "%s: activation_scheme '%.60s' is not served%s; known: %s'dynamic'",
                           settings->place, text, is_block ? " with weight_block_size" : "",
                           is_block ? "" : "'static', ");
    }
    scheme->act = GK_ACT_FP8_TENSOR;
    return 0;
}

static int add_rules(const struct quant_settings *settings, const struct quant_scheme *scheme,
                     struct quant_rules *rules, struct reason *why)
{
    int r = quant_add_left_alone(rules, settings, "ignored_layers", QUANT_PATTERN_PATH, why);
    if (r == 0) {
        r = quant_add_left_alone(rules, settings, "modules_to_not_convert", QUANT_PATTERN_PATH,
                                 why);
    }
    return r != 0 ? r : quant_rules_add(rules, QUANT_PATTERN_ANY, NULL, scheme, false, why);
}

int quant_fp8_parse(const struct quant_settings *settings, struct quant_rules *rules,
                    GD_UNUSED struct warnings *warnings, struct reason *why)
{
    struct quant_scheme scheme = {.family = QUANT_FP8, .is_symmetric = true};
    int r = read_formats(settings, &scheme, why);
    if (r == 0) {
        r = read_block(settings, &scheme, why);
    }
    if (r == 0) {
        r = read_activations(settings, &scheme, why);
    }
    return r != 0 ? r : add_rules(settings, &scheme, rules, why);
}

int quant_fbgemm_parse(const struct quant_settings *settings, struct quant_rules *rules,
                       struct warnings *warnings, struct reason *why)
{
    const struct quant_scheme scheme = {.family = QUANT_FP8,
                                        .group_n = 1,
                                        .group_k = QUANT_WHOLE,
                                        .is_symmetric = true,
                                        .act = GK_ACT_FP8_TOKEN};
    const json_t *bound = quant_get(settings->values, "activation_scale_ub");
    if (bound) {
        warnings_add(warnings,
                     "%s: activation_scale_ub %g is not applied: larger values are scaled, not cut",
                     settings->place, json_number_value(bound));
    }
    return add_rules(settings, &scheme, rules, why);
}
