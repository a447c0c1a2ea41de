/* registry_x86.c - every kernel of an x86-64 build, most preferred first: gk_select() takes the
 * first eligible one. */
#include "ipc/base/num.h"
#include "kernels/host/rows.h"
#include "kernels/registry.h"

static const struct gk_kernel *const kernels[] = {
    &avx512_int4_gemm_group,  &avx512_int8_gemm_group,   &avx512_fp8_gemm_group,
    &avx512_fp4_gemm_group,   &avx512_plain_gemm,        &avx2_int4_gemm_group,
    &avx2_int8_gemm_group,    &avx2_fp8_gemm_group,      &avx2_fp4_gemm_group,
    &avx2_plain_gemm,         &portable_int4_gemm_group, &portable_int8_gemm_group,
    &portable_fp8_gemm_group, &portable_fp4_gemm_group,  &portable_plain_gemm,
};

const struct gk_kernel *const *host_kernels(uint32_t *ret_n)
{
    *ret_n = ARRAY_LENGTH(kernels);
    return kernels;
}
