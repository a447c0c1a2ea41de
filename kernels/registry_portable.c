/* registry_portable.c - every kernel of a build for an architecture without tuned ones. */
#include "ipc/base/num.h"
#include "kernels/host/rows.h"
#include "kernels/registry.h"

static const struct gk_kernel *const kernels[] = {
    &portable_int4_gemm_group, &portable_int8_gemm_group, &portable_fp8_gemm_group,
    &portable_fp4_gemm_group,  &portable_plain_gemm,
};

const struct gk_kernel *const *host_kernels(uint32_t *ret_n)
{
    *ret_n = ARRAY_LENGTH(kernels);
    return kernels;
}
