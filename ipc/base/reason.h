/* reason.h - a status with its one sentence: what, where and why, with the numbers in it.
 *
 * Functions that can refuse take a `struct reason *why` as last parameter and return the status:
 *
 *     if (m > limit) {
 *         return reason_set(why, STATUS_QUOTA, "m %u is over the limit of %u rows", m, limit);
 *     }
 *
 * 0 means done and leaves *why untouched. A negative return is an errno of our own making or the
 * system's (see error.h) and also leaves *why untouched. `why` may be NULL. */
#pragma once

#include "ipc/base/check.h"
#include "ipc/base/status.h"

#define REASON_TEXT_BYTES 320

struct reason {
    int status;
    char text[REASON_TEXT_BYTES]; /* NUL-terminated, no trailing full stop or line feed */
};

#define REASON_NULL ((struct reason){0})

/* reason_set() - fill *why and return `status`. Control bytes in the result are replaced by '?', so
 * that a hostile name cannot forge log lines. */
int reason_set(struct reason *why, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* reason_errno() - turn a negative errno into a reason: "<what>: <strerror>"; -ENOMEM becomes
 * NO_MEMORY, -ENOSPC and -EDQUOT NO_SPACE, everything else INTERNAL. Returns the status. */
int reason_errno(struct reason *why, int negative_errno, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* reason_prefix() - put "<formatted>: " before what *why says already. */
void reason_prefix(struct reason *why, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
