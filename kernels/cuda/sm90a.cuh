/* sm90a.cuh - is this code of Hopper's own? A kernel that is launched on Hopper only returns at
 * once where it is not, or it would be compiled for older GPUs as well. */
#pragma once

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool is_sm90a = true;
#else
constexpr bool is_sm90a = false;
#endif
