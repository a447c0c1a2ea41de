/* strip_prefill_multiply.cuh - what a warp of strip_prefill.cu does that multiplies. */
#pragma once

#include "kernels/cuda/strip_prefill_feed.cuh"
#include "kernels/cuda/strip_prefill_format.cuh"

namespace {

/* A warp's place in its CTA, worked out anew wherever it is needed: registers are short. */
__device__ __forceinline__ uint32_t this_warpgroup()
{
    return thread_id() / 128;
}

template <typename tile> __device__ __forceinline__ uint32_t this_strip() /* of the tile */
{
    return thread_id() / 32 % tile::n_strips;
}

constexpr uint32_t n_slice_blocks = STRIP_SLICE_K / 32;

/* What a warp keeps on its way along k, in blocks of 32. */
template <typename tile> struct walk {
    ring<tile::n_x_stages> x;
    ring<n_w_stages> w;
    uint4 words;       /* its codes */
    uint32_t zeros[2]; /* of rows g and g + 8 */
};

/* Where this lane's group that block i_block belongs to has its word of a table [g][group]. */
template <int n_blocks> __device__ __forceinline__ uint32_t group_index(uint32_t i_block)
{
    return lane_id() / 4 * (8 / n_blocks) + i_block / n_blocks;
}

/* The codes of block i_block of a slice, and the zero points where a group begins, from the stage
 * of W that is here. j: the block of the iteration. */
template <typename wide, int bits, int n_blocks, typename tile>
__device__ __forceinline__ void load_next(const strip_args &args, uint32_t base, walk<tile> &at,
                                          uint32_t i_block, int j)
{
    uint32_t stage = base + tile::w + at.w.i * tile::w_stage_bytes;
    if (j % n_blocks == 0 && args.has_zeros) {
        uint32_t pair = ld_shared_u16(stage + tile::zeros + this_strip<tile>() * strip_zeros_max +
                                      group_index<n_blocks>(i_block) * 2);
        at.zeros[0] = base_zero_of<wide, bits>(pair & 0xff);
        at.zeros[1] = base_zero_of<wide, bits>(pair >> 8);
    }
    if (bits == 8 || j % 2 == 0) {
        uint32_t i_unit = bits == 8 ? i_block % 4 : i_block / 2;
        at.words = ld_shared_v4(stage + this_strip<tile>() * w_strip_codes +
                                i_unit * STRIP_UNIT_BYTES + lane_id() * 16);
        transpose<bits>(quad_place_of(lane_id()), at.words);
    } else {
        at.words.x = at.words.z;
        at.words.y = at.words.w;
    }
}

template <typename tile> __device__ __forceinline__ void wait_w(uint32_t base, const walk<tile> &at)
{
    mbarrier_wait_parity(base + tile::w_full + 8 * at.w.i, at.w.parity);
}

/* Give a stage of W back: not before a product is under way that was made of its last words, since
 * until they are used they may still be on their way here. */
template <typename tile> __device__ __forceinline__ void release_w(uint32_t base, walk<tile> &at)
{
    __syncwarp();
    if (lane_id() == 0) {
        mbarrier_arrive(base + tile::w_empty + 8 * at.w.i);
    }
    at.w.step();
}

/* Give the stage of x before the present one back, to the producers of all CTAs that fill it. */
template <typename tile>
__device__ __forceinline__ void release_x_before(uint32_t base, const walk<tile> &at)
{
    uint32_t i = at.x.i == 0 ? tile::n_x_stages - 1 : at.x.i - 1;
    uint32_t lane = lane_id();
    if (lane < n_cluster) {
        mbarrier_arrive_cluster(base + tile::x_empty + 8 * i, lane);
    }
}

/* acc (+)= a block of 32 of k. */
template <typename wide, typename tile>
__device__ __forceinline__ void multiply_block(float (&acc)[tile::n / 2], const uint32_t (&a)[2][4],
                                               uint32_t b, bool is_added)
{
    using mma = wgmma<typename wide::wgmma_element, tile::n>;
    wgmma_fence();
    mma::multiply(acc, a[0], wgmma_descriptor(b), is_added);
    mma::multiply(acc, a[1], wgmma_descriptor(b + 2), true);
    wgmma_commit();
}

/* A group is over: s = fma(chain, scale, s). */
template <typename tile>
__device__ __forceinline__ void add_group(const strip_args &args, uint32_t scale_pair,
                                          float (&acc)[tile::n / 2], float (&sums)[tile::n / 2])
{
    wgmma_wait<0>();
    wgmma_changed(acc);
    float2 scales = widen_pair(scale_pair, args.scale_dtype == DTYPE_BF16);
#pragma unroll
    for (int i = 0; i < tile::n / 2; i++) {
        sums[i] = fmaf(acc[i], i % 4 < 2 ? scales.x : scales.y, sums[i]);
    }
}

/* n_slices of k for a warp's strip and its rows of x, n_blocks blocks of 32 a group. While the
 * tensor cores have a block, the next one is widened; that costs two sets of fragments, and no
 * block waits for another's. */
template <typename wide, int bits, typename tile, int n_blocks>
__device__ __forceinline__ void multiply_tile(const strip_prefill_args &args, uint32_t base,
                                              uint32_t n_slices, walk<tile> &at,
                                              float (&sums)[tile::n / 2])
{
    constexpr int n_span = n_blocks < 2 ? 2 : n_blocks; /* blocks an iteration: whole stages of x */
    constexpr uint32_t n_w_blocks = bits == 4 ? 8 : 4;  /* of a stage of W */
    uint32_t a[2][2][4];
    float acc[tile::n / 2] = {};
    uint32_t b = 0;
    uint32_t n_spans = n_slices * n_slice_blocks / n_span;
    wait_w(base, at);
    load_next<wide, bits, n_blocks>(args.base, base, at, 0, 0);
    widen_block<wide, bits>(at.words, at.zeros, a[0]);
#pragma unroll 1
    for (uint32_t i = 0; i < n_spans; i++) {
#pragma unroll
        for (int j = 0; j < n_span; j++) {
            bool is_last = j + 1 == n_span && i + 1 == n_spans;
            uint32_t i_block = (i * n_span + j) % n_slice_blocks;
            uint32_t i_next = (i_block + 1) % n_slice_blocks;
            if (j % 2 == 0) {
                uint32_t x = base + at.x.i * tile::x_bytes;
                b = __shfl_sync(0xffffffffu, wgmma_descriptor_low(x), 0);
                mbarrier_wait_parity(base + tile::x_full + 8 * at.x.i, at.x.parity);
            }
            multiply_block<wide, tile>(acc, a[j % 2], b + j % 2 * 4, j % n_blocks != 0);
            uint32_t scale_pair = 0;
            if (j % n_blocks == n_blocks - 1) {
                scale_pair = ld_shared(base + tile::w + at.w.i * tile::w_stage_bytes +
                                       tile::scales + this_strip<tile>() * strip_scales_max +
                                       group_index<n_blocks>(i_block) * 4);
            }
            if (!is_last) {
                if (j + 1 == n_span && i_next % n_w_blocks == 0) {
                    release_w(base, at);
                    wait_w(base, at);
                }
                load_next<wide, bits, n_blocks>(args.base, base, at, i_next, (j + 1) % n_span);
            }
            wgmma_wait<1>();
            if (j % 2 == 1) {
                at.x.step();
            } else if (i > 0 || j > 0) {
                release_x_before(base, at);
            }
            widen_block<wide, bits>(at.words, at.zeros, a[(j + 1) % 2]);
            if (j % n_blocks == n_blocks - 1) {
                add_group<tile>(args.base, scale_pair, acc, sums);
            }
        }
    }
    release_x_before(base, at);
    release_w(base, at);
}

/* ---- weights rounded: one chain over all of k ----
 * A weight is rounded to the type of x, and nothing is done to sums until their end.
 *
 * While the tensor cores have a stage of x, the weights of the next one are widened. A slice is
 * gone through in one piece of code, which knows where in shared memory everything is: what warps
 * do besides widening costs as much. */

constexpr uint32_t n_slice_stages = STRIP_SLICE_K / k_stage;

/* What a warp has of shared memory. */
struct warp_places {
    uint32_t codes;  /* in the first stage of W: its lane's 16 bytes of a unit of its strip */
    uint32_t scales; /* likewise the tables of its strip */
    uint32_t zeros;
    uint32_t b; /* its x in the first stage, as a descriptor */
};

template <typename format, typename tile>
__device__ __forceinline__ warp_places places_of(uint32_t base, uint32_t lane)
{
    uint32_t strip = this_strip<tile>();
    return {base + tile::w + strip * w_strip_codes + lane * 16,
            base + tile::w + tile::scales + strip * strip_scales_max,
            base + tile::w + tile::zeros + strip * strip_zeros_max, wgmma_descriptor_low(base)};
}

/* A strip's weights of a stage of x on their way to four fragments. */
template <typename format> struct stage_weights {
    static constexpr uint32_t n_vectors = format::bits / 4;
    uint4 words[n_vectors];
    format blocks[2];

    /* Stage i of a slice. first_block: the slice's, from the start of k. */
    __device__ __forceinline__ void load(const strip_args &args, const warp_places &at,
                                         uint32_t w_stage, uint32_t i, uint32_t first_block)
    {
        constexpr uint32_t n_w_units = w_strip_codes / STRIP_UNIT_BYTES;
#pragma unroll
        for (uint32_t j = 0; j < n_vectors; j++) {
            words[j] = ld_shared_v4(at.codes + w_stage +
                                    (i * n_vectors + j) % n_w_units * STRIP_UNIT_BYTES);
        }
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            blocks[j].load(args, {at.scales + w_stage, at.zeros + w_stage}, 2 * i + j,
                           first_block + 2 * i + j);
        }
    }

    __device__ __forceinline__ void transpose(const quad_place &quad)
    {
#pragma unroll
        for (uint32_t i = 0; i < n_vectors; i++) {
            format::transpose(quad, words[i]);
        }
    }

    __device__ __forceinline__ void widen(uint32_t (&a)[4][4]) const
    {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint4 block = words[i / 2 * (n_vectors - 1)];
            if (n_vectors == 1 && i >= 2) {
                block = make_uint4(block.z, block.w, 0, 0);
            }
            blocks[i / 2].widen(block, i % 2, a[i]);
        }
    }
};

/* acc (+)= a stage, of n rows of x. */
template <typename wide, int n>
__device__ __forceinline__ void multiply_fragments(float (&acc)[n / 2], const uint32_t (&a)[4][4],
                                                   uint32_t b, bool is_added)
{
    wgmma_fence();
#pragma unroll
    for (uint32_t i = 0; i < k_stage / 16; i++) {
        wgmma<typename wide::wgmma_element, n>::multiply(acc, a[i], wgmma_descriptor(b + 2 * i),
                                                         is_added || i > 0);
    }
    wgmma_commit();
}

/* As multiply_tile(), which adds up exact weights; n: rows of x. A piece that does not begin with k
 * adds to the chain that is there. */
template <typename format, typename tile, int n>
__device__ __forceinline__ void multiply_rounded(const strip_prefill_args &args, uint32_t base,
                                                 const piece &part, walk<tile> &at,
                                                 float (&acc)[n / 2])
{
    static_assert(tile::n_x_stages % n_slice_stages == 0, "the ring of x holds whole slices");
    constexpr uint32_t n_w_x_stages = 16 / format::bits; /* of a stage of W */
    uint32_t a[2][4][4];
    stage_weights<format> next;
    uint32_t lane = lane_id();
    warp_places places = places_of<format, tile>(base, lane);
    quad_place quad = quad_place_of(lane);
    wait_w(base, at);
    next.load(args.base, places, at.w.i * tile::w_stage_bytes, 0, part.first_slice * 8);
    next.transpose(quad);
    next.widen(a[0]);
#pragma unroll 1
    for (uint32_t i = part.first_slice; i < part.end_slice; i++) {
#pragma unroll
        for (uint32_t j = 0; j < n_slice_stages; j++) {
            uint32_t i_next = (j + 1) % n_slice_stages;
            mbarrier_wait_parity(base + tile::x_full + 8 * (at.x.i + j), at.x.parity);
            multiply_fragments<typename format::wide, n>(
                acc, a[j % 2], places.b + (at.x.i + j) * (tile::x_bytes / 16), i > 0 || j > 0);
            if (i_next > 0 || i + 1 < part.end_slice) {
                if (i_next % n_w_x_stages == 0) {
                    release_w(base, at);
                    wait_w(base, at);
                }
                next.load(args.base, places, at.w.i * tile::w_stage_bytes, i_next,
                          (i + (i_next == 0)) * 8);
                next.transpose(quad);
            }
            wgmma_wait<1>();
            if (lane < n_cluster && (i > part.first_slice || j > 0)) {
                uint32_t i_before = (at.x.i + j + tile::n_x_stages - 1) % tile::n_x_stages;
                mbarrier_arrive_cluster(base + tile::x_empty + 8 * i_before, lane);
            }
            next.widen(a[(j + 1) % 2]);
        }
        at.x.step(n_slice_stages);
    }
    wgmma_wait<0>();
    wgmma_changed(acc);
    release_x_before(base, at);
    release_w(base, at);
}

} // namespace
