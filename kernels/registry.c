/* registry.c - every kernel of this build, by kind of device. */
#include "kernels/registry.h"

const struct gk_kernel *const *gk_kernels(enum gk_device_kind device_kind, uint32_t *ret_n)
{
    return device_kind == GK_DEVICE_CUDA ? cuda_kernels(ret_n) : host_kernels(ret_n);
}
