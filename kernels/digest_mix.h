/* digest_mix.h - the mixing of one word, for C and for CUDA: what both have to agree on. */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define DIGEST_EVERYWHERE __host__ __device__
#else
#define DIGEST_EVERYWHERE
#endif

#define DIGEST_STEP 0x9e3779b97f4a7c15u /* odd, like the two factors: multiplying loses nothing */

/* digest_mix() - key: (number of the word + 1) * DIGEST_STEP. */
static inline DIGEST_EVERYWHERE uint64_t digest_mix(uint64_t word, uint64_t key)
{
    uint64_t h = (word ^ key) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 29;
    h *= 0x94d049bb133111ebu;
    return h ^ h >> 32;
}
