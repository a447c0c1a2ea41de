/* strip_gemm_int.cu - strip_kernel.cuh for integer weights. */
#include "kernels/cuda/strip_int.cuh"
#include "kernels/cuda/strip_kernel.cuh"

namespace {

/* Groups shorter than 128 have no instance for more than 8 rows: it would not fit the registers. */
#define INSTANCES(traits, dtype)                                                                   \
    make_instance<int_format<traits, 2, false>, 1>(dtype),                                         \
        make_instance<int_format<traits, 2, true>, 1>(dtype),                                      \
        make_instance<int_format<traits, 2, false>, 2>(dtype),                                     \
        make_instance<int_format<traits, 2, true>, 2>(dtype),                                      \
        make_instance<int_format<traits, 4, false>, 1>(dtype),                                     \
        make_instance<int_format<traits, 4, true>, 1>(dtype),                                      \
        make_instance<int_format<traits, 8, false>, 1>(dtype),                                     \
        make_instance<int_format<traits, 8, true>, 1>(dtype)

const strip_instance instances[] = {
    INSTANCES(traits_bf16, DTYPE_BF16), INSTANCES(traits_f16, DTYPE_F16),
    INSTANCES(traits_bf16_u8, DTYPE_BF16), INSTANCES(traits_f16_u8, DTYPE_F16)};

} // namespace

strip_instances strip_int_instances()
{
    return {instances, sizeof(instances) / sizeof(instances[0])};
}
