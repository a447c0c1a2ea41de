/* Finds the files of a checkpoint and joins their tensor tables. Everything that an index promises
 * is looked for before anything is read, and all that is missing is told at once: nobody should
 * have to start a load of 40 GB eleven times to learn of eleven missing shards. */
#include "daemon/weights/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/weights/checkpoint_index.h"
#include "daemon/weights/files.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

#define CONFIG_BYTES_MAX (UINT64_C(16) << 20)
#define INDEX_BYTES_MAX  (UINT64_C(64) << 20)
#define INDEX_NAME       "model.safetensors.index.json"
#define SINGLE_NAME      "model.safetensors"

/* ---- what is missing ---- */

struct missing {
    struct warnings *warnings;
    uint32_t n;
    char text[REASON_TEXT_BYTES - 64]; /* the items that fit, for the reason */
};

static void missing_add(struct missing *missing, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void missing_add(struct missing *missing, const char *format, ...)
{
    char item[REASON_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(item, sizeof(item), format, args);
    va_end(args);
    warnings_add(missing->warnings, "%s", item);
    size_t used = strlen(missing->text);
    if (missing->n == 0 || used + strlen(item) + 3 < sizeof(missing->text)) {
        (void)snprintf(missing->text + used, sizeof(missing->text) - used, "%s%s",
                       missing->n ? "; " : "", item);
    }
    missing->n++;
}

static int missing_report(const struct missing *missing, struct reason *why)
{
    if (missing->n == 0) {
        return 0;
    }
    return reason_set(why, STATUS_BAD_CHECKPOINT, "missing or damaged, %u in all: %s", missing->n,
                      missing->text);
}

/* ---- tensors ---- */

static int compare_tensors(const void *a, const void *b)
{
    const struct checkpoint_tensor *x = a;
    const struct checkpoint_tensor *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *checkpoint,
                                                const char *name)
{
    struct safetensors_tensor named = {.name = (char *)(uintptr_t)name};
    struct checkpoint_tensor key = {.tensor = &named};
    return bsearch(&key, checkpoint->tensors, checkpoint->n_tensors, sizeof(key), compare_tensors);
}

/* One file: its table is the checkpoint's. */
static int take_single(struct checkpoint *checkpoint, int folder_fd, const char *name,
                       struct reason *why)
{
    checkpoint->files = calloc(1, sizeof(*checkpoint->files));
    if (!checkpoint->files) {
        return err_raise(-ENOMEM);
    }
    int r = safetensors_open(folder_fd, name, &checkpoint->files[0], why);
    if (r != 0) {
        return r;
    }
    checkpoint->n_files = 1;
    const struct safetensors *file = &checkpoint->files[0];
    checkpoint->tensors = calloc(file->n_tensors + 1, sizeof(*checkpoint->tensors));
    if (!checkpoint->tensors) {
        return err_raise(-ENOMEM);
    }
    for (uint64_t i = 0; i < file->n_tensors; i++) {
        checkpoint->tensors[i] = (struct checkpoint_tensor){&file->tensors[i], file};
    }
    checkpoint->n_tensors = file->n_tensors;
    return 0;
}

/* Open every shard; one that cannot be is missing and stays without a descriptor. */
static int open_shards(struct checkpoint *checkpoint, const struct checkpoint_index *index,
                       struct missing *missing)
{
    checkpoint->files = calloc(index->n_shards, sizeof(*checkpoint->files));
    if (!checkpoint->files) {
        return err_raise(-ENOMEM);
    }
    for (uint32_t i = 0; i < index->n_shards; i++) {
        struct reason fault = REASON_NULL;
        checkpoint->files[i] = SAFETENSORS_NULL;
        checkpoint->n_files++;
        int r = safetensors_open(checkpoint->folder_fd, index->shards[i], &checkpoint->files[i],
                                 &fault);
        if (r < 0) {
            return r;
        }
        if (r > 0) {
            missing_add(missing, "%s", fault.text);
        }
    }
    return 0;
}

/* A tensor that its shard lacks: say where else it is, if it is. */
static void tell_missing_tensor(const struct checkpoint *checkpoint,
                                const struct checkpoint_index *index,
                                const struct checkpoint_index_entry *entry, struct missing *missing)
{
    char elsewhere[REASON_TEXT_BYTES / 2] = "";
    for (uint32_t i = 0; i < checkpoint->n_files; i++) {
        if (safetensors_find(&checkpoint->files[i], entry->tensor)) {
            size_t used = strlen(elsewhere);
            (void)snprintf(elsewhere + used, sizeof(elsewhere) - used, "%s'%s'",
                           used ? ", " : "; it is in ", index->shards[i]);
        }
    }
    missing_add(missing, "tensor '%s' is not in '%s' as the index says%s", entry->tensor,
                index->shards[entry->i_shard], elsewhere);
}

static int map_tensors(struct checkpoint *checkpoint, const struct checkpoint_index *index,
                       struct missing *missing)
{
    checkpoint->tensors = calloc(index->n_entries, sizeof(*checkpoint->tensors));
    if (!checkpoint->tensors) {
        return err_raise(-ENOMEM);
    }
    for (uint64_t i = 0; i < index->n_entries; i++) {
        const struct checkpoint_index_entry *entry = &index->entries[i];
        const struct safetensors *file = &checkpoint->files[entry->i_shard];
        const struct safetensors_tensor *tensor = safetensors_find(file, entry->tensor);
        if (tensor) {
            checkpoint->tensors[checkpoint->n_tensors++] = (struct checkpoint_tensor){tensor, file};
        } else if (file->fd >= 0) {
            tell_missing_tensor(checkpoint, index, entry, missing);
        }
    }
    return 0;
}

static void warn_unmapped(const struct checkpoint *checkpoint, struct warnings *warnings)
{
    for (uint32_t i = 0; i < checkpoint->n_files; i++) {
        const struct safetensors *file = &checkpoint->files[i];
        for (uint64_t j = 0; j < file->n_tensors; j++) {
            const struct checkpoint_tensor *mapped =
                checkpoint_find(checkpoint, file->tensors[j].name);
            if (!mapped || mapped->file != file) {
                warnings_add(warnings,
                             "tensor '%s' of '%s' is ignored: the index does not map it there",
                             file->tensors[j].name, file->name);
            }
        }
    }
}

static int take_shards(struct checkpoint *checkpoint, const struct checkpoint_index *index,
                       struct warnings *warnings, struct reason *why)
{
    struct missing missing = {.warnings = warnings};
    int r = open_shards(checkpoint, index, &missing);
    if (r == 0) {
        r = map_tensors(checkpoint, index, &missing);
    }
    if (r == 0) {
        r = missing_report(&missing, why);
    }
    if (r == 0) {
        warn_unmapped(checkpoint, warnings);
    }
    return r;
}

/* ---- files ---- */

static int is_safetensors_name(const struct dirent *entry)
{
    static const char suffix[] = ".safetensors";
    size_t length = strlen(entry->d_name);
    return length >= sizeof(suffix) &&
           strcmp(entry->d_name + length - (sizeof(suffix) - 1), suffix) == 0;
}

static struct dirent **free_listing(struct dirent **listing, int n)
{
    for (int i = 0; i < n; i++) {
        free(listing[i]);
    }
    free(listing);
    return NULL;
}

static bool is_taken(const struct checkpoint *checkpoint, const char *name)
{
    for (uint32_t i = 0; i < checkpoint->n_files; i++) {
        if (strcmp(checkpoint->files[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Name order, not directory order: the same folder always gives the same outcome. */
static int list_safetensors(int folder_fd, struct dirent ***ret_listing)
{
    int n = scandirat(folder_fd, ".", ret_listing, is_safetensors_name, alphasort);
    return n < 0 ? err_raise(-errno) : n;
}

static int warn_untaken_files(const struct checkpoint *checkpoint, struct warnings *warnings)
{
    struct dirent **listing;
    int n = list_safetensors(checkpoint->folder_fd, &listing);
    if (n < 0) {
        return n;
    }
    for (int i = 0; i < n; i++) {
        if (!is_taken(checkpoint, listing[i]->d_name)) {
            warnings_add(warnings, "file '%s' is ignored: it is not part of the checkpoint",
                         listing[i]->d_name);
        }
    }
    free_listing(listing, n);
    return 0;
}

static int take_only_file(struct checkpoint *checkpoint, const char *path, struct reason *why)
{
    struct dirent **listing;
    int n = list_safetensors(checkpoint->folder_fd, &listing);
    if (n < 0) {
        return n;
    }
    int r;
    if (n == 1) {
        r = take_single(checkpoint, checkpoint->folder_fd, listing[0]->d_name, why);
    } else if (n == 0) {
        r = reason_set(why, STATUS_BAD_CHECKPOINT, "there is no .safetensors file in '%s'", path);
    } else {
        r = reason_set(why, STATUS_BAD_CHECKPOINT,
                       "%d .safetensors files ('%s', '%s'%s) in '%s' and no " INDEX_NAME
                       " to say what is where",
                       n, listing[0]->d_name, listing[1]->d_name, n > 2 ? ", ..." : "", path);
    }
    free_listing(listing, n);
    return r;
}

/* An entry of any type counts: a folder of that name is a damaged checkpoint, not an absent file.
 */
static bool has_entry(int folder_fd, const char *name)
{
    struct stat info;
    return fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

static int read_optional(int folder_fd, const char *name, char **ret_bytes, size_t *ret_size_bytes,
                         struct reason *why)
{
    if (!has_entry(folder_fd, name)) {
        return 0;
    }
    return file_read_whole(folder_fd, name, CONFIG_BYTES_MAX, ret_bytes, ret_size_bytes, why);
}

static int take_indexed(struct checkpoint *checkpoint, struct warnings *warnings,
                        struct reason *why)
{
    CLEAN_FREE char *json = NULL;
    size_t json_bytes;
    int r = file_read_whole(checkpoint->folder_fd, INDEX_NAME, INDEX_BYTES_MAX, &json, &json_bytes,
                            why);
    if (r != 0) {
        return r;
    }
    struct checkpoint_index index = CHECKPOINT_INDEX_NULL;
    r = checkpoint_index_parse(json, json_bytes, &index, why);
    if (r == 0) {
        r = take_shards(checkpoint, &index, warnings, why);
    }
    checkpoint_index_finish(&index);
    return r;
}

static int take_folder(struct checkpoint *checkpoint, const char *path, struct warnings *warnings,
                       struct reason *why)
{
    int fd = checkpoint->folder_fd;
    int r = read_optional(fd, "config.json", &checkpoint->config, &checkpoint->config_bytes, why);
    if (r == 0) {
        r = read_optional(fd, "quantize_config.json", &checkpoint->quantize_config,
                          &checkpoint->quantize_config_bytes, why);
    }
    if (r == 0) {
        r = read_optional(fd, "hf_quant_config.json", &checkpoint->hf_quant_config,
                          &checkpoint->hf_quant_config_bytes, why);
    }
    if (r != 0) {
        return r;
    }
    if (has_entry(fd, INDEX_NAME)) {
        r = take_indexed(checkpoint, warnings, why);
    } else if (has_entry(fd, SINGLE_NAME)) {
        r = take_single(checkpoint, fd, SINGLE_NAME, why);
    } else {
        r = take_only_file(checkpoint, path, why);
    }
    return r != 0 ? r : warn_untaken_files(checkpoint, warnings);
}

static int take_path(struct checkpoint *checkpoint, const char *path, struct warnings *warnings,
                     struct reason *why)
{
    checkpoint->folder_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (checkpoint->folder_fd >= 0) {
        return take_folder(checkpoint, path, warnings, why);
    }
    if (errno == ENOTDIR) {
        return take_single(checkpoint, AT_FDCWD, path, why);
    }
    int status = errno == ENOENT   ? STATUS_NOT_FOUND
                 : errno == EACCES ? STATUS_PERMISSION
                                   : STATUS_INTERNAL;
    return reason_set(why, status, "cannot open '%s': %s", path, strerror(errno));
}

int checkpoint_open(const char *path, struct warnings *warnings, struct checkpoint *ret_checkpoint,
                    struct reason *why)
{
    struct checkpoint checkpoint = CHECKPOINT_NULL;
    int r = take_path(&checkpoint, path, warnings, why);
    if (r != 0) {
        checkpoint_finish(&checkpoint);
        return r;
    }
    *ret_checkpoint = checkpoint;
    return 0;
}

void checkpoint_finish(struct checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < checkpoint->n_files; i++) {
        safetensors_finish(&checkpoint->files[i]);
    }
    free(checkpoint->files);
    free(checkpoint->tensors);
    free(checkpoint->config);
    free(checkpoint->quantize_config);
    free(checkpoint->hf_quant_config);
    if (checkpoint->folder_fd >= 0) {
        (void)close(checkpoint->folder_fd);
    }
    *checkpoint = CHECKPOINT_NULL;
}
