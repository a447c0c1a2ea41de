/* strip_gemm_int.cuh - the instances of strip_kernel.cuh for one kind of integer codes, which are
 * compiled apart. */
#pragma once

#include "kernels/cuda/strip_int.cuh"
#include "kernels/cuda/strip_kernel.cuh"

#define STRIP_INT_INSTANCES_OF(traits, n_groups, dtype)                                            \
    make_instance<int_format<traits, n_groups, false>, 1>(dtype),                                  \
        make_instance<int_format<traits, n_groups, true>, 1>(dtype),                               \
        make_instance<int_format<traits, n_groups, false>, 2>(dtype),                              \
        make_instance<int_format<traits, n_groups, true>, 2>(dtype)

/* By the groups of a slice: of 128, 64 and 32. */
#define STRIP_INT_INSTANCES(traits, dtype)                                                         \
    STRIP_INT_INSTANCES_OF(traits, 2, dtype), STRIP_INT_INSTANCES_OF(traits, 4, dtype),            \
        STRIP_INT_INSTANCES_OF(traits, 8, dtype)
