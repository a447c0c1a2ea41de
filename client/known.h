/* known.h - the weights that this client has looked up, by the id and name that its caller has. To
 * a new daemon the same weight has another id: this is where that one is found. Threads: guarded by
 * its own lock. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/msg.h"

struct known_weight {
    uint64_t id;     /* as the caller has it */
    uint64_t id_now; /* as the daemon has it that was there in... */
    uint32_t epoch;  /* ...this epoch; 0: the first */
    uint32_t n;
    uint32_t k;
    uint32_t device_index;
    char name[MSG_NAME_BYTES];
};

struct known {
    pthread_mutex_t lock;
    struct known_weight **buckets; /* owned, each owned; open addressing, at most half full */
    uint32_t n_buckets;            /* a power of two, or 0 */
    uint32_t n;
};

/* known_init(), known_finish(). known_add() - one that the daemon of that epoch has told; the same
 * one again is brought up to date. 0 or -ENOMEM.
 * known_find() - by the caller's id and name. known_find_now() - by the id that it had in that
 * epoch, whatever is known of later ones. Both: a copy in *ret; false when there is none. */
void known_init(struct known *known);
void known_finish(struct known *known);
int known_add(struct known *known, const struct known_weight *weight) GD_MUST_CHECK;
bool known_find(struct known *known, uint64_t id, const char *name, struct known_weight *ret);
bool known_find_now(struct known *known, uint64_t id_now, uint32_t epoch, struct known_weight *ret);
