/* compressed-tensors: groups of targets, each with its weights' and its activations' arguments.
 *
 * A module is looked up in the ignore list, then among the targets that name it, then among
 * regular expressions ("re:"), then by class ("Linear"): the order of the rules is that order, over
 * all groups, and file order within each. */
#include <string.h>

#include "daemon/weights/quant_method.h"
#include "ipc/base/num.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

/* What "weights" or "input_activations" of a group says. */
struct arguments {
    int32_t bits;
    int32_t group_size; /* 0: not given */
    const char *type;
    const char *strategy;
    bool is_symmetric;
    bool is_dynamic;
    bool is_act_order; /* actorder that needs a map */
    const json_t *block;
};

/* ---- arguments ---- */

/* "dynamic" is a truth value, or "local" (NVFP4: static for the tensor, dynamic in it). */
static int read_dynamic(const json_t *object, const char *place, struct arguments *arguments,
                        struct reason *why)
{
    if (json_is_string(quant_get(object, "dynamic"))) {
        arguments->is_dynamic = true;
        return 0;
    }
    return quant_get_bool(object, "dynamic", place, &arguments->is_dynamic, why);
}

/* "group" orders the columns at run time; "weight", "static" and truth values of old files are
 * told by the map itself. */
static int read_actorder(const json_t *object, const char *place, struct arguments *arguments,
                         struct reason *why)
{
    const char *actorder = "weight";
    if (json_is_boolean(quant_get(object, "actorder"))) {
        return 0;
    }
    int r = quant_get_text(object, "actorder", place, &actorder, why);
    arguments->is_act_order = strcmp(actorder, "group") == 0;
    return r;
}

static const char *implied_strategy(const struct arguments *arguments)
{
    if (arguments->group_size == 0) {
        return "tensor";
    }
    return arguments->group_size > 0 ? "group" : "channel";
}

static int read_arguments(const json_t *object, const char *place, struct arguments *arguments,
                          struct reason *why)
{
    *arguments = (struct arguments){.bits = 8, .type = "int", .is_symmetric = true};
    arguments->block = quant_get(object, "block_structure");
    int r = quant_get_count(object, "num_bits", place, &arguments->bits, why);
    if (r == 0) {
        r = quant_get_count(object, "group_size", place, &arguments->group_size, why);
    }
    if (r == 0) {
        r = quant_get_text(object, "type", place, &arguments->type, why);
    }
    if (r == 0) {
        arguments->strategy = implied_strategy(arguments);
        r = quant_get_text(object, "strategy", place, &arguments->strategy, why);
    }
    if (r == 0) {
        r = quant_get_bool(object, "symmetric", place, &arguments->is_symmetric, why);
    }
    if (r == 0) {
        r = read_dynamic(object, place, arguments, why);
    }
    return r != 0 ? r : read_actorder(object, place, arguments, why);
}

/* ---- weights ---- */

static int read_block(const struct arguments *weights, const char *place,
                      struct quant_scheme *scheme, struct reason *why)
{
    json_int_t n = json_integer_value(json_array_get(weights->block, 0));
    json_int_t k = json_integer_value(json_array_get(weights->block, 1));
    if (json_array_size(weights->block) != 2 || n < 1 || k < 1 || n > INT32_MAX || k > INT32_MAX) {
        return BAD(why, "%s: block_structure is not a pair of sizes", place);
    }
    scheme->group_n = (uint32_t)n;
    scheme->group_k = (uint32_t)k;
    return 0;
}

static int read_extent(const struct arguments *weights, const char *place,
                       struct quant_scheme *scheme, struct reason *why)
{
    const char *strategy = weights->strategy;
    scheme->group_n = 1;
    scheme->group_k = QUANT_WHOLE;
    if (strcmp(strategy, "tensor") == 0) {
        scheme->group_n = QUANT_WHOLE;
        return 0;
    }
    if (strcmp(strategy, "channel") == 0) {
        return 0;
    }
    if (strcmp(strategy, "block") == 0) {
        return read_block(weights, place, scheme, why);
    }
    if (strcmp(strategy, "group") == 0 || strcmp(strategy, "tensor_group") == 0) {
        return quant_group_extent(weights->group_size, place, &scheme->group_k, why);
    }
    return UNSUPPORTED(why,
                       "%s: strategy '%.40s' of weights is not served; known: 'tensor', "
                       "'channel', 'group', 'block', 'tensor_group'",
                       place, strategy);
}

/* Formats, and what their weights are. */
static const struct format {
    const char *name;
    const char *type;
    uint32_t bits; /* 0: 4 or 8 */
    enum quant_family family;
} formats[] = {
    {"pack-quantized", "int", 0, QUANT_PACKED},
    {"int-quantized", "int", 8, QUANT_INT8},
    {"float-quantized", "float", 8, QUANT_FP8},
    {"naive-quantized", "int", 8, QUANT_INT8},
    {"naive-quantized", "float", 8, QUANT_FP8},
    {"nvfp4-pack-quantized", "float", 4, QUANT_NVFP4},
    {"mxfp4-pack-quantized", "float", 4, QUANT_MXFP4},
    {"mxfp8-quantized", "float", 8, QUANT_MXFP8},
};

#define KNOWN_FORMATS                                                                              \
    "known: 'pack-quantized', 'int-quantized', 'float-quantized', 'naive-quantized', "             \
    "'nvfp4-pack-quantized', 'mxfp4-pack-quantized', 'mxfp8-quantized'"

static bool fits_format(const struct format *format, const struct arguments *weights)
{
    bool is_width = format->bits == 0 ? weights->bits == 4 || weights->bits == 8
                                      : weights->bits == (int32_t)format->bits;
    return is_width && strcmp(format->type, weights->type) == 0;
}

static int read_family(const char *name, const struct arguments *weights, const char *place,
                       struct quant_scheme *scheme, struct reason *why)
{
    bool is_known = false;
    for (uint32_t i = 0; i < ARRAY_LENGTH(formats); i++) {
        if (strcmp(name, formats[i].name) != 0) {
            continue;
        }
        is_known = true;
        if (fits_format(&formats[i], weights)) {
            scheme->family = formats[i].family;
            scheme->bits = (uint32_t)weights->bits;
            return 0;
        }
    }
    return is_known
               ? UNSUPPORTED(why,
                             "%s: weights of type '%.20s' with %d bits are not served in "
                             "format '%s'",
                             place, weights->type, weights->bits, name)
               : UNSUPPORTED(why, "%s: format '%.40s' is not served; " KNOWN_FORMATS, place, name);
}

/* ---- activations ---- */

/* Served per token where the settings say "one dynamic scale a tensor": finer, and a row's bits
 * must not depend on the rows beside it. */
static int read_act_int8(const struct arguments *act, const char *place,
                         struct quant_scheme *scheme, struct reason *why)
{
    bool is_tensor = strcmp(act->strategy, "tensor") == 0;
    if (!act->is_dynamic && is_tensor) {
        scheme->act = GK_ACT_INT8_TENSOR;
        return 0;
    }
    if (act->is_dynamic && (is_tensor || strcmp(act->strategy, "token") == 0)) {
        scheme->act = act->is_symmetric ? GK_ACT_INT8_TOKEN : GK_ACT_INT8_TOKEN_ZERO;
        return 0;
    }
    return UNSUPPORTED(why, "%s: %s int8 activations of strategy '%.40s' are not served", place,
                       act->is_dynamic ? "dynamic" : "static", act->strategy);
}

static int read_act_fp8(const struct arguments *act, const char *place, struct quant_scheme *scheme,
                        struct reason *why)
{
    bool is_tensor = strcmp(act->strategy, "tensor") == 0;
    if (!act->is_dynamic && is_tensor) {
        scheme->act = GK_ACT_FP8_TENSOR;
        return 0;
    }
    if (act->is_dynamic && (is_tensor || strcmp(act->strategy, "token") == 0)) {
        scheme->act = GK_ACT_FP8_TOKEN;
        return 0;
    }
    if (act->is_dynamic && strcmp(act->strategy, "group") == 0 &&
        act->group_size == (int32_t)GK_ACT_GROUP_K) {
        scheme->act = GK_ACT_FP8_GROUP;
        return 0;
    }
    return UNSUPPORTED(why, "%s: %s fp8 activations of strategy '%.40s' (group %d) are not served",
                       place, act->is_dynamic ? "dynamic" : "static", act->strategy,
                       act->group_size);
}

/* The microscaling formats serve as weight-only: see quant_modelopt.c. */
static int read_activations(const json_t *group, const char *place, struct quant_scheme *scheme,
                            struct reason *why)
{
    const json_t *object;
    struct arguments act;
    int r = quant_get_object(group, "input_activations", place, &object, why);
    if (r == 0 && quant_get(group, "output_activations")) {
        r = UNSUPPORTED(why, "%s: output_activations are not served", place);
    }
    bool is_microscaled = scheme->family >= QUANT_NVFP4;
    if (r != 0 || !object || is_microscaled) {
        return r;
    }
    r = read_arguments(object, place, &act, why);
    if (r != 0) {
        return r;
    }
    if (act.bits != 8) {
        return UNSUPPORTED(why, "%s: input_activations of %d bits are not served; known: 8", place,
                           act.bits);
    }
    if (strcmp(act.type, "int") == 0) {
        return read_act_int8(&act, place, scheme, why);
    }
    if (strcmp(act.type, "float") == 0) {
        return read_act_fp8(&act, place, scheme, why);
    }
    return UNSUPPORTED(why, "%s: input_activations of type '%.40s' are not served", place,
                       act.type);
}

/* ---- groups ---- */

static int read_group(const json_t *group, const char *place, const char *format,
                      struct quant_scheme *scheme, struct reason *why)
{
    const json_t *object;
    struct arguments weights;
    int r = quant_get_text(group, "format", place, &format, why);
    if (r == 0) {
        r = quant_get_object(group, "weights", place, &object, why);
    }
    if (r == 0 && !object) {
        r = BAD(why, "%s: weights is missing", place);
    }
    if (r == 0) {
        r = read_arguments(object, place, &weights, why);
    }
    if (r == 0) {
        r = read_family(format, &weights, place, scheme, why);
    }
    if (r == 0) {
        r = read_extent(&weights, place, scheme, why);
    }
    if (r != 0) {
        return r;
    }
    scheme->is_symmetric = weights.is_symmetric;
    scheme->is_act_order = weights.is_act_order;
    return read_activations(group, place, scheme, why);
}

static enum quant_pattern_kind kind_of(const char *target)
{
    if (strncmp(target, "re:", 3) == 0) {
        return QUANT_PATTERN_REGEX;
    }
    return strcmp(target, "Linear") == 0 ? QUANT_PATTERN_CLASS : QUANT_PATTERN_EXACT;
}

static const char *text_of(const char *target)
{
    return kind_of(target) == QUANT_PATTERN_REGEX ? target + 3 : target;
}

static int add_targets(struct quant_rules *rules, const json_t *group, enum quant_pattern_kind kind,
                       const struct quant_scheme *scheme, struct reason *why)
{
    const json_t *targets;
    int r = quant_get_texts(group, "targets", rules->place, &targets, why);
    for (size_t i = 0; r == 0 && i < json_array_size(targets); i++) {
        const char *target = json_string_value(json_array_get(targets, i));
        if (kind_of(target) == kind) {
            r = quant_rules_add(rules, kind, text_of(target), scheme, true, why);
        }
    }
    return r;
}

static int add_groups(struct quant_rules *rules, const json_t *groups, const char *format,
                      enum quant_pattern_kind kind, struct reason *why)
{
    json_t *items = (json_t *)(uintptr_t)groups; /* json_object_iter() only reads */
    for (void *at = json_object_iter(items); at; at = json_object_iter_next(items, at)) {
        struct quant_scheme scheme = {.family = QUANT_NONE};
        const json_t *group = json_object_iter_value(at);
        int r = read_group(group, rules->place, format, &scheme, why);
        r = r != 0 ? r : add_targets(rules, group, kind, &scheme, why);
        if (r > 0) {
            reason_prefix(why, "group '%.60s'", json_object_iter_key(at));
        }
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

static int add_ignored(struct quant_rules *rules, const struct quant_settings *settings,
                       struct reason *why)
{
    static const struct quant_scheme none = {.family = QUANT_NONE};
    const json_t *names;
    int r = quant_get_texts(settings->values, "ignore", settings->place, &names, why);
    for (size_t i = 0; r == 0 && i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        r = quant_rules_add(rules, kind_of(name), text_of(name), &none, false, why);
    }
    return r;
}

/* ---- the whole ---- */

/* Things a checkpoint may have that change every product, and that are not done. */
static int check_extras(const struct quant_settings *settings, struct reason *why)
{
    const char *format = "dense";
    const json_t *sparsity;
    const json_t *transforms;
    int r = quant_get_object(settings->values, "sparsity_config", settings->place, &sparsity, why);
    if (r == 0) {
        r = quant_get_text(sparsity, "format", settings->place, &format, why);
    }
    if (r == 0 && strcmp(format, "dense") != 0) {
        r = UNSUPPORTED(why, "%s: sparsity_config of format '%.40s' is not served; known: 'dense'",
                        settings->place, format);
    }
    if (r == 0) {
        r = quant_get_object(settings->values, "transform_config", settings->place, &transforms,
                             why);
    }
    if (r == 0 && json_object_size(quant_get(transforms, "config_groups")) > 0) {
        r = UNSUPPORTED(why, "%s: transform_config (rotations of x) is not served",
                        settings->place);
    }
    return r;
}

int quant_ct_parse(const struct quant_settings *settings, struct quant_rules *rules,
                   GD_UNUSED struct warnings *warnings, struct reason *why)
{
    static const enum quant_pattern_kind order[] = {QUANT_PATTERN_EXACT, QUANT_PATTERN_REGEX,
                                                    QUANT_PATTERN_CLASS};
    const json_t *groups;
    const char *format = "?";
    int r = check_extras(settings, why);
    if (r == 0) {
        r = quant_get_text(settings->values, "format", settings->place, &format, why);
    }
    if (r == 0) {
        r = quant_get_object(settings->values, "config_groups", settings->place, &groups, why);
    }
    if (r == 0 && !groups) {
        r = BAD(why, "%s: config_groups is missing", settings->place);
    }
    if (r == 0) {
        r = add_ignored(rules, settings, why);
    }
    for (uint32_t i = 0; r == 0 && i < ARRAY_LENGTH(order); i++) {
        r = add_groups(rules, groups, format, order[i], why);
    }
    return r;
}
