/* loader_internal.h - one job: what it does, and what can be said of it. The loader queues jobs
 * (loader.c), loader_job.c runs them. The loader's mutex guards everything in a job but its
 * progress (which has its own rules) and, while it runs, its warnings, report and bench, which are
 * its thread's alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/weights/loader.h"
#include "daemon/weights/progress.h"
#include "daemon/weights/warnings.h"
#include "ipc/base/list.h"

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED };

struct job {
    struct list link;
    uint64_t id;
    enum job_state state;
    struct loader_request request; /* path without trailing slashes */
    struct progress progress;
    struct reason why; /* this and below: once it has ended */
    struct warnings warnings;
    char report[MSG_TEXT_BYTES];
    struct msg_bench_result *bench; /* owned; of a BENCH that is done */
};

/* job_new() - queued, in no list, without an id. 0 or -ENOMEM. job_free() - out of its list, too;
 * nobody may hold it any more. */
int job_new(const struct loader_request *request, struct job **ret_job) GD_MUST_CHECK;
struct job *job_free(struct job *job);

bool job_has_ended(const struct job *job);                 /* done, failed or cancelled */
bool job_is_loading(const struct loader_request *request); /* LOAD or RELOAD */

/* job_check_served() - is the name of a LOAD served already, from its path? From another path that
 * is STATUS_EXISTS. job_report_served() - the report of a LOAD that had nothing to do. */
int job_check_served(struct store *store, const struct loader_request *request, bool *ret_is_served,
                     struct reason *why) GD_MUST_CHECK;
void job_report_served(struct job *job);

/* job_check_subject() - RELOAD and VERIFY are about something that is there: 0 or STATUS_NOT_FOUND.
 * A BENCH is about nothing that is. */
int job_check_subject(struct store *store, const struct loader_request *request,
                      struct reason *why) GD_MUST_CHECK;

/* job_run() - all of its work, and a log line about the outcome; returns the outcome, which the
 * caller keeps in job->why together with job_state_of() it. Blocks for as long as the work takes,
 * so without the mutex. */
struct reason job_run(struct store *store, struct job *job);
enum job_state job_state_of(const struct reason *why);

/* job_describe() - a snapshot, whose warnings and bench the caller owns. 0 or -ENOMEM. Under the
 * mutex. */
int job_describe(struct job *job, struct msg_job *ret_message) GD_MUST_CHECK;
