/* sources.c - see sources.h. */
#include "daemon/weights/sources.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ipc/base/error.h"

static int64_t mtime_nsec(const struct stat *file)
{
    return (int64_t)file->st_mtim.tv_sec * 1000000000 + file->st_mtim.tv_nsec;
}

int sources_add(struct sources *sources, const char *path, uint64_t size_bytes, int64_t nsec)
{
    struct source_file *longer =
        realloc(sources->items, ((size_t)sources->n + 1) * sizeof(*sources->items));
    if (!longer) {
        return err_raise(-ENOMEM);
    }
    sources->items = longer;
    char *copy = strdup(path);
    if (!copy) {
        return err_raise(-ENOMEM);
    }
    sources->items[sources->n++] =
        (struct source_file){.path = copy, .size_bytes = size_bytes, .mtime_nsec = nsec};
    return 0;
}

/* What is open now is what is read, whatever lies at the path in a moment. */
static int add_open(struct sources *sources, const char *path, int fd)
{
    struct stat file;
    if (fstat(fd, &file) < 0) {
        return err_raise(-errno);
    }
    return sources_add(sources, path, (uint64_t)file.st_size, mtime_nsec(&file));
}

int sources_read(const char *path, const struct checkpoint *checkpoint, struct sources *ret_sources)
{
    struct sources sources = SOURCES_NULL;
    struct stat place;
    bool is_folder = stat(path, &place) == 0 && S_ISDIR(place.st_mode);
    int r = 0;
    for (uint32_t i = 0; i < checkpoint->n_files && r == 0; i++) {
        char joined[2 * PATH_MAX];
        (void)snprintf(joined, sizeof(joined), "%s%s%s", path, is_folder ? "/" : "",
                       is_folder ? checkpoint->files[i].name : "");
        r = add_open(&sources, joined, checkpoint->files[i].fd);
    }
    if (r != 0) {
        sources_finish(&sources);
        return r;
    }
    *ret_sources = sources;
    return 0;
}

void sources_finish(struct sources *sources)
{
    for (uint32_t i = 0; i < sources->n; i++) {
        free(sources->items[i].path);
    }
    free(sources->items);
    *sources = SOURCES_NULL;
}

const char *sources_changed(const struct sources *sources)
{
    for (uint32_t i = 0; i < sources->n; i++) {
        const struct source_file *known = &sources->items[i];
        struct stat file;
        if (stat(known->path, &file) < 0 || (uint64_t)file.st_size != known->size_bytes ||
            mtime_nsec(&file) != known->mtime_nsec) {
            return known->path;
        }
    }
    return NULL;
}
