/* known.c - see known.h. Ids of different daemons may be the same number for different weights,
 * which the name tells apart. */
#include "client/known.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

#define BUCKETS_MIN 64u

void known_init(struct known *known)
{
    *known = (struct known){.buckets = NULL};
    pthread_mutex_init(&known->lock, NULL);
}

void known_finish(struct known *known)
{
    for (uint32_t i = 0; i < known->n_buckets; i++) {
        free(known->buckets[i]);
    }
    free(known->buckets);
    pthread_mutex_destroy(&known->lock);
}

/* The place of such a weight, or the free one where it belongs. n_buckets > n. */
static struct known_weight **place_of(const struct known *known, uint64_t id, const char *name)
{
    uint32_t i = (uint32_t)((id * 0x9e3779b97f4a7c15u) >> 32);
    for (;; i++) {
        struct known_weight **place = &known->buckets[i & (known->n_buckets - 1)];
        if (!*place || ((*place)->id == id && strcmp((*place)->name, name) == 0)) {
            return place;
        }
    }
}

static int grow(struct known *known)
{
    struct known larger = {.n_buckets = known->n_buckets ? known->n_buckets * 2 : BUCKETS_MIN};
    larger.buckets = calloc(larger.n_buckets, sizeof(*larger.buckets));
    if (!larger.buckets) {
        return err_raise(-ENOMEM);
    }
    for (uint32_t i = 0; i < known->n_buckets; i++) {
        struct known_weight *weight = known->buckets[i];
        if (weight) {
            *place_of(&larger, weight->id, weight->name) = weight;
        }
    }
    free(known->buckets);
    known->buckets = larger.buckets;
    known->n_buckets = larger.n_buckets;
    return 0;
}

static int add_locked(struct known *known, const struct known_weight *weight)
{
    int r = 2 * (known->n + 1) > known->n_buckets ? grow(known) : 0;
    if (r != 0) {
        return r;
    }
    struct known_weight **place = place_of(known, weight->id, weight->name);
    if (!*place) {
        *place = malloc(sizeof(**place));
        if (!*place) {
            return err_raise(-ENOMEM);
        }
        known->n++;
    }
    **place = *weight;
    return 0;
}

int known_add(struct known *known, const struct known_weight *weight)
{
    pthread_mutex_lock(&known->lock);
    int r = add_locked(known, weight);
    pthread_mutex_unlock(&known->lock);
    return r;
}

bool known_find(struct known *known, uint64_t id, const char *name, struct known_weight *ret)
{
    pthread_mutex_lock(&known->lock);
    const struct known_weight *weight = known->n_buckets ? *place_of(known, id, name) : NULL;
    if (weight) {
        *ret = *weight;
    }
    pthread_mutex_unlock(&known->lock);
    return weight != NULL;
}

/* Rare: once for each request that was in flight when its daemon went. */
bool known_find_now(struct known *known, uint64_t id_now, uint32_t epoch, struct known_weight *ret)
{
    bool is_found = false;
    pthread_mutex_lock(&known->lock);
    for (uint32_t i = 0; i < known->n_buckets && !is_found; i++) {
        const struct known_weight *weight = known->buckets[i];
        is_found = weight && weight->id_now == id_now && weight->epoch == epoch;
        if (is_found) {
            *ret = *weight;
        }
    }
    pthread_mutex_unlock(&known->lock);
    return is_found;
}
