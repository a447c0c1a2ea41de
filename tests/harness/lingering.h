/* lingering.h - descriptors that take long to close, and sending them along with bytes. Faults of
 * the machine end the program. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINGERING_SENT_MAX 3u

/* A TCP connection full of bytes that `reader` does not read: the last close() of fd waits for that
 * as long as it was told to. Both the caller's. */
struct lingering {
    int fd;
    int reader;
};

struct lingering lingering_new(int seconds);

/* lingering_send() - bytes with n_fds copies of a descriptor, at most LINGERING_SENT_MAX; false
 * where the kernel lets none through. */
bool lingering_send(int fd, const void *bytes, size_t n_bytes, int sent, uint32_t n_fds);
