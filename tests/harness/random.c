/* random.c - see random.h. */
#include "tests/harness/random.h"

uint64_t test_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545f4914f6cdd1dull >> 16;
}

double test_random_unit(uint64_t *state)
{
    return (double)(test_random(state) % 256) / 128.0 - 1.0;
}
