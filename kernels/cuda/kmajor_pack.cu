/* kmajor_pack.cu - weights into rows of one k each (kernels/layout/cuda_kmajor.h) on the GPU: the
 * codes turned over, plain ones as well. The bytes are those that cuda_kmajor.c makes. */
#include <algorithm>

#include <cuda_runtime.h>

#include "kernels/cuda/kmajor_pack.h"
#include "kernels/cuda/pack_source.cuh"

namespace {

constexpr uint32_t n_threads = 256;
constexpr uint32_t tile_n = 64; /* what n_stride is a multiple of */
constexpr uint32_t tile_k = 32; /* of codes of 16 bits, two sectors of each row of the tensor */

/* The word of row i_k that has the codes from column first_n on. */
template <uint32_t bits>
__device__ uint32_t word_of(const pack_source &source, uint32_t first_n, uint32_t i_k)
{
    uint32_t word = 0;
    for (uint32_t i = 0; i < 32 / bits && first_n + i < source.n; i++) {
        word |= code_of<bits>(source, first_n + i, i_k) << i * bits;
    }
    return word;
}

/* 64 columns a block; y: tiles of k, in turn. A warp writes one run of memory, and finds in the
 * cache what the tile's first row has read. */
template <uint32_t bits>
__global__ void __launch_bounds__(n_threads) pack_rows(const __grid_constant__ kmajor_pack pack)
{
    constexpr uint32_t n_words = tile_n * bits / 32;
    uint32_t first_n = blockIdx.x * tile_n;
    uint32_t row_words = pack.n_stride / 32 * bits;
    for (uint32_t first_k = blockIdx.y * tile_k; first_k < pack.source.k;
         first_k += gridDim.y * tile_k) {
        for (uint32_t i = threadIdx.x; i < tile_k * n_words; i += n_threads) {
            uint32_t i_k = first_k + i / n_words;
            uint32_t i_word = i % n_words;
            if (i_k < pack.source.k) {
                uint64_t to = static_cast<uint64_t>(i_k) * row_words + first_n * bits / 32 + i_word;
                static_cast<uint32_t *>(pack.rows)[to] =
                    word_of<bits>(pack.source, first_n + i_word * (32 / bits), i_k);
            }
        }
    }
}

using kernel_function = void (*)(kmajor_pack);

/* NULL: there are no codes of so many bits. */
kernel_function function_of(uint32_t bits)
{
    switch (bits) {
    case 4:
        return pack_rows<4>;
    case 8:
        return pack_rows<8>;
    case 16:
        return pack_rows<16>;
    case 32:
        return pack_rows<32>;
    default:
        return nullptr;
    }
}

} // namespace

int kmajor_pack_load(void)
{
    cudaError_t r = cudaSuccess;
    for (uint32_t bits = 4; r == cudaSuccess && bits <= 32; bits *= 2) {
        cudaFuncAttributes attributes; /* asking for them loads the code */
        r = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(function_of(bits)));
    }
    return r;
}

int kmajor_pack_enqueue(const struct kmajor_pack *pack, void *stream)
{
    kernel_function function = function_of(pack->code_bits);
    if (function == nullptr) {
        return cudaErrorInvalidValue;
    }
    uint32_t n_tiles = (pack->source.k + tile_k - 1) / tile_k;
    dim3 tiles(pack->n_stride / tile_n, std::min(n_tiles, pack_grid_y_max));
    function<<<tiles, n_threads, 0, static_cast<cudaStream_t>(stream)>>>(*pack);
    return cudaPeekAtLastError();
}
