/* driver_cuda.h - the CUDA driver's functions, out of a libcuda found at run time, so that libgemmd
 * loads where there is none.
 *
 * Everything of libgemmd happens in the device's primary context, which CUDA's runtime, and so
 * PyTorch, uses: an address from here is good there. The context is pushed for a call and popped
 * after it, so that the calling thread keeps the one it had. Any thread. */
#pragma once

#include <cuda.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/side.h"

#define DRIVER_LIST(X)                                                                             \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxPopCurrent)                                                                             \
    X(cuCtxPushCurrent)                                                                            \
    X(cuCtxSynchronize)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGetUuid)                                                                             \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuFuncSetAttribute)                                                                          \
    X(cuGetErrorString)                                                                            \
    X(cuInit)                                                                                      \
    X(cuIpcGetMemHandle)                                                                           \
    X(cuLaunchKernel)                                                                              \
    X(cuMemAddressFree)                                                                            \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemExportToShareableHandle)                                                                \
    X(cuMemGetAddressRange)                                                                        \
    X(cuMemHostGetDevicePointer)                                                                   \
    X(cuMemHostRegister)                                                                           \
    X(cuMemHostUnregister)                                                                         \
    X(cuMemImportFromShareableHandle)                                                              \
    X(cuMemMap)                                                                                    \
    X(cuMemRelease)                                                                                \
    X(cuMemRetainAllocationHandle)                                                                 \
    X(cuMemSetAccess)                                                                              \
    X(cuMemUnmap)                                                                                  \
    X(cuModuleGetFunction)                                                                         \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleUnload)                                                                              \
    X(cuPointerGetAttribute)                                                                       \
    X(cuStreamBatchMemOp)                                                                          \
    X(cuStreamGetCtx)                                                                              \
    X(cuStreamIsCapturing)

struct driver {
#define DRIVER_X(name) __typeof__(&name) name;
    DRIVER_LIST(DRIVER_X)
#undef DRIVER_X
};

/* driver - its functions, once driver_need() has returned 0. */
extern struct driver driver;

/* driver_need() - 0, or UNSUPPORTED with the reason why this process has no driver.
 * driver_fail() - DEVICE_ERROR: "<what>: <the driver's text>".
 * driver_find_device() - the GPU with that UUID; UNSUPPORTED where this process does not see it. */
int driver_need(void) GD_MUST_CHECK;
int driver_fail(CUresult error, const char *what);
int driver_find_device(const uint8_t uuid[SIDE_UUID_BYTES], CUdevice *ret_device) GD_MUST_CHECK;

/* driver_enter() - make the device's primary context, which is retained, current on this thread:
 * 0 or DEVICE_ERROR. driver_leave() - make the former one current again; the context stays
 * retained. driver_forget() - release it. */
int driver_enter(CUdevice device) GD_MUST_CHECK;
void driver_leave(void);
void driver_forget(CUdevice device);
