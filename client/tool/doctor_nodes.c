/* doctor_nodes.c - the device nodes of a loaded NVIDIA driver, opened as CUDA will: a sandbox or a
 * container shows in the way in which that fails. And NVIDIA's settings beside CUDA: who runs MPS,
 * and whether the driver keeps GPUs initialised. */
#include "client/tool/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"

/* ---- nodes ---- */

static const char *mend_of(int error)
{
    switch (error) {
    case ENOENT:
        return "make the node: nvidia-modprobe -u -c 0, or modprobe nvidia_uvm; in a unit, leave "
               "PrivateDevices= off; in a container, pass the GPU in";
    case EPERM:
        return "the device cgroup forbids it: DeviceAllow=char-nvidia, char-nvidiactl and "
               "char-nvidia-uvm rw in the unit, and have the modules loaded before it starts; in a "
               "container, pass the GPU in";
    case EACCES:
        return "let this user read and write the node: its mode (NVreg_DeviceFileMode of the "
               "nvidia module), or its group";
    default:
        return "look at dmesg, and at whether module and libraries of the driver are of one "
               "version";
    }
}

static bool check_node(struct findings *findings, const char *path)
{
    CLEAN_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        return true;
    }
    int error = errno;
    finding_mend(findings_add(findings, FINDING_FAULT, "nodes", "%s: %s", path, strerror(error)),
                 "%s", mend_of(error));
    return false;
}

void doctor_nodes(struct findings *findings)
{
    bool is_open = check_node(findings, "/dev/nvidiactl");
    is_open &= check_node(findings, "/dev/nvidia-uvm");
    uint32_t n_gpus = 0;
    for (uint32_t i = 0; i < 16; i++) {
        char path[32];
        (void)snprintf(path, sizeof(path), "/dev/nvidia%u", i);
        if (access(path, F_OK) == 0) {
            is_open &= check_node(findings, path);
            n_gpus++;
        }
    }
    if (n_gpus == 0) {
        finding_mend(
            findings_add(findings, FINDING_FAULT, "nodes",
                         "the driver is loaded, and there is no /dev/nvidia0 or other GPU"),
            "%s", mend_of(ENOENT));
    } else if (is_open) {
        (void)findings_add(findings, FINDING_OK, "nodes",
                           "/dev/nvidiactl, /dev/nvidia-uvm and %u GPU%s can be opened", n_gpus,
                           n_gpus == 1 ? "" : "s");
    }
}

/* ---- MPS ---- */

static pid_t read_pid(const char *path)
{
    int pid = 0;
    FILE *file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%d", &pid) != 1) {
            pid = 0;
        }
        (void)fclose(file);
    }
    return pid;
}

void doctor_mps_user(struct findings *findings)
{
    const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[512];
    struct stat stat;
    dir = dir && *dir ? dir : "/tmp/nvidia-mps";
    (void)snprintf(path, sizeof(path), "%s/nvidia-cuda-mps-control.pid", dir);
    pid_t pid = read_pid(path);
    if (lstat(dir, &stat) != 0 || pid == 0) {
        (void)findings_add(findings, FINDING_OK, "mps", "no MPS control daemon has its pipes in %s",
                           dir);
        return;
    }
    if (kill(pid, 0) != 0 && errno == ESRCH) {
        finding_mend(findings_add(findings, FINDING_WARNING, "mps",
                                  "the MPS control daemon of %s, process %d, has gone", dir, pid),
                     "start it again: nvidia-cuda-mps-control -d");
        return;
    }
    bool is_own = stat.st_uid == geteuid();
    struct finding *finding =
        findings_add(findings, is_own ? FINDING_OK : FINDING_WARNING, "mps",
                     "MPS control daemon: process %d of user %u, pipes in %s; this is user %u", pid,
                     stat.st_uid, dir, geteuid());
    if (!is_own) {
        finding_mend(finding,
                     "gemmd and its clients must be of its user, or it must run with -M (several "
                     "users); else GPUs are shared in turns. A unit with PrivateTmp=yes does not "
                     "see pipes below /tmp");
    }
}

/* ---- persistence ---- */

struct management {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *ret_n);
    int (*device)(unsigned i, void **ret_device);
    int (*persistence)(void *device, int *ret_mode);
};

static bool find(void *library, const char *name, void *ret_function)
{
    void *function = dlsym(library, name);
    memcpy(ret_function, &function, sizeof(function));
    return function != NULL;
}

static void check_persistence(struct findings *findings, const struct management *nvml)
{
    unsigned n = 0;
    (void)nvml->count(&n);
    for (unsigned i = 0; i < n && i < 8; i++) {
        void *device = NULL;
        int mode = 0;
        if (nvml->device(i, &device) != 0 || nvml->persistence(device, &mode) != 0) {
            continue;
        }
        struct finding *finding = findings_add(
            findings, mode != 0 ? FINDING_OK : FINDING_WARNING, "persist",
            "GPU %u %s initialised while nobody uses it", i, mode != 0 ? "stays" : "does not stay");
        if (mode == 0) {
            finding_mend(finding,
                         "nvidia-smi -pm 1, or enable nvidia-persistenced: else a start of "
                         "gemmd takes seconds longer, and weights that are kept over its "
                         "restarts may be lost");
        }
    }
}

void doctor_persistence(struct findings *findings)
{
    struct management nvml;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library || !find(library, "nvmlInit_v2", &nvml.init) ||
        !find(library, "nvmlShutdown", &nvml.shutdown) ||
        !find(library, "nvmlDeviceGetCount_v2", &nvml.count) ||
        !find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.device) ||
        !find(library, "nvmlDeviceGetPersistenceMode", &nvml.persistence) || nvml.init() != 0) {
        (void)findings_add(findings, FINDING_WARNING, "persist",
                           "libnvidia-ml.so.1 cannot be used, so persistence is not known");
        return;
    }
    check_persistence(findings, &nvml);
    (void)nvml.shutdown();
}
