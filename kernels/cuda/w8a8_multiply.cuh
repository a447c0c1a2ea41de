/* w8a8_multiply.cuh - the sums of a warpgroup of w8a8_gemm.cu: 64 rows of W by all rows of x, or a
 * part of them, along k. */
#pragma once

#include "kernels/cuda/w8a8_feed.cuh"
#include "kernels/cuda/w8a8_store.cuh"

namespace {

/* What a thread has of the 64 x n sums of a warpgroup: rows g and g + 8 of the warp's 16, columns
 * 8 j + 2 t and one more. Element 4 j + 2 h + i is row g + 8 h, column 8 j + 2 t + i. */
template <w8a8_kind kind, int n_rows> struct fragment {
    using sum = typename traits<kind>::element::sum;
    sum values[n_rows / 2];
};

struct consumer {
    uint32_t lane;
    uint32_t first_row; /* of the warp, in the CTA's run of rows */
    uint32_t first_m;   /* of the warpgroup's rows of x */
    bool has_pair;      /* known when compiled */
    uint32_t n_refills; /* stages of a pair that are still to be filled once more */
    ring_place issue;   /* the stage that is multiplied, and the block in it */
    uint32_t i_issue_block;
    uint32_t i_done; /* the stage whose sums are added, and the block in it */
    uint32_t i_done_block;
};

/* ---- a block of k ---- */

/* Starts the chain of one block; the first of a stage waits for it. */
template <w8a8_kind kind, int n_rows>
__device__ __forceinline__ void start_block(const w8a8_gemm_args &args, const shared_map &map,
                                            consumer &at, bool is_sum,
                                            fragment<kind, n_rows> &chain)
{
    using multiplier = wgmma8<typename traits<kind>::element, n_rows>;
    uint32_t base = shared_base();
    if (at.i_issue_block == 0) {
        mbarrier_wait_parity(base + map.x_full + 8 * at.issue.i, at.issue.parity);
        mbarrier_wait_parity(base + map.w_full + 8 * at.issue.i, at.issue.parity);
    }
    uint32_t first_atom = at.i_issue_block * args.n_block_groups + (at.first_row & ~63u) / 8;
    uint64_t a =
        wgmma8_descriptor(base + at.issue.i * map.w_stage_bytes + first_atom * SWIZZLE_ATOM_BYTES,
                          SWIZZLE_ATOM_BYTES);
    uint64_t b = wgmma8_descriptor(base + map.x + at.issue.i * map.x_stage_bytes +
                                       (at.i_issue_block * args.x.n_rows + at.first_m) * SWIZZLE_K,
                                   SWIZZLE_ATOM_BYTES);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        multiplier::multiply(chain.values, a + 2 * i, b + 2 * i, i > 0 || is_sum);
    }
    wgmma_commit();
    if (++at.i_issue_block == args.x.stage_blocks) {
        at.i_issue_block = 0;
        ring_on(at.issue, args.n_stages);
    }
}

/* total = fma(chain, x_scale * scale, total): NUMERICS.md. */
template <int n_rows>
__device__ __forceinline__ void add_scaled(uint32_t x_scales, float upper, float lower,
                                           const fragment<W8A8_FP8_GROUP, n_rows> &chain,
                                           fragment<W8A8_FP8_GROUP, n_rows> &total)
{
#pragma unroll
    for (int j = 0; j < n_rows / 8; j++) {
        uint2 pair = ld_shared_v2(x_scales + j * 32);
        float even = __uint_as_float(pair.x), odd = __uint_as_float(pair.y);
        total.values[4 * j] = fmaf(chain.values[4 * j], even * upper, total.values[4 * j]);
        total.values[4 * j + 1] =
            fmaf(chain.values[4 * j + 1], odd * upper, total.values[4 * j + 1]);
        total.values[4 * j + 2] =
            fmaf(chain.values[4 * j + 2], even * lower, total.values[4 * j + 2]);
        total.values[4 * j + 3] =
            fmaf(chain.values[4 * j + 3], odd * lower, total.values[4 * j + 3]);
    }
}

/* Where the scales of a thread's rows lie in shared memory, from the first block of k on. */
struct row_scales {
    uint32_t upper;
    uint32_t lower;
};

/* Gives a stage back: x of a pair to the feeders of both, if they will fill it once more. An
 * arrival that nobody waits for could come to a CTA that has ended. */
__device__ __forceinline__ void release_stage(const w8a8_gemm_args &args, const shared_map &map,
                                              consumer &at)
{
    __syncwarp();
    if (at.lane == 0) {
        mbarrier_arrive(shared_base() + map.empty + 8 * at.i_done);
    }
    if (at.has_pair && at.n_refills > 0) {
        at.n_refills--;
        if (at.lane < 2) {
            mbarrier_arrive_cluster(shared_base() + map.x_empty + 8 * at.i_done, at.lane);
        }
    }
    at.i_done_block = 0;
    at.i_done = at.i_done + 1 == args.n_stages ? 0 : at.i_done + 1;
}

/* Adds a chain that has ended to the total, and gives its stage back once all of it is done. */
template <w8a8_kind kind, int n_rows>
__device__ __forceinline__ void
end_block(const w8a8_gemm_args &args, const shared_map &map, consumer &at, row_scales &scales,
          fragment<kind, n_rows> &chain, fragment<kind, n_rows> &total)
{
    uint32_t base = shared_base();
    if constexpr (kind != W8A8_INT8) {
        wgmma_changed(chain.values);
    }
    if constexpr (kind == W8A8_FP8) {
#pragma unroll
        for (int i = 0; i < n_rows / 2; i++) {
            total.values[i] += chain.values[i];
        }
    } else if constexpr (kind == W8A8_FP8_GROUP) {
        uint32_t x_scales = base + map.x + at.i_done * map.x_stage_bytes +
                            args.x.stage_blocks * args.x.n_rows * SWIZZLE_K +
                            (at.i_done_block * args.x.n_rows + at.first_m) * 4 + at.lane % 4 * 8;
        add_scaled<n_rows>(x_scales, __uint_as_float(ld_shared(scales.upper)),
                           __uint_as_float(ld_shared(scales.lower)), chain, total);
        scales.upper += 4;
        scales.lower += 4;
    }
    if (++at.i_done_block == args.x.stage_blocks) {
        release_stage(args, map, at);
    }
}

/* The stage that k ends in may hold fewer blocks than others: both sides go on to the next. */
template <w8a8_kind kind, int n_rows>
__device__ __forceinline__ void end_stage(const w8a8_gemm_args &args, const shared_map &map,
                                          consumer &at)
{
    if (at.i_done_block == 0) {
        return;
    }
    release_stage(args, map, at);
    at.i_issue_block = 0;
    ring_on(at.issue, args.n_stages);
}

/* Chains under way at a time, at most: as many as there are registers for. */
template <int n_rows, int n_warpgroups>
constexpr int n_chains_max = n_rows <= 16                        ? 4
                             : n_rows == 32 || n_warpgroups <= 2 ? 2
                                                                 : 1;

/* A run of n chains, ended in the order in which they were started. */
template <w8a8_kind kind, int n_rows, int n>
__device__ __forceinline__ void multiply_run(const w8a8_gemm_args &args, const shared_map &map,
                                             consumer &at, row_scales &scales,
                                             fragment<kind, n_rows> &total)
{
    fragment<kind, n_rows> chains[n];
#pragma unroll
    for (int i = 0; i < n; i++) {
        start_block<kind, n_rows>(args, map, at, false, chains[i]);
    }
    wgmma_wait<n - 1>();
    end_block<kind, n_rows>(args, map, at, scales, chains[0], total);
    if constexpr (n > 1) {
        wgmma_wait<n - 2>();
        end_block<kind, n_rows>(args, map, at, scales, chains[1], total);
    }
    if constexpr (n > 2) {
        wgmma_wait<n - 3>();
        end_block<kind, n_rows>(args, map, at, scales, chains[2], total);
        wgmma_wait<n - 4>();
        end_block<kind, n_rows>(args, map, at, scales, chains[3], total);
    }
}

/* All of k, for one run of rows. */
template <w8a8_kind kind, int n_rows, int n_warpgroups>
__device__ __forceinline__ void multiply_rows(const w8a8_gemm_args &args, const shared_map &map,
                                              consumer &at, row_scales scales,
                                              fragment<kind, n_rows> &total)
{
    uint32_t n_k_blocks = n_k_blocks_of(args.k);
    uint32_t i = 0;
    if constexpr (kind == W8A8_INT8) {
        for (; i < n_k_blocks; i++) {
            start_block<kind, n_rows>(args, map, at, i > 0, total);
            if (i > 0) {
                wgmma_wait<1>();
                end_block<kind, n_rows>(args, map, at, scales, total, total);
            }
        }
        wgmma_wait<0>();
        wgmma_changed(total.values);
        end_block<kind, n_rows>(args, map, at, scales, total, total);
    } else {
        constexpr int n_max = n_chains_max<n_rows, n_warpgroups>;
        if constexpr (n_max == 4) {
            /* Many warpgroups cover each other's waits with two chains; four would hold back too
             * many stages. */
            bool are_few = n_consumers(args) <= 256;
            for (; are_few && i + 4 <= n_k_blocks; i += 4) {
                multiply_run<kind, n_rows, 4>(args, map, at, scales, total);
            }
        }
        if constexpr (n_max >= 2) {
            for (; i + 2 <= n_k_blocks; i += 2) {
                multiply_run<kind, n_rows, 2>(args, map, at, scales, total);
            }
        }
        for (; i < n_k_blocks; i++) {
            multiply_run<kind, n_rows, 1>(args, map, at, scales, total);
        }
    }
    end_stage<kind, n_rows>(args, map, at);
}

/* A turn of the second CTA of a pair that has no rows of W: it takes x and gives it back. */
__device__ __forceinline__ void pass_turn(const w8a8_gemm_args &args, const shared_map &map,
                                          consumer &at)
{
    for (uint32_t i = 0; i < n_k_blocks_of(args.k); i += args.x.stage_blocks) {
        mbarrier_wait_parity(shared_base() + map.x_full + 8 * at.issue.i, at.issue.parity);
        release_stage(args, map, at);
        ring_on(at.issue, args.n_stages);
    }
}

} // namespace
