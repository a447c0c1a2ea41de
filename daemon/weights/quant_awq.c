/* AWQ: one scheme for every module that modules_to_not_convert names no part of. */
#include <string.h>
#include <strings.h>

#include "daemon/weights/quant_method.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

static int check_version(const struct quant_settings *settings, struct reason *why)
{
    const char *version = "gemm";
    int r = quant_get_text(settings->values, "version", settings->place, &version, why);
    if (r == 0 && strcasecmp(version, "gemm") != 0) {
        return UNSUPPORTED(why, "%s: version '%.60s' is not served; known: 'gemm'", settings->place,
                           version);
    }
    return r;
}

/* "zero_point", and in newer files "sym", which is its contrary. */
static int read_symmetry(const struct quant_settings *settings, bool *ret_is_symmetric,
                         struct reason *why)
{
    bool has_zeros = true;
    int r = quant_get_bool(settings->values, "zero_point", settings->place, &has_zeros, why);
    bool is_symmetric = !has_zeros;
    if (r == 0) {
        r = quant_get_bool(settings->values, "sym", settings->place, &is_symmetric, why);
    }
    if (r == 0 && quant_get(settings->values, "zero_point") && is_symmetric == has_zeros) {
        return BAD(why, "%s: zero_point and sym contradict each other", settings->place);
    }
    *ret_is_symmetric = is_symmetric;
    return r;
}

static int read_scheme(const struct quant_settings *settings, struct quant_scheme *scheme,
                       struct reason *why)
{
    int32_t bits = 0;
    int32_t group_size = 0;
    int r = quant_get_count(settings->values, "bits", settings->place, &bits, why);
    if (r == 0) {
        r = quant_get_count(settings->values, "group_size", settings->place, &group_size, why);
    }
    if (r != 0) {
        return r;
    }
    if (!quant_get(settings->values, "bits") || !quant_get(settings->values, "group_size")) {
        return BAD(why, "%s: bits or group_size is missing", settings->place);
    }
    if (bits != 4) {
        return UNSUPPORTED(why, "%s: bits %d is not served for AWQ; known: 4", settings->place,
                           bits);
    }
    scheme->bits = 4;
    r = quant_group_extent(group_size, settings->place, &scheme->group_k, why);
    return r != 0 ? r : read_symmetry(settings, &scheme->is_symmetric, why);
}

int quant_awq_parse(const struct quant_settings *settings, struct quant_rules *rules,
                    GD_UNUSED struct warnings *warnings, struct reason *why)
{
    struct quant_scheme scheme = {.family = QUANT_AWQ, .group_n = 1};
    int r = check_version(settings, why);
    if (r == 0) {
        r = read_scheme(settings, &scheme, why);
    }
    if (r == 0) {
        r = quant_add_left_alone(rules, settings, "modules_to_not_convert", QUANT_PATTERN_PART,
                                 why);
    }
    return r != 0 ? r : quant_rules_add(rules, QUANT_PATTERN_ANY, NULL, &scheme, false, why);
}
