/* config.c - values from text, and the rules between options; config_options.c has the options. */
#include "daemon/server/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/server/config_number.h"
#include "daemon/server/model_options.h"
#include "daemon/weights/model_load.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"
#include "ipc/msg.h"

static void *option_field(struct config *config, const struct config_option *option)
{
    return (char *)config + option->offset;
}

/* ---- values ---- */

static bool parse_number(enum config_type type, const char *text, uint64_t *ret_value)
{
    switch (type) {
    case CONFIG_TYPE_COUNT:
        return config_number(text, 10, ret_value);
    case CONFIG_TYPE_MODE:
        return config_number(text, 8, ret_value);
    case CONFIG_TYPE_BYTES:
        return config_bytes(text, ret_value);
    default:
        return false;
    }
}

/* Words are counted from 0. */
static bool find_word(const char *words, const char *value, uint64_t *ret_number)
{
    uint64_t number = 0;
    size_t n_bytes = strlen(value);
    for (const char *word = words; word != NULL; number++) {
        const char *bar = strchrnul(word, '|');
        if ((size_t)(bar - word) == n_bytes && memcmp(word, value, n_bytes) == 0) {
            *ret_number = number;
            return true;
        }
        word = *bar == '|' ? bar + 1 : NULL;
    }
    return false;
}

/* "yes" or "no" for what means it, else the value itself. */
static const char *plain_word(const char *value)
{
    if (strcmp(value, "true") == 0 || strcmp(value, "on") == 0) {
        return "yes";
    }
    return strcmp(value, "false") == 0 || strcmp(value, "off") == 0 ? "no" : value;
}

static int set_choice(const struct config_option *option, uint64_t *field, const char *value,
                      struct reason *why)
{
    if (find_word(option->unit, value, field) ||
        find_word(option->unit, plain_word(value), field)) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT, "%s: '%.64s' is not one of %s", option->name,
                      value, option->unit);
}

static int set_number(const struct config_option *option, uint64_t *field, const char *value,
                      struct reason *why)
{
    uint64_t number;
    bool is_number = parse_number(option->type, value, &number);
    if (is_number && number >= option->min && number <= option->max) {
        *field = number;
        return 0;
    }
    static const char *const kinds[] = {
        [CONFIG_TYPE_COUNT] = "a number ",
        [CONFIG_TYPE_BYTES] = "a size (bytes, or with K, M, G or T) ",
        [CONFIG_TYPE_MODE] = "an octal number ",
    };
    const char *kind = is_number ? "" : kinds[option->type];
    const char *format = option->type == CONFIG_TYPE_MODE
                             ? "%s: '%.64s' is not %sbetween 0%jo and 0%jo"
                             : "%s: '%.64s' is not %sbetween %ju and %ju";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    return reason_set(why, STATUS_INVALID_ARGUMENT, format, option->name, value, kind,
                      (uintmax_t)option->min, (uintmax_t)option->max);
#pragma GCC diagnostic pop
}

static int set_text(const struct config_option *option, char *field, const char *value,
                    struct reason *why)
{
    size_t n_bytes = strlen(value);
    if (n_bytes >= option->max) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%s: %zu bytes are over the limit of %ju",
                          option->name, n_bytes, (uintmax_t)option->max - 1);
    }
    memcpy(field, value, n_bytes + 1);
    return 0;
}

static int list_gain(const struct config_option *option, struct config_list *list,
                     const char *value, uint32_t i_line, struct reason *why)
{
    if (list->n >= option->max) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%s: more than %ju items", option->name,
                          (uintmax_t)option->max);
    }
    if (value[0] == '\0') {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%s: an item is empty", option->name);
    }
    char **items = reallocarray(list->items, list->n + 1, sizeof(*items));
    if (items == NULL) {
        return err_raise(-ENOMEM);
    }
    list->items = items;
    uint32_t *lines = reallocarray(list->lines, list->n + 1, sizeof(*lines));
    if (lines == NULL) {
        return err_raise(-ENOMEM);
    }
    list->lines = lines;
    items[list->n] = strdup(value);
    if (items[list->n] == NULL) {
        return err_raise(-ENOMEM);
    }
    lines[list->n] = i_line;
    list->n++;
    return 0;
}

static void list_finish(struct config_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        free(list->items[i]);
    }
    free(list->items);
    free(list->lines);
    *list = (struct config_list){0};
}

static int set_field(struct config *config, const struct config_option *option, const char *value,
                     struct reason *why)
{
    void *field = option_field(config, option);
    switch (option->type) {
    case CONFIG_TYPE_CHOICE:
        return set_choice(option, field, value, why);
    case CONFIG_TYPE_TEXT:
        return set_text(option, field, value, why);
    case CONFIG_TYPE_LIST:
        return list_gain(option, field, value, config->i_line, why);
    default:
        return set_number(option, field, value, why);
    }
}

/* The value is in its field before its rule is asked: a configuration with a fault is not used. */
static int option_set(struct config *config, const struct config_option *option, const char *value,
                      struct reason *why)
{
    int r = set_field(config, option, value, why);
    if (r != 0 || option->rule == NULL) {
        return r;
    }
    r = option->rule(value, why);
    if (r > 0) {
        reason_prefix(why, "%s", option->name);
    }
    return r;
}

int config_set(struct config *config, const char *name, const char *value, struct reason *why)
{
    const struct config_option *option = config_find(name);
    if (option == NULL) {
        return config_no_option(name, why);
    }
    return option_set(config, option, value, why);
}

void config_clear(struct config *config, const char *name)
{
    const struct config_option *option = config_find(name);
    GD_ASSERT(option != NULL && option->type == CONFIG_TYPE_LIST);
    list_finish(option_field(config, option));
}

int config_init(struct config *config)
{
    uint32_t n_options;
    const struct config_option *options = config_options(&n_options);
    *config = (struct config){0};
    for (uint32_t i = 0; i < n_options; i++) {
        if (options[i].type == CONFIG_TYPE_LIST) {
            continue;
        }
        int r = option_set(config, &options[i], options[i].initial, NULL);
        GD_ASSERT(r <= 0); /* a default that its own row refuses */
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

void config_finish(struct config *config)
{
    list_finish(&config->devices);
    list_finish(&config->models);
    list_finish(&config->model_options);
    list_finish(&config->admin_uids);
    list_finish(&config->kernels_disabled);
    list_finish(&config->kernels_preferred);
}

/* ---- rules ---- */

int config_split_model(const char *item, char *ret_name, size_t name_bytes, const char **ret_path,
                       struct reason *why)
{
    const char *equals = strchr(item, '=');
    if (equals == NULL || equals[1] == '\0') {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "'%.64s' is not NAME=PATH", item);
    }
    size_t n_bytes = (size_t)(equals - item);
    if (n_bytes == 0 || n_bytes >= name_bytes) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "a name of %zu bytes in '%.64s'", n_bytes,
                          item);
    }
    memcpy(ret_name, item, n_bytes);
    ret_name[n_bytes] = '\0';
    *ret_path = equals + 1;
    return msg_model_name_check(ret_name, "the model's name", why);
}

bool config_has_model(const struct config *config, const char *name)
{
    size_t n_bytes = strlen(name);
    for (uint32_t i = 0; i < config->models.n; i++) {
        const char *item = config->models.items[i];
        if (strncmp(item, name, n_bytes) == 0 && item[n_bytes] == '=') {
            return true;
        }
    }
    return false;
}

/* "FILE:LINE: NAME: " in front of a sentence about item i of the list of that name. */
static void prefix_item(const struct config *config, const char *name,
                        const struct config_list *list, uint32_t i, struct reason *why)
{
    reason_prefix(why, "%s", name);
    if (list->lines[i] != 0) {
        reason_prefix(why, "%.128s:%u", config->file_name, list->lines[i]);
    }
}

static int check_model_options(const struct config *config, struct reason *why)
{
    const struct config_list *list = &config->model_options;
    for (uint32_t i = 0; i < list->n; i++) {
        char name[MSG_NAME_BYTES];
        struct msg_shaping shaping;
        int r = model_options_parse(list->items[i], name, &shaping, why);
        r = r != 0 ? r : model_options_find(list->items, list->n, name, &shaping, why);
        if (r == 0 && !config_has_model(config, name)) {
            r = reason_set(why, STATUS_INVALID_ARGUMENT, "models has no '%.100s'", name);
        }
        if (r > 0) {
            prefix_item(config, "model_options", list, i, why);
        }
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

/* Two items are one if they agree in what is before the end character, or in all if neither has it.
 */
static int check_repeats(const struct config *config, const char *name,
                         const struct config_list *list, const char *end, struct reason *why)
{
    for (uint32_t i = 1; i < list->n; i++) {
        size_t n_bytes = strcspn(list->items[i], end);
        for (uint32_t j = 0; j < i; j++) {
            if (strcspn(list->items[j], end) == n_bytes &&
                memcmp(list->items[j], list->items[i], n_bytes) == 0) {
                (void)reason_set(why, STATUS_INVALID_ARGUMENT, "'%.*s' is there twice",
                                 (int)n_bytes, list->items[i]);
                prefix_item(config, name, list, i, why);
                return STATUS_INVALID_ARGUMENT;
            }
        }
    }
    return 0;
}

int config_check(const struct config *config, struct reason *why)
{
    int r = check_repeats(config, "devices", &config->devices, "", why);
    r = r != 0 ? r : check_repeats(config, "models", &config->models, "=", why);
    return r != 0 ? r : check_model_options(config, why);
}

int config_check_checkpoint(const struct config *config, uint32_t i_model, struct reason *why)
{
    const char *item = config->models.items[i_model];
    const struct config_list *options = &config->model_options;
    char name[MSG_NAME_BYTES];
    const char *path;
    struct msg_shaping shaping = {0};
    struct model_source source = MODEL_SOURCE_NULL;
    int r = config_split_model(item, name, sizeof(name), &path, why);
    r = r != 0 ? r : model_options_find(options->items, options->n, name, &shaping, why);
    r = r != 0 ? r : model_source_open(path, &shaping, NULL, &source, why);
    model_source_finish(&source);
    if (r > 0) {
        reason_prefix(why, "'%.100s'", item);
        prefix_item(config, "models", &config->models, i_model, why);
    }
    return r;
}

void config_default_socket_dir(char *text, size_t size_bytes)
{
    const char *own = secure_getenv("GEMMD_SOCKET_DIR");
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    if (own != NULL && own[0] != '\0') {
        (void)snprintf(text, size_bytes, "%s", own);
        return;
    }
    if (runtime != NULL && runtime[0] != '\0') {
        (void)snprintf(text, size_bytes, "%s/gemmd", runtime);
        return;
    }
    (void)snprintf(text, size_bytes, "/run/gemmd");
}

void config_tuning_file(const struct config *config, char *text, size_t size_bytes)
{
    const char *state = secure_getenv("STATE_DIRECTORY");
    const char *cache = secure_getenv("XDG_CACHE_HOME");
    const char *home = secure_getenv("HOME");
    text[0] = '\0';
    if (config->tuning_file[0] != '\0') {
        (void)snprintf(text, size_bytes, "%s", config->tuning_file);
    } else if (state != NULL && state[0] != '\0') {
        (void)snprintf(text, size_bytes, "%s/tuning", state);
    } else if (cache != NULL && cache[0] != '\0') {
        (void)snprintf(text, size_bytes, "%s/gemmd/tuning", cache);
    } else if (home != NULL && home[0] != '\0') {
        (void)snprintf(text, size_bytes, "%s/.cache/gemmd/tuning", home);
    }
}

uint32_t config_admin_uids(const struct config *config, uid_t ret_uids[CONFIG_ADMINS_MAX + 2])
{
    uint32_t n = 0;
    ret_uids[n++] = 0;
    ret_uids[n++] = geteuid();
    for (uint32_t i = 0; i < config->admin_uids.n; i++) {
        ret_uids[n++] = (uid_t)strtoull(config->admin_uids.items[i], NULL, 10);
    }
    return n;
}

bool config_is_admin(const struct config *config, uid_t uid)
{
    uid_t uids[CONFIG_ADMINS_MAX + 2];
    uint32_t n = config_admin_uids(config, uids);
    for (uint32_t i = 0; i < n; i++) {
        if (uids[i] == uid) {
            return true;
        }
    }
    return false;
}
