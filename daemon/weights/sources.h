/* sources.h - the files that a model was read from, as they were then: so that somebody who finds
 * the packed weights later can tell whether the checkpoint is still the same. */
#pragma once

#include <stdint.h>

#include "daemon/weights/checkpoint.h"
#include "ipc/base/check.h"

struct source_file {
    char *path; /* owned */
    uint64_t size_bytes;
    int64_t mtime_nsec;
};

struct sources {
    struct source_file *items; /* owned */
    uint32_t n;
};

#define SOURCES_NULL ((struct sources){0})

/* sources_read() - of an open checkpoint that was found at `path`. sources_add() - one file.
 * Both: 0 or negative errno. sources_finish() - safe on SOURCES_NULL. */
int sources_read(const char *path, const struct checkpoint *checkpoint,
                 struct sources *ret_sources) GD_MUST_CHECK;
int sources_add(struct sources *sources, const char *path, uint64_t size_bytes,
                int64_t mtime_nsec) GD_MUST_CHECK;
void sources_finish(struct sources *sources);

/* sources_changed() - the first file whose size or time is another now, or that is gone; NULL when
 * all are as they were. Borrowed. */
const char *sources_changed(const struct sources *sources);
