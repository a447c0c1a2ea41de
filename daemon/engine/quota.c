/* quota.c - accounts by uid. There are as many accounts as users with something open, so a list
 * does. */
#include "daemon/engine/quota.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "ipc/base/error.h"
#include "ipc/base/list.h"
#include "ipc/base/num.h"

struct quota_account {
    struct quota *quota;
    struct list in_accounts;
    uid_t uid;
    uint64_t n_charges;
    uint64_t held[QUOTA_KINDS];
};

struct quota {
    pthread_mutex_t mutex;
    struct quota_limits limits;
    struct list accounts;
    uint32_t n_accounts;
    uint64_t held[QUOTA_KINDS];
    uint64_t refused_user[QUOTA_KINDS];
    uint64_t refused_all[QUOTA_KINDS];
};

const char *quota_kind_name(enum quota_kind kind)
{
    static const char *const names[QUOTA_KINDS] = {[QUOTA_SESSIONS] = "sessions",
                                                   [QUOTA_BUFFERS] = "buffers",
                                                   [QUOTA_BYTES] = "buffer_bytes",
                                                   [QUOTA_FDS] = "fds"};
    return names[kind];
}

/* As a sentence has them. */
static const char *const kind_names[QUOTA_KINDS] = {
    [QUOTA_SESSIONS] = "sessions",
    [QUOTA_BUFFERS] = "buffers",
    [QUOTA_BYTES] = "bytes",
    [QUOTA_FDS] = "file descriptors",
};

int quota_new(const struct quota_limits *limits, struct quota **ret_quota)
{
    struct quota *quota = calloc(1, sizeof(*quota));
    if (quota == NULL) {
        return err_raise(-ENOMEM);
    }
    (void)pthread_mutex_init(&quota->mutex, NULL);
    quota->limits = *limits;
    list_init(&quota->accounts);
    *ret_quota = quota;
    return 0;
}

struct quota *quota_free(struct quota *quota)
{
    if (quota != NULL) {
        GD_ASSERT(list_is_empty(&quota->accounts));
        (void)pthread_mutex_destroy(&quota->mutex);
        free(quota);
    }
    return NULL;
}

void quota_set_limits(struct quota *quota, const struct quota_limits *limits)
{
    (void)pthread_mutex_lock(&quota->mutex);
    quota->limits = *limits;
    (void)pthread_mutex_unlock(&quota->mutex);
}

/* The account of a user, made if need be; NULL when there is no memory for it. */
static struct quota_account *account_of(struct quota *quota, uid_t uid)
{
    list_for_each (node, &quota->accounts) {
        struct quota_account *account = LIST_OWNER(node, struct quota_account, in_accounts);
        if (account->uid == uid) {
            return account;
        }
    }
    struct quota_account *account = calloc(1, sizeof(*account));
    if (account != NULL) {
        account->quota = quota;
        account->uid = uid;
        list_append(&quota->accounts, &account->in_accounts);
        quota->n_accounts++;
    }
    return account;
}

static void drop_if_unused(struct quota_account *account)
{
    if (account->n_charges == 0) {
        list_remove(&account->in_accounts);
        account->quota->n_accounts--;
        free(account);
    }
}

/* The first kind that does not fit under its limit and what is granted beyond it; QUOTA_KINDS when
 * all fit. */
static int find_excess(const uint64_t held[QUOTA_KINDS], const uint64_t amounts[QUOTA_KINDS],
                       const uint64_t limits[QUOTA_KINDS], const uint64_t beyond[QUOTA_KINDS])
{
    for (int kind = 0; kind < QUOTA_KINDS; kind++) {
        uint64_t sum;
        if (amounts[kind] != 0 && (!num_add(held[kind], amounts[kind], &sum) ||
                                   (sum > limits[kind] && sum - limits[kind] > beyond[kind]))) {
            return kind;
        }
    }
    return QUOTA_KINDS;
}

static int check_amounts(const struct quota_account *account, const uint64_t amounts[QUOTA_KINDS],
                         const uint64_t beyond[QUOTA_KINDS], struct reason *why)
{
    struct quota *quota = account->quota;
    int kind = find_excess(account->held, amounts, quota->limits.per_user, beyond);
    if (kind != QUOTA_KINDS) {
        quota->refused_user[kind]++;
        return reason_set(why, STATUS_QUOTA,
                          "%llu more %s: uid %u holds %llu of %llu (user_%s_max)",
                          (unsigned long long)amounts[kind], kind_names[kind],
                          (unsigned)account->uid, (unsigned long long)account->held[kind],
                          (unsigned long long)quota->limits.per_user[kind],
                          quota_kind_name((enum quota_kind)kind));
    }
    kind = find_excess(quota->held, amounts, quota->limits.total, beyond);
    if (kind != QUOTA_KINDS) {
        quota->refused_all[kind]++;
        return reason_set(
            why, STATUS_QUOTA, "%llu more %s: all users together hold %llu of %llu (total_%s_max)",
            (unsigned long long)amounts[kind], kind_names[kind],
            (unsigned long long)quota->held[kind], (unsigned long long)quota->limits.total[kind],
            quota_kind_name((enum quota_kind)kind));
    }
    return 0;
}

static int take_locked(struct quota *quota, uid_t uid, const uint64_t amounts[QUOTA_KINDS],
                       const uint64_t beyond[QUOTA_KINDS], struct quota_charge *ret_charge,
                       struct reason *why)
{
    struct quota_account *account = account_of(quota, uid);
    if (account == NULL) {
        return err_raise(-ENOMEM);
    }
    int r = check_amounts(account, amounts, beyond, why);
    if (r != 0) {
        drop_if_unused(account);
        return r;
    }
    account->n_charges++;
    ret_charge->account = account;
    for (int kind = 0; kind < QUOTA_KINDS; kind++) {
        account->held[kind] += amounts[kind];
        quota->held[kind] += amounts[kind];
        ret_charge->amounts[kind] = amounts[kind];
    }
    return 0;
}

int quota_take_beyond(struct quota *quota, uid_t uid, const uint64_t amounts[QUOTA_KINDS],
                      const uint64_t beyond[QUOTA_KINDS], struct quota_charge *ret_charge,
                      struct reason *why)
{
    (void)pthread_mutex_lock(&quota->mutex);
    int r = take_locked(quota, uid, amounts, beyond, ret_charge, why);
    (void)pthread_mutex_unlock(&quota->mutex);
    return r;
}

int quota_take(struct quota *quota, uid_t uid, const uint64_t amounts[QUOTA_KINDS],
               struct quota_charge *ret_charge, struct reason *why)
{
    static const uint64_t nothing[QUOTA_KINDS] = {0};
    return quota_take_beyond(quota, uid, amounts, nothing, ret_charge, why);
}

void quota_give(struct quota_charge *charge)
{
    struct quota_account *account = charge->account;
    if (account == NULL) {
        return;
    }
    struct quota *quota = account->quota;
    (void)pthread_mutex_lock(&quota->mutex);
    for (int kind = 0; kind < QUOTA_KINDS; kind++) {
        GD_ASSERT(account->held[kind] >= charge->amounts[kind]);
        account->held[kind] -= charge->amounts[kind];
        quota->held[kind] -= charge->amounts[kind];
    }
    account->n_charges--;
    drop_if_unused(account);
    (void)pthread_mutex_unlock(&quota->mutex);
    *charge = QUOTA_CHARGE_NULL;
}

void quota_refusals(struct quota *quota, uint64_t ret_user[QUOTA_KINDS],
                    uint64_t ret_all[QUOTA_KINDS])
{
    (void)pthread_mutex_lock(&quota->mutex);
    for (int kind = 0; kind < QUOTA_KINDS; kind++) {
        ret_user[kind] = quota->refused_user[kind];
        ret_all[kind] = quota->refused_all[kind];
    }
    (void)pthread_mutex_unlock(&quota->mutex);
}

void quota_totals(struct quota *quota, uint64_t ret_held[QUOTA_KINDS], uint32_t *ret_n_accounts)
{
    (void)pthread_mutex_lock(&quota->mutex);
    for (int kind = 0; kind < QUOTA_KINDS; kind++) {
        ret_held[kind] = quota->held[kind];
    }
    *ret_n_accounts = quota->n_accounts;
    (void)pthread_mutex_unlock(&quota->mutex);
}
