/* device_table.cuh - what launches of Hopper's kernels need to know of their device, asked for
 * once: load() adds the current device before any launch there, and launches only read. */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int n_devices_max = 64;

/* MPS may leave a process fewer SMs; launches divide their work by some number of them. */
constexpr int n_sms_min = 4;

struct device_table {
    uint32_t n_sms[n_devices_max];
};

/* device_table_add() - may be repeated. cudaErrorNoKernelImageForDevice: the device is not of
 * sm_90a. Other builds of these kernels have an empty body, which would load, and ask for more
 * shared memory than other GPUs have. */
inline cudaError_t device_table_add(device_table &table)
{
    int device = 0;
    cudaDeviceProp properties;
    cudaError_t r = cudaGetDevice(&device);
    if (r == cudaSuccess) {
        r = cudaGetDeviceProperties(&properties, device);
    }
    if (r == cudaSuccess && (properties.major != 9 || properties.minor != 0)) {
        r = cudaErrorNoKernelImageForDevice;
    }
    if (r == cudaSuccess && device >= n_devices_max) {
        r = cudaErrorInvalidDevice;
    }
    if (r == cudaSuccess) {
        int n_sms = properties.multiProcessorCount;
        table.n_sms[device] = static_cast<uint32_t>(n_sms > n_sms_min ? n_sms : n_sms_min);
    }
    return r;
}

/* device_table_sms() - of the current device, which was added. */
inline cudaError_t device_table_sms(const device_table &table, uint32_t *ret_n_sms)
{
    int device = 0;
    cudaError_t r = cudaGetDevice(&device);
    if (r == cudaSuccess) {
        *ret_n_sms = table.n_sms[device];
    }
    return r;
}

} // namespace
