/* strip_gemm_u8.cu - strip_kernel.cuh for 8-bit integers. */
#include "kernels/cuda/strip_gemm_int.cuh"

namespace {

const strip_instance instances[] = {STRIP_INT_INSTANCES(traits_bf16_u8, DTYPE_BF16),
                                    STRIP_INT_INSTANCES(traits_f16_u8, DTYPE_F16)};

} // namespace

strip_instances strip_u8_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
