/* progress.h - what a long job shares with those who watch it: how far it is, what it is at, on
 * what it has spent its time, and whether somebody wants it to stop. Written by the job and its
 * fillers, read by anybody. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"
#include "ipc/msg.h"

struct progress {
    _Atomic uint64_t done_bytes;
    _Atomic uint64_t total_bytes;
    _Atomic uint64_t spent_nsec[MSG_LOAD_PHASES]; /* of all threads of a load */
    _Atomic bool is_cancelled;
    pthread_mutex_t mutex; /* guards step; nothing is called under it */
    char step[MSG_NAME_BYTES];
};

/* progress_init() - nothing done, nothing to do. progress_finish() - nobody may look any more. */
void progress_init(struct progress *progress);
void progress_finish(struct progress *progress);

/* progress_step() - say what comes now; cut to fit. progress_get_step() copies it out. */
void progress_step(struct progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void progress_get_step(struct progress *progress, char ret_step[MSG_NAME_BYTES]);

/* progress_spend() - the calling thread has done that since clock_now_nsec() gave since_nsec.
 * Returns the time now. progress_shares() - of each phase in all that was spent; all 0 if nothing
 * was. */
uint64_t progress_spend(struct progress *progress, enum msg_load_phase phase, uint64_t since_nsec);
void progress_shares(const struct progress *progress, double ret_shares[MSG_LOAD_PHASES]);

/* progress_check() - 0, or STATUS_CANCELLED once somebody has cancelled. */
int progress_check(struct progress *progress, struct reason *why) GD_MUST_CHECK;
