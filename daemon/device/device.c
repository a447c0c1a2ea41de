/* device.c - from a device's name to its back end. */
#include "daemon/device/device.h"

#include <string.h>

int device_open(const char *spec, uint32_t index, uint32_t n_threads, struct device **ret_device,
                struct reason *why)
{
    if (strcmp(spec, "host") == 0 || strcmp(spec, "auto") == 0) {
        int r = device_host_open(index, n_threads, ret_device, why);
        if (r == 0) {
            device_host_measure(*ret_device);
        }
        return r;
    }
    if (strncmp(spec, "cuda:", 5) == 0 || strncmp(spec, "GPU-", 4) == 0) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "device '%s' needs the CUDA back end, which this build does not have",
                          spec);
    }
    return reason_set(why, STATUS_NOT_FOUND,
                      "there is no device '%s'; known are auto, host, cuda:N and GPU-UUID", spec);
}

struct device *device_close(struct device *device)
{
    if (device != NULL) {
        device->ops->close(device);
    }
    return NULL;
}
