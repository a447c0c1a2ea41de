/* strip_gemm_float.cu - strip_kernel.cuh for weights of 8- and 4-bit floats. */
#include "kernels/cuda/strip_float.cuh"
#include "kernels/cuda/strip_kernel.cuh"

namespace {

#define INSTANCES(traits, scaling, dtype)                                                          \
    make_instance<float_format<traits, scaling>, 1>(dtype),                                        \
        make_instance<float_format<traits, scaling>, 2>(dtype)

const strip_instance instances[] = {
    INSTANCES(traits_bf16_e4m3, STRIP_SCALES_STRIP, DTYPE_BF16),
    INSTANCES(traits_f16_e4m3, STRIP_SCALES_STRIP, DTYPE_F16),
    INSTANCES(traits_bf16_e4m3, STRIP_SCALES_E8M0, DTYPE_BF16),
    INSTANCES(traits_f16_e4m3, STRIP_SCALES_E8M0, DTYPE_F16),
    INSTANCES(traits_bf16_e2m1<false>, STRIP_SCALES_E8M0, DTYPE_BF16),
    INSTANCES(traits_f16_e2m1<false>, STRIP_SCALES_E8M0, DTYPE_F16),
    INSTANCES(traits_bf16_e2m1<true>, STRIP_SCALES_E4M3, DTYPE_BF16),
    INSTANCES(traits_f16_e2m1<true>, STRIP_SCALES_E4M3, DTYPE_F16)};

} // namespace

strip_instances strip_float_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
