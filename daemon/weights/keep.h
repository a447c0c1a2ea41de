/* keep.h - weights that outlive the process.
 *
 * Somebody without a CUDA context (systemd's descriptor store, gemmd --keeper) holds descriptors of
 * the regions and of a manifest for each generation of a model, and gives them to the next process
 * (adopt.h). Nothing that is kept is ever changed, so that a death at any moment leaves a state
 * that can be read: regions are put first, then the manifest that makes them a model; a new
 * generation is put before the old one is dropped; a manifest is dropped before its regions.
 *
 * Names: "m.G" for the manifest of generation G, "w.G.I" for the region of its weight I; and those
 * of marks, which are empty and say something by being there: "a.G", once for each process that has
 * begun to adopt generation G and not ended doing so, and KEEP_DRAINED. */
#pragma once

#include <stdint.h>

#include "daemon/weights/model.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"

#define KEEP_NAME_BYTES 48u
#define KEEP_DRAINED    "d.0" /* somebody has asked for no more work to be taken */

/* The other side. put() lends the descriptor; a name may be put once. Any thread. */
struct keep_ops {
    void *arg;
    int (*put)(void *arg, const char *name, int fd); /* 0 or negative errno */
    void (*drop)(void *arg, const char *name);
};

/* A descriptor that was kept before this process began. */
struct keep_found {
    char name[KEEP_NAME_BYTES];
    int fd; /* owned; -1 once somebody took it */
};

struct keep {
    const struct keep_ops *ops; /* NULL: nobody keeps anything */
    struct keep_found *found;   /* owned; of the thread that starts the daemon */
    uint32_t n_found;
};

#define KEEP_NULL ((struct keep){0})

void keep_finish(struct keep *keep); /* closes what nobody took; what is kept stays kept */

/* keep_digest() - note the digests of a model's regions, as they are now. Before keep_put(). Return
 * as device_digest(). */
int keep_digest(struct model *model, struct reason *why) GD_MUST_CHECK;

/* keep_put() - have a model kept: sorted, with generation and digests. All of it or nothing.
 * 0 or negative errno. Any thread. */
int keep_put(const struct keep *keep, struct model *model) GD_MUST_CHECK;

/* keep_drop() - let go of what was kept of a model; nothing if it was not. Its memory stays as long
 * as this process uses it. Any thread. */
void keep_drop(const struct keep *keep, const struct model *model);

/* keep_find() - what was found by that name, or NULL. keep_forget() - drop it from the store and
 * close it. keep_manifest_name(), keep_region_name(), keep_attempt_name() - see above. */
struct keep_found *keep_find(const struct keep *keep, const char *name);
void keep_forget(const struct keep *keep, struct keep_found *found);
void keep_manifest_name(char ret_name[KEEP_NAME_BYTES], uint64_t generation);
void keep_region_name(char ret_name[KEEP_NAME_BYTES], uint64_t generation, uint32_t i_weight);
void keep_attempt_name(char ret_name[KEEP_NAME_BYTES], uint64_t generation);

/* Marks. keep_mark() - put one more of that name; what cannot be put is not known to the next
 * process, nothing else. keep_unmark() - drop all of that name. keep_take_marks() - how many were
 * found, once: they are closed here, and stay kept. */
void keep_mark(const struct keep *keep, const char *name);
void keep_unmark(const struct keep *keep, const char *name);
uint32_t keep_take_marks(const struct keep *keep, const char *name);
