/* strip_prefill_e2m1.cu - strip_prefill_kernel.cuh for e2m1 codes. */
#include "kernels/cuda/strip_prefill_kernel.cuh"

namespace {

/* By the scales that they have. */
template <typename wide> using of_32 = register_float<wide, 4, STRIP_SCALES_E8M0>;
template <typename wide> using of_16 = register_float<wide, 4, STRIP_SCALES_E4M3>;

const strip_prefill_instance instances[] = {
    STRIP_PREFILL_ROUNDED(of_32<wide_bf16>), STRIP_PREFILL_ROUNDED(of_32<wide_f16>),
    STRIP_PREFILL_ROUNDED(of_16<wide_bf16>), STRIP_PREFILL_ROUNDED(of_16<wide_f16>)};

} // namespace

strip_prefill_instances strip_prefill_e2m1_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
