/* random.h - numbers that are the same in every run: a test must fail the same way twice. */
#pragma once

#include <stdint.h>

/* test_random() - the next number of a reproducible sequence; *state must not be 0. */
uint64_t test_random(uint64_t *state);
double test_random_unit(uint64_t *state); /* in [-1, 1), a multiple of 2^-7: exact in every dtype */
