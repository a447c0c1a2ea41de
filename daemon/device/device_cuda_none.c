/* device_cuda_none.c - a build without CUDA has no GPUs. */
#include "daemon/device/device.h"

bool device_cuda_is_built(void)
{
    return false;
}

bool device_cuda_name(uint32_t i, char *name, uint32_t size_bytes)
{
    (void)i;
    (void)name;
    (void)size_bytes;
    return false;
}

int device_cuda_hidden(struct reason *why)
{
    (void)why;
    return 0;
}

int device_cuda_open(const char *spec, uint32_t index, struct device **ret_device,
                     struct reason *why)
{
    (void)index;
    (void)ret_device;
    return reason_set(why, STATUS_UNSUPPORTED,
                      "device '%s' needs the CUDA back end, which this build does not have", spec);
}
