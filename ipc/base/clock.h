/* clock.h - the one clock of gemmd, which nobody sets: CLOCK_MONOTONIC. */
#pragma once

#include <stdint.h>
#include <time.h>

#define CLOCK_NSEC_PER_SEC  1000000000u
#define CLOCK_NSEC_PER_MSEC 1000000u
#define CLOCK_NSEC_PER_USEC 1000u

/* clock_now_nsec() - nanoseconds since some moment of the past, the same for every process of this
 * machine. Any thread. */
static inline uint64_t clock_now_nsec(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * CLOCK_NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}
