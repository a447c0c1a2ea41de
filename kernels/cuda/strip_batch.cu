/* strip_batch.cu - weight-only GEMM for 17 to 64 rows of x on Hopper (sm_90a), with the bits of
 * strip_gemm.cu and one pass over the weight: launching.
 *
 *   y[i, j] = sum_g scale[j, g] * sum_{k in g} x[i, k] * (code[j, k] - zero[j, g])
 *
 * Launches: x is laid out (strip_batch_x.cuh) and multiplied (strip_batch_kernel.cuh);
 * strip_parts.cu has the rest.
 *
 * Operands. A warpgroup has 64 rows of W, a strip a warp: the words of the layout are A fragments
 * of wgmma just as they are of mma.sync, dequantised in registers. B is a tile of x in shared
 * memory.
 *
 * Feed. Each lane copies its own codes by cp.async, as in strip_gemm.cu, and for its warp a piece
 * of the scales. Warp 0 also has tiles of x copied, ahead of all; full barriers count the bytes,
 * empty ones the warps that are done with a tile.
 *
 * Sums. As in strip_gemm.cu, which has a warp for each of the 16 lanes of a sum: here they come one
 * after the other, each of a quarter is added to those before it, in order, then the quarters. */
#include "kernels/cuda/strip_batch.h"
#include "kernels/cuda/strip_batch_instance.h"
#include "kernels/cuda/strip_batch_x.cuh"

namespace {

template <typename visitor> void for_all_instances(visitor &&visit)
{
    for (const strip_batch_instances &some :
         {strip_batch_u4_instances(), strip_batch_u8_instances(), strip_batch_float_instances()}) {
        for (uint32_t i = 0; i < some.n; i++) {
            visit(some.all[i]);
        }
    }
}

/* Those that a tile for m rows of x has. */
constexpr uint32_t rows_for(uint32_t m)
{
    return m <= 32 ? 32 : 64;
}

const strip_batch_instance *find_instance(const strip_parts_args &args)
{
    const strip_batch_instance *found = nullptr;
    for_all_instances([&](const strip_batch_instance &one) {
        if (one.x_dtype == args.base.x_dtype && one.code_bits == args.base.code_bits &&
            one.scaling == args.base.scaling && one.n_groups == args.base.n_slice_groups &&
            one.kernel.n_rows == rows_for(args.m)) {
            found = &one;
        }
    });
    return found;
}

uint32_t slice_bytes_of(const strip_batch_instance &one, bool has_zeros)
{
    return STRIP_CODES_BYTES_OF(one.code_bits) + one.scale_bytes +
           (has_zeros ? one.zero_bytes : 0u);
}

} // namespace

uint64_t strip_batch_workspace_bytes(uint32_t m, uint32_t n, uint32_t k)
{
    return strip_parts_workspace_bytes(rows_for(m), n, k, x_row_bytes);
}

int strip_batch_load(void)
{
    int r = strip_parts_load();
    for_all_instances([&](const strip_batch_instance &one) {
        if (r == cudaSuccess) {
            r = strip_parts_load_kernel(one.kernel);
        }
    });
    return r;
}

int strip_batch_enqueue(struct strip_parts_args *args, bool may_overlap, void *stream)
{
    const strip_batch_instance *one = find_instance(*args);
    if (one == nullptr) {
        return cudaErrorInvalidValue;
    }
    args->slice_bytes = slice_bytes_of(*one, args->base.has_zeros != 0);
    return strip_parts_enqueue(one->kernel, args, may_overlap, stream);
}
