/* device_cuda_plan.c - plans of kernels for the weights of a GPU: looked up in what an earlier
 * process has kept, or made, and kept. */
#include "daemon/device/device_cuda.h"

#include <stdio.h>

#include "ipc/base/log.h"

/* Weights that are alike but for their bias are not multiplied alike. */
static void plan_key(const struct device *device, const struct gk_problem *problem,
                     const struct gk_kernel *kernel, char ret_key[PLAN_KEY_BYTES])
{
    char device_key[DEVICE_KEY_BYTES];
    device_weight_key(device, &problem->desc, problem->layout, device_key);
    (void)snprintf(ret_key, PLAN_KEY_BYTES, "%s; bias %s; %s", device_key,
                   dtype_name(problem->desc.bias_dtype), kernel->name);
}

/* By one kernel: what an earlier process knew of it spares it most of the work. */
static cudaError_t plan_by(struct device *device, const struct gk_kernel *kernel,
                           const struct gk_problem *problem, const void *packed)
{
    char key[PLAN_KEY_BYTES], kept[GK_PLAN_TEXT_BYTES];
    struct gk_planning planning = GK_PLANNING_NULL;
    plan_key(device, problem, kernel, key);
    if (plan_file_get(device->plan_file, key, kept)) {
        planning.kept = kept;
    }
    cudaError_t error = (cudaError_t)kernel->plan(problem, packed, &planning);
    if (planning.note.status != 0) {
        log_write(LOG_LEVEL_WARNING, "device", "%s on %s, weights of %u x %u: %s", kernel->name,
                  device->name, problem->desc.n, problem->desc.k, planning.note.text);
    }
    if (planning.text[0] != '\0') {
        plan_file_put(device->plan_file, key, planning.text);
    }
    return error;
}

int cuda_plan(struct device *device, const struct gk_problem *problem, const void *packed,
              struct reason *why)
{
    struct device_cuda *cuda = cuda_of(device);
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    int r = cuda_enter(cuda, why);
    for (uint32_t i = 0; r == 0 && i < n_kernels; i++) {
        cudaError_t error =
            kernels[i]->plan != NULL ? plan_by(device, kernels[i], problem, packed) : cudaSuccess;
        if (error == cudaErrorMemoryAllocation) {
            (void)cudaGetLastError();
            continue; /* a kernel without a plan declines; others serve */
        }
        r = error == cudaSuccess ? 0 : cuda_fail(cuda, error, kernels[i]->name, why);
    }
    return r;
}
