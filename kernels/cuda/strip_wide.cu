/* strip_wide.cu - weight-only integer GEMM for up to 64 rows of x on Hopper (sm_90a), with the bits
 * of strip_gemm.cu.
 *
 *   y[i, j] = sum_g scale[j, g] * sum_{k in g} x[i, k] * (code[j, k] - zero[j, g])
 *
 * Launches: x is laid out (strip_wide_x.cuh) and multiplied (strip_wide_multiply.cuh);
 * strip_parts.cu has the rest.
 *
 * Operands. A warpgroup has 64 rows of W, a strip a warp: the words of the layout are A fragments
 * of wgmma just as they are of mma.sync, dequantised in registers. B is a tile of x in shared
 * memory.
 *
 * Feed. Copies are in bulk and run ahead of those that multiply: one warp of each warpgroup asks
 * for its weights, warp 0 for tiles of x. Not taken, since each was measured and no faster: warps
 * that do nothing else, which cost the others registers; each lane its own weights by cp.async; two
 * strips a warp in eight warps, too few to hide what each of them waits for; a tile of x for two
 * CTAs at once.
 *
 * Budget of a group of 256 rows of W and 64 of x, in cycles of an SM: tensor cores 1150, shared
 * memory about 1200 (products 560, since each warpgroup reads the tile of x anew, codes 256, x 128,
 * sums over lanes 256 where k is 8192), issue 600 of each scheduler's, from 150 instructions a
 * warp. It takes twice the first, and what it pays to save is instructions: beside products, which
 * read and write many registers, warps wait for pipes and ports. So a group's first value is a
 * product as well, and one warp copies for four. That warpgroups take turns at the tensor cores
 * changes nothing.
 *
 * Sums. A group's chain starts from -(offset + zero) * sum(x); s = fma(chain, scale, s) over the
 * slices that strip_gemm.cu gives to one warp, a lane of the sum; lanes of a quarter are added in
 * order, then the quarters. Every bit is that of strip_gemm.cu. */
#include "kernels/cuda/strip_parts.h"
#include "kernels/cuda/strip_wide.h"
#include "kernels/cuda/strip_wide_multiply.cuh"

namespace {

struct instance {
    strip_parts_kernel kernel;
    uint8_t x_dtype;
    bool has_zeros;
};

template <typename traits, int n_rows, bool has_zeros>
constexpr instance make_instance(uint8_t x_dtype)
{
    using map = shared_map<n_rows, has_zeros>;
    return {{lay_out_x<traits, has_zeros>, strip_wide<traits, n_rows, has_zeros>, map::warps,
             map::warp_bytes, n_rows, x_row_bytes, 1.0f / traits::unit},
            x_dtype,
            has_zeros};
}

#define INSTANCES(traits, dtype)                                                                   \
    make_instance<traits, 32, false>(dtype), make_instance<traits, 32, true>(dtype),               \
        make_instance<traits, 48, false>(dtype), make_instance<traits, 48, true>(dtype),           \
        make_instance<traits, 64, false>(dtype), make_instance<traits, 64, true>(dtype)

/* Those that a tile for m rows of x has. */
constexpr uint32_t rows_for(uint32_t m)
{
    return m <= 32 ? 32 : m <= 48 ? 48 : 64;
}

const instance instances[] = {INSTANCES(traits_bf16, DTYPE_BF16), INSTANCES(traits_f16, DTYPE_F16)};

const strip_parts_kernel *find_kernel(const strip_parts_args &args)
{
    for (const instance &one : instances) {
        if (one.x_dtype == args.base.x_dtype && one.kernel.n_rows == rows_for(args.m) &&
            one.has_zeros == (args.base.has_zeros != 0)) {
            return &one.kernel;
        }
    }
    return nullptr;
}

} // namespace

uint64_t strip_wide_workspace_bytes(uint32_t m, uint32_t n, uint32_t k)
{
    return strip_parts_workspace_bytes(rows_for(m), n, k, x_row_bytes);
}

int strip_wide_load(void)
{
    int r = strip_parts_load();
    for (const instance &one : instances) {
        if (r == cudaSuccess) {
            r = strip_parts_load_kernel(one.kernel);
        }
    }
    return r;
}

int strip_wide_enqueue(struct strip_parts_args *args, bool may_overlap, void *stream)
{
    const strip_parts_kernel *kernel = find_kernel(*args);
    return kernel == nullptr ? cudaErrorInvalidValue
                             : strip_parts_enqueue(*kernel, args, may_overlap, stream);
}
