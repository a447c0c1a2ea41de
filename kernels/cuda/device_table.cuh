/* device_table.cuh - what launches need to know of their device, asked for once: load() adds the
 * current device before any launch there, and launches only read. */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int n_devices_max = 64;

struct device_table {
    uint32_t n_sms[n_devices_max];
};

/* device_table_add() - may be repeated. */
inline cudaError_t device_table_add(device_table &table)
{
    int device = 0, n_sms = 0;
    cudaError_t r = cudaGetDevice(&device);
    if (r == cudaSuccess) {
        r = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    }
    if (r == cudaSuccess && device >= n_devices_max) {
        r = cudaErrorInvalidDevice;
    }
    if (r == cudaSuccess) {
        table.n_sms[device] = static_cast<uint32_t>(n_sms);
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
