/* keep.c - see keep.h. */
#include "daemon/weights/keep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/weights/manifest.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"

void keep_manifest_name(char ret_name[KEEP_NAME_BYTES], uint64_t generation)
{
    (void)snprintf(ret_name, KEEP_NAME_BYTES, "m.%ju", (uintmax_t)generation);
}

void keep_region_name(char ret_name[KEEP_NAME_BYTES], uint64_t generation, uint32_t i_weight)
{
    (void)snprintf(ret_name, KEEP_NAME_BYTES, "w.%ju.%u", (uintmax_t)generation, i_weight);
}

void keep_attempt_name(char ret_name[KEEP_NAME_BYTES], uint64_t generation)
{
    (void)snprintf(ret_name, KEEP_NAME_BYTES, "a.%ju", (uintmax_t)generation);
}

/* ---- what was found ---- */

struct keep_found *keep_find(const struct keep *keep, const char *name)
{
    for (uint32_t i = 0; i < keep->n_found; i++) {
        if (keep->found[i].fd >= 0 && strcmp(keep->found[i].name, name) == 0) {
            return &keep->found[i];
        }
    }
    return NULL;
}

void keep_forget(const struct keep *keep, struct keep_found *found)
{
    keep->ops->drop(keep->ops->arg, found->name);
    cleanup_fd(&found->fd);
    found->fd = -1;
}

void keep_finish(struct keep *keep)
{
    for (uint32_t i = 0; i < keep->n_found; i++) {
        cleanup_fd(&keep->found[i].fd);
    }
    free(keep->found);
    *keep = KEEP_NULL;
}

/* ---- marks ---- */

/* Two descriptors of one file count once with systemd: each mark is a file of its own. */
void keep_mark(const struct keep *keep, const char *name)
{
    if (!keep->ops) {
        return;
    }
    CLEAN_FD int fd = memfd_create("gemmd-mark", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : keep->ops->put(keep->ops->arg, name, fd);
    if (r < 0) {
        log_write(LOG_LEVEL_WARNING, "store", "mark '%s' is not kept: %s", name, strerror(-r));
    }
}

void keep_unmark(const struct keep *keep, const char *name)
{
    if (keep->ops) {
        keep->ops->drop(keep->ops->arg, name);
    }
}

uint32_t keep_take_marks(const struct keep *keep, const char *name)
{
    uint32_t n = 0;
    for (struct keep_found *found; (found = keep_find(keep, name)) != NULL; n++) {
        cleanup_fd(&found->fd);
        found->fd = -1;
    }
    return n;
}

/* ---- putting and dropping ---- */

int keep_digest(struct model *model, struct reason *why)
{
    uint32_t n = model->n_weights;
    CLEAN_FREE const struct region **regions = calloc((size_t)n + 1, sizeof(*regions));
    CLEAN_FREE struct gk_digest *digests = calloc((size_t)n + 1, sizeof(*digests));
    if (!regions || !digests) {
        return err_raise(-ENOMEM);
    }
    for (uint32_t i = 0; i < n; i++) {
        regions[i] = &model->weights[i]->packed;
    }
    int r = device_digest(model->device, regions, n, digests, why);
    for (uint32_t i = 0; i < n && r == 0; i++) {
        model->weights[i]->digest = digests[i];
    }
    return r;
}

static void drop_regions(const struct keep *keep, uint64_t generation, uint32_t n)
{
    char name[KEEP_NAME_BYTES];
    for (uint32_t i = 0; i < n; i++) {
        keep_region_name(name, generation, i);
        keep->ops->drop(keep->ops->arg, name);
    }
}

static int put_regions(const struct keep *keep, const struct model *model)
{
    char name[KEEP_NAME_BYTES];
    for (uint32_t i = 0; i < model->n_weights; i++) {
        keep_region_name(name, model->generation, i);
        int r = keep->ops->put(keep->ops->arg, name, model->weights[i]->packed.fd);
        if (r != 0) {
            drop_regions(keep, model->generation, i);
            return r;
        }
    }
    return 0;
}

int keep_put(const struct keep *keep, struct model *model)
{
    char name[KEEP_NAME_BYTES];
    CLEAN_FD int fd = -1;
    int r = manifest_write(model, &fd);
    r = r != 0 ? r : put_regions(keep, model);
    if (r != 0) {
        return r;
    }
    keep_manifest_name(name, model->generation);
    r = keep->ops->put(keep->ops->arg, name, fd);
    if (r != 0) {
        drop_regions(keep, model->generation, model->n_weights);
        return r;
    }
    model->manifest_fd = steal_fd(&fd);
    model->is_kept = true;
    return 0;
}

void keep_drop(const struct keep *keep, const struct model *model)
{
    char name[KEEP_NAME_BYTES];
    if (!model->is_kept) {
        return;
    }
    keep_manifest_name(name, model->generation);
    keep->ops->drop(keep->ops->arg, name);
    drop_regions(keep, model->generation, model->n_weights);
}
