/* bench-prefill.cu - strip_prefill on the layers the field measures with, tile by tile, beside
 * cuBLASLt with the dequantised weight in the type of x. Checks every point before timing it.
 *
 *   bench-prefill [f16] [u8|fp8-channel|fp8-block|mxfp8|mxfp4|nvfp4] [g32|g64] [zeros] [quick]
 * [M...]
 *
 * Elements of y are compared with float64, and all of y between tiles, bit for bit. What is timed
 * takes turns, since at these sizes the GPU is at its power limit and its clock moves. Weights
 * rotate through copies of together 300 MB. cuBLASLt is looked for at run time; without it its
 * column is 0. */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "ipc/base/dtype.h"
#include "kernels/cuda/strip_prefill.h"
#include "kernels/cuda/strip_prefill_instance.h"
#include "kernels/cuda/strip_read.cuh"
#include "kernels/layout/strip.h"
#include "tests/bench/cuda/cublaslt.h"
#include "tests/bench/cuda/layers.cuh"

struct format {
    const char *name;
    uint32_t bits;
    uint8_t scaling; /* enum strip_scaling, or STRIP_PREFILL_NO_SCALES: a scale a row of W */
    uint32_t n_slice_groups;
    bool is_bf16;
    bool has_zeros;
};

static const format formats[] = {{"u4", 4, STRIP_SCALES_PAIRS, 2, true, false},
                                 {"u8", 8, STRIP_SCALES_PAIRS, 2, true, false},
                                 {"fp8-channel", 8, STRIP_PREFILL_NO_SCALES, 2, true, false},
                                 {"fp8-block", 8, STRIP_SCALES_STRIP, 2, true, false},
                                 {"mxfp8", 8, STRIP_SCALES_E8M0, 8, true, false},
                                 {"mxfp4", 4, STRIP_SCALES_E8M0, 8, true, false},
                                 {"nvfp4", 4, STRIP_SCALES_E4M3, 2, true, false}};

/* The weight's parts, for host and device. */
struct weight {
    layer shape;
    format f;
    uint32_t n_strips, n_slices;
    uint64_t bytes;
    float *row_scales; /* of n */
    std::vector<uint8_t *> copies;
    std::vector<uint16_t *> plain; /* (n, k), dequantised */
};

struct view {
    const uint8_t *records;
    const float *row_scales;
    layer shape;
    format f;
    uint32_t n_strips, n_slices;
};

static __device__ float to_float(uint16_t bits, bool is_bf16)
{
    return is_bf16 ? __bfloat162float(__ushort_as_bfloat16(bits))
                   : __half2float(__ushort_as_half(bits));
}

static __device__ uint16_t from_float(float v, bool is_bf16)
{
    return is_bf16 ? __bfloat16_as_ushort(__float2bfloat16(v)) : __half_as_ushort(__float2half(v));
}

static __host__ __device__ bool has_pairs(const format &f)
{
    return f.scaling == STRIP_SCALES_PAIRS;
}

static __host__ __device__ uint32_t slice_scale_bytes(const format &f)
{
    return has_pairs(f)                     ? 32 * f.n_slice_groups
           : f.scaling == STRIP_SCALES_E8M0 ? 128
           : f.scaling == STRIP_SCALES_E4M3 ? 256
                                            : 8;
}

static __host__ __device__ uint32_t slice_zero_bytes(const format &f)
{
    return f.has_zeros ? 16 * f.n_slice_groups : 0;
}

static __device__ strip_slice slice_at(const view &w, uint32_t i_n, uint32_t i_k)
{
    strip_records records = {
        w.records, w.n_strips, w.n_slices, w.f.bits, slice_scale_bytes(w.f), slice_zero_bytes(w.f)};
    return strip_slice_at(records, i_n, i_k);
}

static __device__ uint32_t scale_index(const view &w, uint32_t i_n, uint32_t i_k)
{
    return strip_scale_index((strip_scaling)w.f.scaling, w.f.n_slice_groups, i_n, i_k);
}

/* Of e4m3, which are NaN nowhere and below 2, or of any others. */
__global__ void fill_words(uint32_t *words, uint64_t n, uint32_t mask)
{
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) {
        words[i] = hash((uint32_t)i * 2654435761u + 17) & mask;
    }
}

/* Scales around 0.01, and zero points, for each row of W (x) and 16 of k (y). */
__global__ void fill_groups(view w, float *row_scales)
{
    uint32_t i_n = blockIdx.x * 256 + threadIdx.x;
    uint32_t i_k = blockIdx.y * 16;
    if (i_n >= w.n_strips * STRIP_N) {
        return;
    }
    strip_slice slice = slice_at(w, i_n, i_k);
    uint32_t index = scale_index(w, i_n, i_k);
    uint32_t salt = hash(i_n * 977 + index);
    float v = 0.005f + 0.00001f * (float)(salt & 1023);
    switch (w.f.scaling) {
    case STRIP_SCALES_PAIRS:
        ((uint16_t *)slice.scales)[index] = from_float(v, w.f.is_bf16);
        break;
    case STRIP_SCALES_STRIP:
        ((float *)slice.scales)[index] = v;
        break;
    case STRIP_SCALES_E8M0:
        ((uint8_t *)slice.scales)[index] = 119 + salt % 4;
        break;
    case STRIP_SCALES_E4M3:
        ((uint8_t *)slice.scales)[index] = 8 + salt % 16;
        break;
    default:
        ((float *)slice.scales)[index] = 1;
        row_scales[min(i_n, w.shape.n - 1)] = v;
    }
    if (w.f.has_zeros) {
        ((uint8_t *)slice.zeros)[index] = salt >> 16 & ((1u << w.f.bits) - 1);
    }
}

static __device__ double e4m3_value(uint32_t code)
{
    uint32_t exponent = code >> 3 & 15;
    double magnitude = exponent == 0 ? ldexp((double)(code & 7), -9)
                                     : ldexp((double)(8 + (code & 7)), (int)exponent - 10);
    return code & 0x80 ? -magnitude : magnitude;
}

static __device__ double float_value_at(const view &w, uint32_t i_n, uint32_t i_k)
{
    const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    strip_slice slice = slice_at(w, i_n, i_k);
    uint32_t index = scale_index(w, i_n, i_k);
    uint32_t code = strip_float_code(&slice, w.f.bits, i_n, i_k);
    double value = w.f.bits == 8 ? e4m3_value(code) : code & 8 ? -e2m1[code & 7] : e2m1[code & 7];
    switch (w.f.scaling) {
    case STRIP_SCALES_STRIP:
        return value * (double)((const float *)slice.scales)[index];
    case STRIP_SCALES_E8M0:
        return ldexp(value, (int)slice.scales[index] - 127);
    case STRIP_SCALES_E4M3:
        return value * e4m3_value(slice.scales[index]);
    default:
        return value * (double)w.row_scales[i_n];
    }
}

static __device__ double value_at(const view &w, uint32_t i_n, uint32_t i_k)
{
    if (!has_pairs(w.f)) {
        return float_value_at(w, i_n, i_k);
    }
    strip_slice slice = slice_at(w, i_n, i_k);
    uint32_t index = scale_index(w, i_n, i_k);
    int zero = w.f.has_zeros ? slice.zeros[index] : 1 << (w.f.bits - 1);
    int code = (int)strip_int_code(&slice, w.f.bits, i_n, i_k);
    return (double)(code - zero) *
           (double)to_float(((const uint16_t *)slice.scales)[index], w.f.is_bf16);
}

__global__ void dequantise(view w, uint16_t *plain)
{
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < (uint64_t)w.shape.n * w.shape.k;
         i += gridDim.x * 256ull) {
        plain[i] = from_float(
            (float)value_at(w, (uint32_t)(i / w.shape.k), (uint32_t)(i % w.shape.k)), w.f.is_bf16);
    }
}

__global__ void fill_x(uint16_t *x, uint64_t n, bool is_bf16)
{
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) {
        float u = (float)hash((uint32_t)i + 1) / 4294967296.0f;
        float v = (float)hash((uint32_t)i + 77777777) / 4294967296.0f;
        x[i] = from_float(sqrtf(-2 * logf(u + 1e-9f)) * cosf(6.2831853f * v), is_bf16);
    }
}

/* A block an element of y; sums[0] and [1]: squares of the error, and of the value. */
__global__ void sample_error(view w, const uint16_t *x, uint32_t m, const float *y, double *sums)
{
    uint32_t i_m = blockIdx.x < 64 ? m - 1 - blockIdx.x % m : hash(blockIdx.x) % m;
    uint32_t i_n = hash(blockIdx.x + 123) % w.shape.n;
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < w.shape.k; i += 32) {
        sum +=
            value_at(w, i_n, i) * (double)to_float(x[(uint64_t)i_m * w.shape.k + i], w.f.is_bf16);
    }
    for (int i = 16; i > 0; i /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, i);
    }
    if (threadIdx.x == 0) {
        double d = (double)y[(uint64_t)i_m * w.shape.n + i_n] - sum;
        atomicAdd(&sums[0], d * d);
        atomicAdd(&sums[1], sum * sum);
    }
}

__global__ void count_differences(const uint32_t *a, const uint32_t *b, uint64_t n,
                                  unsigned long long *count)
{
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) {
        if (a[i] != b[i]) {
            atomicAdd(count, 1ull);
        }
    }
}

static view view_of(const weight &w, uint32_t i_copy)
{
    return {w.copies[i_copy], w.row_scales, w.shape, w.f, w.n_strips, w.n_slices};
}

static weight make_weight(const layer &shape, const format &f)
{
    weight w = {shape, f, (shape.n + 15) / 16, (shape.k + 255) / 256, 0, nullptr, {}, {}};
    uint32_t slice_bytes =
        STRIP_CODES_BYTES_OF(f.bits) + slice_scale_bytes(f) + slice_zero_bytes(f);
    uint32_t mask = f.bits == 8 && !has_pairs(f) ? 0xbfbfbfbfu : 0xffffffffu;
    CHECK(cudaMalloc(&w.row_scales, shape.n * sizeof(float)));
    for (uint32_t i = 0; i < w.n_slices; i += STRIP_STEP_SLICES) {
        uint32_t n = std::min<uint32_t>(STRIP_STEP_SLICES, w.n_slices - i);
        w.bytes += (uint64_t)w.n_strips * strip_align(n * slice_bytes);
    }
    uint64_t n_copies = 300000000 / w.bytes + 1;
    uint64_t n_plain = 300000000 / ((uint64_t)shape.n * shape.k * 2) + 1;
    for (uint64_t i = 0; i < n_copies; i++) {
        uint8_t *memory;
        CHECK(cudaMalloc(&memory, w.bytes));
        w.copies.push_back(memory);
        fill_words<<<1024, 256>>>((uint32_t *)memory, w.bytes / 4, mask);
        dim3 grid((w.n_strips * 16 + 255) / 256, w.n_slices * (STRIP_SLICE_K / 16));
        fill_groups<<<grid, 256>>>(view_of(w, (uint32_t)i), w.row_scales);
    }
    for (uint64_t i = 0; i < n_plain; i++) {
        uint16_t *memory;
        CHECK(cudaMalloc(&memory, (uint64_t)shape.n * shape.k * 2));
        w.plain.push_back(memory);
        dequantise<<<4096, 256>>>(view_of(w, 0), memory);
    }
    CHECK(cudaDeviceSynchronize());
    return w;
}

static void free_weight(weight &w)
{
    CHECK(cudaFree(w.row_scales));
    for (uint8_t *copy : w.copies) {
        CHECK(cudaFree(copy));
    }
    for (uint16_t *plain : w.plain) {
        CHECK(cudaFree(plain));
    }
}

struct rows {
    uint16_t *x;
    float *y;
    float *y_other;
    void *workspace;
};

static strip_prefill_args args_of(const weight &w, const rows &r, uint32_t m)
{
    strip_prefill_args args = {};
    bool has_row_scales = w.f.scaling == STRIP_PREFILL_NO_SCALES;
    args.base.n = w.shape.n;
    args.base.k = w.shape.k;
    args.base.n_strips = w.n_strips;
    args.base.n_slices = w.n_slices;
    args.base.code_bits = (uint8_t)w.f.bits;
    args.base.scaling = has_row_scales ? (uint8_t)STRIP_SCALES_STRIP : w.f.scaling;
    args.base.row_scales = has_row_scales ? w.row_scales : nullptr;
    args.base.row_scale_group_n = 1;
    args.base.n_slice_groups = w.f.n_slice_groups;
    args.base.has_zeros = w.f.has_zeros;
    args.base.x_dtype = w.f.is_bf16 ? DTYPE_BF16 : DTYPE_F16;
    args.base.scale_dtype = has_pairs(w.f) ? args.base.x_dtype : (uint8_t)DTYPE_F32;
    args.x = r.x;
    args.x_stride_bytes = w.shape.k * 2ull;
    args.m = m;
    return args;
}

static void enqueue(const weight &w, const rows &r, float *y, uint32_t m, uint32_t i_copy,
                    bool is_f32, uint32_t i_tile, cudaStream_t stream)
{
    strip_prefill_args args = args_of(w, r, m);
    args.base.records = w.copies[i_copy];
    args.base.y_dtype = is_f32 ? (uint8_t)DTYPE_F32 : args.base.x_dtype;
    args.y = y;
    args.y_stride_bytes = (uint64_t)w.shape.n * (is_f32 ? 4 : 2);
    CHECK((cudaError_t)strip_prefill_enqueue(&args, i_tile, r.workspace, stream));
}

/* The tiles of a kind that there are for that weight. */
static std::vector<uint32_t> tiles_of(const weight &w, const rows &r, bool is_rounded)
{
    std::vector<uint32_t> tiles;
    strip_prefill_args args = args_of(w, r, 1);
    for (uint32_t i = 0; i < STRIP_PREFILL_TILES; i++) {
        if (strip_prefill_has_tile(&args, i, is_rounded)) {
            tiles.push_back(i);
        }
    }
    return tiles;
}

/* Prints the error of the first of a kind's tiles, and which others differ from it. */
static void check(const weight &w, const rows &r, uint32_t m, const std::vector<uint32_t> &tiles)
{
    static double *sums;
    static unsigned long long *n_different;
    if (sums == nullptr) {
        CHECK(cudaMallocManaged(&sums, 16));
        CHECK(cudaMallocManaged(&n_different, 8));
    }
    uint64_t n = (uint64_t)m * w.shape.n;
    for (uint32_t i_tile : tiles) {
        bool is_first = i_tile == tiles[0];
        float *y = is_first ? r.y : r.y_other;
        CHECK(cudaMemset(y, 0xff, n * 4));
        enqueue(w, r, y, m, 0, true, i_tile, nullptr);
        sums[0] = sums[1] = 0;
        *n_different = 0;
        if (is_first) {
            sample_error<<<4096, 32>>>(view_of(w, 0), r.x, m, y, sums);
        } else {
            count_differences<<<1024, 256>>>((uint32_t *)r.y, (uint32_t *)y, n, n_different);
        }
        CHECK(cudaDeviceSynchronize());
        if (is_first) {
            printf("error %.1e ", sqrt(sums[0] / sums[1]));
        }
        if (*n_different != 0) {
            printf("  tile %u differs from the first in %llu of %llu elements, m %u\n", i_tile,
                   *n_different, (unsigned long long)n, m);
        }
    }
}

/* One way to make the product, as a graph of a few launches. */
struct contender {
    cudaGraphExec_t graph;
    uint32_t n_launches;
    uint32_t i_tile; /* STRIP_PREFILL_TILES: cuBLASLt */
    std::vector<float> usec;
};

static contender capture(cudaStream_t stream, double usec_guess, uint32_t n_copies,
                         const std::function<void(uint32_t)> &launch)
{
    contender c = {};
    c.n_launches = std::max<uint32_t>(n_copies > 1 ? 2 : 1, (uint32_t)(1000 / usec_guess));
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < c.n_launches; i++) {
        launch(i % n_copies);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&c.graph, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return c;
}

static double median(std::vector<float> v)
{
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

static void run_turns(std::vector<contender> &all, cudaStream_t stream, int n_turns)
{
    cudaEvent_t a, b;
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    for (int i = 0; i < n_turns; i++) {
        for (contender &c : all) {
            CHECK(cudaEventRecord(a, stream));
            CHECK(cudaGraphLaunch(c.graph, stream));
            CHECK(cudaEventRecord(b, stream));
            CHECK(cudaEventSynchronize(b));
            float ms;
            CHECK(cudaEventElapsedTime(&ms, a, b));
            if (i > 0) {
                c.usec.push_back(ms * 1000 / c.n_launches);
            }
        }
    }
    CHECK(cudaEventDestroy(a));
    CHECK(cudaEventDestroy(b));
}

static void measure(const weight &w, const rows &r, uint32_t m, cublaslt *lt)
{
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    double flops = 2.0 * m * w.shape.n * w.shape.k;
    double guess = 10 + flops / 0.6e9;
    std::vector<contender> all;
    for (bool is_rounded : {false, true}) {
        for (uint32_t i_tile : tiles_of(w, r, is_rounded)) {
            all.push_back(capture(stream, guess, (uint32_t)w.copies.size(), [&](uint32_t i_copy) {
                enqueue(w, r, r.y, m, i_copy, false, i_tile, stream);
            }));
            all.back().i_tile = i_tile;
        }
    }
    bool has_lt = lt != nullptr && lt->prepare(m, w.shape.n, w.shape.k, w.f.is_bf16);
    if (has_lt) {
        all.push_back(capture(stream, guess, (uint32_t)w.plain.size(), [&](uint32_t i_copy) {
            lt->enqueue(r.x, w.plain[i_copy], r.y, stream);
        }));
        all.back().i_tile = STRIP_PREFILL_TILES;
    }
    run_turns(all, stream, 8);
    double reference = has_lt ? median(all.back().usec) : 0;
    printf("%-8s m %4u", w.shape.name, m);
    for (bool is_rounded : {false, true}) {
        strip_prefill_args args = args_of(w, r, m);
        uint32_t i_chosen = strip_prefill_best_tile(&args, is_rounded);
        double chosen = 0, best = 1e30;
        for (const contender &c : all) {
            if (!strip_prefill_has_tile(&args, c.i_tile % STRIP_PREFILL_TILES, is_rounded) ||
                c.i_tile == STRIP_PREFILL_TILES) {
                continue;
            }
            double usec = median(c.usec);
            best = std::min(best, usec);
            chosen = c.i_tile == i_chosen ? usec : chosen;
            printf("  %7.1f", usec);
        }
        printf("  | %2u %7.1f us %4.0f TF %.3f, best %.3f", i_chosen, chosen, flops / chosen * 1e-6,
               has_lt ? chosen / reference : 0, has_lt ? best / reference : 0);
    }
    printf("  | lt %7.1f us %4.0f TF\n", reference, has_lt ? flops / reference * 1e-6 : 0);
    fflush(stdout);
    for (contender &c : all) {
        CHECK(cudaGraphExecDestroy(c.graph));
    }
    CHECK(cudaStreamDestroy(stream));
}

static bool has_word(int argc, char **argv, const char *word)
{
    return std::any_of(argv + 1, argv + argc, [&](char *a) { return strcmp(a, word) == 0; });
}

int main(int argc, char **argv)
{
    format f = formats[0];
    for (const format &one : formats) {
        f = has_word(argc, argv, one.name) ? one : f;
    }
    f.is_bf16 = !has_word(argc, argv, "f16");
    f.has_zeros = has_word(argc, argv, "zeros");
    if (has_pairs(f)) {
        f.n_slice_groups = has_word(argc, argv, "g32") ? 8 : has_word(argc, argv, "g64") ? 4 : 2;
    }
    bool is_quick = has_word(argc, argv, "quick");
    std::vector<uint32_t> ms = {65, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192};
    if (is_quick) {
        ms = {130, 333, 1000};
    }
    std::vector<uint32_t> asked;
    for (int i = 1; i < argc; i++) {
        if (uint32_t m = (uint32_t)strtoul(argv[i], nullptr, 10)) {
            asked.push_back(m);
        }
    }
    ms = asked.empty() ? ms : asked;
    CHECK((cudaError_t)strip_prefill_load());
    cublaslt blas;
    cublaslt *lt = blas.open() ? &blas : nullptr;
    printf("%s %s, %u groups a slice%s; errors of f32 results, and us of each tile; first with "
           "exact weights, then with rounded ones | the choice, us, TFLOP/s, ratio to cuBLASLt, "
           "that of the best tile\n",
           f.is_bf16 ? "bf16" : "f16", f.name, f.n_slice_groups,
           f.has_zeros ? ", zero points" : "");
    for (const layer &shape : layers) {
        if (is_quick && shape.n > 10240) {
            continue;
        }
        weight w = make_weight(shape, f);
        rows r;
        uint64_t m_max = ms.back();
        CHECK(cudaMalloc(&r.x, m_max * shape.k * 2));
        CHECK(cudaMalloc(&r.y, m_max * shape.n * 4));
        CHECK(cudaMalloc(&r.y_other, m_max * shape.n * 4));
        CHECK(cudaMalloc(&r.workspace, strip_prefill_workspace_bytes((uint32_t)m_max, shape.k)));
        fill_x<<<1024, 256>>>(r.x, m_max * shape.k, f.is_bf16);
        for (bool is_rounded : {false, true}) {
            printf("tiles with %s weights:", is_rounded ? "rounded" : "exact");
            for (uint32_t i : tiles_of(w, r, is_rounded)) {
                printf("  %u: %ux%u", i, strip_prefill_tiles[i].n_w, strip_prefill_tiles[i].n_x);
            }
            printf("\n");
        }
        for (uint32_t m : ms) {
            check(w, r, m, tiles_of(w, r, false));
            check(w, r, m, tiles_of(w, r, true));
            measure(w, r, m, lt);
        }
        free_weight(w);
        CHECK(cudaFree(r.x));
        CHECK(cudaFree(r.y));
        CHECK(cudaFree(r.y_other));
        CHECK(cudaFree(r.workspace));
    }
    return 0;
}
