/* strip_prefill_u8.cu - strip_prefill_kernel.cuh for 8-bit codes. */
#include "kernels/cuda/strip_prefill_kernel.cuh"

namespace {

const strip_prefill_instance instances[] = {STRIP_PREFILL_INSTANCES(wide_bf16, 8, DTYPE_BF16),
                                            STRIP_PREFILL_INSTANCES(wide_f16, 8, DTYPE_F16)};

} // namespace

strip_prefill_instances strip_prefill_u8_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
