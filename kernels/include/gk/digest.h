/* digest.h - a digest of packed memory: have these bytes survived what their owner has not?
 *
 * The memory is read as 64-bit little-endian words, numbered from 0. Each word, with its number, is
 * mixed into 64 bits; a digest is the sum and the exclusive or of those. Neither depends on the
 * order, so that threads of the CPU and blocks of a GPU may each take a part, however it is cut,
 * and all give the same value. For a given number the mixing is one to one: a change within one
 * word is always seen, any other with a probability of 1 - 2^-64. It finds accidents; it is no
 * signature. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct gk_digest {
    uint64_t sum;
    uint64_t parity;
};

/* gk_digest_add() - count in n_words at `words` (8-byte aligned), the first of which has number
 * i_first. *digest starts as zero. */
void gk_digest_add(struct gk_digest *digest, const void *words, uint64_t i_first, uint64_t n_words);

/* gk_digest_join() - the digest of two parts that do not overlap. */
void gk_digest_join(struct gk_digest *digest, const struct gk_digest *part);
bool gk_digest_is_same(const struct gk_digest *a, const struct gk_digest *b);
