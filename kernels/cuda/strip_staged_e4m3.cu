/* strip_staged_e4m3.cu - strip_staged_kernel.cuh for e4m3 codes. */
#include "kernels/cuda/strip_staged_kernel.cuh"

namespace {

const strip_prefill_instance instances[] = {STAGED_FLOAT(8, STRIP_PREFILL_NO_SCALES),
                                            STAGED_FLOAT(8, STRIP_SCALES_STRIP),
                                            STAGED_FLOAT(8, STRIP_SCALES_E8M0)};

} // namespace

strip_prefill_instances strip_staged_e4m3_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
