/* model_options.c - see model_options.h. */
#include "daemon/server/model_options.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/shaping.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

#define INVALID(why, ...) reason_set((why), STATUS_INVALID_ARGUMENT, __VA_ARGS__)

static bool add_rule(char text[MSG_SHAPING_BYTES], const char *rule)
{
    size_t used = strlen(text);
    int length = snprintf(text + used, MSG_SHAPING_BYTES - used, "%s%s", used ? " " : "", rule);
    return length >= 0 && (size_t)length < MSG_SHAPING_BYTES - used;
}

static bool read_count(const char *text, uint32_t *ret_count)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    bool is_count = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
    if (!is_count || value > UINT32_MAX) {
        return false;
    }
    *ret_count = (uint32_t)value;
    return true;
}

/* "KEY=VALUE", cut at its first '='. */
static bool take_option(char *option, struct msg_shaping *shaping)
{
    char *value = strchr(option, '=');
    if (value == NULL) {
        return false;
    }
    *value++ = '\0';
    if (strcmp(option, "tp_rank") == 0) {
        return read_count(value, &shaping->tp_rank);
    }
    if (strcmp(option, "tp_size") == 0) {
        return read_count(value, &shaping->tp_size);
    }
    if (strcmp(option, "fuse") == 0) {
        return add_rule(shaping->fuse, value);
    }
    if (strcmp(option, "activations") == 0) {
        return add_rule(shaping->act, value);
    }
    return strcmp(option, "split") == 0 && add_rule(shaping->split, value);
}

static int parse_options(const char *item, char *options, struct msg_shaping *shaping,
                         struct reason *why)
{
    char *rest;
    bool has_rank = false;
    for (char *option = strtok_r(options, " ", &rest); option != NULL;
         option = strtok_r(NULL, " ", &rest)) {
        has_rank |= strncmp(option, "tp_rank=", strlen("tp_rank=")) == 0;
        if (!take_option(option, shaping)) {
            return INVALID(why,
                           "'%.40s' in '%.100s' is none of tp_rank=R, tp_size=S, "
                           "fuse=RULE, split=RULE, activations=RULE",
                           option, item);
        }
    }
    if (has_rank && shaping->tp_size == 0) {
        return INVALID(why, "'%.100s' has a tp_rank without a tp_size", item);
    }
    struct shaping parsed;
    int r = shaping_parse(shaping, &parsed, why);
    if (r != 0) {
        reason_prefix(why, "'%.100s'", item);
    }
    return r;
}

int model_options_parse(const char *item, char ret_name[MSG_NAME_BYTES],
                        struct msg_shaping *ret_shaping, struct reason *why)
{
    const char *colon = strrchr(item, ':'); /* options have none; a name may */
    size_t name_bytes = colon != NULL ? (size_t)(colon - item) : 0;
    if (name_bytes == 0 || name_bytes >= MSG_NAME_BYTES) {
        return INVALID(why, "'%.100s' is not NAME: KEY=VALUE ...", item);
    }
    CLEAN_FREE char *options = strdup(colon + 1);
    if (options == NULL) {
        return err_raise(-ENOMEM);
    }
    struct msg_shaping shaping = {.tp_rank = 0};
    int r = parse_options(item, options, &shaping, why);
    if (r != 0) {
        return r;
    }
    (void)snprintf(ret_name, MSG_NAME_BYTES, "%.*s", (int)name_bytes, item);
    *ret_shaping = shaping;
    return 0;
}

int model_options_find(char *const *items, uint32_t n, const char *name,
                       struct msg_shaping *ret_shaping, struct reason *why)
{
    struct msg_shaping found = {.tp_rank = 0};
    bool is_found = false;
    for (uint32_t i = 0; i < n; i++) {
        char model[MSG_NAME_BYTES];
        struct msg_shaping shaping;
        int r = model_options_parse(items[i], model, &shaping, why);
        if (r != 0) {
            return r;
        }
        if (strcmp(model, name) != 0) {
            continue;
        }
        if (is_found) {
            return INVALID(why, "more than one item is about '%.100s'", name);
        }
        found = shaping;
        is_found = true;
    }
    *ret_shaping = found;
    return 0;
}
