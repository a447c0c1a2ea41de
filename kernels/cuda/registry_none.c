/* registry_none.c - a build without CUDA has no CUDA kernels. */
#include <stddef.h>

#include "kernels/registry.h"

const struct gk_kernel *const *cuda_kernels(uint32_t *ret_n)
{
    *ret_n = 0;
    return NULL;
}
