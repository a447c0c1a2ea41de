/* strip_gemm_float.cu - strip_kernel.cuh for weights of 8- and 4-bit floats. */
#include "kernels/cuda/strip_float.cuh"
#include "kernels/cuda/strip_kernel.cuh"

namespace {

#define INSTANCES(traits, scaling, dtype)                                                          \
    make_instance<float_format<traits, scaling>, 1>(dtype),                                        \
        make_instance<float_format<traits, scaling>, 2>(dtype)

const strip_instance instances[] = {STRIP_FLOAT_FORMATS(INSTANCES)};

} // namespace

strip_instances strip_float_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
