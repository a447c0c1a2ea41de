/* Parser of the shard index. It knows names only; whether the shards are there is checkpoint.c's.
 */
#include "daemon/weights/checkpoint_index.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

#define REFUSE(why, ...) reason_set((why), STATUS_BAD_CHECKPOINT, "the index " __VA_ARGS__)

static int check_shard_name(const char *tensor, const char *shard, struct reason *why)
{
    static const char suffix[] = ".safetensors";
    size_t length = strlen(shard);
    if (strchr(shard, '/')) {
        return REFUSE(why, "names '%s' for tensor '%s': a shard is a file in the same folder",
                      shard, tensor);
    }
    if (length < sizeof(suffix) || strcmp(shard + length - (sizeof(suffix) - 1), suffix) != 0) {
        return REFUSE(why, "names '%s' for tensor '%s', which is no .safetensors file", shard,
                      tensor);
    }
    return 0;
}

static int compare_strings(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    return strcmp(*x, *y);
}

static int compare_entries(const void *a, const void *b)
{
    const struct checkpoint_index_entry *x = a;
    const struct checkpoint_index_entry *y = b;
    return strcmp(x->tensor, y->tensor);
}

/* Every value of the map, checked; borrowed from the JSON. */
static int read_shard_names(json_t *map, const char **names, struct reason *why)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        const char *shard = json_string_value(value);
        if (!shard) {
            return REFUSE(why, "maps tensor '%s' to something that is not a file name", tensor);
        }
        int r = check_shard_name(tensor, shard, why);
        if (r != 0) {
            return r;
        }
        *names++ = shard;
    }
    return 0;
}

static int add_shard(struct checkpoint_index *index, const char *name, struct reason *why)
{
    if (index->n_shards > 0 && strcmp(index->shards[index->n_shards - 1], name) == 0) {
        return 0;
    }
    if (index->n_shards == CHECKPOINT_SHARDS_MAX) {
        return REFUSE(why, "names more than %d shards", CHECKPOINT_SHARDS_MAX);
    }
    index->shards[index->n_shards] = strdup(name);
    if (!index->shards[index->n_shards]) {
        return err_raise(-ENOMEM);
    }
    index->n_shards++;
    return 0;
}

/* The distinct values of the map, sorted. */
static int collect_shards(json_t *map, struct checkpoint_index *index, struct reason *why)
{
    size_t n_names = json_object_size(map);
    CLEAN_FREE const char **names = calloc(n_names, sizeof(*names));
    index->shards = calloc(CHECKPOINT_SHARDS_MAX, sizeof(*index->shards));
    if (!names || !index->shards) {
        return err_raise(-ENOMEM);
    }
    int r = read_shard_names(map, names, why);
    if (r != 0) {
        return r;
    }
    qsort(names, n_names, sizeof(*names), compare_strings);
    for (size_t i = 0; i < n_names && r == 0; i++) {
        r = add_shard(index, names[i], why);
    }
    return r;
}

static int collect_entries(json_t *map, struct checkpoint_index *index)
{
    index->entries = calloc(json_object_size(map), sizeof(*index->entries));
    if (!index->entries) {
        return err_raise(-ENOMEM);
    }
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        const char *shard = json_string_value(value);
        char **found = bsearch(&shard, index->shards, index->n_shards, sizeof(*index->shards),
                               compare_strings);
        struct checkpoint_index_entry *entry = &index->entries[index->n_entries];
        entry->i_shard = (uint32_t)(found - index->shards);
        entry->tensor = strdup(tensor);
        if (!entry->tensor) {
            return err_raise(-ENOMEM);
        }
        index->n_entries++;
    }
    qsort(index->entries, index->n_entries, sizeof(*index->entries), compare_entries);
    return 0;
}

static int parse_map(json_t *root, struct checkpoint_index *index, struct reason *why)
{
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map)) {
        return REFUSE(why, "has no object 'weight_map'");
    }
    if (json_object_size(map) == 0) {
        return REFUSE(why, "is empty: its weight_map names no tensor");
    }
    int r = collect_shards(map, index, why);
    return r != 0 ? r : collect_entries(map, index);
}

int checkpoint_index_parse(const void *json, uint64_t json_bytes,
                           struct checkpoint_index *ret_index, struct reason *why)
{
    json_error_t error;
    json_t *root = json_loadb(json, json_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        return REFUSE(why, "is not valid JSON: line %d: %s", error.line, error.text);
    }
    struct checkpoint_index index = CHECKPOINT_INDEX_NULL;
    int r = parse_map(root, &index, why);
    json_decref(root);
    if (r != 0) {
        checkpoint_index_finish(&index);
        return r;
    }
    *ret_index = index;
    return 0;
}

void checkpoint_index_finish(struct checkpoint_index *index)
{
    for (uint32_t i = 0; i < index->n_shards; i++) {
        free(index->shards[i]);
    }
    for (uint64_t i = 0; i < index->n_entries; i++) {
        free(index->entries[i].tensor);
    }
    free(index->shards);
    free(index->entries);
    *index = CHECKPOINT_INDEX_NULL;
}
