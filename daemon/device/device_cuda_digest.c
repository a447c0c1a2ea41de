/* device_cuda_digest.c - digests of regions by a kernel: one launch a region, one wait for all. */
#include "daemon/device/device_cuda.h"

#include "gk/cuda.h"

/* The sums lie in memory of the device: atomics do not cross the bus. */
static cudaError_t digest_all(struct device_cuda *cuda, const struct region *const *regions,
                              uint32_t n, struct gk_digest *sums, struct gk_digest *ret_digests)
{
    size_t sums_bytes = n * sizeof(*sums);
    cudaError_t error = cudaMemsetAsync(sums, 0, sums_bytes, cuda->copy_stream);
    for (uint32_t i = 0; error == cudaSuccess && i < n; i++) {
        error =
            (cudaError_t)gk_cuda_digest(regions[i]->base, regions[i]->size_bytes / sizeof(uint64_t),
                                        &sums[i], cuda->copy_stream);
    }
    if (error == cudaSuccess) {
        error = cudaMemcpyAsync(ret_digests, sums, sums_bytes, cudaMemcpyDeviceToHost,
                                cuda->copy_stream);
    }
    return error == cudaSuccess ? cudaStreamSynchronize(cuda->copy_stream) : error;
}

int cuda_digest(struct device *device, const struct region *const *regions, uint32_t n,
                struct gk_digest *ret_digests, struct reason *why)
{
    struct device_cuda *cuda = cuda_of(device);
    struct gk_digest *sums = NULL;
    int r = cuda_enter(cuda, why);
    if (r != 0 || n == 0) {
        return r;
    }
    cudaError_t error = cudaMalloc((void **)&sums, n * sizeof(*sums));
    if (error == cudaSuccess) {
        error = digest_all(cuda, regions, n, sums, ret_digests);
        (void)cudaFree(sums);
    }
    return error == cudaSuccess ? 0 : cuda_fail(cuda, error, "reading weights over", why);
}
