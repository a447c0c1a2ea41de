/* Any bytes as a shard index. What is accepted names only files of its own folder, in order. */
#include <stdint.h>
#include <string.h>

#include "ipc/base/check.h"

#include "daemon/weights/checkpoint_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct checkpoint_index index = CHECKPOINT_INDEX_NULL;
    struct reason why = REASON_NULL;
    int r = checkpoint_index_parse(data, n_bytes, &index, &why);
    if (r != 0) {
        GD_ASSERT(r == why.status && why.text[0] != '\0');
        return 0;
    }
    GD_ASSERT(index.n_entries > 0);
    for (uint32_t i = 0; i < index.n_shards; i++) {
        GD_ASSERT(!strchr(index.shards[i], '/'));
        GD_ASSERT(i == 0 || strcmp(index.shards[i - 1], index.shards[i]) < 0);
    }
    for (uint64_t i = 0; i < index.n_entries; i++) {
        GD_ASSERT(index.entries[i].i_shard < index.n_shards);
        GD_ASSERT(i == 0 || strcmp(index.entries[i - 1].tensor, index.entries[i].tensor) < 0);
    }
    checkpoint_index_finish(&index);
    return 0;
}
