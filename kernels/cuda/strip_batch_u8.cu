/* strip_batch_u8.cu - strip_batch_kernel.cuh for 8-bit integers. */
#include "kernels/cuda/strip_batch_kernel.cuh"

namespace {

const strip_batch_instance instances[] = {
    STRIP_BATCH_INSTANCES(DTYPE_BF16, batch_int<traits_bf16_u8, 2>),
    STRIP_BATCH_INSTANCES(DTYPE_BF16, batch_int<traits_bf16_u8, 4>),
    STRIP_BATCH_INSTANCES(DTYPE_BF16, batch_int<traits_bf16_u8, 8>),
    STRIP_BATCH_INSTANCES(DTYPE_F16, batch_int<traits_f16_u8, 2>),
    STRIP_BATCH_INSTANCES(DTYPE_F16, batch_int<traits_f16_u8, 4>),
    STRIP_BATCH_INSTANCES(DTYPE_F16, batch_int<traits_f16_u8, 8>)};

} // namespace

strip_batch_instances strip_batch_u8_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
