/* stats.c - see stats.h.
 *
 * The file is made under another name and then renamed, so that a reader finds a whole page or
 * none, and one who still maps the page of an earlier daemon keeps it. Nobody ever makes it
 * shorter: readers would get SIGBUS. */
#include "ipc/stats.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"

static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a lock would not reach other processes");

static int make_file(const char *path, mode_t mode, int *ret_fd)
{
    CLEAN_FD int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fchmod(fd, mode) != 0) {
        return err_raise(-errno);
    }
    /* Committed: a store into a hole of a full file system would end the daemon. */
    int error = posix_fallocate(fd, 0, sizeof(struct stats_page));
    if (error != 0) {
        return err_raise(-error);
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

static int map_page(const char *path, mode_t mode, struct stats_page **ret_page)
{
    CLEAN_FD int fd = -1;
    int r = make_file(path, mode, &fd);
    if (r != 0) {
        return r;
    }
    void *base = mmap(NULL, sizeof(struct stats_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return err_raise(-errno);
    }
    *ret_page = base;
    return 0;
}

int stats_create(const char *path, mode_t mode, const char *daemon_version,
                 struct stats_page **ret_page)
{
    char made_path[PATH_MAX];
    (void)snprintf(made_path, sizeof(made_path), "%s.new", path);
    (void)unlink(made_path);
    struct stats_page *page = NULL;
    int r = map_page(made_path, mode, &page);
    if (r != 0) {
        (void)unlink(made_path);
        return r;
    }
    page->magic = STATS_MAGIC;
    page->version = STATS_VERSION;
    page->size_bytes = sizeof(*page);
    page->pid = (uint64_t)getpid();
    page->start_nsec = clock_now_nsec();
    (void)snprintf(page->daemon_version, sizeof(page->daemon_version), "%s", daemon_version);
    if (rename(made_path, path) != 0) {
        r = err_raise(-errno);
        (void)unlink(made_path);
        (void)munmap(page, sizeof(*page));
        return r;
    }
    *ret_page = page;
    return 0;
}

struct stats_page *stats_remove(struct stats_page *page, const char *path)
{
    if (page != NULL) {
        (void)unlink(path);
        (void)munmap(page, sizeof(*page));
    }
    return NULL;
}

static bool is_known(const struct stats_page *page)
{
    return page->magic == STATS_MAGIC && page->version == STATS_VERSION &&
           page->size_bytes == sizeof(*page);
}

int stats_open(const char *path, const struct stats_page **ret_page, struct reason *why)
{
    CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0) {
        return err_raise(-errno);
    }
    if ((uint64_t)stat.st_size != sizeof(struct stats_page)) {
        return reason_set(why, STATUS_VERSION,
                          "'%s' has %ju bytes, and this program's page of figures %zu", path,
                          (uintmax_t)stat.st_size, sizeof(struct stats_page));
    }
    struct stats_page *page = mmap(NULL, sizeof(struct stats_page), PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        return err_raise(-errno);
    }
    if (!is_known(page)) {
        (void)munmap(page, sizeof(*page));
        return reason_set(why, STATUS_VERSION, "'%s' is not a page of figures of version %u", path,
                          STATS_VERSION);
    }
    *ret_page = page;
    return 0;
}

const struct stats_page *stats_close(const struct stats_page *page)
{
    if (page != NULL) {
        (void)munmap((void *)(uintptr_t)page, sizeof(*page));
    }
    return NULL;
}

const char *stats_rows_name(uint32_t i_rows)
{
    static const char *const names[STATS_ROW_BUCKETS] = {"1",    "2",     "3-4",   "5-8",
                                                         "9-16", "17-32", "33-64", "more"};
    return names[i_rows];
}

const char *stats_code_name(uint32_t i_code)
{
    static const char *const names[STATS_CODES] = {NULL,   "f32",  "f16", "bf16",
                                                   "int4", "int8", "fp8", "fp4"};
    return names[i_code];
}

const char *stats_act_name(uint32_t i_act)
{
    static const char *const names[STATS_ACTS] = {"float", "int8", "fp8"};
    return names[i_act];
}

const char *stats_close_name(uint32_t i_close)
{
    static const char *const names[STATS_CLOSES] = {"full", "deadline", "window", "complete",
                                                    "idle"};
    return names[i_close];
}

const char *stats_hold_name(uint32_t i_hold)
{
    static const char *const names[STATS_HOLDS] = {"catch_up", "arrival", "prefill"};
    return names[i_hold];
}

const char *stats_disarm_name(uint32_t i_disarm)
{
    static const char *const names[STATS_DISARMS] = {"other", "unfit", "late", "stopped",
                                                     "given_up"};
    return names[i_disarm];
}

/* The place of that name, or the first that is unused, or the last. */
static uint32_t find_place(const struct stats_page *page, const char *name)
{
    uint32_t i = 0;
    while (i < STATS_MODELS_MAX - 1 &&
           atomic_load_explicit(&page->models[i].is_named, memory_order_acquire) != 0 &&
           strcmp(page->models[i].name, name) != 0) {
        i++;
    }
    return i;
}

struct stats_model *stats_model(struct stats_page *page, const char *name)
{
    uint32_t i = find_place(page, name);
    struct stats_model *model = &page->models[i];
    if (i < STATS_MODELS_MAX - 1 && model->name[0] == '\0') {
        (void)snprintf(model->name, sizeof(model->name), "%s", name);
        atomic_store_explicit(&model->is_named, 1, memory_order_release);
    }
    return model;
}

const struct stats_model *stats_model_find(const struct stats_page *page, const char *name)
{
    const struct stats_model *model = &page->models[find_place(page, name)];
    return atomic_load_explicit(&model->is_named, memory_order_acquire) != 0 ? model : NULL;
}
