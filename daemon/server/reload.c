/* reload.c - see reload.h. The file is read into a configuration of its own and judged as a whole
 * before anything is taken over, so that no half of it ever holds. What worker threads were given
 * at the start (limits of requests, batching, spinning), sockets, devices and models is not
 * reloadable; config.c marks what is. */
#include "daemon/server/reload.h"

#include <stdio.h>
#include <string.h>

#include "daemon/server/log_sink.h"
#include "ipc/base/log.h"

static bool is_same_list(const struct config_list *a, const struct config_list *b)
{
    if (a->n != b->n) {
        return false;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        if (strcmp(a->items[i], b->items[i]) != 0) {
            return false;
        }
    }
    return true;
}

static bool is_same(enum config_type type, const void *a, const void *b)
{
    switch (type) {
    case CONFIG_TYPE_TEXT:
        return strcmp(a, b) == 0;
    case CONFIG_TYPE_LIST:
        return is_same_list(a, b);
    default:
        return *(const uint64_t *)a == *(const uint64_t *)b;
    }
}

/* Lists change places, so that each is freed once. */
static void take_field(const struct config_option *option, void *field, void *fresh_field)
{
    struct config_list list;
    switch (option->type) {
    case CONFIG_TYPE_TEXT:
        memcpy(field, fresh_field, option->max);
        return;
    case CONFIG_TYPE_LIST:
        list = *(struct config_list *)field;
        *(struct config_list *)field = *(struct config_list *)fresh_field;
        *(struct config_list *)fresh_field = list;
        return;
    default:
        *(uint64_t *)field = *(uint64_t *)fresh_field;
    }
}

static void add_name(char names[RELOAD_NAMES_BYTES], const char *name)
{
    size_t used = strlen(names);
    (void)snprintf(names + used, RELOAD_NAMES_BYTES - used, "%s%s", used > 0 ? ", " : "", name);
}

void reload_take(struct config *config, struct config *fresh, struct reload_changes *ret_changes)
{
    uint32_t n;
    const struct config_option *options = config_options(&n);
    *ret_changes = (struct reload_changes){.taken = ""};
    for (uint32_t i = 0; i < n; i++) {
        void *field = (char *)config + options[i].offset;
        void *fresh_field = (char *)fresh + options[i].offset;
        if (!is_same(options[i].type, field, fresh_field)) {
            add_name(options[i].is_reloadable ? ret_changes->taken : ret_changes->left,
                     options[i].name);
        }
        if (options[i].is_reloadable) {
            take_field(&options[i], field, fresh_field);
        }
    }
}

void reload_config(struct core *core, struct config *config, const struct cmdline *cmdline)
{
    struct config fresh;
    struct reason why = REASON_NULL;
    struct reload_changes changes;
    if (cmdline->config_path == NULL) {
        log_write(LOG_LEVEL_NOTICE, "server",
                  "SIGHUP: no configuration file was given, so none is read again");
        return;
    }
    int r = cmdline_config(cmdline, &fresh, &why);
    r = r != 0 ? r : log_sink_configure(fresh.log, &why);
    if (r != 0) {
        log_event(LOG_EVENT_CONFIG_REFUSED, LOG_LEVEL_ERROR, "server",
                  "SIGHUP: the configuration stays as it was: %s", r > 0 ? why.text : strerror(-r));
        config_finish(&fresh);
        return;
    }
    reload_take(config, &fresh, &changes);
    core_apply_limits(core);
    bool has_left = changes.left[0] != '\0';
    log_write(has_left ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE, "server",
              "SIGHUP: '%s' was read again; taken over: %s%s%s", cmdline->config_path,
              changes.taken[0] != '\0' ? changes.taken : "nothing, since nothing has changed",
              has_left ? "; these need a restart: " : "", changes.left);
    config_finish(&fresh);
}
