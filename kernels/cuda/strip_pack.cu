/* strip_pack.cu - weights into strips (strip.h) on the GPU, from codes as a checkpoint's tensor has
 * them. Two launches: codes, then scales with zero points. The bytes are those that
 * kernels/layout/cuda_strip.c makes.
 *
 * A thread makes a word of codes, from single loads that its neighbours find in the L1 cache: a
 * tensor is read once in a load, and comes over the bus at a tenth of the speed that this has. */
#include <algorithm>

#include <cuda_runtime.h>

#include "kernels/cuda/any_values.cuh"
#include "kernels/cuda/pack_source.cuh"
#include "kernels/cuda/strip_pack.h"

namespace {

constexpr uint32_t n_threads = 256;

/* Four codes of a row, a byte each, padded. */
template <uint32_t bits>
__device__ uint32_t four_codes(const strip_pack &pack, uint32_t i_n, uint32_t i_k)
{
    uint32_t bytes = 0x01010101u * pack.padding_code;
    for (uint32_t i = 0; i < 4 && i_n < pack.source.n && i_k + i < pack.source.k; i++) {
        uint32_t code = code_of<bits>(pack.source, i_n, i_k + i);
        bytes = (bytes & ~(0xffu << 8 * i)) | code << 8 * i;
    }
    return bytes;
}

/* A slice of a strip. */
template <uint32_t bits>
__device__ void pack_slice(const strip_pack &pack, uint32_t i_strip, uint32_t i_slice)
{
    uint32_t first_n = i_strip * STRIP_N;
    uint32_t first_k = i_slice * STRIP_SLICE_K;
    uint8_t *slice = pack.records + strip_slice_parts(&pack.lie, i_strip, i_slice).codes;
    /* g and four k at a time: two words of 8-bit codes, one of 4-bit ones. */
    for (uint32_t i = threadIdx.x; i < STRIP_N / 2 * STRIP_SLICE_K / 4; i += n_threads) {
        uint32_t g = i % 8;
        uint32_t i_k = i / 8 * 4;
        uint32_t upper = four_codes<bits>(pack, first_n + g, first_k + i_k);
        uint32_t lower = four_codes<bits>(pack, first_n + g + 8, first_k + i_k);
        if (bits == 4) {
            *reinterpret_cast<uint32_t *>(slice + strip_place_of(g, i_k).word_offset) =
                pack.is_float ? strip_e2m1_word(upper, lower) : strip_u4_word(upper, lower);
            continue;
        }
        *reinterpret_cast<uint32_t *>(slice + strip_byte_of(g, i_k)) =
            pack.is_float ? strip_e4m3_word(upper) : upper;
        *reinterpret_cast<uint32_t *>(slice + strip_byte_of(g + 8, i_k)) =
            pack.is_float ? strip_e4m3_word(lower) : lower;
    }
}

/* A strip a block; y: slices, in turn. Six blocks an SM: left to itself the compiler wants eight,
 * and spills for it. */
template <uint32_t bits>
__global__ void __launch_bounds__(n_threads, 6) pack_codes(const __grid_constant__ strip_pack pack)
{
    for (uint32_t i = blockIdx.y; i < pack.lie.n_slices; i += gridDim.y) {
        pack_slice<bits>(pack, blockIdx.x, i);
    }
}

__device__ void pack_scale(const strip_pack &pack, uint64_t from, uint8_t *scales, uint32_t to)
{
    switch (pack.scaling) {
    case STRIP_SCALES_PAIRS:
        reinterpret_cast<uint16_t *>(scales)[to] = static_cast<const uint16_t *>(pack.scales)[from];
        break;
    case STRIP_SCALES_STRIP:
        reinterpret_cast<float *>(scales)[to] =
            pack.is_one ? 1.0f : load(pack.scales, pack.scale_dtype, from);
        break;
    default:
        scales[to] = static_cast<const uint8_t *>(pack.scales)[from];
    }
}

/* The scale of a packed group of a row, and its zero point. */
__device__ void pack_group(const strip_pack &pack, uint32_t i_n, uint32_t i_k)
{
    struct strip_slice_parts parts =
        strip_slice_parts(&pack.lie, i_n / STRIP_N, i_k / STRIP_SLICE_K);
    uint32_t to = strip_scale_index(pack.scaling, pack.n_slice_groups, i_n, i_k);
    uint64_t from =
        static_cast<uint64_t>(i_k / pack.group_k) * pack.scale_columns + i_n / pack.group_n;
    pack_scale(pack, from, pack.records + parts.scales, to);
    if (pack.zeros != nullptr) {
        pack.records[parts.zeros + to] = pack.zeros[from];
    }
}

/* A row a thread; y: packed groups, in turn. */
__global__ void __launch_bounds__(n_threads) pack_scales(const __grid_constant__ strip_pack pack)
{
    uint32_t i_n = blockIdx.x * n_threads + threadIdx.x;
    if (i_n >= pack.source.n) {
        return;
    }
    for (uint64_t i_k = static_cast<uint64_t>(blockIdx.y) * pack.packed_group_k;
         i_k < pack.source.k; i_k += static_cast<uint64_t>(gridDim.y) * pack.packed_group_k) {
        pack_group(pack, i_n, static_cast<uint32_t>(i_k));
    }
}

using kernel_function = void (*)(strip_pack);
constexpr kernel_function functions[] = {pack_codes<4>, pack_codes<8>, pack_scales};

} // namespace

int strip_pack_load(void)
{
    cudaError_t r = cudaSuccess;
    for (kernel_function function : functions) {
        struct cudaFuncAttributes attributes; /* asking for them loads the code */
        if (r == cudaSuccess) {
            r = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(function));
        }
    }
    return r;
}

int strip_pack_enqueue(const struct strip_pack *pack, void *stream)
{
    cudaStream_t on = static_cast<cudaStream_t>(stream);
    uint32_t n_groups = (pack->source.k + pack->packed_group_k - 1) / pack->packed_group_k;
    dim3 slices(pack->lie.n_strips, std::min(pack->lie.n_slices, pack_grid_y_max));
    dim3 scales((pack->source.n + n_threads - 1) / n_threads, std::min(n_groups, pack_grid_y_max));
    if (pack->lie.code_bits == 4) {
        pack_codes<4><<<slices, n_threads, 0, on>>>(*pack);
    } else {
        pack_codes<8><<<slices, n_threads, 0, on>>>(*pack);
    }
    pack_scales<<<scales, n_threads, 0, on>>>(*pack);
    return cudaPeekAtLastError();
}
