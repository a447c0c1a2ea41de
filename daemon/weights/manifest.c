/* manifest.c - see manifest.h: the file, and what any build understands of it. JSON rather than
 * structs: what is promised to other builds is in plain sight, and so is a manifest at
 * /proc/PID/fd/N. */
#include "daemon/weights/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/weights/manifest_internal.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"
#include "ipc/utf8.h"

#define MANIFEST_BYTES_MAX (64u << 20)
#define SEALS              (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

struct manifest_header {
    char magic[8];
    uint32_t format;
    uint32_t reserved;
    uint64_t text_bytes;     /* of the JSON behind this, zeros up to a multiple of 8 included */
    struct gk_digest digest; /* of those */
};

static const char magic[8] = "GEMMD-MF";

/* ---- writing ---- */

static int write_all(int fd, const void *bytes, uint64_t n_bytes, uint64_t offset)
{
    while (n_bytes > 0) {
        ssize_t n = pwrite(fd, bytes, n_bytes, (off_t)offset);
        if (n < 0) {
            return err_raise(-errno);
        }
        bytes = (const char *)bytes + n;
        n_bytes -= (uint64_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

static int write_text(int fd, const char *text)
{
    uint64_t text_bytes = num_align_up(strlen(text), 8);
    CLEAN_FREE char *padded = calloc(1, text_bytes + 1);
    if (!padded) {
        return err_raise(-ENOMEM);
    }
    memcpy(padded, text, strlen(text));
    struct manifest_header header = {.format = MANIFEST_FORMAT, .text_bytes = text_bytes};
    memcpy(header.magic, magic, sizeof(magic));
    gk_digest_add(&header.digest, padded, 0, text_bytes / 8);
    int r = write_all(fd, &header, sizeof(header), 0);
    return r != 0 ? r : write_all(fd, padded, text_bytes, sizeof(header));
}

static bool is_text(const char *path)
{
    return utf8_valid_bytes(path, strlen(path)) == strlen(path);
}

/* The one thing of a model that need not be: JSON is UTF-8. */
static int check_paths(const struct model *model)
{
    bool is_good = is_text(model->path);
    for (uint32_t i = 0; i < model->sources.n && is_good; i++) {
        is_good = is_text(model->sources.items[i].path);
    }
    return is_good ? 0 : err_raise(-EILSEQ);
}

int manifest_write(const struct model *model, int *ret_fd)
{
    int r = check_paths(model);
    if (r != 0) {
        return r;
    }
    CLEAN_FREE char *text = manifest_model_text(model);
    if (!text) {
        return err_raise(-ENOMEM);
    }
    CLEAN_FD int fd = memfd_create("gemmd-manifest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return err_raise(-errno);
    }
    r = write_text(fd, text);
    if (r != 0) {
        return r;
    }
    if (fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
        return err_raise(-errno);
    }
    r = manifest_lock(fd, NULL);
    if (r != 0) {
        return r < 0 ? r : err_raise(-EBUSY);
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

int manifest_lock(int fd, struct reason *why)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_SETLK, &lock) == 0) {
        return 0;
    }
    if (errno != EACCES && errno != EAGAIN) {
        return err_raise(-errno);
    }
    if (fcntl(fd, F_GETLK, &lock) < 0 || lock.l_type == F_UNLCK) {
        lock.l_pid = 0; /* it has gone since */
    }
    return reason_set(why, STATUS_EXISTS,
                      "process %d still serves the weights that were kept; no two may", lock.l_pid);
}

/* ---- reading ---- */

int manifest_damaged(struct reason *why, const char *what)
{
    return reason_set(why, STATUS_BAD_MESSAGE, "the manifest is damaged: %s", what);
}

/* Malloc'd, NUL-terminated. A header is not believed before its size is that of the file. */
static int read_text(int fd, uint32_t *ret_format, char **ret_text, struct reason *why)
{
    struct manifest_header header;
    off_t file_bytes = lseek(fd, 0, SEEK_END);
    int seals = fcntl(fd, F_GET_SEALS); /* the kernel may add F_SEAL_EXEC */
    if (seals < 0 || (seals & SEALS) != SEALS) {
        return manifest_damaged(why, "it is no sealed memfd");
    }
    if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
        memcmp(header.magic, magic, sizeof(magic)) != 0) {
        return manifest_damaged(why, "it has no header");
    }
    if (header.text_bytes > MANIFEST_BYTES_MAX || header.text_bytes % 8 != 0 ||
        file_bytes != (off_t)(sizeof(header) + header.text_bytes)) {
        return manifest_damaged(why, "its size is not what its header says");
    }
    CLEAN_FREE char *text = calloc(1, header.text_bytes + 1);
    if (!text) {
        return err_raise(-ENOMEM);
    }
    if (pread(fd, text, header.text_bytes, sizeof(header)) != (ssize_t)header.text_bytes) {
        return manifest_damaged(why, "it cannot be read");
    }
    struct gk_digest digest = {0, 0};
    gk_digest_add(&digest, text, 0, header.text_bytes / 8);
    if (!gk_digest_is_same(&digest, &header.digest)) {
        return manifest_damaged(why, "its digest does not match");
    }
    *ret_format = header.format;
    *ret_text = steal_ptr(&text);
    return 0;
}

bool manifest_take_text(char *target, size_t size_bytes, const char *text)
{
    return text && (size_t)snprintf(target, size_bytes, "%s", text) < size_bytes;
}

static int read_head(struct manifest *manifest, struct reason *why)
{
    const char *name, *path, *device, *fuse, *split;
    const char *act = ""; /* which older ones do not have */
    json_int_t tp_rank, tp_size, generation;
    struct manifest head = MANIFEST_NULL;
    if (json_unpack(manifest->root, "{s:s, s:s, s:s, s:I, s:I, s:s, s:s, s?s, s:I}", "model", &name,
                    "path", &path, "device", &device, "tp_rank", &tp_rank, "tp_size", &tp_size,
                    "fuse", &fuse, "split", &split, "act", &act, "generation", &generation) != 0 ||
        !manifest_take_text(head.name, sizeof(head.name), name) ||
        !manifest_take_text(head.path, sizeof(head.path), path) ||
        !manifest_take_text(head.device, sizeof(head.device), device) ||
        !manifest_take_text(head.shaping.fuse, sizeof(head.shaping.fuse), fuse) ||
        !manifest_take_text(head.shaping.split, sizeof(head.shaping.split), split) ||
        !manifest_take_text(head.shaping.act, sizeof(head.shaping.act), act) ||
        msg_name_check(head.name, "model name", NULL) != 0) {
        return manifest_damaged(why, "it names no model");
    }
    head.shaping.tp_rank = (uint32_t)tp_rank;
    head.shaping.tp_size = (uint32_t)tp_size;
    head.generation = (uint64_t)generation;
    head.root = manifest->root;
    *manifest = head;
    return 0;
}

int manifest_open(int fd, struct manifest *ret_manifest, struct reason *why)
{
    CLEAN_FREE char *text = NULL;
    uint32_t format = 0;
    *ret_manifest = MANIFEST_NULL;
    int r = read_text(fd, &format, &text, why);
    if (r != 0) {
        return r;
    }
    ret_manifest->root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    r = read_head(ret_manifest, why);
    if (r == 0 && format != MANIFEST_FORMAT) {
        r = reason_set(why, STATUS_VERSION, "its manifest has format %u, this gemmd writes %u",
                       format, MANIFEST_FORMAT);
    }
    return r;
}

void manifest_finish(struct manifest *manifest)
{
    json_decref(manifest->root);
    *manifest = MANIFEST_NULL;
}
