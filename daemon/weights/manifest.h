/* manifest.h - a generation of a model in writing, for whoever finds its regions after the process
 * that made them has gone.
 *
 * A manifest is a memfd sealed against any change: a header with the format's number, and JSON.
 * Format 1:
 *
 *   model, path, device ("host" or a GPU's UUID), tp_rank, tp_size, fuse, split: as it was loaded.
 *       These mean the same in every format, so that any build can load the model again.
 *   generation, act_dtype, load_seconds, warnings
 *   sources: [[path, bytes, mtime in nanoseconds], ...]
 *   weights: [[name, layout, layout version, region bytes, digest, act_dtype, [desc]], ...]
 *       in the order of their regions
 *
 * What it describes is adopted only whole. Its writer, while it lives, holds a lock on it (fcntl,
 * which belongs to the process, not to the descriptor), and so does whoever adopts it: no two
 * processes serve the same regions. */
#pragma once

#include <stdint.h>

#include "daemon/weights/model.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"

#define MANIFEST_FORMAT 1u

struct json_t;

struct manifest {
    struct json_t *root; /* owned */
    char name[MSG_NAME_BYTES];
    char path[MSG_PATH_BYTES];
    char device[MSG_WORD_BYTES];
    struct msg_shaping shaping;
    uint64_t generation;
};

#define MANIFEST_NULL ((struct manifest){0})

/* manifest_write() - of a model whose weights are sorted and have their digests. The memfd is the
 * caller's, and locked. 0 or negative errno, -EILSEQ for paths that are no UTF-8. */
int manifest_write(const struct model *model, int *ret_fd) GD_MUST_CHECK;

/* manifest_lock() - take the lock; STATUS_EXISTS, naming its pid, while another process has it. */
int manifest_lock(int fd, struct reason *why) GD_MUST_CHECK;

/* manifest_open() - read and judge. On a refusal *ret_manifest may still say what was loaded from
 * where (name is "" if not), and is to be finished as well. fd stays the caller's.
 * Return: 0, negative errno, STATUS_BAD_MESSAGE (damaged), STATUS_VERSION (another format). */
int manifest_open(int fd, struct manifest *ret_manifest, struct reason *why) GD_MUST_CHECK;
void manifest_finish(struct manifest *manifest); /* safe on MANIFEST_NULL */

/* manifest_model() - the model on that device, its weights without memory: packed has the size
 * alone. STATUS_VERSION when this build packs one of them otherwise; STATUS_BAD_MESSAGE; -ENOMEM.
 */
int manifest_model(const struct manifest *manifest, struct device *device, struct model **ret_model,
                   struct reason *why) GD_MUST_CHECK;
