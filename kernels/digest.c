/* digest.c - see gk/digest.h. */
#include "gk/digest.h"

#include "kernels/digest_mix.h"

void gk_digest_add(struct gk_digest *digest, const void *words, uint64_t i_first, uint64_t n_words)
{
    const uint64_t *word = words;
    uint64_t key = (i_first + 1) * DIGEST_STEP;
    uint64_t sum = 0;
    uint64_t parity = 0;
    for (uint64_t i = 0; i < n_words; i++) {
        uint64_t h = digest_mix(word[i], key);
        sum += h;
        parity ^= h;
        key += DIGEST_STEP;
    }
    digest->sum += sum;
    digest->parity ^= parity;
}

void gk_digest_join(struct gk_digest *digest, const struct gk_digest *part)
{
    digest->sum += part->sum;
    digest->parity ^= part->parity;
}

bool gk_digest_is_same(const struct gk_digest *a, const struct gk_digest *b)
{
    return a->sum == b->sum && a->parity == b->parity;
}
