/* registry.c - every CUDA kernel, most preferred first: gk_select() takes the first eligible one.
 */
#include "kernels/cuda/registry.h"

#include "ipc/base/num.h"
#include "kernels/registry.h"

static const struct gk_kernel *const kernels[] = {
    &cuda_strip_prefill_rounded,
    &cuda_strip_prefill,
    &cuda_strip_wide,
    &cuda_strip_batch,
    &cuda_strip_gemm,
    &cuda_w4a8_prefill,
    &cuda_w4a8_strip_wide,
    &cuda_w4a8_strip_gemm,
    &cuda_fp8_gemm,
    &cuda_int8_gemm,
    &cuda_plain_cublaslt_prefill,
    &cuda_plain_cublaslt,
    &cuda_any_gemm_simple,
};

const struct gk_kernel *const *cuda_kernels(uint32_t *ret_n)
{
    *ret_n = ARRAY_LENGTH(kernels);
    return kernels;
}
