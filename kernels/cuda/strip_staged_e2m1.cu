/* strip_staged_e2m1.cu - strip_staged_kernel.cuh for e2m1 codes. */
#include "kernels/cuda/strip_staged_kernel.cuh"

namespace {

const strip_prefill_instance instances[] = {STAGED_FLOAT(4, STRIP_SCALES_E8M0),
                                            STAGED_FLOAT(4, STRIP_SCALES_E4M3)};

} // namespace

strip_prefill_instances strip_staged_e2m1_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
