/* device.c - from a device's name to its back end, and what back ends share. */
#include "daemon/device/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

/* ---- names ---- */

bool device_auto_name(uint32_t i, char *name, uint32_t size_bytes)
{
    if (device_cuda_name(i, name, size_bytes)) {
        return true;
    }
    if (i > 0) {
        return false; /* not the host beside GPUs */
    }
    (void)snprintf(name, size_bytes, "host");
    return true;
}

int device_auto_check(struct reason *why)
{
    char name[64];
    return device_cuda_name(0, name, sizeof(name)) ? 0 : device_cuda_hidden(why);
}

/* Is spec that prefix, and behind it at least one character, all of them of that set? */
static bool is_of(const char *spec, const char *prefix, const char *set)
{
    size_t n_bytes = strlen(prefix);
    return strncmp(spec, prefix, n_bytes) == 0 && spec[n_bytes] != '\0' &&
           spec[n_bytes + strspn(spec + n_bytes, set)] == '\0';
}

bool device_is_spec(const char *spec)
{
    return strcmp(spec, "auto") == 0 || strcmp(spec, "host") == 0 ||
           is_of(spec, "cuda:", "0123456789") || is_of(spec, "GPU-", "0123456789abcdefABCDEF-");
}

int device_open(const char *spec, uint32_t index, uint32_t n_threads, struct device **ret_device,
                struct reason *why)
{
    char first[64];
    if (strcmp(spec, "auto") == 0) {
        int r = device_auto_check(why);
        if (r != 0) {
            return r;
        }
        (void)device_auto_name(0, first, sizeof(first));
        spec = first;
    }
    if (strcmp(spec, "host") == 0) {
        int r = device_host_open(index, n_threads, ret_device, why);
        if (r == 0) {
            device_host_measure(*ret_device);
        }
        return r;
    }
    if (!device_is_spec(spec)) {
        return reason_set(why, STATUS_NOT_FOUND,
                          "there is no device '%.64s'; known are auto, host, cuda:N and GPU-UUID",
                          spec);
    }
    return device_cuda_open(spec, index, ret_device, why);
}

struct device *device_close(struct device *device)
{
    if (device != NULL) {
        device->ops->close(device);
    }
    return NULL;
}

bool device_is_named(const struct device *device, const char *name)
{
    return strcmp(device->name, name) == 0 ||
           (device->uuid[0] != '\0' && strcmp(device->uuid, name) == 0);
}

const char *device_identity(const struct device *device)
{
    return device->uuid[0] != '\0' ? device->uuid : device->name;
}

/* ---- regions ---- */

int device_view_begin(struct device *device, const struct region *region, enum device_access access,
                      void **ret_bytes, struct reason *why)
{
    if (device->ops->view_begin != NULL) {
        return device->ops->view_begin(device, region, access, ret_bytes, why);
    }
    *ret_bytes = region->base;
    return 0;
}

int device_view_end(struct device *device, const struct region *region, enum device_access access,
                    struct reason *why)
{
    return device->ops->view_end != NULL ? device->ops->view_end(device, region, access, why) : 0;
}

int device_place_of(struct device *device, const struct region *region,
                    struct device_place *ret_place)
{
    if (device->ops->region_place != NULL) {
        device->ops->region_place(device, region, ret_place);
        return 0;
    }
    struct stat file;
    if (fstat(region->fd, &file) != 0) {
        return err_raise(-errno);
    }
    *ret_place = (struct device_place){.space = {file.st_dev, file.st_ino}, .is_cpu_memory = true};
    return 0;
}

/* ---- launches ---- */

static int run_alone_on_host(const struct gk_kernel *kernel, struct gk_launch *launch)
{
    uint64_t workspace_bytes = num_align_up(kernel->workspace_bytes(&launch->problem) + 1, 64);
    CLEAN_FREE void *workspace = aligned_alloc(64, workspace_bytes);
    if (workspace == NULL) {
        return err_raise(-ENOMEM);
    }
    launch->workspace = workspace;
    kernel->prepare(launch, 0, 1);
    kernel->run(launch, 0, 1);
    launch->workspace = NULL;
    return 0;
}

int device_run_alone(struct device *device, const struct gk_kernel *kernel,
                     struct gk_launch *launch, struct reason *why)
{
    if (device->ops->run_alone != NULL) {
        return device->ops->run_alone(device, kernel, launch, why);
    }
    return run_alone_on_host(kernel, launch);
}

void device_weight_key(const struct device *device, const struct gk_desc *desc,
                       const struct gk_layout *layout, char ret_key[DEVICE_KEY_BYTES])
{
    char format[64];
    gk_desc_format(desc, format, sizeof(format));
    (void)snprintf(ret_key, DEVICE_KEY_BYTES, "%s; gemmd %s; %s; %s v%u; %u x %u",
                   device->description, GEMMD_VERSION, format, layout->tag, layout->version,
                   desc->n, desc->k);
}

int device_plan(struct device *device, const struct gk_problem *problem, const void *packed,
                struct reason *why)
{
    return device->ops->plan != NULL ? device->ops->plan(device, problem, packed, why) : 0;
}

double device_floor_usec(const struct device *device, uint64_t n_bytes)
{
    double gbps = device->read_gbps;
    return gbps > 0 ? device->launch_usec + (double)n_bytes / (gbps * 1e3) : 0;
}

int device_time(struct device *device, const struct device_trial *trial, double *ret_usec,
                struct reason *why)
{
    return device->ops->time(device, trial, ret_usec, why);
}
