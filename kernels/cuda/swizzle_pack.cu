/* swizzle_pack.cu - weights into swizzled atoms (kernels/layout/swizzle.h) on the GPU. Codes, then
 * the sums of integer ones. The bytes are those that kernels/layout/cuda_swizzle.c makes. */
#include <algorithm>

#include <cuda_runtime.h>

#include "kernels/cuda/pack_source.cuh"
#include "kernels/cuda/swizzle_pack.h"
#include "kernels/layout/swizzle.h"

namespace {

constexpr uint32_t n_atom_words = SWIZZLE_ATOM_BYTES / 4;
constexpr uint32_t n_row_words = SWIZZLE_K / 4;
constexpr uint32_t n_warps = 8; /* of a block that sums codes */

__device__ uint8_t *atom_of(const swizzle_pack &pack, uint32_t i_group, uint32_t i_block)
{
    return pack.atoms +
           (static_cast<uint64_t>(i_block) * pack.n_groups + i_group) * SWIZZLE_ATOM_BYTES;
}

/* Four bytes of a row; integer codes change their sign bit, which is 128 taken off. */
__device__ uint32_t word_of(const swizzle_pack &pack, uint32_t i_n, uint32_t first_k)
{
    uint32_t flipped = pack.code_sums != nullptr ? 0x80u : 0;
    uint32_t word = 0;
    for (uint32_t i = 0; i < 4 && first_k + i < pack.source.k; i++) {
        word |= (code_of<8>(pack.source, i_n, first_k + i) ^ flipped) << 8 * i;
    }
    return word;
}

/* A thread a word of the atom. A group of rows a block; y: blocks of k, in turn. */
__global__ void __launch_bounds__(n_atom_words)
    pack_atoms(const __grid_constant__ swizzle_pack pack)
{
    uint32_t i_row = threadIdx.x / n_row_words;
    uint32_t i_k = threadIdx.x % n_row_words * 4;
    uint32_t i_n = blockIdx.x * SWIZZLE_ROWS + i_row;
    if (i_n >= pack.source.n) {
        return;
    }
    for (uint32_t i = blockIdx.y; i < pack.n_blocks; i += gridDim.y) {
        uint8_t *to = atom_of(pack, blockIdx.x, i) + swizzle_byte_of(i_row, i_k);
        *reinterpret_cast<uint32_t *>(to) = word_of(pack, i_n, i * SWIZZLE_K + i_k);
    }
}

/* A row a warp, a word of each atom a lane; padding is zero. */
__global__ void __launch_bounds__(n_warps * 32) sum_codes(const __grid_constant__ swizzle_pack pack)
{
    uint32_t i_n = blockIdx.x * n_warps + threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32;
    if (i_n >= pack.source.n) {
        return;
    }
    int32_t sum = 0;
    for (uint32_t i = 0; i < pack.n_blocks; i++) {
        const uint8_t *row = atom_of(pack, i_n / SWIZZLE_ROWS, i) + i_n % SWIZZLE_ROWS * SWIZZLE_K;
        sum = __dp4a(reinterpret_cast<const int32_t *>(row)[lane], 0x01010101, sum);
    }
    for (uint32_t distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
    }
    if (lane == 0) {
        pack.code_sums[i_n] = sum;
    }
}

} // namespace

int swizzle_pack_load(void)
{
    cudaFuncAttributes attributes; /* asking for them loads the code */
    cudaError_t r = cudaFuncGetAttributes(&attributes, pack_atoms);
    return r != cudaSuccess ? r : cudaFuncGetAttributes(&attributes, sum_codes);
}

int swizzle_pack_enqueue(const struct swizzle_pack *pack, void *stream)
{
    cudaStream_t on = static_cast<cudaStream_t>(stream);
    dim3 atoms(pack->n_groups, std::min(pack->n_blocks, pack_grid_y_max));
    pack_atoms<<<atoms, n_atom_words, 0, on>>>(*pack);
    if (pack->code_sums != nullptr) {
        sum_codes<<<(pack->source.n + n_warps - 1) / n_warps, n_warps * 32, 0, on>>>(*pack);
    }
    return cudaPeekAtLastError();
}
