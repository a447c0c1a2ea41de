/* strip_staged_int.cu - strip_staged_kernel.cuh for integer codes: small tiles. */
#include "kernels/cuda/strip_staged_kernel.cuh"

namespace {

const strip_prefill_instance instances[] = {
    STAGED_SMALL(staged_int<wide_bf16, 4>), STAGED_SMALL(staged_int<wide_f16, 4>),
    STAGED_SMALL(staged_int<wide_bf16, 8>), STAGED_SMALL(staged_int<wide_f16, 8>)};

} // namespace

strip_prefill_instances strip_staged_int_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
