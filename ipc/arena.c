/* arena.c - a bump allocator in doubling chunks.
 *
 * Chunks, not one block of n_bytes_max: most messages need a few hundred bytes and the bound for
 * replies is 64 MiB. Each block is preceded by its size, which costs 8 bytes and tells the codec
 * how long a string was on the wire. Nothing is reused before arena_finish(): a freed block of
 * protobuf-c still counts against the limit, which only makes the limit stricter. */
#include "ipc/arena.h"

#include <stdint.h>
#include <stdlib.h>

#include "ipc/base/num.h"

#define FIRST_CHUNK_BYTES ((size_t)4096)

struct arena_chunk {
    struct arena_chunk *next;
    uint64_t bytes[]; /* 8-byte aligned */
};

void arena_init(struct arena *arena, size_t n_bytes_max)
{
    *arena = (struct arena){.n_bytes_max = n_bytes_max};
}

void arena_finish(struct arena *arena)
{
    while (arena->chunks != NULL) {
        struct arena_chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
    *arena = (struct arena){0};
}

static bool add_chunk(struct arena *arena, size_t n_bytes_min)
{
    size_t n_bytes = num_max(num_max(n_bytes_min, FIRST_CHUNK_BYTES), 2 * arena->n_chunk_bytes);
    struct arena_chunk *chunk = calloc(1, sizeof(*chunk) + n_bytes);
    if (chunk == NULL) {
        arena->is_out_of_heap = true;
        return false;
    }
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->n_chunk_bytes = n_bytes;
    arena->n_used_bytes = 0;
    return true;
}

void *arena_get(struct arena *arena, size_t n_bytes)
{
    if (n_bytes > arena->n_bytes_max) {
        arena->is_over_limit = true;
        return NULL;
    }
    size_t n_block_bytes = sizeof(uint64_t) + num_align_up(n_bytes, sizeof(uint64_t));
    if (n_block_bytes > arena->n_bytes_max - arena->n_total_bytes) {
        arena->is_over_limit = true;
        return NULL;
    }
    if (n_block_bytes > arena->n_chunk_bytes - arena->n_used_bytes &&
        !add_chunk(arena, n_block_bytes)) {
        return NULL;
    }
    uint64_t *block = arena->chunks->bytes + arena->n_used_bytes / sizeof(uint64_t);
    arena->n_used_bytes += n_block_bytes;
    arena->n_total_bytes += n_block_bytes;
    block[0] = n_bytes;
    return block + 1;
}

size_t arena_block_bytes(const void *block)
{
    return ((const uint64_t *)block)[-1];
}
