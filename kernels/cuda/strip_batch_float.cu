/* strip_batch_float.cu - strip_batch_kernel.cuh for weights of 8- and 4-bit floats. */
#include "kernels/cuda/strip_batch_kernel.cuh"

namespace {

#define INSTANCES(traits, scaling, dtype) STRIP_BATCH_INSTANCES(dtype, batch_float<traits, scaling>)

const strip_batch_instance instances[] = {
    INSTANCES(traits_bf16_e4m3, STRIP_SCALES_STRIP, DTYPE_BF16),
    INSTANCES(traits_f16_e4m3, STRIP_SCALES_STRIP, DTYPE_F16),
    INSTANCES(traits_bf16_e4m3, STRIP_SCALES_E8M0, DTYPE_BF16),
    INSTANCES(traits_f16_e4m3, STRIP_SCALES_E8M0, DTYPE_F16),
    INSTANCES(traits_bf16_e2m1<false>, STRIP_SCALES_E8M0, DTYPE_BF16),
    INSTANCES(traits_f16_e2m1<false>, STRIP_SCALES_E8M0, DTYPE_F16),
    INSTANCES(traits_bf16_e2m1<true>, STRIP_SCALES_E4M3, DTYPE_BF16),
    INSTANCES(traits_f16_e2m1<true>, STRIP_SCALES_E4M3, DTYPE_F16)};

} // namespace

strip_batch_instances strip_batch_float_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
