/* loader.h - jobs that take their time: load, reload, verify, bench. One thread, one job at a time,
 * a bounded queue; progress can be read and a job cancelled at any moment. A job that fails or is
 * cancelled leaves the store as it was. */
#pragma once

#include <stdint.h>

#include "daemon/device/device.h"
#include "daemon/weights/store.h"
#include "daemon/weights/tuner.h"
#include "ipc/msg.h"

struct loader;

enum loader_job_kind { LOADER_JOB_LOAD, LOADER_JOB_RELOAD, LOADER_JOB_VERIFY, LOADER_JOB_BENCH };

struct loader_request {
    enum loader_job_kind kind;
    char name[MSG_NAME_BYTES];  /* model; for VERIFY also MODEL/module.path; for BENCH what the log
                                   calls it */
    char path[MSG_PATH_BYTES];  /* LOAD: a checkpoint folder, or a single .safetensors file */
    struct device *device;      /* LOAD, BENCH */
    struct msg_shaping shaping; /* LOAD; see shaping.h */
    struct msg_bench bench;     /* BENCH; see bench.h */
};

#define LOADER_QUEUED_MAX 16 /* jobs that wait */
#define LOADER_ACTIVE_MAX (LOADER_QUEUED_MAX + 1)
#define LOADER_ENDED_MAX  64 /* jobs that are remembered */

/* loader_new() - the store must outlive the loader. The tuner, taken over with success, measures
 * kernels for models that have been loaded whenever no job is waiting; NULL: none are measured.
 * 0 or negative errno. */
int loader_new(struct store *store, struct tuner *tuner, struct loader **ret_loader) GD_MUST_CHECK;
/* loader_free() - cancels everything and joins the thread. */
struct loader *loader_free(struct loader *loader);

/* loader_start() - queue a job. LOAD of a name that serves the same path answers with a job that is
 * done already; of a name that serves or is being loaded from another path, or is shaped otherwise,
 * STATUS_EXISTS. A job for a name that is being loaded in the same way is that job (idempotent),
 * and so is a RELOAD of a model whose RELOAD has not begun. A model's name has no '/'. Refusals:
 * STATUS_BUSY when the queue is full, STATUS_NOT_FOUND for RELOAD and VERIFY of what is not there,
 * STATUS_INVALID_ARGUMENT for a bad name, no path, or shaping that cannot be read, what
 * bench_check() says of a BENCH,
 * STATUS_SHUTTING_DOWN once loader_free() has begun. Any thread. */
int loader_start(struct loader *loader, const struct loader_request *request, uint64_t *ret_job_id,
                 struct reason *why) GD_MUST_CHECK;

/* loader_status() - a snapshot (its warnings and its bench are owned by the caller:
 * msg_reply_finish() on the reply they go into). STATUS_NOT_FOUND for an unknown id; ended jobs are
 * remembered, the last 64.
 */
int loader_status(struct loader *loader, uint64_t job_id, struct msg_job *ret_job,
                  struct reason *why) GD_MUST_CHECK;

/* loader_list() - ids of at most n_max jobs: those that run or wait, the latest to come first, then
 * those that have ended, the latest to end first. Return: how many. Any thread. */
uint32_t loader_list(struct loader *loader, uint32_t n_max, uint64_t *ret_ids);

/* loader_cancel() - ask a job to stop: one that waits ends at once, one that runs within a few MiB
 * of reading, one that has ended stays as it is. STATUS_NOT_FOUND for an unknown id. */
int loader_cancel(struct loader *loader, uint64_t job_id, struct reason *why) GD_MUST_CHECK;

/* loader_tune() - there are models in the store that no job has loaded: measure for them, too. */
void loader_tune(struct loader *loader);

/* loader_wait() - block until the job has ended (start-up loads); its status, with *why filled. */
int loader_wait(struct loader *loader, uint64_t job_id, struct reason *why) GD_MUST_CHECK;
