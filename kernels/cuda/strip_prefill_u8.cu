/* strip_prefill_u8.cu - strip_prefill_kernel.cuh for 8-bit codes. */
#include "kernels/cuda/strip_prefill_kernel.cuh"

namespace {

using of_bf16 = register_int<wide_bf16, 8>;
using of_f16 = register_int<wide_f16, 8>;

const strip_prefill_instance instances[] = {
    STRIP_PREFILL_EXACT(of_bf16), STRIP_PREFILL_EXACT(of_f16), STRIP_PREFILL_ROUNDED(of_bf16),
    STRIP_PREFILL_ROUNDED(of_f16)};

} // namespace

strip_prefill_instances strip_prefill_u8_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
