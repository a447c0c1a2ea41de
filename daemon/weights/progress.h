/* progress.h - what a long job shares with those who watch it: how far it is, what it is at, and
 * whether somebody wants it to stop. One writer (the job), any number of readers. */
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

/* progress_check() - 0, or STATUS_CANCELLED once somebody has cancelled. */
int progress_check(struct progress *progress, struct reason *why) GD_MUST_CHECK;
