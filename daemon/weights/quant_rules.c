/* The list of rules. See quant_rules.h. */
#include "daemon/weights/quant_rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "ipc/base/error.h"

#define RULES_MAX 100000u

int quant_rules_add(struct quant_rules *rules, enum quant_pattern_kind kind, const char *text,
                    const struct quant_scheme *scheme, bool is_told_if_unused, struct reason *why)
{
    if (rules->n >= RULES_MAX) {
        return reason_set(why, STATUS_BAD_CHECKPOINT, "%s has more than %u rules about modules",
                          rules->place, RULES_MAX);
    }
    if ((rules->n & (rules->n - 1)) == 0) { /* a power of two: full, or empty */
        uint32_t n_places = rules->n ? 2 * rules->n : 1;
        struct quant_rule *items = reallocarray(rules->items, n_places, sizeof(*items));
        if (!items) {
            return err_raise(-ENOMEM);
        }
        rules->items = items;
    }
    struct quant_rule rule = {.scheme = *scheme, .is_told_if_unused = is_told_if_unused};
    int r = quant_pattern_init(&rule.pattern, kind, text ? text : "", why);
    if (r > 0) {
        reason_prefix(why, "%s", rules->place);
    }
    if (r == 0) {
        rules->items[rules->n++] = rule;
    }
    return r;
}

int quant_rules_find(struct quant_rules *rules, const char *module,
                     const struct quant_rule **ret_rule, struct reason *why)
{
    *ret_rule = NULL;
    for (uint32_t i = 0; i < rules->n; i++) {
        bool is_match;
        int r = quant_pattern_match(&rules->items[i].pattern, module, &is_match, why);
        if (r != 0) {
            return r;
        }
        if (is_match) {
            rules->items[i].is_used = true;
            *ret_rule = &rules->items[i];
            return 0;
        }
    }
    return 0;
}

void quant_rules_tell_unused(const struct quant_rules *rules, struct warnings *warnings)
{
    for (uint32_t i = 0; i < rules->n; i++) {
        const struct quant_rule *rule = &rules->items[i];
        if (rule->is_told_if_unused && !rule->is_used) {
            warnings_add(warnings, "%s: the rule '%s' applies to no module of the checkpoint",
                         rules->place, quant_rule_text(rule));
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

void quant_rules_finish(struct quant_rules *rules)
{
    for (uint32_t i = 0; i < rules->n; i++) {
        quant_pattern_finish(&rules->items[i].pattern);
    }
    free(rules->items);
    *rules = QUANT_RULES_NULL;
}
