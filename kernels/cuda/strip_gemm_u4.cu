/* strip_gemm_u4.cu - strip_kernel.cuh for 4-bit integers. */
#include "kernels/cuda/strip_gemm_int.cuh"

namespace {

const strip_instance instances[] = {STRIP_INT_INSTANCES(traits_bf16, DTYPE_BF16),
                                    STRIP_INT_INSTANCES(traits_f16, DTYPE_F16)};

} // namespace

strip_instances strip_u4_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
