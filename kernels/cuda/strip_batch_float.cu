/* strip_batch_float.cu - strip_batch_kernel.cuh for weights of 8- and 4-bit floats. */
#include "kernels/cuda/strip_batch_kernel.cuh"

namespace {

#define INSTANCES(traits, scaling, dtype) STRIP_BATCH_INSTANCES(dtype, batch_float<traits, scaling>)

const strip_batch_instance instances[] = {STRIP_FLOAT_FORMATS(INSTANCES)};

} // namespace

strip_batch_instances strip_batch_float_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
