/* adopt.c - see adopt.h. First every lock is taken, so that a second process that was given the
 * same descriptors leaves them as they are; then each manifest is judged, the latest first. */
#include "daemon/weights/adopt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/manifest.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"

#define DEATHS_MAX 3u /* of processes, in the middle of adopting one generation */

struct adopter {
    struct keep *keep;
    struct store *store;
    struct device *const *devices;
    uint32_t n_devices;
    bool has_chosen_devices;
    bool is_misconfigured; /* nothing is wrong with what is kept */
    struct adoption adoption;
};

static bool is_manifest(const struct keep_found *found)
{
    return found->fd >= 0 && strncmp(found->name, "m.", 2) == 0;
}

static uint64_t generation_of(const struct keep_found *found)
{
    return strtoull(found->name + 2, NULL, 10);
}

/* Names were judged by the process that put them, which was ours: a bad one sorts as 0. */
static struct keep_found *latest_manifest(const struct keep *keep)
{
    struct keep_found *latest = NULL;
    for (uint32_t i = 0; i < keep->n_found; i++) {
        struct keep_found *found = &keep->found[i];
        if (is_manifest(found) && (!latest || generation_of(found) > generation_of(latest))) {
            latest = found;
        }
    }
    return latest;
}

static int lock_all(const struct keep *keep, struct reason *why)
{
    for (uint32_t i = 0; i < keep->n_found; i++) {
        int r = is_manifest(&keep->found[i]) ? manifest_lock(keep->found[i].fd, why) : 0;
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

static struct device *find_device(const struct adopter *adopter, const char *identity)
{
    for (uint32_t i = 0; i < adopter->n_devices; i++) {
        if (strcmp(device_identity(adopter->devices[i]), identity) == 0) {
            return adopter->devices[i];
        }
    }
    return NULL;
}

/* Under MPS all of a GPU's processes die of the fault of one, and it takes a moment until there is
 * a GPU again: no reason to let go of what lies there. */
static bool is_device_missing(const struct adopter *adopter, const struct manifest *manifest)
{
    return !adopter->has_chosen_devices && strncmp(manifest->device, "GPU-", 4) == 0 &&
           !find_device(adopter, manifest->device);
}

static int add_job(struct adopter *adopter, enum loader_job_kind kind,
                   const struct manifest *manifest, struct device *device)
{
    struct adoption *adoption = &adopter->adoption;
    struct loader_request *longer =
        realloc(adoption->jobs, ((size_t)adoption->n_jobs + 1) * sizeof(*adoption->jobs));
    if (!longer) {
        return err_raise(-ENOMEM);
    }
    adoption->jobs = longer;
    struct loader_request *job = &longer[adoption->n_jobs++];
    *job = (struct loader_request){.kind = kind, .device = device, .shaping = manifest->shaping};
    memcpy(job->name, manifest->name, sizeof(job->name));
    memcpy(job->path, manifest->path, sizeof(job->path));
    return 0;
}

/* ---- regions ---- */

/* A GPU's region is imported by its size, a memfd by at least that: both may be refused. */
static int import_weight(const struct adopter *adopter, struct weight *weight, uint64_t generation,
                         uint32_t i_weight, struct reason *why)
{
    char name[KEEP_NAME_BYTES];
    keep_region_name(name, generation, i_weight);
    struct keep_found *found = keep_find(adopter->keep, name);
    if (!found) {
        return reason_set(why, STATUS_NOT_FOUND, "the memory of '%s' is not there", weight->name);
    }
    fault_on_import(&weight->device->fault);
    const struct device_ops *ops = weight->device->ops;
    struct region region = REGION_NULL;
    int r = ops->region_import(weight->device, steal_fd(&found->fd), weight->packed.size_bytes,
                               &region, why);
    if (r != 0) {
        reason_prefix(why, "the memory of '%s'", weight->name);
        return r;
    }
    weight->packed = region;
    return 0;
}

static int compare_digests(struct adopter *adopter, struct model *model, struct reason *why)
{
    CLEAN_FREE struct gk_digest *expected = calloc((size_t)model->n_weights + 1, sizeof(*expected));
    if (!expected) {
        return err_raise(-ENOMEM);
    }
    for (uint32_t i = 0; i < model->n_weights; i++) {
        expected[i] = model->weights[i]->digest;
    }
    uint64_t start_nsec = clock_now_nsec();
    int r = keep_digest(model, why);
    adopter->adoption.digest_seconds += 1e-9 * (double)(clock_now_nsec() - start_nsec);
    for (uint32_t i = 0; i < model->n_weights && r == 0; i++) {
        if (!gk_digest_is_same(&expected[i], &model->weights[i]->digest)) {
            r = reason_set(why, STATUS_BAD_MESSAGE, "the memory of '%s' has changed",
                           model->weights[i]->name);
        }
    }
    return r;
}

/* A configuration that leaves a weight without a kernel is mended, not the weight let go of. */
static int check_kernels(struct adopter *adopter, const struct model *model, struct reason *why)
{
    for (uint32_t i = 0; i < model->n_weights; i++) {
        const struct weight *weight = model->weights[i];
        const struct gk_problem problem = weight_problem(weight);
        const struct gk_kernel *kernel;
        if (gk_is_all_disabled(&problem)) {
            int r = gk_select(&problem, &kernel, why);
            reason_prefix(why, "kept weight '%.200s'", weight->name);
            adopter->is_misconfigured = true;
            return r;
        }
    }
    return 0;
}

static int fill_model(struct adopter *adopter, struct model *model, struct reason *why)
{
    for (uint32_t i = 0; i < model->n_weights; i++) {
        int r = import_weight(adopter, model->weights[i], model->generation, i, why);
        if (r != 0) {
            return r;
        }
    }
    int r = compare_digests(adopter, model, why);
    for (uint32_t i = 0; i < model->n_weights && r == 0; i++) {
        r = weight_make_ready(model->weights[i], why);
    }
    return r;
}

/* ---- models ---- */

/* Everything that was kept of a generation, the manifest first. */
static void forget_generation(const struct adopter *adopter, struct keep_found *manifest)
{
    char prefix[KEEP_NAME_BYTES], mark[KEEP_NAME_BYTES];
    int n = snprintf(prefix, sizeof(prefix), "w.%s.", manifest->name + 2);
    keep_attempt_name(mark, generation_of(manifest));
    keep_forget(adopter->keep, manifest);
    keep_unmark(adopter->keep, mark);
    for (uint32_t i = 0; i < adopter->keep->n_found; i++) {
        struct keep_found *found = &adopter->keep->found[i];
        if (strncmp(found->name, prefix, (size_t)n) == 0) {
            keep_forget(adopter->keep, found); /* also what was imported: the store has its own */
        }
    }
}

static int publish(struct adopter *adopter, struct model *model, uint64_t start_nsec)
{
    model->is_adopted = true;
    model->is_kept = true;
    model->load_seconds = 1e-9 * (double)(clock_now_nsec() - start_nsec);
    adopter->adoption.n_models++;
    adopter->adoption.n_weights += model->n_weights;
    adopter->adoption.n_bytes += model_bytes(model);
    return store_publish(adopter->store, model);
}

static int adopt_model(struct adopter *adopter, const struct manifest *manifest,
                       struct keep_found *found, struct reason *why)
{
    uint64_t start_nsec = clock_now_nsec();
    struct device *device = find_device(adopter, manifest->device);
    struct model *model;
    if (!device) {
        return reason_set(why, STATUS_NOT_FOUND, "this daemon does not own device %s",
                          manifest->device);
    }
    int r = manifest_model(manifest, device, &model, why);
    if (r != 0) {
        return r;
    }
    r = check_kernels(adopter, model, why);
    r = r != 0 ? r : fill_model(adopter, model, why);
    if (r == 0) {
        model->manifest_fd = found->fd; /* open until the model goes: it holds the lock */
        r = publish(adopter, model, start_nsec);
        found->fd = r == 0 ? -1 : found->fd;
    }
    if (r != 0) {
        model->is_kept = false;
        model_free(model);
        return r;
    }
    const char *changed = sources_changed(&model->sources);
    if (changed) {
        log_event(LOG_EVENT_CHECKPOINT_CHANGED, LOG_LEVEL_WARNING, "store",
                  "model '%s' serves as it was; '%s' has changed since and is read again",
                  manifest->name, changed);
        return add_job(adopter, LOADER_JOB_RELOAD, manifest, device);
    }
    return 0;
}

/* Memory may be such that reading it kills: a process that dies here leaves its mark. */
static int try_model(struct adopter *adopter, const struct manifest *manifest,
                     struct keep_found *found, struct reason *why)
{
    char mark[KEEP_NAME_BYTES];
    keep_attempt_name(mark, generation_of(found));
    uint32_t n_deaths = keep_take_marks(adopter->keep, mark);
    if (n_deaths >= DEATHS_MAX) {
        return reason_set(why, STATUS_DEVICE_ERROR, "%u processes have died of adopting it",
                          n_deaths);
    }
    keep_mark(adopter->keep, mark);
    int r = adopt_model(adopter, manifest, found, why);
    keep_unmark(adopter->keep, mark);
    return r;
}

/* A model that cannot be adopted is no reason not to start. */
static int give_up(struct adopter *adopter, const struct manifest *manifest,
                   struct keep_found *found, int r, struct reason *why)
{
    if (r == -ENOMEM) {
        return r;
    }
    if (r < 0) {
        (void)reason_errno(why, r, "reading it");
    }
    struct device *device = find_device(adopter, manifest->device);
    bool can_load = manifest->name[0] != '\0' && device;
    adopter->adoption.n_refused++;
    log_event(LOG_EVENT_NOT_ADOPTED, LOG_LEVEL_WARNING, "store",
              "kept model '%s' is not adopted%s: %s",
              manifest->name[0] != '\0' ? manifest->name : found->name,
              can_load ? ", and loaded anew" : "", why->text);
    forget_generation(adopter, found);
    return can_load ? add_job(adopter, LOADER_JOB_LOAD, manifest, device) : 0;
}

static int judge_manifest(struct adopter *adopter, struct keep_found *found, struct reason *why)
{
    struct manifest manifest;
    struct reason refusal = REASON_NULL;
    int r = manifest_open(found->fd, &manifest, &refusal);
    if (manifest.name[0] != '\0' && is_device_missing(adopter, &manifest)) {
        r = reason_set(why, STATUS_DEVICE_ERROR, "model '%s' was kept on %s, which does not answer",
                       manifest.name, manifest.device);
        manifest_finish(&manifest);
        return r;
    }
    if (r == 0 && store_has_model(adopter->store, manifest.name)) {
        forget_generation(adopter, found); /* what a reload had not dropped yet */
        manifest_finish(&manifest);
        return 0;
    }
    r = r != 0 ? r : try_model(adopter, &manifest, found, &refusal);
    if (r > 0 && adopter->is_misconfigured) {
        (void)reason_set(why, r, "%s", refusal.text);
    } else if (r != 0) {
        r = give_up(adopter, &manifest, found, r, &refusal);
    }
    manifest_finish(&manifest);
    return r;
}

static int adopt_all(struct adopter *adopter, struct reason *why)
{
    for (struct keep_found *found; (found = latest_manifest(adopter->keep));) {
        int r = judge_manifest(adopter, found, why);
        if (r != 0) {
            return r;
        }
    }
    for (uint32_t i = 0; i < adopter->keep->n_found; i++) {
        if (adopter->keep->found[i].fd >= 0) {
            keep_forget(adopter->keep, &adopter->keep->found[i]); /* regions without a manifest */
        }
    }
    return 0;
}

static void report(const struct adoption *adoption)
{
    double gigabytes = 1e-9 * (double)adoption->n_bytes;
    log_write(LOG_LEVEL_NOTICE, "store",
              "%u models with %u weights adopted in %.3f s: %.2f GB verified at %.1f GB/s",
              adoption->n_models, adoption->n_weights, adoption->seconds, gigabytes,
              adoption->digest_seconds > 0 ? gigabytes / adoption->digest_seconds : 0.0);
}

int adopt_kept(struct keep *keep, struct store *store, struct device *const *devices,
               uint32_t n_devices, bool has_chosen_devices, struct adoption *ret_adoption,
               struct reason *why)
{
    struct adopter adopter = {.keep = keep,
                              .store = store,
                              .devices = devices,
                              .n_devices = n_devices,
                              .has_chosen_devices = has_chosen_devices};
    uint64_t start_nsec = clock_now_nsec();
    int r = lock_all(keep, why);
    r = r != 0 ? r : adopt_all(&adopter, why);
    if (r != 0) {
        adoption_finish(&adopter.adoption);
        return r;
    }
    adopter.adoption.seconds = 1e-9 * (double)(clock_now_nsec() - start_nsec);
    if (adopter.adoption.n_models > 0) {
        report(&adopter.adoption);
    }
    *ret_adoption = adopter.adoption;
    return 0;
}

void adoption_finish(struct adoption *adoption)
{
    free(adoption->jobs);
    *adoption = ADOPTION_NULL;
}
