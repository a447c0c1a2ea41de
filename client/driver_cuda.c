/* driver_cuda.c - see driver_cuda.h. The symbols are never unloaded: other libraries of the process
 * may hold the same libcuda. */
#include "client/driver_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "client/client.h"

/* cuda.h renames functions to their present versions by macros: SYMBOL() is the renamed one. */
#define SYMBOL(name)      SYMBOL_TEXT(name)
#define SYMBOL_TEXT(text) #text

struct driver driver;

static struct reason driver_why; /* status 0: it can be used */
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static const char *text_of(CUresult error)
{
    const char *text = NULL;
    (void)driver.cuGetErrorString(error, &text);
    return text != NULL ? text : "unknown error";
}

static void find_symbol(void *library, const char *name, void *ret_function)
{
    void *function = dlsym(library, name);
    if (function == NULL) {
        (void)reason_set(&driver_why, STATUS_UNSUPPORTED, "the CUDA driver is too old: no %s",
                         name);
    }
    memcpy(ret_function, &function, sizeof(function));
}

static void find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)reason_set(&driver_why, STATUS_UNSUPPORTED,
                         "this process finds no CUDA driver (libcuda.so.1); use "
                         "gemmd_buffer_alloc_host()");
        return;
    }
#define DRIVER_X(name) find_symbol(library, SYMBOL(name), &driver.name);
    DRIVER_LIST(DRIVER_X)
#undef DRIVER_X
    CUresult error = driver_why.status == 0 ? driver.cuInit(0) : CUDA_SUCCESS;
    if (error != CUDA_SUCCESS) {
        (void)reason_set(&driver_why, STATUS_UNSUPPORTED, "the CUDA driver cannot be used: %s",
                         text_of(error));
    }
}

int driver_need(void)
{
    (void)pthread_once(&driver_once, find_driver);
    return driver_why.status == 0 ? 0 : client_fail(&driver_why);
}

int driver_fail(CUresult error, const char *what)
{
    return client_refuse(STATUS_DEVICE_ERROR, "%s: %s", what, text_of(error));
}

int driver_find_device(const uint8_t uuid[SIDE_UUID_BYTES], CUdevice *ret_device)
{
    int n_devices = 0;
    (void)driver.cuDeviceGetCount(&n_devices);
    for (int i = 0; i < n_devices; i++) {
        CUuuid found;
        CUdevice device;
        if (driver.cuDeviceGet(&device, i) == CUDA_SUCCESS &&
            driver.cuDeviceGetUuid(&found, device) == CUDA_SUCCESS &&
            memcmp(found.bytes, uuid, SIDE_UUID_BYTES) == 0) {
            *ret_device = device;
            return 0;
        }
    }
    return client_refuse(STATUS_UNSUPPORTED,
                         "the daemon's GPU is not among the %d that this process sees; look at "
                         "CUDA_VISIBLE_DEVICES, or use gemmd_buffer_alloc_host()",
                         n_devices);
}

int driver_enter(CUdevice device)
{
    CUcontext context;
    CUresult error = driver.cuDevicePrimaryCtxRetain(&context, device);
    if (error != CUDA_SUCCESS) {
        return driver_fail(error, "making a context on the daemon's GPU");
    }
    error = driver.cuCtxPushCurrent(context);
    if (error != CUDA_SUCCESS) {
        (void)driver.cuDevicePrimaryCtxRelease(device);
        return driver_fail(error, "entering a context on the daemon's GPU");
    }
    return 0;
}

void driver_leave(void)
{
    CUcontext context;
    (void)driver.cuCtxPopCurrent(&context);
}

void driver_forget(CUdevice device)
{
    (void)driver.cuDevicePrimaryCtxRelease(device);
}
