/* arena.h - memory that is bounded, zeroed, and given back all at once. For one message, one
 * thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; /* owned, newest first */
    size_t n_used_bytes;        /* of the newest chunk */
    size_t n_chunk_bytes;       /* size of the newest chunk */
    size_t n_total_bytes;       /* handed out, with bookkeeping */
    size_t n_bytes_max;
    bool is_over_limit;  /* an allocation was refused for n_bytes_max */
    bool is_out_of_heap; /* or by malloc */
};

/* arena_init() - allocates nothing yet. arena_finish() frees everything. */
void arena_init(struct arena *arena, size_t n_bytes_max);
void arena_finish(struct arena *arena);

/* arena_get() - n_bytes of zeros, 8-byte aligned; NULL with one of the two flags set. */
void *arena_get(struct arena *arena, size_t n_bytes);

/* arena_block_bytes() - the n_bytes that a pointer from arena_get() was asked for. */
size_t arena_block_bytes(const void *block);
