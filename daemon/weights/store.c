/* store.c - the resident weights.
 *
 * A published model is a store_model: the generation that the loader built, and its slot table. The
 * table outlives reloads (its pointers are replaced, its indices stay), the store_model does not: a
 * publication builds a whole new one and swaps one pointer, so that a look-up needs the mutex for a
 * few compares and never waits for a publication at work.
 *
 * A slot id is the model's id (never reused) in the high half and the index into its slot table in
 * the low half. The alternative, one table of all slots, would have to be rebuilt, under the lock
 * that every request takes, whenever any model comes or goes. */
#include "daemon/weights/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "ipc/base/error.h"
#include "ipc/base/log.h"
#include "ipc/base/num.h"

struct store_model {
    _Atomic uint32_t n_refs;
    uint64_t model_id;
    struct model *model;   /* owned */
    struct weight **slots; /* borrowed from model; NULL where a slot has no weight any more */
    uint32_t n_slots;
};

struct store {
    pthread_mutex_t writers; /* held by publishers; taken before mutex */
    pthread_mutex_t mutex;   /* guards the two fields below */
    struct store_model **models;
    uint32_t n_models;
    uint64_t last_model_id; /* this and below: under writers */
    uint64_t last_generation;
    struct tally *tally;
    const struct keep *keep;  /* NULL: nothing is kept */
    struct stats_page *stats; /* borrowed; NULL: nobody counts */
};

/* ---- published models ---- */

static struct store_model *store_model_ref(struct store_model *published)
{
    atomic_fetch_add_explicit(&published->n_refs, 1, memory_order_relaxed);
    return published;
}

void store_release(struct store_model *held)
{
    if (held && atomic_fetch_sub_explicit(&held->n_refs, 1, memory_order_acq_rel) == 1) {
        model_free(held->model);
        free(held->slots);
        free(held);
    }
}

const struct model *store_held(const struct store_model *held)
{
    return held->model;
}

/* The weight whose slot a new weight inherits, or NULL. */
static const struct weight *find_predecessor(const struct store_model *before,
                                             const struct weight *weight)
{
    const struct weight *old = before ? model_find(before->model, weight->name) : NULL;
    bool is_same_shape = old && old->desc.n == weight->desc.n && old->desc.k == weight->desc.k;
    return is_same_shape ? old : NULL;
}

static void assign_slots(struct store_model *published, const struct store_model *before)
{
    published->n_slots = before ? before->n_slots : 0;
    for (uint32_t i = 0; i < published->model->n_weights; i++) {
        struct weight *weight = published->model->weights[i];
        const struct weight *old = find_predecessor(before, weight);
        uint32_t i_slot = old ? (uint32_t)old->slot_id : published->n_slots++;
        weight->slot_id = published->model_id << 32 | i_slot;
        weight->generation = published->model->generation;
        if (old) {
            atomic_store(&weight->n_requests, atomic_load(&old->n_requests));
        }
        published->slots[i_slot] = weight;
    }
}

/* Everything of a publication that can fail or take long, outside the mutex. */
static int store_model_new(struct store *store, struct model *model,
                           const struct store_model *before, struct store_model **ret_published)
{
    struct store_model *published = calloc(1, sizeof(*published));
    uint64_t n_slots_max = (uint64_t)model->n_weights + (before ? before->n_slots : 0);
    struct weight **slots = calloc(n_slots_max + 1, sizeof(*slots));
    if (!published || !slots || n_slots_max > UINT32_MAX) {
        free(published);
        free(slots);
        return err_raise(-ENOMEM);
    }
    atomic_init(&published->n_refs, 1);
    published->model = model;
    published->slots = slots;
    published->model_id = before ? before->model_id : ++store->last_model_id;
    struct stats_model *stats = store->stats ? stats_model(store->stats, model->name) : NULL;
    for (uint32_t i = 0; i < model->n_weights; i++) {
        model->weights[i]->tally = tally_ref(store->tally);
        model->weights[i]->stats = stats;
    }
    assign_slots(published, before);
    *ret_published = published;
    return 0;
}

/* That a model cannot be kept is no reason not to serve it. */
static void keep_model(const struct store *store, struct model *model)
{
    int r = store->keep && !model->is_kept ? keep_put(store->keep, model) : 0;
    if (r < 0) {
        log_write(LOG_LEVEL_WARNING, "store", "model '%s' will not outlive this process: %s",
                  model->name, r == -EILSEQ ? "its path is no UTF-8" : strerror(-r));
    }
}

/* A model that was adopted brings its generation along. */
static void number_model(struct store *store, struct model *model)
{
    if (model->generation == 0) {
        model->generation = store->last_generation + 1;
    }
    store->last_generation = num_max(store->last_generation, model->generation);
}

/* Drop the store's own reference. Marked first: the last reference may go on another thread at
 * once. */
static void retire(struct store_model *published)
{
    for (uint32_t i = 0; i < published->model->n_weights; i++) {
        weight_retire(published->model->weights[i]);
    }
    store_release(published);
}

/* Unlike retire(), also out of what outlives this process. */
static void drop_model(const struct store *store, struct store_model *published)
{
    if (store->keep) {
        keep_drop(store->keep, published->model);
    }
    retire(published);
}

/* ---- the store ---- */

/* Ids of one life of the daemon are, but for a chance in a billion, none of another's: who kept an
 * id across a restart is told that there is no such weight, and does not get another one. */
static uint32_t random_id(void)
{
    uint32_t id = 0;
    (void)!getrandom(&id, sizeof(id), GRND_NONBLOCK); /* without it, they count from 1 */
    return id >> 2;
}

int store_new(struct store **ret_store)
{
    struct store *store = calloc(1, sizeof(*store));
    if (!store) {
        return err_raise(-ENOMEM);
    }
    int r = tally_new(&store->tally);
    if (r != 0) {
        free(store);
        return r;
    }
    store->last_model_id = random_id();
    (void)pthread_mutex_init(&store->writers, NULL); /* cannot fail without attributes */
    (void)pthread_mutex_init(&store->mutex, NULL);
    *ret_store = store;
    return 0;
}

void store_set_keep(struct store *store, const struct keep *keep)
{
    store->keep = keep->ops ? keep : NULL;
}

bool store_keeps(const struct store *store)
{
    return store->keep != NULL;
}

void store_count_in(struct store *store, struct stats_page *stats)
{
    store->stats = stats;
}

struct store *store_free(struct store *store)
{
    if (!store) {
        return NULL;
    }
    for (uint32_t i = 0; i < store->n_models; i++) {
        retire(store->models[i]);
    }
    free(store->models);
    tally_unref(store->tally);
    (void)pthread_mutex_destroy(&store->mutex);
    (void)pthread_mutex_destroy(&store->writers);
    free(store);
    return NULL;
}

/* A place in the list, or n_models. Under mutex, or under writers for a publisher. */
static uint32_t find_place(const struct store *store, const char *name, size_t length)
{
    uint32_t i = 0;
    while (i < store->n_models && (strncmp(store->models[i]->model->name, name, length) != 0 ||
                                   store->models[i]->model->name[length] != '\0')) {
        i++;
    }
    return i;
}

/* Make room for one more, by copy: readers may be in the old array until the mutex is taken. */
static int grow_list(struct store *store)
{
    struct store_model **longer = calloc((size_t)store->n_models + 1, sizeof(struct store_model *));
    if (!longer) {
        return err_raise(-ENOMEM);
    }
    if (store->n_models > 0) {
        memcpy(longer, store->models, store->n_models * sizeof(struct store_model *));
    }
    pthread_mutex_lock(&store->mutex);
    struct store_model **old = store->models;
    store->models = longer;
    pthread_mutex_unlock(&store->mutex);
    free(old);
    return 0;
}

static int publish_at(struct store *store, uint32_t place, struct model *model)
{
    bool is_first = place == store->n_models;
    struct store_model *before = is_first ? NULL : store->models[place];
    int r = is_first ? grow_list(store) : 0;
    struct store_model *published = NULL;
    if (r == 0) {
        number_model(store, model);
        model_sort(model);
        r = store_model_new(store, model, before, &published);
    }
    if (r != 0) {
        return r;
    }
    keep_model(store, model);
    pthread_mutex_lock(&store->mutex);
    store->models[place] = published;
    store->n_models += is_first;
    pthread_mutex_unlock(&store->mutex);
    if (before) {
        drop_model(store, before);
    }
    return 0;
}

/* Under writers. */
static void note_totals(struct store *store)
{
    struct store_totals totals;
    if (!store->stats) {
        return;
    }
    store_totals(store, &totals);
    stats_set(&store->stats->store.n_models, totals.n_models);
    stats_set(&store->stats->store.n_weights, totals.n_weights);
    stats_set(&store->stats->store.packed_bytes, totals.packed_bytes);
}

int store_publish(struct store *store, struct model *model)
{
    pthread_mutex_lock(&store->writers);
    int r = publish_at(store, find_place(store, model->name, strlen(model->name)), model);
    note_totals(store);
    pthread_mutex_unlock(&store->writers);
    return r;
}

int store_replace(struct store *store, struct model *model, struct reason *why)
{
    pthread_mutex_lock(&store->writers);
    uint32_t place = find_place(store, model->name, strlen(model->name));
    int r;
    if (place < store->n_models) {
        r = publish_at(store, place, model);
    } else {
        r = reason_set(why, STATUS_NOT_FOUND, "model '%s' has been unloaded meanwhile",
                       model->name);
    }
    note_totals(store);
    pthread_mutex_unlock(&store->writers);
    return r;
}

int store_unpublish(struct store *store, const char *name, struct reason *why)
{
    struct store_model *before = NULL;
    pthread_mutex_lock(&store->writers);
    pthread_mutex_lock(&store->mutex);
    uint32_t place = find_place(store, name, strlen(name));
    if (place < store->n_models) {
        before = store->models[place];
        store->models[place] = store->models[--store->n_models];
    }
    pthread_mutex_unlock(&store->mutex);
    note_totals(store);
    pthread_mutex_unlock(&store->writers);
    if (!before) {
        return reason_set(why, STATUS_NOT_FOUND, "there is no model '%s'", name);
    }
    drop_model(store, before);
    return 0;
}

/* ---- look-ups ---- */

struct weight *store_acquire(struct store *store, uint64_t slot_id)
{
    uint64_t model_id = slot_id >> 32;
    uint32_t i_slot = (uint32_t)slot_id;
    struct weight *weight = NULL;
    pthread_mutex_lock(&store->mutex);
    for (uint32_t i = 0; i < store->n_models; i++) {
        const struct store_model *published = store->models[i];
        if (published->model_id == model_id && i_slot < published->n_slots) {
            weight = published->slots[i_slot];
            break;
        }
    }
    if (weight) {
        weight_ref(weight);
    }
    pthread_mutex_unlock(&store->mutex);
    return weight;
}

struct weight *store_find(struct store *store, const char *name)
{
    const char *slash = strchr(name, '/');
    if (!slash) {
        return NULL;
    }
    struct weight *weight = NULL;
    pthread_mutex_lock(&store->mutex);
    uint32_t place = find_place(store, name, (size_t)(slash - name));
    if (place < store->n_models) {
        weight = model_find(store->models[place]->model, name);
    }
    if (weight) {
        weight_ref(weight);
    }
    pthread_mutex_unlock(&store->mutex);
    return weight;
}

struct store_model *store_hold(struct store *store, const char *name)
{
    struct store_model *held = NULL;
    pthread_mutex_lock(&store->mutex);
    uint32_t place = find_place(store, name, strlen(name));
    if (place < store->n_models) {
        held = store_model_ref(store->models[place]);
    }
    pthread_mutex_unlock(&store->mutex);
    return held;
}

bool store_has_model(struct store *store, const char *name)
{
    struct store_model *held = store_hold(store, name);
    store_release(held);
    return held != NULL;
}

int store_hold_all(struct store *store, const char *name, struct store_model ***ret_held,
                   uint32_t *ret_n)
{
    uint32_t n = 0;
    pthread_mutex_lock(&store->mutex);
    struct store_model **held = calloc((size_t)store->n_models + 1, sizeof(struct store_model *));
    for (uint32_t i = 0; held && i < store->n_models; i++) {
        if (!name || name[0] == '\0' || strcmp(store->models[i]->model->name, name) == 0) {
            held[n++] = store_model_ref(store->models[i]);
        }
    }
    pthread_mutex_unlock(&store->mutex);
    if (!held) {
        return err_raise(-ENOMEM);
    }
    *ret_held = held;
    *ret_n = n;
    return 0;
}

void store_totals(struct store *store, struct store_totals *ret_totals)
{
    struct store_totals totals = {.n_models = 0};
    pthread_mutex_lock(&store->mutex);
    totals.n_models = store->n_models;
    for (uint32_t i = 0; i < store->n_models; i++) {
        totals.n_weights += store->models[i]->model->n_weights;
        totals.packed_bytes += model_bytes(store->models[i]->model);
    }
    pthread_mutex_unlock(&store->mutex);
    totals.retired_bytes = atomic_load(&store->tally->retired_bytes);
    *ret_totals = totals;
}
