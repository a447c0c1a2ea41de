/* checkpoint.h - a model on disk: its settings, and its tensors by name wherever they lie.
 *
 * A path is a single .safetensors file (that file alone, no settings), or a folder, in which we
 * take
 *   1. model.safetensors.index.json and the shards that it names; else
 *   2. model.safetensors; else
 *   3. the only *.safetensors file; several of them without an index are refused, for which of two
 *      tensors of one name counts would be a guess.
 * Files of that kind that are not taken, and tensors that an index does not name, are warned about.
 * config.json, quantize_config.json and hf_quant_config.json are optional.
 *
 * Threads: one. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "daemon/weights/safetensors.h"
#include "daemon/weights/warnings.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"

struct checkpoint_tensor {
    const struct safetensors_tensor *tensor;
    const struct safetensors *file;
};

struct checkpoint {
    int folder_fd;
    struct safetensors *files; /* owned */
    uint32_t n_files;
    struct checkpoint_tensor *tensors; /* owned array, sorted by name */
    uint64_t n_tensors;
    char *config; /* owned; NULL without config.json */
    size_t config_bytes;
    char *quantize_config; /* owned; NULL without quantize_config.json */
    size_t quantize_config_bytes;
    char *hf_quant_config; /* owned; NULL without hf_quant_config.json */
    size_t hf_quant_config_bytes;
};

#define CHECKPOINT_NULL ((struct checkpoint){.folder_fd = -1})

/* checkpoint_open() - read settings and headers, no data. What is missing goes, item by item, to
 * the warnings, and as far as it fits into the reason. `warnings` may be NULL. Return: 0,
 * STATUS_NOT_FOUND (the path), PERMISSION, BAD_CHECKPOINT, INTERNAL, or -ENOMEM. */
int checkpoint_open(const char *path, struct warnings *warnings, struct checkpoint *ret_checkpoint,
                    struct reason *why) GD_MUST_CHECK;
void checkpoint_finish(struct checkpoint *checkpoint); /* safe on CHECKPOINT_NULL */

/* checkpoint_find() - NULL when there is no tensor of that name. */
const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *checkpoint,
                                                const char *name);
