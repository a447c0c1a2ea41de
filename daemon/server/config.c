/* config.c - the option table, values from text, and the rules between options.
 *
 * Every option is a row; a row knows its type, bounds and text, so that adding one is one line
 * here, a field in struct config, and a run of the test that rewrites deploy/gemmd.conf and the man
 * page. All numbers are uint64_t fields: one setter serves them all. */
#include "daemon/server/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/sched.h"
#include "daemon/server/log_sink.h"
#include "daemon/server/model_options.h"
#include "gk/gk.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"
#include "ipc/lane.h"
#include "ipc/msg.h"

/* ---- rules of single values --------------------------------------------------------------------
 */

static bool parse_number(enum config_type type, const char *text, uint64_t *ret_value);

static int rule_socket_mode(const char *value, struct reason *why)
{
    uint64_t mode = 0;
    if (parse_number(CONFIG_TYPE_MODE, value, &mode) && (mode == 0600 || mode == 0660)) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT, "0%jo is neither 0600 nor 0660",
                      (uintmax_t)mode);
}

static int rule_power_of_two(const char *value, struct reason *why)
{
    uint64_t n = 0;
    if (parse_number(CONFIG_TYPE_COUNT, value, &n) && n != 0 && (n & (n - 1)) == 0) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT, "%ju is not a power of two", (uintmax_t)n);
}

static int rule_uid(const char *value, struct reason *why)
{
    uint64_t uid;
    if (parse_number(CONFIG_TYPE_COUNT, value, &uid) && uid < UINT32_MAX) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT, "'%.64s' is no user id", value);
}

static int rule_model(const char *value, struct reason *why)
{
    char name[MSG_NAME_BYTES];
    const char *path;
    int r = config_split_model(value, name, sizeof(name), &path, why);
    if (r == 0 && strlen(path) >= MSG_PATH_BYTES) {
        r = reason_set(why, STATUS_INVALID_ARGUMENT, "the path of '%s' has %zu bytes", name,
                       strlen(path));
    }
    return r;
}

static int rule_model_options(const char *value, struct reason *why)
{
    char name[MSG_NAME_BYTES];
    struct msg_shaping shaping;
    return model_options_parse(value, name, &shaping, why);
}

static int rule_host_isa(const char *value, struct reason *why)
{
    return value[0] != '\0' ? gk_host_isa_check(value, why) : 0;
}

static int rule_kernel(const char *value, struct reason *why)
{
    if (gk_kernel_named(value) != NULL) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT, "this build has no kernel '%.64s'", value);
}

static int rule_tuning(const char *value, struct reason *why)
{
    if (strcmp(value, "auto") == 0 || strcmp(value, "yes") == 0 || strcmp(value, "no") == 0) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT, "'%.32s' is not auto, yes or no", value);
}

/* ---- the table ---------------------------------------------------------------------------------
 */

/* ...: the sentence of documentation, then what few options have, as initialisers by name. */
#define ROW_OF(is_reloadable_, type_, field_, initial_, min_, max_, unit_, ...)                    \
    {                                                                                              \
        .name = #field_, .type = CONFIG_TYPE_##type_, .offset = offsetof(struct config, field_),   \
        .initial = (initial_), .min = (min_), .max = (max_), .unit = (unit_),                      \
        .is_reloadable = (is_reloadable_), .doc = __VA_ARGS__                                      \
    }
#define ROW(...)            ROW_OF(false, __VA_ARGS__)
#define RELOADABLE_ROW(...) ROW_OF(true, __VA_ARGS__)

#define TERABYTE (1ull << 40)

static const struct config_option options[] = {
    ROW(TEXT, socket_dir, "", 0, CONFIG_DIR_BYTES, "",
        "Folder of the sockets and the lock; empty: $GEMMD_SOCKET_DIR, $XDG_RUNTIME_DIR/gemmd or "
        "/run/gemmd."),
    ROW(MODE, socket_mode, "0600", 0600, 0660, "",
        "Permission bits of the sockets: 0600 for this user only, 0660 for its group as well.",
        .rule = rule_socket_mode),
    ROW(LIST, devices, "", 0, CONFIG_DEVICES_MAX, "",
        "A device to own: auto (every usable GPU, else host), host, cuda:N or a GPU's UUID; none "
        "given means auto."),
    ROW(LIST, models, "", 0, CONFIG_MODELS_MAX, "",
        "NAME=PATH of a checkpoint to load before the daemon is ready.", .rule = rule_model),
    ROW(LIST, model_options, "", 0, CONFIG_MODELS_MAX, "",
        "NAME: KEY=VALUE ... for one of the models: fuse=RULE, tp_rank=R, tp_size=S, split=RULE, "
        "as in gemmctl load.",
        .rule = rule_model_options),
    RELOADABLE_ROW(LIST, admin_uids, "", 0, CONFIG_ADMINS_MAX, "",
                   "A user id that may load, unload and drain, beside root and the daemon's own.",
                   .rule = rule_uid),
    ROW(COUNT, threads, "0", 0, 1024, "threads",
        "Threads of the host device; 0: one for each CPU this process may run on."),
    ROW(TEXT, host_isa, "", 0, CONFIG_WORD_BYTES, "",
        "The widest instructions that kernels of the host device may use: portable, avx2 or "
        "avx512; empty: what the CPU has. The products are the same, bit for bit.",
        .rule = rule_host_isa),
    ROW(LIST, kernels_disabled, "", 0, CONFIG_KERNELS_MAX, "",
        "A kernel that is never to run, by the name that gemmctl explain shows.",
        .rule = rule_kernel),
    ROW(LIST, kernels_preferred, "", 0, CONFIG_KERNELS_MAX, "",
        "A kernel to take before others wherever it can serve, the first one named first. With "
        "another order of sums, bits of products change.",
        .rule = rule_kernel),
    ROW(TEXT, tuning, "auto", 0, CONFIG_WORD_BYTES, "",
        "After a load, when no other waits, measure the kernels that may serve each weight and "
        "take the fastest for each number of rows: auto (on GPUs), yes (on the host too) or no.",
        .rule = rule_tuning),
    ROW(TEXT, tuning_file, "", 0, CONFIG_TEXT_BYTES, "",
        "Text file that keeps these measurements, made together with its folders; empty: tuning in "
        "$STATE_DIRECTORY, $XDG_CACHE_HOME/gemmd or ~/.cache/gemmd."),
    ROW(CHOICE, batching, "rendezvous", SCHED_OFF, SCHED_RENDEZVOUS, "off|natural|rendezvous",
        "How requests of different sessions for one weight share launches: not at all, when they "
        "happen to wait at the same time, or by holding sessions until others have caught up."),
    ROW(COUNT, spin_usec, "100", 0, 1000000, "microseconds",
        "How long an idle worker polls its lanes at most before it sleeps; it polls less where "
        "recent pauses were longer than that, and an idle daemon not at all. 0: sleep at once."),
    ROW(COUNT, rows_max, "65536", 1, 1u << 20, "rows", "Largest m of one request.",
        .over = STATUS_INVALID_ARGUMENT, .figure = "gemmd_requests_total{result=\"refused\"}"),
    ROW(COUNT, requests_max, "65536", 1, 1u << 20, "requests",
        "Accepted and unfinished requests of one device, over all sessions.", .over = STATUS_BUSY,
        .figure = "gemmd_requests_total{result=\"failed\"}"),
    ROW(COUNT, session_requests_max, "256", 1, 65536, "requests",
        "Unfinished requests of one session on the ZeroMQ path.", .over = STATUS_BUSY,
        .figure = "gemmd_control_refused_total"),
    RELOADABLE_ROW(
        COUNT, lane_entries, "256", LANE_ENTRIES_MIN, LANE_ENTRIES_MAX, "requests",
        "Ring size of a lane, a power of two: what a session may have in flight on the ring path.",
        .rule = rule_power_of_two),
    RELOADABLE_ROW(BYTES, buffer_bytes_max, "256M", 4096, TERABYTE, "bytes",
                   "Largest client buffer.", .over = STATUS_QUOTA,
                   .figure = "gemmd_session_refused_total"),
    RELOADABLE_ROW(COUNT, session_buffers_max, "1024", 1, 65536, "buffers",
                   "Buffers of one session.", .over = STATUS_QUOTA,
                   .figure = "gemmd_session_refused_total"),
    RELOADABLE_ROW(COUNT, user_sessions_max, "256", 1, 65536, "sessions", "Sessions of one user.",
                   .over = STATUS_QUOTA,
                   .figure = "gemmd_quota_refusals_total{limit=\"user_sessions_max\"}"),
    RELOADABLE_ROW(COUNT, user_buffers_max, "4096", 1, 1u << 20, "buffers", "Buffers of one user.",
                   .over = STATUS_QUOTA,
                   .figure = "gemmd_quota_refusals_total{limit=\"user_buffers_max\"}"),
    RELOADABLE_ROW(BYTES, user_buffer_bytes_max, "4G", 4096, 1024 * TERABYTE, "bytes",
                   "Bytes in buffers and lanes of one user.", .over = STATUS_QUOTA,
                   .figure = "gemmd_quota_refusals_total{limit=\"user_buffer_bytes_max\"}"),
    RELOADABLE_ROW(
        COUNT, user_fds_max, "8192", 8, 1u << 20, "descriptors",
        "File descriptors that one user's sessions, lanes and buffers may hold open here.",
        .over = STATUS_QUOTA, .figure = "gemmd_quota_refusals_total{limit=\"user_fds_max\"}"),
    RELOADABLE_ROW(COUNT, total_sessions_max, "1024", 1, 65536, "sessions",
                   "Sessions of all users.", .over = STATUS_QUOTA,
                   .figure = "gemmd_quota_refusals_total{limit=\"total_sessions_max\"}"),
    RELOADABLE_ROW(COUNT, total_buffers_max, "16384", 1, 1u << 20, "buffers",
                   "Buffers of all users.", .over = STATUS_QUOTA,
                   .figure = "gemmd_quota_refusals_total{limit=\"total_buffers_max\"}"),
    RELOADABLE_ROW(BYTES, total_buffer_bytes_max, "16G", 4096, 1024 * TERABYTE, "bytes",
                   "Bytes in buffers and lanes of all users.", .over = STATUS_QUOTA,
                   .figure = "gemmd_quota_refusals_total{limit=\"total_buffer_bytes_max\"}"),
    RELOADABLE_ROW(
        COUNT, total_fds_max, "0", 0, 1u << 20, "descriptors",
        "File descriptors of all users; 0: what RLIMIT_NOFILE leaves beside the daemon's own.",
        .over = STATUS_QUOTA, .figure = "gemmd_quota_refusals_total{limit=\"total_fds_max\"}"),
    RELOADABLE_ROW(COUNT, hello_timeout_msec, "10000", 10, 600000, "milliseconds",
                   "A connection that has not said HELLO by then is dropped.",
                   .figure = "gemmd_sessions_dropped_total"),
    RELOADABLE_ROW(
        COUNT, drain_timeout_msec, "3000", 0, 600000, "milliseconds",
        "After SIGTERM: how long requests in flight may take to end, and replies to be read."),
    ROW(COUNT, status_port, "0", 0, 65535, "",
        "TCP port on 127.0.0.1 that serves what the status socket serves, for browsers and for "
        "monitoring that cannot use a socket file; every user of this machine can read it. 0: "
        "none."),
    RELOADABLE_ROW(COUNT, ready_age_msec, "5000", 100, 3600000, "milliseconds",
                   "/readyz of the status socket makes each device compute a row before it says "
                   "yes, unless a request ended well no longer ago than that."),
    RELOADABLE_ROW(
        TEXT, log, "info", 0, CONFIG_TEXT_BYTES, "",
        "Log levels, LEVEL or TOPIC:LEVEL, comma-separated; error, warning, notice, info or "
        "debug.",
        .rule = log_sink_check),
};

static_assert(ARRAY_LENGTH(options) <= CONFIG_OPTIONS_MAX,
              "config_parse() keeps one line number each");

const struct config_option *config_options(uint32_t *ret_n)
{
    *ret_n = ARRAY_LENGTH(options);
    return options;
}

const char *config_type_name(enum config_type type)
{
    static const char *const names[] = {
        [CONFIG_TYPE_COUNT] = "number", [CONFIG_TYPE_BYTES] = "size", [CONFIG_TYPE_MODE] = "octal",
        [CONFIG_TYPE_CHOICE] = "word",  [CONFIG_TYPE_TEXT] = "text",  [CONFIG_TYPE_LIST] = "list",
    };
    return (uint32_t)type < ARRAY_LENGTH(names) ? names[type] : "?";
}

const struct config_option *config_find(const char *name)
{
    for (uint32_t i = 0; i < ARRAY_LENGTH(options); i++) {
        if (strcmp(options[i].name, name) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

static void *option_field(struct config *config, const struct config_option *option)
{
    return (char *)config + option->offset;
}

/* ---- values ------------------------------------------------------------------------------------
 */

/* Digits only: strtoull() would let signs, blanks and 0x through. */
static bool parse_digits(const char *text, unsigned base, const char **ret_end, uint64_t *ret_value)
{
    uint64_t value = 0;
    const char *at = text;
    while (*at >= '0' && *at < (char)('0' + (int)base)) {
        if (!num_mul(value, base, &value) || !num_add(value, (uint64_t)(*at - '0'), &value)) {
            return false;
        }
        at++;
    }
    *ret_end = at;
    *ret_value = value;
    return at != text;
}

static bool parse_bytes(const char *text, uint64_t *ret_value)
{
    static const char suffixes[] = "KMGT";
    const char *end;
    uint64_t value;
    if (!parse_digits(text, 10, &end, &value)) {
        return false;
    }
    const char *suffix = *end != '\0' ? strchr(suffixes, *end) : NULL;
    if (suffix != NULL) {
        end++;
        if (!num_mul(value, 1ull << (10 * (suffix - suffixes + 1)), &value)) {
            return false;
        }
    }
    *ret_value = value;
    return *end == '\0';
}

static bool parse_number(enum config_type type, const char *text, uint64_t *ret_value)
{
    const char *end = text;
    switch (type) {
    case CONFIG_TYPE_COUNT:
        return parse_digits(text, 10, &end, ret_value) && *end == '\0';
    case CONFIG_TYPE_MODE:
        return parse_digits(text, 8, &end, ret_value) && *end == '\0';
    case CONFIG_TYPE_BYTES:
        return parse_bytes(text, ret_value);
    default:
        return false;
    }
}

/* Words are counted from 0. */
static int set_choice(const struct config_option *option, uint64_t *field, const char *value,
                      struct reason *why)
{
    uint64_t number = 0;
    size_t n_bytes = strlen(value);
    for (const char *word = option->unit; word != NULL; number++) {
        const char *bar = strchrnul(word, '|');
        if ((size_t)(bar - word) == n_bytes && memcmp(word, value, n_bytes) == 0) {
            *field = number;
            return 0;
        }
        word = *bar == '|' ? bar + 1 : NULL;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT, "%s: '%.64s' is not one of %s", option->name,
                      value, option->unit);
}

static int set_number(const struct config_option *option, uint64_t *field, const char *value,
                      struct reason *why)
{
    uint64_t number;
    if (!parse_number(option->type, value, &number)) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%s: '%.64s' is not a value of type %s",
                          option->name, value, config_type_name(option->type));
    }
    if (number < option->min || number > option->max) {
        const char *format = option->type == CONFIG_TYPE_MODE
                                 ? "%s: 0%jo is not between 0%jo and 0%jo"
                                 : "%s: %ju is not between %ju and %ju";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        return reason_set(why, STATUS_INVALID_ARGUMENT, format, option->name, (uintmax_t)number,
                          (uintmax_t)option->min, (uintmax_t)option->max);
#pragma GCC diagnostic pop
    }
    *field = number;
    return 0;
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
        return reason_set(why, STATUS_INVALID_ARGUMENT, "there is no option '%.64s'", name);
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
    *config = (struct config){0};
    for (uint32_t i = 0; i < ARRAY_LENGTH(options); i++) {
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

/* ---- rules -------------------------------------------------------------------------------------
 */

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
    return msg_name_check(ret_name, "the model's name", why);
}

static bool has_model(const struct config *config, const char *name)
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

static int check_model_options(const struct config *config, struct reason *why)
{
    const struct config_list *list = &config->model_options;
    for (uint32_t i = 0; i < list->n; i++) {
        char name[MSG_NAME_BYTES];
        struct msg_shaping shaping;
        int r = model_options_parse(list->items[i], name, &shaping, why);
        r = r != 0 ? r : model_options_find(list->items, list->n, name, &shaping, why);
        if (r == 0 && !has_model(config, name)) {
            r = reason_set(why, STATUS_INVALID_ARGUMENT, "models has no '%.100s'", name);
        }
        if (r > 0) {
            reason_prefix(why, "model_options");
        }
        if (r > 0 && list->lines[i] != 0) {
            reason_prefix(why, "%.128s:%u", config->file_name, list->lines[i]);
        }
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

int config_check(const struct config *config, struct reason *why)
{
    return check_model_options(config, why);
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

bool config_is_admin(const struct config *config, uid_t uid)
{
    if (uid == 0 || uid == geteuid()) {
        return true;
    }
    for (uint32_t i = 0; i < config->admin_uids.n; i++) {
        if (strtoull(config->admin_uids.items[i], NULL, 10) == uid) {
            return true;
        }
    }
    return false;
}
