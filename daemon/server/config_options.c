/* config_options.c - every option: its row, and the rule that its values have to keep.
 *
 * A row knows its type, bounds and text, so that adding one is one line here, a field in struct
 * config, and a run of the test that rewrites deploy/gemmd.conf and the man page. All numbers are
 * uint64_t fields: one setter serves them all. */
#include "daemon/server/config.h"

#include <string.h>

#include "daemon/device/device.h"
#include "daemon/engine/sched.h"
#include "daemon/server/config_number.h"
#include "daemon/server/log_sink.h"
#include "daemon/server/model_options.h"
#include "daemon/weights/nearest.h"
#include "gk/gk.h"
#include "ipc/base/num.h"
#include "ipc/lane.h"
#include "ipc/msg.h"

/* ---- rules of single values ---- */

static int rule_socket_mode(const char *value, struct reason *why)
{
    uint64_t mode = 0;
    if (config_number(value, 8, &mode) && (mode == 0600 || mode == 0660)) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT, "0%jo is neither 0600 nor 0660",
                      (uintmax_t)mode);
}

static int rule_power_of_two(const char *value, struct reason *why)
{
    uint64_t n = 0;
    if (config_number(value, 10, &n) && n != 0 && (n & (n - 1)) == 0) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT, "%ju is not a power of two", (uintmax_t)n);
}

static int rule_uid(const char *value, struct reason *why)
{
    uint64_t uid;
    if (config_number(value, 10, &uid) && uid < UINT32_MAX) {
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

static int rule_device(const char *value, struct reason *why)
{
    if (!device_is_spec(value)) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "'%.64s' is none of auto, host, cuda:N, GPU-UUID", value);
    }
    bool is_gpu = strcmp(value, "auto") != 0 && strcmp(value, "host") != 0;
    if (is_gpu && !device_cuda_is_built()) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "this build has no CUDA back end, which '%.64s' needs", value);
    }
    return 0;
}

/* ---- the table ---- */

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
        "Folder of the sockets and the lock, an absolute path; empty: $GEMMD_SOCKET_DIR, "
        "$XDG_RUNTIME_DIR/gemmd or /run/gemmd.",
        .is_path = true),
    ROW(MODE, socket_mode, "0600", 0600, 0660, "",
        "Permission bits of the sockets: 0600 for this user only, 0660 for its group as well.",
        .rule = rule_socket_mode),
    ROW(LIST, devices, "", 0, CONFIG_DEVICES_MAX, "",
        "A device to own: auto (every usable GPU, else host), host, cuda:N or a GPU's UUID; none "
        "given means auto.",
        .rule = rule_device),
    ROW(LIST, models, "", 0, CONFIG_MODELS_MAX, "",
        "NAME=PATH of a checkpoint to load before the daemon is ready.", .rule = rule_model),
    ROW(LIST, model_options, "", 0, CONFIG_MODELS_MAX, "",
        "NAME: KEY=VALUE ... for one of the models: fuse=RULE, tp_rank=R, tp_size=S, split=RULE, "
        "activations=RULE, as in gemmctl load.",
        .rule = rule_model_options),
    RELOADABLE_ROW(LIST, admin_uids, "", 0, CONFIG_ADMINS_MAX, "",
                   "A user id that may load, unload, reload, verify, bench, drain and cancel jobs, "
                   "beside root and the daemon's own.",
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
    ROW(CHOICE, tuning, "auto", CONFIG_TUNING_NO, CONFIG_TUNING_AUTO, "no|yes|auto",
        "After a load, when no other waits, measure the kernels that may serve each weight and "
        "take the fastest for each number of rows: auto (on GPUs), yes (on the host too) or no."),
    ROW(TEXT, tuning_file, "", 0, CONFIG_TEXT_BYTES, "",
        "Text file that keeps these measurements, an absolute path, made together with its "
        "folders; empty: tuning in "
        "$STATE_DIRECTORY, $XDG_CACHE_HOME/gemmd or ~/.cache/gemmd. How GPUs multiply plain "
        "weights is kept beside it, in a file of the same name with .plans.",
        .is_path = true),
    ROW(CHOICE, batching, "rendezvous", SCHED_OFF, SCHED_RENDEZVOUS, "off|natural|rendezvous",
        "How requests of different sessions for one weight share launches: not at all, when they "
        "happen to wait at the same time, or by holding sessions until others have caught up."),
    ROW(CHOICE, launch_ahead, "yes", 0, 1, "no|yes",
        "On GPUs behind MPS: queue the launch that is expected next before its rows have come, "
        "where sessions are in step and it makes their steps shorter. The products are the same, "
        "bit for bit. While it waits, some 0.2 ms, or 1.2 ms where the daemon does not get its "
        "CPU back in time, kernels of other processes that need much shared memory may have to "
        "wait too."),
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
    RELOADABLE_ROW(COUNT, user_sessions_max, "256", 1, 65536, "sessions",
                   "Sessions of one user, and, with 16 more, his connections to the control "
                   "socket; a quarter of the descriptors that the daemon may open (LimitNOFILE=, "
                   "ulimit -n) bounds the connections, and 16 less the sessions. Administrators "
                   "(see admin_uids) may have 4 sessions beyond this and the total, and the "
                   "descriptors for them.",
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
                   "Sessions of all users; administrators may bring them to 4 more.",
                   .over = STATUS_QUOTA,
                   .figure = "gemmd_quota_refusals_total{limit=\"total_sessions_max\"}"),
    RELOADABLE_ROW(COUNT, total_buffers_max, "16384", 1, 1u << 20, "buffers",
                   "Buffers of all users.", .over = STATUS_QUOTA,
                   .figure = "gemmd_quota_refusals_total{limit=\"total_buffers_max\"}"),
    RELOADABLE_ROW(BYTES, total_buffer_bytes_max, "16G", 4096, 1024 * TERABYTE, "bytes",
                   "Bytes in buffers and lanes of all users.", .over = STATUS_QUOTA,
                   .figure = "gemmd_quota_refusals_total{limit=\"total_buffer_bytes_max\"}"),
    RELOADABLE_ROW(
        COUNT, total_fds_max, "0", 0, 1u << 20, "descriptors",
        "File descriptors of all users, at most what RLIMIT_NOFILE leaves beside the daemon's own; "
        "0: that.",
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
        "none. The shipped systemd unit forbids it: see the drop-in in deploy/systemd/README.md."),
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

int config_no_option(const char *name, struct reason *why)
{
    struct nearest nearest;
    nearest_init(&nearest, name);
    for (uint32_t i = 0; i < ARRAY_LENGTH(options); i++) {
        nearest_offer(&nearest, options[i].name);
    }
    (void)reason_set(why, STATUS_INVALID_ARGUMENT, "there is no option '%.64s'", name);
    nearest_append(&nearest, why);
    return STATUS_INVALID_ARGUMENT;
}
