/* overlap_launch.cuh - launches that may begin before the one ahead of them in their stream ends:
 * programmatic dependent launch. Such a kernel calls griddepcontrol_wait() before it reads what the
 * other one wrote. */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

namespace {

struct launch_shape {
    dim3 grid;
    uint32_t n_threads;
    uint32_t shared_bytes;
    uint32_t n_ranks = 1; /* CTAs of a cluster, where the kernel does not say so itself */
};

/* parameters: the addresses of the kernel's. */
inline cudaError_t overlap_launch(const void *function, const launch_shape &shape, bool may_overlap,
                                  void **parameters, void *stream)
{
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = may_overlap ? 1 : 0;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {shape.n_ranks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = shape.n_threads;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = attributes;
    config.numAttrs = shape.n_ranks > 1 ? 2 : 1;
    return cudaLaunchKernelExC(&config, function, parameters);
}

} // namespace
