/* strip_batch_u4.cu - strip_batch_kernel.cuh for 4-bit integers in groups of 64 and 32; those of
 * 128 are strip_wide.cu's. */
#include "kernels/cuda/strip_batch_kernel.cuh"

namespace {

const strip_batch_instance instances[] = {
    STRIP_BATCH_INSTANCES(DTYPE_BF16, batch_int<traits_bf16, 4>),
    STRIP_BATCH_INSTANCES(DTYPE_BF16, batch_int<traits_bf16, 8>),
    STRIP_BATCH_INSTANCES(DTYPE_F16, batch_int<traits_f16, 4>),
    STRIP_BATCH_INSTANCES(DTYPE_F16, batch_int<traits_f16, 8>)};

} // namespace

strip_batch_instances strip_batch_u4_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
