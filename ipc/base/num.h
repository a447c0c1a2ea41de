/* num.h - checked and rounded integer arithmetic. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* num_add() / num_mul() - *ret = a op b; false, and *ret untouched, if it does not fit 64 bits. */
static inline bool num_add(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) {
        return false;
    }
    *ret = sum;
    return true;
}

static inline bool num_mul(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product)) {
        return false;
    }
    *ret = product;
    return true;
}

/* a / b rounded up; b is not 0. */
static inline uint64_t num_div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* num_align_up() - the smallest multiple of `alignment` (a power of two) >= a; a must be below
 * 2^64 - alignment. */
static inline uint64_t num_align_up(uint64_t a, uint64_t alignment)
{
    return (a + alignment - 1) & ~(alignment - 1);
}

/* The smaller. */
static inline uint64_t num_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The larger. */
static inline uint64_t num_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
