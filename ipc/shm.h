/* shm.h - regions: fd-backed shared memory. On the host device a region is a memfd sealed against
 * shrinking, so that no peer can turn our next access into a SIGBUS. A GPU's regions are made by
 * its back end (daemon/device), which alone frees them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

struct region {
    int fd;     /* owned; -1 when none is held */
    void *base; /* owned mapping, an address of the device's; NULL when not mapped */
    uint64_t size_bytes;
    void *mapping; /* the GPU back end's record of it; NULL for a memfd on host */
};

#define REGION_NULL ((struct region){.fd = -1})

/* region_create() - a zeroed memfd of size_bytes (> 0, rounded up to a page in `size_bytes` of the
 * result), memory committed, sealed SHRINK|GROW|SEAL, mapped read-write. `name` shows in
 * /proc/PID/maps. Return: 0 or negative errno: -ENOSPC when that is more than
 * region_available_bytes(), -ENOSPC or -ENOMEM when memory is short all the same. */
int region_create(struct region *region, const char *name, uint64_t size_bytes) GD_MUST_CHECK;

/* region_available_bytes() - what the machine can still give without swapping (MemAvailable); all
 * of its memory where /proc does not tell. */
uint64_t region_available_bytes(void);

/* region_attach() - map a region received from the daemon; takes the fd over, closes it on failure.
 * Refuses a file smaller than size_bytes. */
int region_attach(struct region *region, int fd, uint64_t size_bytes) GD_MUST_CHECK;

/* region_import() - map memory that an untrusted peer made: a memfd that carries F_SEAL_SHRINK and
 * is at least size_bytes long. Takes the fd over, closes it on failure.
 * Return: 0, negative errno, or STATUS_INVALID_ARGUMENT naming what is wrong: not a memfd, not
 * sealed, shorter than declared (both numbers), opened read-only. */
int region_import(struct region *region, int fd, uint64_t size_bytes,
                  struct reason *why) GD_MUST_CHECK;

/* region_finish() - unmap and close; safe on REGION_NULL; leaves REGION_NULL. */
void region_finish(struct region *region);
