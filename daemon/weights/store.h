/* store.h - the resident weights: models by name, weights by slot id, generations by reference.
 *
 * A weight generation is immutable from the moment it is published; whoever uses one holds a
 * reference. A slot id names "that module of that model, n x k" across reloads and is never reused,
 * so a request can never reach another weight than the one its client looked up: a reload that
 * changes n or k of a module gives it a new id, and so does an unload followed by a load.
 *
 * Publishing and unpublishing are atomic: a lookup sees a whole model or none.
 * Threads: any. One mutex guards the list of models and is held for a look-up at most; a second,
 * taken before it, keeps publishers apart. Memory of a generation goes with its last reference, on
 * the thread that drops it. Weights may outlive the store, but not their device. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device.h"
#include "gk/gk.h"
#include "ipc/msg.h"
#include "ipc/shm.h"

struct store;
struct store_model; /* a held generation of a model */
struct store_tally;

/* One generation of one weight. Fields are read-only once published. */
struct weight {
    _Atomic uint32_t n_refs;
    uint64_t slot_id; /* given by store_publish() */
    uint64_t generation;
    char name[MSG_NAME_BYTES]; /* MODEL/module.path */
    struct gk_desc desc;
    const struct gk_layout *layout;
    enum dtype act_dtype;
    struct device *device;
    struct region packed;
    _Atomic uint64_t n_requests; /* served so far; a reload carries it over */

    struct store_tally *tally; /* these two are the store's */
    _Atomic bool is_retired;
};

/* One generation of a model: what a loader builds and the store publishes as a whole. */
struct model {
    char name[MSG_NAME_BYTES];
    char path[MSG_PATH_BYTES];
    struct device *device;
    enum dtype act_dtype;
    uint64_t generation;     /* given by store_publish() */
    struct weight **weights; /* owned references; store_publish() sorts them by name */
    uint32_t n_weights;
    char **warnings; /* owned */
    uint32_t n_warnings;
    double load_seconds;
};

/* store_new() - empty. 0 or -ENOMEM. store_free() - drops the models; NULL in, NULL out. */
int store_new(struct store **ret_store) GD_MUST_CHECK;
struct store *store_free(struct store *store);

/* weight_new() - n_refs 1, no memory yet. weight_unref() frees region and struct with the last one.
 */
int weight_new(struct device *device, struct weight **ret_weight) GD_MUST_CHECK;
struct weight *weight_ref(struct weight *weight);
struct weight *weight_unref(struct weight *weight);

struct model *model_free(struct model *model); /* drops its weights' references */

/* store_publish() - make the model visible, replacing any generation of that name; takes it over on
 * success. Weights that exist under the same name with the same n and k keep their slot id.
 * 0 or -ENOMEM. */
int store_publish(struct store *store, struct model *model) GD_MUST_CHECK;
/* store_replace() - the same for a reload: STATUS_NOT_FOUND when the model has been unloaded
 * meanwhile, so that a reload never brings back what somebody took away. */
int store_replace(struct store *store, struct model *model, struct reason *why) GD_MUST_CHECK;
/* store_unpublish() - 0 or STATUS_NOT_FOUND. Requests in flight finish on their references. */
int store_unpublish(struct store *store, const char *name, struct reason *why) GD_MUST_CHECK;

/* store_acquire() - a reference to the current generation of a slot; NULL when unloaded or unknown.
 */
struct weight *store_acquire(struct store *store, uint64_t slot_id);
/* store_find() - the same by name. */
struct weight *store_find(struct store *store, const char *name);
bool store_has_model(struct store *store, const char *name);

/* store_hold() - keep the current generation of a model as a whole; NULL when it is not there.
 * store_held() is good until store_release(), which takes NULL. */
struct store_model *store_hold(struct store *store, const char *name);
const struct model *store_held(const struct store_model *held);
void store_release(struct store_model *held);

/* Snapshots for replies; malloc'd arrays the caller frees. model: NULL or "" for all.
 * 0, -ENOMEM, or STATUS_NOT_FOUND when a model is named that is not there. */
int store_list_models(struct store *store, struct msg_model **ret_models,
                      uint32_t *ret_n) GD_MUST_CHECK;
int store_list_weights(struct store *store, const char *model, struct msg_weight **ret_weights,
                       uint32_t *ret_n, struct reason *why) GD_MUST_CHECK;
void weight_describe(const struct weight *weight, struct msg_weight *ret_message);

struct store_totals {
    uint64_t n_models;
    uint64_t n_weights;
    uint64_t packed_bytes;
    uint64_t retired_bytes; /* of generations that only requests in flight still hold */
};
void store_totals(struct store *store, struct store_totals *ret_totals);
