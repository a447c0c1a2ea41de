/* fdstore.h - descriptors by name, held for another process. Any number may share a name. */
#pragma once

#include <stdint.h>

#include "ipc/base/check.h"

#define FDSTORE_NAME_BYTES 64u
#define FDSTORE_FDS_MAX    4096u /* all their names fit one environment variable */

struct fdstore_item {
    char name[FDSTORE_NAME_BYTES];
    int fd; /* owned */
};

struct fdstore {
    struct fdstore_item *items; /* owned */
    uint32_t n;
    uint32_t n_max; /* up to FDSTORE_FDS_MAX */
};

#define FDSTORE_NULL ((struct fdstore){.n_max = FDSTORE_FDS_MAX})

/* fdstore_put() - takes fd over, and closes it on failure: -EINVAL for a name that is none,
 * -ENOBUFS at n_max, -ENOMEM. fdstore_remove() - close all of that name. fdstore_finish()
 * - all. */
int fdstore_put(struct fdstore *store, const char *name, int fd) GD_MUST_CHECK;
void fdstore_remove(struct fdstore *store, const char *name);
void fdstore_finish(struct fdstore *store);

/* fdstore_hand_over() - in a child between fork() and exec(): the descriptors become numbers 3 and
 * following, whatever was there, and LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES tell of them. Takes
 * numbers above those for what lies in another's place: one mostly, never more than half as many. 0
 * or negative errno. */
int fdstore_hand_over(struct fdstore *store) GD_MUST_CHECK;
