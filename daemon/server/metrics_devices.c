/* metrics_devices.c - the figures of the workers, read where they count them: ipc/stats.h. A family
 * has one sample, or one histogram, a device. */
#include <assert.h>
#include <stddef.h>

#include "gk/gk.h"
#include "ipc/base/clock.h"

#include "daemon/server/metrics_internal.h"

static struct openmetrics_labels device_labels(const struct core *core, uint32_t i)
{
    struct openmetrics_labels labels = OPENMETRICS_LABELS_NONE;
    openmetrics_label(&labels, "device", core->devices[i]->name);
    return labels;
}

static const void *member(const struct stats_worker *stats, size_t offset)
{
    return (const char *)stats + offset;
}

static void write_info(struct openmetrics *om, const struct core *core)
{
    openmetrics_family(om, OPENMETRICS_INFO, "gemmd_device", "A device that the daemon owns.");
    for (uint32_t i = 0; i < core->n_devices; i++) {
        const struct device *device = core->devices[i];
        struct openmetrics_labels labels = device_labels(core, i);
        openmetrics_label(&labels, "uuid", device->uuid);
        openmetrics_label(&labels, "kind", device->ops->kind == GK_DEVICE_HOST ? "host" : "cuda");
        openmetrics_label(&labels, "description", device->description);
        openmetrics_count(om, &labels, 1);
    }
}

static void write_results(struct openmetrics *om, const struct core *core)
{
    static const struct {
        const char *result;
        size_t offset;
    } rows[] = {
        {"ok", offsetof(struct stats_worker, n_ok)},
        {"refused", offsetof(struct stats_worker, n_refused)},
        {"cancelled", offsetof(struct stats_worker, n_cancelled)},
        {"timed_out", offsetof(struct stats_worker, n_timed_out)},
        {"failed", offsetof(struct stats_worker, n_failed)},
    };
    openmetrics_family(om, OPENMETRICS_COUNTER, "gemmd_requests", "Requests by how they ended.");
    for (uint32_t i = 0; i < core->n_devices; i++) {
        for (uint32_t j = 0; j < ARRAY_LENGTH(rows); j++) {
            struct openmetrics_labels labels = device_labels(core, i);
            openmetrics_label(&labels, "result", rows[j].result);
            openmetrics_count(om, &labels,
                              stats_read(member(&core->stats->workers[i], rows[j].offset)));
        }
    }
}

static void write_plain(struct openmetrics *om, const struct core *core)
{
    static const struct {
        enum openmetrics_kind kind;
        const char *name, *help;
        size_t offset;
    } rows[] = {
        {OPENMETRICS_COUNTER, "gemmd_requests_accepted", "Requests that were taken.",
         offsetof(struct stats_worker, n_requests)},
        {OPENMETRICS_COUNTER, "gemmd_rows", "Rows that were served.",
         offsetof(struct stats_worker, n_rows)},
        {OPENMETRICS_COUNTER, "gemmd_launches", "Launches.",
         offsetof(struct stats_worker, n_launches)},
        {OPENMETRICS_COUNTER, "gemmd_launches_failed", "Launches that the device failed.",
         offsetof(struct stats_worker, n_failed_launches)},
        {OPENMETRICS_COUNTER, "gemmd_launches_shared",
         "Launches with rows of more than one session.",
         offsetof(struct stats_worker, n_shared_launches)},
        {OPENMETRICS_COUNTER, "gemmd_worker_sleeps", "Times that the worker went to sleep.",
         offsetof(struct stats_worker, n_sleeps)},
        {OPENMETRICS_COUNTER, "gemmd_lanes_corrupted",
         "Lanes that were dropped because their client wrote impossible indices.",
         offsetof(struct stats_worker, n_corrupt_lanes)},
        {OPENMETRICS_GAUGE, "gemmd_requests_in_flight", "Requests taken and not yet ended.",
         offsetof(struct stats_worker, n_in_flight)},
        {OPENMETRICS_GAUGE, "gemmd_lanes", "Lanes that are polled.",
         offsetof(struct stats_worker, n_lanes)},
        {OPENMETRICS_GAUGE, "gemmd_sessions_held", "Sessions that wait for others to share with.",
         offsetof(struct stats_worker, n_held)},
        {OPENMETRICS_GAUGE, "gemmd_passes", "Orders of weights that sessions are known to follow.",
         offsetof(struct stats_worker, n_passes)},
        {OPENMETRICS_GAUGE, "gemmd_sessions_in_step", "Sessions that share launches along them.",
         offsetof(struct stats_worker, n_in_step)},
    };
    for (uint32_t j = 0; j < ARRAY_LENGTH(rows); j++) {
        openmetrics_family(om, rows[j].kind, rows[j].name, rows[j].help);
        for (uint32_t i = 0; i < core->n_devices; i++) {
            struct openmetrics_labels labels = device_labels(core, i);
            openmetrics_count(om, &labels,
                              stats_read(member(&core->stats->workers[i], rows[j].offset)));
        }
    }
}

/* Counters by reason, one family. */
static void write_reasons(struct openmetrics *om, const struct core *core, uint32_t n,
                          const char *(*name_of)(uint32_t), size_t offset, bool is_time)
{
    for (uint32_t i = 0; i < core->n_devices; i++) {
        const _Atomic uint64_t *counters = member(&core->stats->workers[i], offset);
        for (uint32_t j = 0; j < n; j++) {
            struct openmetrics_labels labels = device_labels(core, i);
            openmetrics_label(&labels, "reason", name_of(j));
            if (is_time) {
                openmetrics_nsec(om, &labels, stats_read(&counters[j]));
            } else {
                openmetrics_count(om, &labels, stats_read(&counters[j]));
            }
        }
    }
}

static void write_choices(struct openmetrics *om, const struct core *core)
{
    openmetrics_family(om, OPENMETRICS_COUNTER, "gemmd_batches_closed",
                       "Launches, by why they took no more rows.");
    write_reasons(om, core, STATS_CLOSES, stats_close_name, offsetof(struct stats_worker, n_closed),
                  false);
    openmetrics_family(om, OPENMETRICS_COUNTER, "gemmd_holds",
                       "Times that something waited although the device was free, by what for.");
    write_reasons(om, core, STATS_HOLDS, stats_hold_name, offsetof(struct stats_worker, n_holds),
                  false);
    openmetrics_family(om, OPENMETRICS_COUNTER, "gemmd_hold_idle_seconds",
                       "Time in which the device had nothing to do because of that.");
    write_reasons(om, core, STATS_HOLDS, stats_hold_name,
                  offsetof(struct stats_worker, hold_idle_nsec), true);
}

static void write_ahead(struct openmetrics *om, const struct core *core)
{
    openmetrics_family(
        om, OPENMETRICS_COUNTER, "gemmd_launches_ahead",
        "Launches that were queued before their rows were known, by whether they got "
        "rows, or why not.");
    for (uint32_t i = 0; i < core->n_devices; i++) {
        struct openmetrics_labels labels = device_labels(core, i);
        openmetrics_label(&labels, "reason", "fired");
        openmetrics_count(om, &labels, stats_read(&core->stats->workers[i].n_fired));
    }
    write_reasons(om, core, STATS_DISARMS, stats_disarm_name,
                  offsetof(struct stats_worker, n_disarmed), false);
}

static void write_busy(struct openmetrics *om, const struct core *core)
{
    openmetrics_family(om, OPENMETRICS_COUNTER, "gemmd_device_busy_seconds",
                       "Time in which launches ran.");
    for (uint32_t i = 0; i < core->n_devices; i++) {
        struct openmetrics_labels labels = device_labels(core, i);
        openmetrics_nsec(om, &labels, stats_read(&core->stats->workers[i].busy_nsec));
    }
}

/* Absent until something has been served. */
static void write_age(struct openmetrics *om, const struct core *core)
{
    openmetrics_family(om, OPENMETRICS_GAUGE, "gemmd_last_ok_age_seconds",
                       "Time since the last request that ended well.");
    for (uint32_t i = 0; i < core->n_devices; i++) {
        uint64_t last_ok_nsec = stats_read(&core->stats->workers[i].last_ok_nsec);
        uint64_t now_nsec = clock_now_nsec();
        if (last_ok_nsec != 0) {
            struct openmetrics_labels labels = device_labels(core, i);
            openmetrics_nsec(om, &labels, now_nsec - num_min(now_nsec, last_ok_nsec));
        }
    }
}

static void write_histograms(struct openmetrics *om, const struct core *core)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } rows[] = {
        {"gemmd_queue_seconds", "From a request's being taken to the start of its first launch.",
         offsetof(struct stats_worker, queue)},
        {"gemmd_request_seconds", "From a request's being taken to the end of its last launch.",
         offsetof(struct stats_worker, request)},
        {"gemmd_stall_seconds",
         "Before each launch: how long the device was free while a request of it waited.",
         offsetof(struct stats_worker, stall)},
    };
    for (uint32_t j = 0; j < ARRAY_LENGTH(rows); j++) {
        openmetrics_family(om, OPENMETRICS_HISTOGRAM, rows[j].name, rows[j].help);
        for (uint32_t i = 0; i < core->n_devices; i++) {
            struct openmetrics_labels labels = device_labels(core, i);
            openmetrics_times(om, &labels, member(&core->stats->workers[i], rows[j].offset));
        }
    }
    openmetrics_family(om, OPENMETRICS_HISTOGRAM, "gemmd_launch_rows",
                       "Rows of a launch; a part of a longer request counts as more than 64.");
    for (uint32_t i = 0; i < core->n_devices; i++) {
        struct openmetrics_labels labels = device_labels(core, i);
        const struct stats_worker *stats = &core->stats->workers[i];
        openmetrics_sizes(om, &labels, stats->launches_by_rows, STATS_ROW_BUCKETS,
                          stats_read(&stats->launch_rows));
    }
}

/* ---- kernels ---- */

static bool is_used(const struct stats_times *times)
{
    for (uint32_t i = 0; i < STATS_TIME_BUCKETS; i++) {
        if (stats_read(&times->counts[i]) != 0) {
            return true;
        }
    }
    return false;
}

static void write_kernel(struct openmetrics *om, const struct core *core, uint32_t i_device,
                         uint32_t code, uint32_t act, uint32_t rows)
{
    static_assert(GK_CODE_F32 == 1 && GK_CODE_F16 == 2 && GK_CODE_BF16 == 3 && GK_CODE_U4 == 4 &&
                      GK_CODE_U8 == 5 && GK_CODE_E4M3 == 6 && GK_CODE_E2M1 == 7,
                  "stats_code_name() has them in this order");
    const struct stats_times *times = &core->stats->workers[i_device].kernel[code][act][rows];
    if (stats_code_name(code) == NULL || !is_used(times)) {
        return;
    }
    struct openmetrics_labels labels = device_labels(core, i_device);
    openmetrics_label(&labels, "weight", stats_code_name(code));
    openmetrics_label(&labels, "activations", stats_act_name(act));
    openmetrics_label(&labels, "rows", stats_rows_name(rows));
    openmetrics_times(om, &labels, times);
}

/* Those that have run: 8 kinds of weight, 3 of activations and 8 numbers of rows at most. */
static void write_kernels(struct openmetrics *om, const struct core *core)
{
    openmetrics_family(om, OPENMETRICS_HISTOGRAM, "gemmd_kernel_seconds",
                       "Time of a launch, by kind of weight, of activations, and rows.");
    for (uint32_t i = 0; i < core->n_devices; i++) {
        for (uint32_t code = 0; code < STATS_CODES; code++) {
            for (uint32_t act = 0; act < STATS_ACTS; act++) {
                for (uint32_t rows = 0; rows < STATS_ROW_BUCKETS; rows++) {
                    write_kernel(om, core, i, code, act, rows);
                }
            }
        }
    }
}

void metrics_devices(struct openmetrics *om, const struct core *core)
{
    write_info(om, core);
    write_results(om, core);
    write_plain(om, core);
    write_choices(om, core);
    write_ahead(om, core);
    write_busy(om, core);
    write_age(om, core);
    write_histograms(om, core);
    write_kernels(om, core);
}
