/* device_cuda_driver.c - the driver's entry points, and what an error means for the daemon. */
#include "daemon/device/device_cuda.h"

#include <string.h>

#include "ipc/base/num.h"

/* Of the driver API: the oldest that has every function of the list in its present form. */
#define DRIVER_API_VERSION 12000

static struct cuda_driver driver;
static struct reason driver_why; /* why it cannot be used; status 0: it can */
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static void find_entry(const char *name, void *ret_function)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, DRIVER_API_VERSION,
                                                         cudaEnableDefault, &found);
    if (error != cudaSuccess) {
        (void)reason_set(&driver_why, STATUS_UNSUPPORTED, "the CUDA driver cannot be used: %s",
                         cudaGetErrorString(error));
    } else if (found != cudaDriverEntryPointSuccess) {
        (void)reason_set(&driver_why, STATUS_UNSUPPORTED, "the CUDA driver is too old: it lacks %s",
                         name);
    }
    memcpy(ret_function, &function, sizeof(function));
}

static void find_all(void)
{
#define CUDA_DRIVER_X(name) find_entry(#name, &driver.name);
    CUDA_DRIVER_LIST(CUDA_DRIVER_X)
#undef CUDA_DRIVER_X
}

const struct cuda_driver *cuda_driver_find(struct reason *why)
{
    (void)pthread_once(&driver_once, find_all);
    if (driver_why.status != 0) {
        (void)reason_set(why, driver_why.status, "%s", driver_why.text);
        return NULL;
    }
    return &driver;
}

int cuda_enter(struct device_cuda *cuda, struct reason *why)
{
    cudaError_t error = cudaSetDevice(cuda->ordinal);
    return error == cudaSuccess ? 0 : cuda_fail(cuda, error, "making it current", why);
}

/* Errors of one call. All others are of the context, which then answers no call any more: only a
 * new process gets a new one. */
static bool is_passing(cudaError_t error)
{
    static const cudaError_t passing[] = {
        cudaErrorInvalidValue,          cudaErrorMemoryAllocation,
        cudaErrorInvalidConfiguration,  cudaErrorInvalidDeviceFunction,
        cudaErrorInvalidResourceHandle, cudaErrorLaunchOutOfResources,
        cudaErrorMapBufferObjectFailed, cudaErrorNoKernelImageForDevice,
        cudaErrorNotSupported,          cudaErrorHostMemoryAlreadyRegistered,
        cudaErrorNotPermitted,          cudaErrorPeerAccessUnsupported,
        cudaErrorDeviceUninitialized,   cudaErrorAlreadyMapped,
        cudaErrorInvalidDevice,         cudaErrorOperatingSystem,
    };
    for (uint32_t i = 0; i < ARRAY_LENGTH(passing); i++) {
        if (error == passing[i]) {
            return true;
        }
    }
    return false;
}

static int fail(struct device_cuda *cuda, cudaError_t error, const char *text, const char *what,
                struct reason *why)
{
    int status = STATUS_DEVICE_ERROR;
    if (error == cudaErrorMemoryAllocation) {
        status = STATUS_NO_SPACE;
    } else if (!is_passing(error)) {
        status = STATUS_DEVICE_LOST;
        atomic_store(&cuda->is_lost, true);
    }
    return reason_set(why, status, "%s: %s: %s", cuda->base.name, what, text);
}

int cuda_fail(struct device_cuda *cuda, cudaError_t error, const char *what, struct reason *why)
{
    (void)cudaGetLastError(); /* one that passes must not be met again by the next call */
    return fail(cuda, error, cudaGetErrorString(error), what, why);
}

int cuda_fail_driver(struct device_cuda *cuda, CUresult error, const char *what, struct reason *why)
{
    const char *text = NULL;
    (void)cuda->driver->cuGetErrorString(error, &text);
    /* The numbers of both are the same, by the runtime's own documentation. */
    return fail(cuda, (cudaError_t)error, text != NULL ? text : "unknown error", what, why);
}
