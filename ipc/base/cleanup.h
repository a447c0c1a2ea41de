/* cleanup.h - scope cleanup for fds and heap memory, and taking ownership out of a scope. */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* cleanup_fd() / cleanup_free() - what CLEAN_FD and CLEAN_FREE run at the end of a scope; both
 * leave errno alone. */
static inline void cleanup_fd(const int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        (void)close(*fd);
        errno = saved;
    }
}

static inline void cleanup_free(void *pointer_to_pointer)
{
    free(*(void **)pointer_to_pointer);
}

#define CLEAN_FD   __attribute__((cleanup(cleanup_fd)))
#define CLEAN_FREE __attribute__((cleanup(cleanup_free)))

/* steal_fd() / steal_ptr() - hand the resource out of the scope; the variable is empty after. */
static inline int steal_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

#define steal_ptr(pointer_to_pointer)                                                              \
    __extension__({                                                                                \
        __typeof__(*(pointer_to_pointer)) taken_ = *(pointer_to_pointer);                          \
        *(pointer_to_pointer) = NULL;                                                              \
        taken_;                                                                                    \
    })
