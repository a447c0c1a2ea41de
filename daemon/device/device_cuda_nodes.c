/* device_cuda_nodes.c - a driver that is loaded, and GPUs that this process cannot reach all the
 * same: a sandbox that hides their nodes, a container they were not given to. CUDA then shows no
 * GPU, as if there were none, and "auto" would quietly compute on the CPU. */
#include "daemon/device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/num.h"

int device_cuda_hidden(struct reason *why)
{
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
    if (access("/proc/driver/nvidia/version", F_OK) != 0) {
        return 0;
    }
    for (uint32_t i = 0; i < ARRAY_LENGTH(nodes); i++) {
        CLEAN_FD int fd = open(nodes[i], O_RDWR | O_CLOEXEC);
        if (fd < 0) {
            return reason_set(why, STATUS_PERMISSION,
                              "an NVIDIA driver is loaded, and its GPUs cannot be used from here: "
                              "%s: %s; gemmctl doctor has the mend, and --device host computes on "
                              "the CPU",
                              nodes[i], strerror(errno));
        }
    }
    return 0;
}
