/* strip_gemm.cu - weight-only GEMM for few rows of x (m <= 16), sm_80 and later: launching.
 *
 *   y[i, j] = sum_g scale[j, g] * sum_{k in g} x[i, k] * (code[j, k] - zero[j, g])
 *
 * strip_kernel.cuh is the kernel; strip_gemm_u4.cu, strip_gemm_u8.cu and strip_gemm_float.cu have
 * its instances. */
#include <cuda_runtime.h>

#include "kernels/cuda/overlap_launch.cuh"
#include "kernels/cuda/strip_gemm.h"
#include "kernels/cuda/strip_instance.h"
#include "kernels/layout/strip.h"

namespace {

constexpr uint32_t n_stages = 3;      /* of strip_feed.cuh */
constexpr uint32_t left_bytes = 4096; /* of an SM's shared memory, to blocks that wait */

const strip_instances (&all_instances())[3]
{
    static const strip_instances all[] = {strip_u4_instances(), strip_u8_instances(),
                                          strip_float_instances()};
    return all;
}

const strip_instance *find_instance(const strip_args &args)
{
    uint32_t n_m8 = args.m > 8 ? 2 : 1;
    for (const strip_instances &table : all_instances()) {
        for (uint32_t i = 0; i < table.n; i++) {
            const strip_instance &one = table.all[i];
            if (one.x_dtype == args.x_dtype && one.code_bits == args.code_bits &&
                one.scaling == args.scaling && one.n_m8 == n_m8 &&
                one.n_groups == args.n_slice_groups && one.has_zeros == (args.has_zeros != 0)) {
                return &one;
            }
        }
    }
    return nullptr;
}

/* What the launcher knows of a device; filled in by strip_gemm_load(). */
struct device_limits {
    uint32_t n_sms;
    uint32_t shared_bytes; /* a CTA may have */
};

constexpr int n_devices_max = 64;
device_limits limits_of_device[n_devices_max];

cudaError_t query_limits(int *ret_device)
{
    int device, n_sms, shared_bytes;
    cudaError_t r = cudaGetDevice(&device);
    if (r == cudaSuccess) {
        r = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    }
    if (r == cudaSuccess) {
        r = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
    if (r == cudaSuccess && device >= n_devices_max) {
        r = cudaErrorInvalidDevice;
    }
    if (r == cudaSuccess) {
        limits_of_device[device] = {static_cast<uint32_t>(n_sms),
                                    static_cast<uint32_t>(shared_bytes)};
        *ret_device = device;
    }
    return r;
}

/* Rounds in which n_own strips of strip_bytes go, beside what the feed takes; 0: not even one fits.
 */
uint32_t rounds_of(uint32_t n_own, uint32_t budget, uint32_t feed_bytes, uint32_t strip_bytes)
{
    uint32_t n_fit = feed_bytes < budget ? (budget - feed_bytes) / strip_bytes : 0;
    return n_fit == 0 ? 0 : (n_own + n_fit - 1) / n_fit;
}

/* Few warps a CTA (short k) leave room for more CTAs an SM, each with its share of the memory. GPUs
 * with less of it get a stage less; no CTAs at all where even that does not fit. Rounds are of one
 * size, or nearly. */
launch_shape plan_with(const device_limits &limits, const strip_instance &one, strip_args &args,
                       uint32_t n_warps, uint32_t n_ctas_per_sm)
{
    uint32_t n_ctas = limits.n_sms * n_ctas_per_sm;
    n_ctas = n_ctas < args.n_strips ? n_ctas : args.n_strips;
    uint32_t reserved = (1024 + STRIP_ROWS_BYTES) * n_ctas_per_sm; /* 1024: the system's own */
    uint32_t budget = (limits.shared_bytes + 1024 - reserved - left_bytes) / n_ctas_per_sm;
    uint32_t stage_bytes = n_warps * one.stage_of_warp_bytes;
    uint32_t starts_bytes = n_warps * one.starts_of_warp_bytes;
    uint32_t strip_bytes = n_warps * one.n_m8 * 512;
    uint32_t n_own = (args.n_strips + n_ctas - 1) / n_ctas;
    args.n_stages = n_stages;
    uint32_t feed_bytes = n_stages * stage_bytes + starts_bytes;
    uint32_t n_rounds = rounds_of(n_own, budget, feed_bytes, strip_bytes);
    if (n_rounds == 0) {
        args.n_stages--;
        feed_bytes -= stage_bytes;
        n_rounds = rounds_of(n_own, budget, feed_bytes, strip_bytes);
    }
    if (n_rounds == 0) {
        return {0, 0, 0};
    }
    args.n_round_strips = (n_own + n_rounds - 1) / n_rounds;
    args.n_own_min = args.n_strips / n_ctas;
    args.n_own_extra = args.n_strips % n_ctas;
    return {n_ctas, 32 * n_warps, feed_bytes + args.n_round_strips * strip_bytes};
}

launch_shape plan(const device_limits &limits, const strip_instance &one, strip_args &args)
{
    uint32_t n_warps = args.n_slices < STRIP_STEP_SLICES ? args.n_slices : STRIP_STEP_SLICES;
    launch_shape shape = {0, 0, 0};
    for (uint32_t n = STRIP_STEP_SLICES / n_warps; shape.grid.x == 0 && n > 0; n--) {
        shape = plan_with(limits, one, args, n_warps, n);
    }
    return shape;
}

} // namespace

uint32_t strip_gemm_rows_max(const struct strip_args *args)
{
    strip_args most = *args;
    most.m = STRIP_TILE_M_MAX;
    int device;
    const strip_instance *one = find_instance(most);
    if (cudaGetDevice(&device) != cudaSuccess || one == nullptr) {
        return STRIP_TILE_M_MAX; /* what the launch will say */
    }
    bool fits = plan(limits_of_device[device], *one, most).grid.x > 0;
    return fits ? STRIP_TILE_M_MAX : STRIP_TILE_M_MAX / 2;
}

int strip_gemm_load(void)
{
    int device = 0;
    cudaError_t r = query_limits(&device);
    for (const strip_instances &table : all_instances()) {
        for (uint32_t i = 0; r == cudaSuccess && i < table.n; i++) {
            r = cudaFuncSetAttribute(
                reinterpret_cast<const void *>(table.all[i].function),
                cudaFuncAttributeMaxDynamicSharedMemorySize,
                static_cast<int>(limits_of_device[device].shared_bytes - STRIP_ROWS_BYTES));
        }
    }
    return r;
}

int strip_gemm_enqueue(struct strip_args *args, const struct gk_ahead *ahead, bool may_overlap,
                       void *stream)
{
    int device;
    cudaError_t r = cudaGetDevice(&device);
    const strip_instance *one = find_instance(*args);
    if (r != cudaSuccess || one == nullptr) {
        return r != cudaSuccess ? r : cudaErrorInvalidValue;
    }
    const device_limits &limits = limits_of_device[device];
    launch_shape shape = plan(limits, *one, *args);
    if (shape.grid.x == 0) {
        return cudaErrorInvalidConfiguration;
    }
    args->may_overlap = may_overlap;
    void *parameters[] = {args, &ahead};
    return overlap_launch(reinterpret_cast<const void *>(one->function), shape, may_overlap,
                          parameters, stream);
}
