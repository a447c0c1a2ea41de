/* hash.h - spread the bits of a key over a table of buckets. */
#pragma once

#include <stdint.h>

/* hash_mix() - the finaliser of splitmix64: keys are addresses and small counters, of which it
 * mixes every bit. Against keys that a peer chooses, add a secret first. */
static inline uint64_t hash_mix(uint64_t key)
{
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
    return key ^ (key >> 31);
}
