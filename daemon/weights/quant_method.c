/* What methods share. See quant_method.h. */
#include "daemon/weights/quant_method.h"

#define BAD(why, ...) reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)

int quant_add_left_alone(struct quant_rules *rules, const struct quant_settings *settings,
                         const char *key, enum quant_pattern_kind kind, struct reason *why)
{
    static const struct quant_scheme none = {.family = QUANT_NONE};
    const json_t *names;
    int r = quant_get_texts(settings->values, key, settings->place, &names, why);
    for (size_t i = 0; r == 0 && i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        r = quant_rules_add(rules, kind, name, &none, false, why);
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
