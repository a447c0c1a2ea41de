/* strip_prefill_e4m3.cu - strip_prefill_kernel.cuh for e4m3 codes. */
#include "kernels/cuda/strip_prefill_kernel.cuh"

namespace {

/* By the scales that they have. */
template <typename wide> using of_rows = register_float<wide, 8, STRIP_PREFILL_NO_SCALES>;
template <typename wide> using of_blocks = register_float<wide, 8, STRIP_SCALES_STRIP>;
template <typename wide> using of_32 = register_float<wide, 8, STRIP_SCALES_E8M0>;

const strip_prefill_instance instances[] = {
    STRIP_PREFILL_ROUNDED(of_rows<wide_bf16>),   STRIP_PREFILL_ROUNDED(of_rows<wide_f16>),
    STRIP_PREFILL_ROUNDED(of_blocks<wide_bf16>), STRIP_PREFILL_ROUNDED(of_blocks<wide_f16>),
    STRIP_PREFILL_ROUNDED(of_32<wide_bf16>),     STRIP_PREFILL_ROUNDED(of_32<wide_f16>)};

} // namespace

strip_prefill_instances strip_prefill_e4m3_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
