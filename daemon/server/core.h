/* core.h - what the daemon holds: devices and their workers, weights, accounts, counters.
 * Everything above (sessions, verbs, the main loop) works on it; it knows nothing of them. Main
 * thread, but for what the members' own headers allow. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/worker.h"
#include "daemon/server/config.h"
#include "daemon/server/mailbox.h"
#include "daemon/weights/adopt.h"
#include "daemon/weights/keep.h"
#include "daemon/weights/loader.h"
#include "daemon/weights/store.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"
#include "ipc/stats.h"

enum core_phase { CORE_STARTING, CORE_SERVING, CORE_DRAINING, CORE_STOPPING };

struct core_counters {
    uint64_t n_sessions;         /* HELLOs answered with WELCOME */
    uint64_t n_sessions_refused; /* for want of quota or descriptors */
    uint64_t n_sessions_dropped; /* hung up by us: silent, garbage, or not reading */
    uint64_t n_messages;
    uint64_t n_bad_messages;
    uint64_t n_bad_framing;
    uint64_t n_unknown_senders;
    uint64_t n_refused;      /* control requests answered with anything but OK */
    uint64_t n_side_refused; /* questions on session sockets answered with REFUSED */
    uint64_t n_replies_held;
    uint64_t n_replies_lost; /* whose session had gone */
};

struct core {
    const struct config *config; /* borrowed */
    enum core_phase phase;
    uint64_t start_nsec;
    uint64_t ready_nsec; /* 0: not yet */
    struct mailbox mailbox;
    struct stats_page *stats; /* borrowed */
    struct quota *quota;
    struct quota_limits limits;
    uint64_t derived_fds;     /* total_fds_max when the configuration leaves that to us */
    struct keep keep;         /* the manager's store of descriptors */
    struct adoption adoption; /* of what it had kept */
    bool was_drained;         /* the process before this one, which died of something else */
    struct store *store;
    struct loader *loader;       /* NULL once stopping */
    struct plan_file *plan_file; /* of all devices; NULL: plans are not kept */
    struct device *devices[CONFIG_DEVICES_MAX];
    struct worker *workers[CONFIG_DEVICES_MAX];
    uint32_t n_devices;
    struct core_counters counters;
};

/* core_init() - open the devices and start the threads, which count in *stats. keep: taken over. On
 * failure the core is safe to finish. Return: 0, negative errno, or the device's status. */
int core_init(struct core *core, const struct config *config, struct stats_page *stats,
              struct keep *keep, struct reason *why) GD_MUST_CHECK;

/* core_adopt() - take over the weights that were kept; see adopt_kept(). Blocks, up to a second for
 * each 64 GiB on a GPU. */
int core_adopt(struct core *core, struct reason *why) GD_MUST_CHECK;

/* core_apply_limits() - what the configuration says now about accounts and administrators; charges
 * that are over a lower limit stay, and nothing is added to them. */
void core_apply_limits(struct core *core);

/* core_drain() - refuse new requests from now on. core_drain_for_good() - also in the processes
 * that follow this one should it die; core_stop(), which is no death, takes that back, and cancels
 * what the loader does. */
void core_drain(struct core *core);
void core_drain_for_good(struct core *core);
void core_stop(struct core *core);
/* core_join() - end the workers: afterwards no callback posts into the mailbox any more. */
void core_join(struct core *core);
void core_finish(struct core *core);

/* core_device() - by name; "" is the first. NULL with a NOT_FOUND sentence. */
struct device *core_device(const struct core *core, const char *name, struct reason *why);

/* core_in_flight() - requests accepted and unfinished, over all workers. */
uint32_t core_in_flight(const struct core *core);

/* core_publish() - what readers of the page of figures learn of the main thread, once a turn of its
 * loop; of the rest, each worker tells. */
void core_publish(const struct core *core);
const char *core_phase_name(enum core_phase phase);
