/* checkpoint_index.h - model.safetensors.index.json: which shard holds which tensor. */
#pragma once

#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

/* Every shard stays open while a checkpoint is read: more of them would eat the daemon's
 * descriptors. */
#define CHECKPOINT_SHARDS_MAX 512

struct checkpoint_index_entry {
    char *tensor; /* owned */
    uint32_t i_shard;
};

struct checkpoint_index {
    char **shards; /* owned names, sorted */
    uint32_t n_shards;
    struct checkpoint_index_entry *entries; /* owned, sorted by tensor */
    uint64_t n_entries;
};

#define CHECKPOINT_INDEX_NULL ((struct checkpoint_index){0})

/* checkpoint_index_parse() - refuses what is no index: broken JSON, no weight_map, an empty one,
 * and shard names that are no plain file name ending in ".safetensors" (no '/': an index cannot
 * point outside its folder). Return: 0, STATUS_BAD_CHECKPOINT, or -ENOMEM. */
int checkpoint_index_parse(const void *json, uint64_t json_bytes,
                           struct checkpoint_index *ret_index, struct reason *why) GD_MUST_CHECK;
void checkpoint_index_finish(struct checkpoint_index *index);
