/* quota.h - what one user may make the daemon hold: sessions, buffers, bytes, fds.
 *
 * Accounts are per uid and shared by that user's sessions, so that opening more sessions buys
 * nothing. A charge remembers what it took and gives it back exactly once. Threads: any; one mutex.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

enum quota_kind { QUOTA_SESSIONS, QUOTA_BUFFERS, QUOTA_BYTES, QUOTA_FDS, QUOTA_KINDS };

struct quota;         /* all accounts and the daemon-wide limits */
struct quota_account; /* one uid; reference-counted by its charges */

struct quota_limits {
    uint64_t per_user[QUOTA_KINDS];
    uint64_t total[QUOTA_KINDS];
};

struct quota_charge {
    struct quota_account *account; /* NULL: nothing held */
    uint64_t amounts[QUOTA_KINDS];
};

#define QUOTA_CHARGE_NULL ((struct quota_charge){0})

/* quota_new() - no accounts yet. 0 or -ENOMEM. */
int quota_new(const struct quota_limits *limits, struct quota **ret_quota) GD_MUST_CHECK;
struct quota *quota_free(struct quota *quota); /* all charges must be back */

/* quota_set_limits() - for what is taken from now on; what is held stays, be it over them. */
void quota_set_limits(struct quota *quota, const struct quota_limits *limits);

/* quota_take() - all amounts or none. 0, -ENOMEM, or STATUS_QUOTA naming kind, amount, held, limit
 * and the option that sets it: user_KIND_max or total_KIND_max. */
int quota_take(struct quota *quota, uid_t uid, const uint64_t amounts[QUOTA_KINDS],
               struct quota_charge *ret_charge, struct reason *why) GD_MUST_CHECK;
/* quota_take_beyond() - the same for a user who may bring what is held to that much over either
 * limit. */
int quota_take_beyond(struct quota *quota, uid_t uid, const uint64_t amounts[QUOTA_KINDS],
                      const uint64_t beyond[QUOTA_KINDS], struct quota_charge *ret_charge,
                      struct reason *why) GD_MUST_CHECK;
void quota_give(struct quota_charge *charge); /* leaves QUOTA_CHARGE_NULL; safe on it */

/* quota_kind_name() - as options and figures spell it: "sessions", "buffers", "buffer_bytes",
 * "fds".
 */
const char *quota_kind_name(enum quota_kind kind);

/* quota_refusals() - how many quota_take() met a limit of one user, and of all, by kind. */
void quota_refusals(struct quota *quota, uint64_t ret_user[QUOTA_KINDS],
                    uint64_t ret_all[QUOTA_KINDS]);

/* quota_totals() - what all users hold together, and how many they are. */
void quota_totals(struct quota *quota, uint64_t ret_held[QUOTA_KINDS], uint32_t *ret_n_accounts);
