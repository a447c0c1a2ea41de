/* device_cuda.c - NVIDIA GPUs as devices: which there are, opening and closing one. */
#include "daemon/device/device_cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/error.h"

#define ARCH_MIN 80 /* what the kernels are built for: Ampere and later */

/* ---- which there are ---- */

static bool can_export(const struct cuda_driver *driver, int ordinal)
{
    int has_vmm = 0, has_fds = 0;
    (void)driver->cuDeviceGetAttribute(
        &has_vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal);
    (void)driver->cuDeviceGetAttribute(
        &has_fds, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, ordinal);
    return has_vmm != 0 && has_fds != 0;
}

static uint32_t arch_of(int ordinal)
{
    int major = 0, minor = 0;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal);
    return (uint32_t)(major * 10 + minor);
}

static uint32_t n_sms_of(int ordinal)
{
    int n = 0;
    (void)cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, ordinal);
    return (uint32_t)n;
}

static int check_usable(const struct cuda_driver *driver, int ordinal, struct reason *why)
{
    int compute_mode = cudaComputeModeProhibited;
    uint32_t arch = arch_of(ordinal);
    (void)cudaDeviceGetAttribute(&compute_mode, cudaDevAttrComputeMode, ordinal);
    if (arch < ARCH_MIN) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "cuda:%d has compute capability %u.%u; %u.%u or more is needed", ordinal,
                          arch / 10, arch % 10, ARCH_MIN / 10, ARCH_MIN % 10);
    }
    if (compute_mode == cudaComputeModeProhibited) {
        return reason_set(why, STATUS_UNSUPPORTED, "cuda:%d is in compute mode Prohibited",
                          ordinal);
    }
    if (!can_export(driver, ordinal)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "cuda:%d cannot export memory as file descriptors", ordinal);
    }
    return 0;
}

static int device_total(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return n;
}

bool device_cuda_is_built(void)
{
    return true;
}

bool device_cuda_name(uint32_t i, char *name, uint32_t size_bytes)
{
    int n_total = device_total();
    const struct cuda_driver *driver = n_total > 0 ? cuda_driver_find(NULL) : NULL;
    for (int ordinal = 0; driver != NULL && ordinal < n_total; ordinal++) {
        if (check_usable(driver, ordinal, NULL) == 0 && i-- == 0) {
            (void)snprintf(name, size_bytes, "cuda:%d", ordinal);
            return true;
        }
    }
    return false;
}

/* ---- names ---- */

static void format_uuid(const uint8_t bytes[16], char *text, size_t size_bytes)
{
    static const uint8_t dashes[] = {4, 6, 8, 10};
    size_t length = (size_t)snprintf(text, size_bytes, "GPU-");
    for (uint32_t i = 0, i_dash = 0; i < 16; i++) {
        bool has_dash = i_dash < sizeof(dashes) && dashes[i_dash] == i;
        i_dash += has_dash;
        length += (size_t)snprintf(text + length, size_bytes - length, "%s%02x",
                                   has_dash ? "-" : "", bytes[i]);
    }
}

static int read_uuid(const struct cuda_driver *driver, int ordinal, uint8_t bytes[16], char *text,
                     size_t size_bytes)
{
    CUuuid uuid;
    if (driver->cuDeviceGetUuid(&uuid, ordinal) != CUDA_SUCCESS) {
        return err_raise(-EIO);
    }
    memcpy(bytes, uuid.bytes, sizeof(uuid.bytes));
    format_uuid(bytes, text, size_bytes);
    return 0;
}

static int find_ordinal(const struct cuda_driver *driver, const char *spec, int n_total,
                        int *ret_ordinal, struct reason *why)
{
    unsigned ordinal;
    char rest;
    if (sscanf(spec, "cuda:%9u%c", &ordinal, &rest) == 1 && ordinal < (unsigned)n_total) {
        *ret_ordinal = (int)ordinal;
        return 0;
    }
    for (int i = 0; i < n_total; i++) {
        uint8_t bytes[16];
        char uuid[64];
        if (read_uuid(driver, i, bytes, uuid, sizeof(uuid)) == 0 && strcmp(uuid, spec) == 0) {
            *ret_ordinal = i;
            return 0;
        }
    }
    return reason_set(why, STATUS_NOT_FOUND, "there is no device '%s': the driver shows %d GPU%s",
                      spec, n_total, n_total == 1 ? "" : "s");
}

static void describe(struct device_cuda *cuda)
{
    struct cudaDeviceProp properties;
    int driver_version = 0, has_mps = 0;
    (void)cudaDriverGetVersion(&driver_version);
    (void)cuda->driver->cuDeviceGetAttribute(&has_mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED,
                                             cuda->ordinal);
    cuda->base.has_mps = has_mps != 0;
    if (cudaGetDeviceProperties(&properties, cuda->ordinal) != cudaSuccess) {
        return;
    }
    (void)snprintf(cuda->base.description, sizeof(cuda->base.description),
                   "%.80s, %u SMs, %.1f GiB, compute %d.%d, driver for CUDA %d.%d, %s",
                   properties.name, cuda->base.n_sms,
                   (double)properties.totalGlobalMem / (double)(1 << 30), properties.major,
                   properties.minor, driver_version / 1000, driver_version % 1000 / 10,
                   has_mps ? "MPS" : "no MPS (see gemmctl doctor)");
}

/* ---- opening ---- */

static void cuda_close(struct device *device)
{
    struct device_cuda *cuda = cuda_of(device);
    if (cuda_enter(cuda, NULL) == 0) {
        cuda_launch_finish(cuda);
        cuda_ahead_finish(cuda);
        cuda_packers_finish(cuda);
        cuda_memory_finish(cuda);
    }
    (void)pthread_mutex_destroy(&cuda->imports_mutex);
    (void)pthread_mutex_destroy(&cuda->packers_mutex);
    (void)pthread_mutex_destroy(&cuda->scratch_mutex);
    (void)pthread_mutex_destroy(&cuda->view_mutex);
    free(cuda);
}

static const struct device_ops cuda_ops = {
    .kind = GK_DEVICE_CUDA,
    .close = cuda_close,
    .region_new = cuda_region_new,
    .region_import = cuda_region_import,
    .region_import_ipc = cuda_region_import_ipc,
    .region_free = cuda_region_free,
    .region_place = cuda_region_place,
    .view_begin = cuda_view_begin,
    .view_end = cuda_view_end,
    .packing = &cuda_packing,
    .digest = cuda_digest,
    .reserve = cuda_reserve,
    .plan = cuda_plan,
    .launch = cuda_launch,
    .arm = cuda_arm,
    .fire = cuda_fire,
    .disarm = cuda_disarm,
    .poll = cuda_poll,
    .run_alone = cuda_run_alone,
    .time = cuda_time,
};

static struct device_cuda *cuda_new(const struct cuda_driver *driver, int ordinal, uint32_t index)
{
    struct device_cuda *cuda = calloc(1, sizeof(*cuda));
    if (cuda == NULL) {
        return NULL;
    }
    cuda->base.ops = &cuda_ops;
    cuda->base.index = index;
    cuda->base.n_threads = 1;
    cuda->base.launches_max = CUDA_LAUNCHES_MAX;
    cuda->base.cuda_arch = arch_of(ordinal);
    cuda->base.n_sms = n_sms_of(ordinal);
    cuda->ordinal = ordinal;
    cuda->driver = driver;
    (void)snprintf(cuda->base.name, sizeof(cuda->base.name), "cuda:%d", ordinal);
    (void)pthread_mutex_init(&cuda->view_mutex, NULL);
    (void)pthread_mutex_init(&cuda->scratch_mutex, NULL);
    (void)pthread_mutex_init(&cuda->packers_mutex, NULL);
    (void)pthread_mutex_init(&cuda->imports_mutex, NULL);
    list_init(&cuda->allocations);
    return cuda;
}

static int set_up(struct device_cuda *cuda, struct reason *why)
{
    int r = cuda_enter(cuda, why);
    if (r == 0) {
        r = read_uuid(cuda->driver, cuda->ordinal, cuda->base.uuid_bytes, cuda->base.uuid,
                      sizeof(cuda->base.uuid));
    }
    r = r != 0 ? r : cuda_memory_init(cuda, why);
    r = r != 0 ? r : cuda_launch_init(cuda, why);
    r = r != 0 ? r : cuda_ahead_init(cuda, why);
    r = r != 0 ? r : fault_from_environment(&cuda->base.fault, why);
    if (r == 0) {
        cuda_measure(cuda);
    }
    describe(cuda);
    return r;
}

int device_cuda_open(const char *spec, uint32_t index, struct device **ret_device,
                     struct reason *why)
{
    int ordinal = 0;
    int n_total = device_total();
    if (n_total == 0) {
        int r = device_cuda_hidden(why);
        if (r != 0) {
            return r;
        }
        return reason_set(why, STATUS_NOT_FOUND,
                          "there is no device '%s': no CUDA driver, or no GPU that it shows; "
                          "gemmctl doctor says which",
                          spec);
    }
    const struct cuda_driver *driver = cuda_driver_find(why);
    int r =
        driver == NULL ? STATUS_UNSUPPORTED : find_ordinal(driver, spec, n_total, &ordinal, why);
    r = r != 0 ? r : check_usable(driver, ordinal, why);
    if (r != 0) {
        return r;
    }
    struct device_cuda *cuda = cuda_new(driver, ordinal, index);
    if (cuda == NULL) {
        return err_raise(-ENOMEM);
    }
    r = set_up(cuda, why);
    if (r != 0) {
        cuda_close(&cuda->base);
        return r;
    }
    *ret_device = &cuda->base;
    return 0;
}
