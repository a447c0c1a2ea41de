/* model.h - one generation of a model: what a loader builds, the store publishes, and requests hold
 * on to, weight by weight. Threads: whoever holds a reference to a weight may read it, any thread;
 * its memory goes with the last reference, on the thread that drops it. A model has one owner. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device.h"
#include "daemon/weights/sources.h"
#include "daemon/weights/tuning.h"
#include "gk/digest.h"
#include "gk/gk.h"
#include "ipc/base/check.h"
#include "ipc/msg.h"
#include "ipc/shm.h"
#include "ipc/stats.h"

/* Bytes of retired generations. Shared by a store and every weight that it ever published, because
 * weights may outlive the store. */
struct tally {
    _Atomic uint32_t n_refs;
    _Atomic uint64_t retired_bytes;
};

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
    struct gk_digest digest;         /* of packed, once keep_digest() has taken it */
    _Atomic(struct tuning *) tuning; /* a reference; NULL until kernels were measured */
    _Atomic uint64_t n_requests;     /* served so far; a reload carries it over */

    struct stats_model *stats; /* its model's figures; NULL: nobody counts */
    struct tally *tally;       /* of the store that published it, or NULL */
    _Atomic bool is_retired;
};

/* One generation of a model: what a loader builds and the store publishes as a whole. */
struct model {
    char name[MSG_NAME_BYTES];
    char path[MSG_PATH_BYTES];
    struct msg_shaping shaping; /* what a reload and a verification repeat */
    struct device *device;
    enum dtype act_dtype;
    uint64_t generation;     /* 0: given by store_publish() */
    struct weight **weights; /* owned references; store_publish() sorts them by name */
    uint32_t n_weights;
    char **warnings; /* owned */
    uint32_t n_warnings;
    double load_seconds;
    uint64_t load_bytes; /* these two: see struct msg_model */
    double load_shares[MSG_LOAD_PHASES];
    struct sources sources; /* owned */
    bool is_adopted;        /* from an earlier process; load_seconds is what that took */
    bool is_kept;           /* see keep.h; then */
    int manifest_fd;        /* owned: holds the lock on the manifest */
};

/* tally_new() - n_refs 1. 0 or -ENOMEM. tally_unref() - NULL is fine. */
int tally_new(struct tally **ret_tally) GD_MUST_CHECK;
struct tally *tally_ref(struct tally *tally);
struct tally *tally_unref(struct tally *tally);

/* weight_new() - n_refs 1, no memory yet. 0 or -ENOMEM. weight_unref() - frees region and struct
 * with the last one; NULL is fine. The device must outlive the weight. */
int weight_new(struct device *device, struct weight **ret_weight) GD_MUST_CHECK;
struct weight *weight_ref(struct weight *weight);
struct weight *weight_unref(struct weight *weight);

/* weight_problem() - one row of it, in its own element type. */
struct gk_problem weight_problem(const struct weight *weight);

/* weight_make_ready() - of a weight whose packed form is in place: let kernels plan for it, and
 * have the device set aside the scratch they need. 0, negative errno or a status of the device. */
int weight_make_ready(struct weight *weight, struct reason *why) GD_MUST_CHECK;

/* weight_select() - the kernel for a problem of that weight: the fastest one measured, else
 * gk_select()'s. Return as there. */
int weight_select(const struct weight *weight, const struct gk_problem *problem,
                  const struct gk_kernel **ret_kernel, struct reason *why) GD_MUST_CHECK;

/* weight_count() - one more request served by it, of so many rows. Any thread. */
void weight_count(struct weight *weight, uint64_t n_rows);

/* weight_retire() - nobody will be given this weight any more: its bytes count as retired until the
 * last reference goes. Before the store drops its own reference. */
void weight_retire(struct weight *weight);
void weight_describe(const struct weight *weight, struct msg_weight *ret_message);

/* model_new() - with room for n_weights, and none. 0 or -ENOMEM. */
int model_new(const char *name, const char *path, struct device *device, uint32_t n_weights,
              struct model **ret_model) GD_MUST_CHECK;
struct model *model_free(struct model *model); /* drops its weights' references */

/* model_sort() - by name, as model_find() wants them. model_find() - by MODEL/module.path,
 * borrowed; NULL when it is not there. model_bytes() - packed bytes of all its weights. */
void model_sort(struct model *model);
struct weight *model_find(const struct model *model, const char *name);
uint64_t model_bytes(const struct model *model);
void model_describe(const struct model *model, struct msg_model *ret_message);
