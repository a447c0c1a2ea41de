/* core.c - set-up and tear-down in one visible order: accounts, store, loader, devices, workers;
 * and back. */
#include "daemon/server/core.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "daemon/server/accept_guard.h"
#include "daemon/server/control_guard.h"
#include "daemon/server/http.h"
#include "daemon/weights/nearest.h"
#include "gk/gk.h"
#include "ipc/base/clock.h"
#include "ipc/base/log.h"
#include "ipc/base/num.h"

/* Kept free for loads, readers of the status, administrators and the like. */
#define FDS_OF_OUR_OWN (32u + HTTP_FDS + ACCEPT_GUARD_ADMINS)
#define CONTROL_SPARE  16u /* at most a quarter of what a user may have */

const char *core_phase_name(enum core_phase phase)
{
    static const char *const names[] = {"starting", "serving", "draining", "stopping"};
    return names[phase];
}

/* ---- news from the workers: hand it on, nothing else ---- */

static void on_reply(void *arg, uint64_t session_id, const struct request_result *result)
{
    mailbox_post(arg, MAIL_REPLY, session_id, result);
}

static void on_detached(void *arg, uint64_t session_id)
{
    mailbox_post(arg, MAIL_DETACHED, session_id, NULL);
}

static void on_fatal(void *arg, const struct reason *why)
{
    struct request_result result = {.status = (uint32_t)why->status};
    memcpy(result.text, why->text, sizeof(result.text));
    mailbox_post(arg, MAIL_FATAL, 0, &result);
}

/* ---- set-up ---- */

/* What the limit leaves beside what is open already, which is the devices', and some room for what
 * is not: sockets, timers, loads. An option that promises more is not kept to: accounts would have
 * room, and the process no descriptor. */
static uint64_t derive_fds(void)
{
    uint64_t limit = accept_guard_limit();
    uint64_t taken = accept_guard_used() + num_min(FDS_OF_OUR_OWN, limit / 4);
    return limit > taken ? limit - taken : 0;
}

/* A session has one connection to the control socket; one that is being made anew has two for a
 * moment. These are under no quota: a quarter of all descriptors is what one user may have. */
static uint64_t control_limit(const struct config *config)
{
    return num_min(config->user_sessions_max + CONTROL_SPARE, accept_guard_limit() / 4);
}

/* Each session is to find its connection, so there are fewer where descriptors are few. */
static uint64_t sessions_limit(const struct config *config)
{
    uint64_t n_connections = control_limit(config);
    uint64_t n_spare = num_min(CONTROL_SPARE, n_connections / 4);
    return num_min(config->user_sessions_max, num_max(1, n_connections - n_spare));
}

static void tell_sessions_limit(const struct config *config)
{
    if (sessions_limit(config) < config->user_sessions_max) {
        log_write(LOG_LEVEL_NOTICE, "server",
                  "user_sessions_max is %ju, and a user may have %ju sessions here: the daemon may "
                  "open %ju descriptors (LimitNOFILE=, ulimit -n)",
                  (uintmax_t)config->user_sessions_max, (uintmax_t)sessions_limit(config),
                  (uintmax_t)accept_guard_limit());
    }
}

static struct quota_limits limits_of(const struct config *config, uint64_t derived_fds)
{
    uint64_t chosen_fds = config->total_fds_max != 0 ? config->total_fds_max : derived_fds;
    return (struct quota_limits){
        .per_user = {[QUOTA_SESSIONS] = sessions_limit(config),
                     [QUOTA_BUFFERS] = config->user_buffers_max,
                     [QUOTA_BYTES] = config->user_buffer_bytes_max,
                     [QUOTA_FDS] = config->user_fds_max},
        .total = {[QUOTA_SESSIONS] = config->total_sessions_max,
                  [QUOTA_BUFFERS] = config->total_buffers_max,
                  [QUOTA_BYTES] = config->total_buffer_bytes_max,
                  [QUOTA_FDS] = num_min(chosen_fds, derived_fds)},
    };
}

static void tell_guards(const struct config *config)
{
    static_assert(CONFIG_ADMINS_MAX + 2 <= ACCEPT_GUARD_UIDS_MAX, "the guard knows them all");
    uid_t uids[CONFIG_ADMINS_MAX + 2];
    accept_guard_set_admins(uids, config_admin_uids(config, uids));
    control_guard_set_limit(control_limit(config));
}

/* The figures of a device, which readers of the page see from now on. */
static struct stats_worker *stats_begin(struct core *core, uint32_t index)
{
    static_assert(CONFIG_DEVICES_MAX <= STATS_DEVICES_MAX, "a device has no place in the figures");
    struct stats_worker *stats = &core->stats->workers[index];
    const struct device *device = core->devices[index];
    (void)snprintf(stats->device_name, sizeof(stats->device_name), "%s", device->name);
    (void)snprintf(stats->device_description, sizeof(stats->device_description), "%s",
                   device->description);
    atomic_store(&core->stats->n_devices, index + 1);
    return stats;
}

static int add_device(struct core *core, const char *spec, struct reason *why)
{
    uint32_t index = core->n_devices;
    if (index == CONFIG_DEVICES_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "a daemon owns at most %u devices",
                          CONFIG_DEVICES_MAX);
    }
    int r = device_open(spec, index, (uint32_t)core->config->threads, &core->devices[index], why);
    if (r != 0) {
        return r;
    }
    core->n_devices++;
    core->devices[index]->plan_file = core->plan_file;
    for (uint32_t i = 0; i < index; i++) {
        if (strcmp(device_identity(core->devices[i]), device_identity(core->devices[index])) == 0) {
            return reason_set(why, STATUS_INVALID_ARGUMENT, "device %s is named twice, as %s too",
                              core->devices[i]->name, spec);
        }
    }
    const struct worker_limits limits = {
        .requests_max = (uint32_t)core->config->requests_max,
        .session_requests_max = (uint32_t)core->config->session_requests_max,
        .rows_max = (uint32_t)core->config->rows_max,
        .spin_usec = (uint32_t)core->config->spin_usec,
        .mode = (enum sched_mode)core->config->batching,
        .may_arm = core->config->launch_ahead != 0,
    };
    const struct worker_callbacks callbacks = {
        .arg = &core->mailbox,
        .on_reply = on_reply,
        .on_detached = on_detached,
        .on_fatal = on_fatal,
        .stats = stats_begin(core, index),
    };
    r = worker_new(core->devices[index], core->store, &limits, &callbacks, &core->workers[index]);
    if (r == 0) {
        log_write(LOG_LEVEL_NOTICE, "server", "device %u is %s: %s", index,
                  core->devices[index]->name, core->devices[index]->description);
    }
    return r;
}

/* Every usable GPU, else the host. */
static int add_auto(struct core *core, struct reason *why)
{
    char name[64];
    int hidden = device_auto_check(why);
    if (hidden != 0) {
        return hidden;
    }
    for (uint32_t i = 0; device_auto_name(i, name, sizeof(name)); i++) {
        int r = add_device(core, name, why);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

static int add_devices(struct core *core, struct reason *why)
{
    const struct config_list *specs = &core->config->devices;
    if (specs->n == 0) {
        return add_auto(core, why);
    }
    for (uint32_t i = 0; i < specs->n; i++) {
        bool is_auto = strcmp(specs->items[i], "auto") == 0;
        int r = is_auto ? add_auto(core, why) : add_device(core, specs->items[i], why);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

/* The choice of kernels, before anything asks for one. */
static int apply_wishes(const struct config *config, struct reason *why)
{
    int r = gk_host_isa_limit(config->host_isa[0] != '\0' ? config->host_isa : NULL, why);
    for (uint32_t i = 0; r == 0 && i < config->kernels_disabled.n; i++) {
        r = gk_disable(config->kernels_disabled.items[i], why);
    }
    for (uint32_t i = 0; r == 0 && i < config->kernels_preferred.n; i++) {
        r = gk_prefer(config->kernels_preferred.items[i], why);
    }
    return r;
}

static int add_loader(struct core *core)
{
    const struct config *config = core->config;
    struct tuner *tuner = NULL;
    char path[CONFIG_TEXT_BYTES];
    config_tuning_file(config, path, sizeof(path));
    int r = config->tuning == CONFIG_TUNING_NO
                ? 0
                : tuner_new(path, config->tuning == CONFIG_TUNING_YES, &tuner);
    r = r != 0 ? r : loader_new(core->store, tuner, &core->loader);
    if (r != 0) {
        (void)tuner_free(tuner);
    }
    return r;
}

/* Plans are kept beside measurements, and whatever `tuning` says: a GPU cannot do without them. */
static int add_plan_file(struct core *core)
{
    char path[CONFIG_TEXT_BYTES], beside[CONFIG_TEXT_BYTES + 8];
    config_tuning_file(core->config, path, sizeof(path));
    if (path[0] == '\0') {
        return 0;
    }
    (void)snprintf(beside, sizeof(beside), "%s.plans", path);
    return plan_file_new(beside, &core->plan_file);
}

int core_init(struct core *core, const struct config *config, struct stats_page *stats,
              struct keep *keep, struct reason *why)
{
    *core = (struct core){.config = config,
                          .start_nsec = clock_now_nsec(),
                          .mailbox = MAILBOX_NULL,
                          .stats = stats,
                          .keep = *keep};
    *keep = KEEP_NULL;
    core->was_drained = keep_take_marks(&core->keep, KEEP_DRAINED) > 0;
    int r = mailbox_init(&core->mailbox);
    r = r != 0 ? r : store_new(&core->store);
    if (r == 0) {
        store_count_in(core->store, stats);
        store_set_keep(core->store, &core->keep);
    }
    r = r != 0 ? r : add_loader(core);
    r = r != 0 ? r : apply_wishes(config, why);
    r = r != 0 ? r : add_plan_file(core);
    r = r != 0 ? r : add_devices(core, why);
    if (r != 0) {
        return r;
    }
    core->derived_fds = derive_fds();
    core->limits = limits_of(config, core->derived_fds);
    tell_sessions_limit(config);
    tell_guards(config);
    return quota_new(&core->limits, &core->quota);
}

void core_apply_limits(struct core *core)
{
    core->limits = limits_of(core->config, core->derived_fds);
    quota_set_limits(core->quota, &core->limits);
    tell_sessions_limit(core->config);
    tell_guards(core->config);
}

int core_adopt(struct core *core, struct reason *why)
{
    if (core->keep.n_found == 0) {
        return 0;
    }
    const struct config_list *chosen = &core->config->devices;
    bool has_chosen = chosen->n > 0 && strcmp(chosen->items[0], "auto") != 0;
    int r = adopt_kept(&core->keep, core->store, core->devices, core->n_devices, has_chosen,
                       &core->adoption, why);
    if (r == 0) {
        loader_tune(core->loader);
    }
    return r;
}

/* ---- the end ---- */

void core_drain(struct core *core)
{
    if (core->phase >= CORE_DRAINING) {
        return;
    }
    core->phase = CORE_DRAINING;
    for (uint32_t i = 0; i < core->n_devices; i++) {
        worker_drain(core->workers[i]);
    }
}

void core_drain_for_good(struct core *core)
{
    if (core->phase < CORE_DRAINING) {
        keep_mark(&core->keep, KEEP_DRAINED);
    }
    core_drain(core);
}

void core_stop(struct core *core)
{
    core_drain(core);
    keep_unmark(&core->keep, KEEP_DRAINED);
    core->phase = CORE_STOPPING;
    core->loader = loader_free(core->loader);
}

void core_join(struct core *core)
{
    core->loader = loader_free(core->loader);
    for (uint32_t i = 0; i < core->n_devices; i++) {
        core->workers[i] = worker_free(core->workers[i]);
    }
}

void core_finish(struct core *core)
{
    core_join(core);
    core->store = store_free(core->store);
    for (uint32_t i = 0; i < core->n_devices; i++) {
        core->devices[i] = device_close(core->devices[i]);
    }
    core->plan_file = plan_file_free(core->plan_file);
    core->quota = quota_free(core->quota);
    adoption_finish(&core->adoption);
    keep_finish(&core->keep);
    mailbox_finish(&core->mailbox);
}

/* ---- look-ups ---- */

struct device *core_device(const struct core *core, const char *name, struct reason *why)
{
    for (uint32_t i = 0; i < core->n_devices; i++) {
        if (name[0] == '\0' || device_is_named(core->devices[i], name)) {
            return core->devices[i];
        }
    }
    struct nearest nearest;
    nearest_init(&nearest, name);
    for (uint32_t i = 0; i < core->n_devices; i++) {
        nearest_offer(&nearest, core->devices[i]->name);
    }
    (void)reason_set(why, STATUS_NOT_FOUND, "this daemon owns no device '%s'", name);
    nearest_append(&nearest, why);
    return NULL;
}

uint32_t core_in_flight(const struct core *core)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < core->n_devices; i++) {
        if (core->workers[i] != NULL) {
            struct worker_stats stats;
            worker_stats(core->workers[i], &stats);
            n += stats.n_in_flight;
        }
    }
    return n;
}

void core_publish(const struct core *core)
{
    struct stats_main *stats = &core->stats->main;
    uint64_t held[QUOTA_KINDS];
    uint32_t n_users;
    quota_totals(core->quota, held, &n_users);
    stats_set(&stats->phase, core->phase);
    stats_set(&stats->turn_nsec, clock_now_nsec());
    stats_set(&stats->n_sessions, held[QUOTA_SESSIONS]);
    stats_set(&stats->n_buffers, held[QUOTA_BUFFERS]);
    stats_set(&stats->buffer_bytes, held[QUOTA_BYTES]);
}
