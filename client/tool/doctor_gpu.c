/* doctor_gpu.c - the NVIDIA driver and its GPUs, as this process sees them.
 *
 * Six plain functions of the driver API are declared here instead of including cuda.h, so that a
 * gemmctl built without CUDA can tell as well. */
#include "client/tool/doctor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "ipc/base/num.h"

/* Of CUdevice_attribute, whose numbers never change. */
#define ATTRIBUTE_MAJOR       75
#define ATTRIBUTE_MINOR       76
#define ATTRIBUTE_VMM         102
#define ATTRIBUTE_POSIX_FD    103
#define ATTRIBUTE_MPS_ENABLED 133
#define ARCH_MIN              80

#define MEND_MPS                                                                                   \
    "start MPS as the daemon's user, before gemmd and its clients: nvidia-cuda-mps-control -d "    \
    "(with -M where clients are other users); give all of them the same "                          \
    "CUDA_MPS_PIPE_DIRECTORY, then restart gemmd"

struct driver {
    int (*init)(unsigned flags);
    int (*driver_version)(int *ret_version);
    int (*device_count)(int *ret_n);
    int (*device_get)(int *ret_device, int ordinal);
    int (*device_name)(char *name, int n_bytes, int device);
    int (*attribute)(int *ret_value, int attribute, int device);
};

static bool find(void *library, const char *name, void *ret_function)
{
    void *function = dlsym(library, name);
    memcpy(ret_function, &function, sizeof(function));
    return function != NULL;
}

static bool find_all(void *library, struct driver *driver)
{
    return find(library, "cuInit", &driver->init) &&
           find(library, "cuDriverGetVersion", &driver->driver_version) &&
           find(library, "cuDeviceGetCount", &driver->device_count) &&
           find(library, "cuDeviceGet", &driver->device_get) &&
           find(library, "cuDeviceGetName", &driver->device_name) &&
           find(library, "cuDeviceGetAttribute", &driver->attribute);
}

/* ---- kernel module ---- */

/* "NVRM version: NVIDIA UNIX ... 580.95.05 ...": the kernel module's own line; false without one.
 */
static bool read_module(char *text, size_t size_bytes)
{
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    if (!file) {
        return false;
    }
    bool is_read = fgets(text, (int)size_bytes, file) != NULL;
    (void)fclose(file);
    text[is_read ? strcspn(text, "\n") : 0] = '\0';
    return is_read;
}

/* ---- GPUs ---- */

static int attribute_of(const struct driver *driver, int attribute, int device)
{
    int value = 0;
    (void)driver->attribute(&value, attribute, device);
    return value;
}

static void check_gpu(struct findings *findings, const struct driver *driver, int ordinal)
{
    char name[100] = "?";
    int device = 0;
    (void)driver->device_get(&device, ordinal);
    (void)driver->device_name(name, sizeof(name), device);
    int arch = 10 * attribute_of(driver, ATTRIBUTE_MAJOR, device) +
               attribute_of(driver, ATTRIBUTE_MINOR, device);
    bool can_share = attribute_of(driver, ATTRIBUTE_VMM, device) != 0 &&
                     attribute_of(driver, ATTRIBUTE_POSIX_FD, device) != 0;
    enum finding_state state = arch >= ARCH_MIN && can_share ? FINDING_OK : FINDING_WARNING;
    struct finding *finding =
        findings_add(findings, state, "gpu", "cuda:%d is %s, compute %d.%d, %s memory by fd",
                     ordinal, name, arch / 10, arch % 10, can_share ? "shares" : "cannot share");
    if (state != FINDING_OK) {
        finding_mend(finding,
                     "gemmd leaves it alone: it needs compute %d.%d and memory exported as "
                     "file descriptors",
                     ARCH_MIN / 10, ARCH_MIN % 10);
    }
    if (attribute_of(driver, ATTRIBUTE_MPS_ENABLED, device) != 0) {
        (void)findings_add(findings, FINDING_OK, "mps", "cuda:%d is shared through MPS", ordinal);
        return;
    }
    finding_mend(
        findings_add(findings, FINDING_WARNING, "mps",
                     "cuda:%d is not shared through MPS: processes take turns of the whole "
                     "GPU, which is the first cause of slow requests",
                     ordinal),
        MEND_MPS);
}

static void check_driver(struct findings *findings, const struct driver *driver)
{
    int version = 0, n_gpus = 0;
    int error = driver->init(0);
    if (error == 0) {
        error = driver->device_count(&n_gpus);
    }
    (void)driver->driver_version(&version);
    if (error != 0 || n_gpus == 0) {
        finding_mend(findings_add(findings, FINDING_FAULT, "cuda",
                                  "the CUDA driver shows no GPU (error %d)", error),
                     "look at CUDA_VISIBLE_DEVICES, at nvidia-smi, and at whether libcuda.so.1 and "
                     "the kernel module are of one version");
        return;
    }
    (void)findings_add(findings, FINDING_OK, "cuda", "driver for CUDA %d.%d, %d GPU%s",
                       version / 1000, version % 1000 / 10, n_gpus, n_gpus == 1 ? "" : "s");
    for (int i = 0; i < n_gpus && i < 8; i++) {
        check_gpu(findings, driver, i);
    }
}

void doctor_gpu(struct findings *findings)
{
    char module[256];
    bool has_module = read_module(module, sizeof(module));
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    struct driver driver;
    if (!has_module && !library) {
        (void)findings_add(findings, FINDING_OK, "driver",
                           "no NVIDIA driver: gemmd computes on the host device");
        return;
    }
    if (has_module) {
        (void)findings_add(findings, FINDING_OK, "driver", "%s", module);
        doctor_nodes(findings);
        doctor_persistence(findings);
        doctor_mps_user(findings);
    }
    if (library && find_all(library, &driver)) {
        check_driver(findings, &driver); /* the library stays loaded: drivers do not like to go */
        return;
    }
    finding_mend(findings_add(findings, FINDING_FAULT, "cuda",
                              "a kernel module, and no libcuda.so.1 that can be used: %s",
                              library ? "it lacks functions" : dlerror()),
                 "install the driver's user libraries, of the module's version; in a container, "
                 "have them mounted");
}
