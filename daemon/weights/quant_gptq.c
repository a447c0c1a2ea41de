/* GPTQ: one base scheme, and "dynamic" rules that change it for some modules: regular expressions
 * in file order, "-:" in front leaves a module alone, "+:" or nothing changes the keys given.
 *
 * Not consulted: lm_head and modules_in_block_to_quantize. Whether P.qweight is there is the one
 * rule that no tool gets wrong. */
#include <string.h>

#include "daemon/weights/quant_method.h"
#include "ipc/base/num.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

static int check_bits(int32_t bits, const char *place, struct quant_scheme *scheme,
                      struct reason *why)
{
    if (bits != 4 && bits != 8) {
        return UNSUPPORTED(why, "%s: bits %d is not served; known: 4, 8", place, bits);
    }
    scheme->bits = (uint32_t)bits;
    return 0;
}

/* The keys that both the base and a rule may have; what is absent stays as it is. */
static int read_keys(const json_t *object, const char *place, struct quant_scheme *scheme,
                     struct reason *why)
{
    int32_t bits = (int32_t)scheme->bits;
    int32_t group_size = 0;
    bool has_group = quant_get(object, "group_size") != NULL;
    int r = quant_get_count(object, "bits", place, &bits, why);
    if (r == 0) {
        r = check_bits(bits, place, scheme, why);
    }
    if (r == 0) {
        r = quant_get_count(object, "group_size", place, &group_size, why);
    }
    if (r == 0 && has_group) {
        r = quant_group_extent(group_size, place, &scheme->group_k, why);
    }
    if (r == 0) {
        r = quant_get_bool(object, "sym", place, &scheme->is_symmetric, why);
    }
    return r != 0 ? r : quant_get_bool(object, "desc_act", place, &scheme->is_act_order, why);
}

static int read_format(const struct quant_settings *settings, struct quant_scheme *scheme,
                       struct reason *why)
{
    const char *format = "gptq";
    const char *pack_dtype = "int32";
    int r = quant_get_text(settings->values, "format", settings->place, &format, why);
    if (r == 0) {
        r = quant_get_text(settings->values, "pack_dtype", settings->place, &pack_dtype, why);
    }
    if (r != 0) {
        return r;
    }
    if (strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0) {
        return UNSUPPORTED(why,
                           "%s: checkpoint_format '%.60s' is not served; known: 'gptq', 'gptq_v2'",
                           settings->place, format);
    }
    if (strcmp(pack_dtype, "int32") != 0) {
        return UNSUPPORTED(why, "%s: pack_dtype '%.60s' is not served; known: 'int32'",
                           settings->place, pack_dtype);
    }
    scheme->is_v1 = strcmp(format, "gptq") == 0;
    return 0;
}

static int read_base(const struct quant_settings *settings, struct quant_scheme *scheme,
                     struct reason *why)
{
    if (!quant_get(settings->values, "bits")) {
        return BAD(why, "%s: bits is missing", settings->place);
    }
    if (!quant_get(settings->values, "group_size")) {
        return BAD(why, "%s: group_size is missing, and tools disagree about its default",
                   settings->place);
    }
    int r = read_keys(settings->values, settings->place, scheme, why);
    return r != 0 ? r : read_format(settings, scheme, why);
}

static int add_dynamic(struct quant_rules *rules, const char *key, const json_t *overrides,
                       const struct quant_scheme *base, struct reason *why)
{
    struct quant_scheme scheme = *base;
    bool is_left_alone = strncmp(key, "-:", 2) == 0;
    const char *regex = is_left_alone || strncmp(key, "+:", 2) == 0 ? key + 2 : key;
    if (!json_is_object(overrides)) {
        return BAD(why, "%s: dynamic '%.100s' is not an object", rules->place, key);
    }
    int r = read_keys(overrides, rules->place, &scheme, why);
    if (r > 0) {
        reason_prefix(why, "dynamic '%.100s'", key);
    }
    if (r != 0) {
        return r;
    }
    if (is_left_alone) {
        scheme = (struct quant_scheme){.family = QUANT_NONE};
    }
    return quant_rules_add(rules, QUANT_PATTERN_REGEX, regex, &scheme, true, why);
}

int quant_gptq_parse(const struct quant_settings *settings, struct quant_rules *rules,
                     GD_UNUSED struct warnings *warnings, struct reason *why)
{
    struct quant_scheme base = {.family = QUANT_GPTQ, .group_n = 1, .is_symmetric = true};
    const json_t *dynamic;
    int r = read_base(settings, &base, why);
    if (r == 0) {
        r = quant_get_object(settings->values, "dynamic", settings->place, &dynamic, why);
    }
    if (r != 0) {
        return r;
    }
    /* json_object_iter() only reads, but is not declared so. */
    json_t *items = (json_t *)(uintptr_t)dynamic;
    for (void *at = json_object_iter(items); at; at = json_object_iter_next(items, at)) {
        r = add_dynamic(rules, json_object_iter_key(at), json_object_iter_value(at), &base, why);
        if (r != 0) {
            return r;
        }
    }
    return quant_rules_add(rules, QUANT_PATTERN_ANY, NULL, &base, false, why);
}
