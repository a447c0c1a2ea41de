/* registry.h - what the registry is put together from. Each list is made by one file of several,
 * chosen by the build, most preferred row first. */
#pragma once

#include "gk/gk.h"

/* host_kernels(): registry_x86.c or registry_portable.c. cuda_kernels(): cuda/registry.c, or
 * cuda/registry_none.c, which has none, in a build without CUDA. */
const struct gk_kernel *const *host_kernels(uint32_t *ret_n);
const struct gk_kernel *const *cuda_kernels(uint32_t *ret_n);
