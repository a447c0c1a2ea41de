/* stats.h - the daemon's figures, in a file beside its sockets that other processes map read-only.
 *
 * Why a file: gemmctl top must still see them when the daemon hangs and answers nobody. The daemon
 * maps the same pages and counts in them, so nothing is ever copied or sent.
 *
 * Counters only grow, each has one writer unless a line says "any thread", and all are read and
 * written relaxed: a reader sees each figure at some recent moment, not all at the same one. Times
 * are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share. A page of another
 * STATS_VERSION is not read at all. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/base/check.h"
#include "ipc/base/num.h"
#include "ipc/msg.h"

#define STATS_MAGIC        0x53444d47u /* "GMDS" */
#define STATS_VERSION      3u
#define STATS_FILE_NAME    "stats"
#define STATS_DEVICES_MAX  16u
#define STATS_MODELS_MAX   128u
#define STATS_TIME_BUCKETS 22u /* up to 1, 2, 4 ... 2^20 us; the last: longer */
#define STATS_ROW_BUCKETS  8u  /* rows 1, 2, 3-4, 5-8, 9-16, 17-32, 33-64, more (prefill) */
#define STATS_CODES        8u  /* by enum gk_code, to which metrics_devices.c holds the names */
#define STATS_ACTS         3u  /* x as it comes, as int8, as fp8 */
#define STATS_CLOSES       5u  /* full, deadline, window, complete, idle: see enum sched_close */
#define STATS_HOLDS        3u  /* catch_up, arrival, prefill: see enum sched_hold */
#define STATS_DISARMS      5u  /* other, unfit, late, stopped, given_up: see enum worker_disarm */

struct stats_times {
    _Atomic uint64_t counts[STATS_TIME_BUCKETS]; /* not cumulative */
    _Atomic uint64_t sum_nsec;
};

/* One device's worker. Written by the worker's thread. */
struct stats_worker {
    char device_name[64];
    char device_description[192];
    _Atomic uint64_t n_requests; /* taken; each ends in one of the next five */
    _Atomic uint64_t n_ok;
    _Atomic uint64_t n_refused; /* failed validation */
    _Atomic uint64_t n_cancelled;
    _Atomic uint64_t n_timed_out;
    _Atomic uint64_t n_failed;
    _Atomic uint64_t n_rows;
    _Atomic uint64_t n_launches;
    _Atomic uint64_t n_failed_launches;
    _Atomic uint64_t n_shared_launches; /* with rows of more than one session */
    _Atomic uint64_t launches_by_rows[STATS_ROW_BUCKETS];
    _Atomic uint64_t launch_rows; /* sum over launches */
    _Atomic uint64_t busy_nsec;   /* launches running */
    _Atomic uint64_t n_sleeps;
    _Atomic uint64_t n_corrupt_lanes;
    _Atomic uint64_t n_in_flight;   /* goes up and down */
    _Atomic uint64_t n_lanes;       /* goes up and down */
    _Atomic uint64_t last_ok_nsec;  /* 0: none yet */
    _Atomic uint64_t last_end_nsec; /* of any launch; 0: none yet */
    struct stats_times queue;       /* taken until the first launch starts */
    struct stats_times request;     /* taken until the last launch ended */
    struct stats_times stall;       /* a launch could have started until it did: the device was free
                                       and a request of the launch had come */
    _Atomic uint64_t n_closed[STATS_CLOSES];      /* launches, by why they took no more */
    _Atomic uint64_t n_holds[STATS_HOLDS];        /* decisions to wait, by what for */
    _Atomic uint64_t hold_idle_nsec[STATS_HOLDS]; /* the device was idle because of them */
    _Atomic uint64_t n_held;                      /* sessions that wait so; goes up and down */
    _Atomic uint64_t n_passes;  /* orders of weights that are known; goes up and down */
    _Atomic uint64_t n_in_step; /* sessions that share launches along them; goes up and down */
    _Atomic uint64_t n_armed;   /* launches that were queued before their rows were known, and */
    _Atomic uint64_t n_fired;   /* ... got them, or not, by why */
    _Atomic uint64_t n_disarmed[STATS_DISARMS];
    struct stats_times kernel[STATS_CODES][STATS_ACTS][STATS_ROW_BUCKETS];
};

/* What was served of a model since the daemon's start, whatever became of it meanwhile: a load of
 * the same name goes on counting. Any thread. */
struct stats_model {
    char name[MSG_NAME_BYTES]; /* "": this and all that follow are unused */
    _Atomic uint32_t is_named; /* set when the name is whole */
    _Atomic uint64_t n_requests;
    _Atomic uint64_t n_rows;
};

/* What only the main thread knows. */
struct stats_main {
    _Atomic uint64_t phase;     /* enum core_phase: starting, serving, draining, stopping */
    _Atomic uint64_t turn_nsec; /* of the last turn of the main loop, which sleeps while nobody
                                   wants anything of it */
    _Atomic uint64_t n_sessions;
    _Atomic uint64_t n_buffers;
    _Atomic uint64_t buffer_bytes;
};

/* What is resident. Written by whoever publishes or takes away a model. */
struct stats_store {
    _Atomic uint64_t n_models;
    _Atomic uint64_t n_weights;
    _Atomic uint64_t packed_bytes;
};

struct stats_page {
    uint32_t magic;
    uint32_t version;
    uint64_t size_bytes;
    uint64_t pid;
    uint64_t start_nsec;
    char daemon_version[32];
    _Atomic uint32_t n_devices; /* workers[] that are in use */
    struct stats_main main;
    struct stats_store store;
    struct stats_worker workers[STATS_DEVICES_MAX];
    struct stats_model models[STATS_MODELS_MAX]; /* the last takes what finds no place */
};

/* stats_create() - a page at path, which replaces a file there; only its header is filled, all else
 * is zero. Its memory is committed. mode: the permission bits, without write ones. A folder that is
 * full must not end the daemon, hence: 0 or negative errno. stats_remove() - unmap, and delete the
 * file; NULL is fine. */
int stats_create(const char *path, mode_t mode, const char *daemon_version,
                 struct stats_page **ret_page) GD_MUST_CHECK;
struct stats_page *stats_remove(struct stats_page *page, const char *path);

/* stats_open() - map somebody's page for reading. 0, negative errno, or STATUS_VERSION for a page
 * that this program does not know. stats_close() - NULL is fine. */
int stats_open(const char *path, const struct stats_page **ret_page,
               struct reason *why) GD_MUST_CHECK;
const struct stats_page *stats_close(const struct stats_page *page);

/* stats_model() - the figures of that name, a place taken at its first sight. Writers: one at a
 * time. */
struct stats_model *stats_model(struct stats_page *page, const char *name);

/* stats_model_find() - the same for readers; NULL when it has no place of its own. */
const struct stats_model *stats_model_find(const struct stats_page *page, const char *name);

/* Names of the places of launches_by_rows and of kernel: "3-4", "int4", "fp8". Of codes, NULL where
 * there is none. */
const char *stats_rows_name(uint32_t i_rows);
const char *stats_code_name(uint32_t i_code);
const char *stats_act_name(uint32_t i_act);

/* Names of the places of n_closed, of n_holds and hold_idle_nsec, and of n_disarmed. */
const char *stats_close_name(uint32_t i_close);
const char *stats_hold_name(uint32_t i_hold);
const char *stats_disarm_name(uint32_t i_disarm);

/* stats_read() - any thread, any process. */
static inline uint64_t stats_read(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* stats_add() - by the one thread that writes it; UINT64_MAX takes one away. */
static inline void stats_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, stats_read(counter) + n, memory_order_relaxed);
}

/* stats_set() - by the one thread that writes it. */
static inline void stats_set(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

/* stats_time_bucket() - the first whose limit is not below nsec. */
static inline uint32_t stats_time_bucket(uint64_t nsec)
{
    uint64_t usec = nsec / 1000 + (nsec % 1000 != 0);
    uint32_t bucket = usec <= 1 ? 0 : 64u - (uint32_t)__builtin_clzll(usec - 1);
    return (uint32_t)num_min(bucket, STATS_TIME_BUCKETS - 1);
}

/* stats_count_time() - one event that took so long; by the one thread that writes it. */
static inline void stats_count_time(struct stats_times *times, uint64_t nsec)
{
    stats_add(&times->counts[stats_time_bucket(nsec)], 1);
    stats_add(&times->sum_nsec, nsec);
}

/* stats_row_bucket() - of a launch of n_rows rows, 1 at least. */
static inline uint32_t stats_row_bucket(uint64_t n_rows)
{
    uint32_t bucket = n_rows <= 1 ? 0 : 64u - (uint32_t)__builtin_clzll(n_rows - 1);
    return (uint32_t)num_min(bucket, STATS_ROW_BUCKETS - 1);
}
