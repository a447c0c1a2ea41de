/* strip_stream.cuh - the weights that flow through a warp's ring of stages in the strip kernel.
 *
 * x of the next slice does not come through the ring: it would wait once for each stage it fills,
 * and weights for its places. For 16 rows of a weight of 8192 x 28672 that took 69 us instead of
 * 46; x in registers behind the last strip that needs the old one 71, and in shared memory of its
 * own, for 8 rows, 43 instead of 34. */
#pragma once

#include "kernels/cuda/strip_feed.cuh"

namespace {

/* Where the next copy comes from: rounds, steps within a round, strips within a step. */
struct cursor {
    slice_source source;
    uint32_t stride_bytes; /* to the next own strip */
    uint32_t n_left;       /* strips of this step and round; 0: all is copied */
    uint32_t i_half;       /* of a slice of 8-bit codes */
    uint32_t i_step;
    uint32_t first_strip; /* of the round, counted in own strips */
};

template <typename format>
__device__ __forceinline__ void cursor_seek(const strip_args &args, const warp_id &id, cursor &at)
{
    uint64_t strip = blockIdx.x + static_cast<uint64_t>(at.first_strip) * gridDim.x;
    uint32_t n = step_slices(args, at.i_step);
    at.source = format::source(args, id, strip, at.i_step, id.warp);
    at.stride_bytes = gridDim.x * strip_align(n * format::size::slice);
    at.n_left = min(args.n_round_strips, own_strips(args) - at.first_strip);
}

/* To the next step this warp has a slice in, or to the next round, or to the end. */
template <typename format>
__device__ __forceinline__ void cursor_turn(const strip_args &args, const warp_id &id, cursor &at)
{
    at.i_step++;
    if (at.i_step * STRIP_STEP_SLICES + id.warp >= args.n_slices) {
        at.i_step = 0;
        at.first_strip += args.n_round_strips;
    }
    if (at.first_strip < own_strips(args)) {
        cursor_seek<format>(args, id, at);
    }
}

/* One strip's slice, or half of it, into a stage. Always one group of copies, empty at the
 * end, so that waiting can count. */
template <typename format>
__device__ __forceinline__ void fetch(const strip_args &args, const warp_id &id, cursor &at,
                                      uint32_t stage)
{
    if (at.n_left > 0) {
        format::copy(at.source, id, stage, at.i_half);
        if (++at.i_half == n_stages_of_slice<format::bits>) {
            at.i_half = 0;
            at.source.codes += at.stride_bytes;
            if (--at.n_left == 0) {
                cursor_turn<format>(args, id, at);
            }
        }
    }
    cp_async_commit();
}

/* The ring. */
template <typename format> struct stream {
    cursor at;
    uint32_t first_stage; /* this lane's place in it */
    uint32_t offset;      /* from there to the stage that is read next */

    __device__ __forceinline__ stream(const strip_args &args, const warp_id &id, uint32_t shared)
        : at{}, first_stage(shared + id.warp * format::size::stage + id.lane * 16), offset(0)
    {
        cursor_seek<format>(args, id, at);
    }

    static __device__ __forceinline__ uint32_t stage_bytes(const warp_id &id)
    {
        return id.n_warps * format::size::stage;
    }

    /* Fill all stages but one. */
    __device__ __forceinline__ void prime(const strip_args &args, const warp_id &id)
    {
        for (uint32_t i = 0; i < args.n_stages - 1u; i++) {
            fetch<format>(args, id, at, first_stage + i * stage_bytes(id));
        }
    }

    /* The next stage is there, and the one read before it is filled again. */
    __device__ __forceinline__ uint32_t next(const strip_args &args, const warp_id &id)
    {
        if (args.n_stages == n_stages) {
            cp_async_wait<n_stages - 2>();
        } else {
            cp_async_wait<0>();
        }
        uint32_t last = (args.n_stages - 1) * stage_bytes(id);
        uint32_t now = offset;
        fetch<format>(args, id, at, first_stage + (now == 0 ? last : now - stage_bytes(id)));
        offset = now == last ? 0 : now + stage_bytes(id);
        return first_stage + now;
    }
};

} // namespace
