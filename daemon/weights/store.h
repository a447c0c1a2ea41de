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

#include <stdbool.h>
#include <stdint.h>

#include "daemon/weights/keep.h"
#include "daemon/weights/model.h"
#include "ipc/msg.h"

struct store;
struct store_model; /* a held generation of a model */

/* store_new() - empty. 0 or -ENOMEM. store_free() - drops the models; NULL in, NULL out. */
int store_new(struct store **ret_store) GD_MUST_CHECK;
struct store *store_free(struct store *store);

/* store_set_keep() - have what is published from now on kept (borrowed; see keep.h), and dropped
 * when it goes, but not at the store's end. Before other threads use the store. store_keeps() - is
 * it? Then models come with their digests. */
void store_set_keep(struct store *store, const struct keep *keep);
bool store_keeps(const struct store *store);

/* store_count_in() - where to count what its models serve; must outlive every weight. Before the
 * first publication; without it nobody counts. */
void store_count_in(struct store *store, struct stats_page *stats);

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

/* store_hold_all() - all models, or the one that is named (name: NULL or "" for all), in a malloc'd
 * array: the caller releases each and frees it. 0 or -ENOMEM. */
int store_hold_all(struct store *store, const char *name, struct store_model ***ret_held,
                   uint32_t *ret_n) GD_MUST_CHECK;

/* Snapshots for replies; malloc'd arrays the caller frees. model: NULL or "" for all.
 * 0, -ENOMEM, or STATUS_NOT_FOUND when a model is named that is not there. */
int store_list_models(struct store *store, struct msg_model **ret_models,
                      uint32_t *ret_n) GD_MUST_CHECK;
int store_list_weights(struct store *store, const char *model, struct msg_weight **ret_weights,
                       uint32_t *ret_n, struct reason *why) GD_MUST_CHECK;

/* store_no_model(), store_no_weight() - NOT_FOUND for that name, naming what there is instead. */
int store_no_model(struct store *store, const char *name, struct reason *why);
int store_no_weight(struct store *store, const char *name, struct reason *why);

struct store_totals {
    uint64_t n_models;
    uint64_t n_weights;
    uint64_t packed_bytes;
    uint64_t retired_bytes; /* of generations that only requests in flight still hold */
};
void store_totals(struct store *store, struct store_totals *ret_totals);
