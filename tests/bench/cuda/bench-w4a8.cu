/* bench-w4a8.cu - 4-bit integers with e4m3 activations (w4a8_prefill.cu) on the layers the field
 * measures with, beside the same weight with 16-bit activations (strip_prefill.cu) and cuBLASLt in
 * bf16 and e4m3. Checks every point before timing it.
 *
 *   bench-w4a8 [zeros] [LAYER] [M...]
 *
 * Errors are relative Frobenius ones of elements of f32 results against float64: the kernel's, x
 * being quantised, and all of it, x as it came; of 16-bit activations the latter. What is timed
 * takes turns, since at these sizes the GPU is at its power limit and its clock moves; y is bf16.
 * Weights rotate through copies of together 300 MB. cuBLASLt is looked for at run time, and of its
 * e4m3 algorithms the fastest counts; its x is quantised already. */
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "ipc/base/dtype.h"
#include "kernels/cuda/strip_prefill.h"
#include "kernels/cuda/strip_read.cuh"
#include "kernels/cuda/w4a8.h"
#include "kernels/cuda/w8a8.h"
#include "tests/bench/cuda/cublaslt_8bit.h"
#include "tests/bench/cuda/layers.cuh"

constexpr uint64_t rotation_bytes = 300000000;
constexpr uint32_t act_fp8_token = 2; /* GK_ACT_FP8_TOKEN */

struct weight {
    layer shape;
    strip_records lie; /* of the first copy */
    bool has_zeros;
    std::vector<uint8_t *> copies;
    std::vector<uint8_t *> plain;  /* (n, k) bf16, of any values */
    std::vector<uint8_t *> narrow; /* (n, k) e4m3 */
};

struct rows {
    __nv_bfloat16 *x;
    uint8_t *x_narrow;
    uint8_t *y;
    uint8_t *workspace;
    double *sums;
};

/* ---- made-up numbers ---- */

__global__ void fill_words(uint32_t *words, uint64_t n, uint32_t mask)
{
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) {
        words[i] = hash((uint32_t)i * 2654435761u + 17) & mask;
    }
}

/* About normal, times a factor. */
__global__ void fill_normal(__nv_bfloat16 *values, uint64_t n, float factor)
{
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) {
        float u = (float)hash((uint32_t)i + 1) / 4294967296.0f;
        float v = (float)hash((uint32_t)i + 77777777) / 4294967296.0f;
        values[i] = __float2bfloat16(factor * sqrtf(-2 * logf(u + 1e-9f)) * cosf(6.2831853f * v));
    }
}

/* Scales around 0.01 and zero points, of a row of W (x) and a group of 128 (y). */
__global__ void fill_groups(strip_records lie, bool has_zeros)
{
    uint32_t i_n = blockIdx.x * 256 + threadIdx.x, i_k = blockIdx.y * STRIP_GROUP_MAX;
    if (i_n >= lie.n_strips * STRIP_N) {
        return;
    }
    strip_slice slice = strip_slice_at(lie, i_n, i_k);
    uint32_t index = strip_scale_index(STRIP_SCALES_PAIRS, 2, i_n, i_k);
    uint32_t salt = hash(i_n * 977 + blockIdx.y);
    ((__nv_bfloat16 *)slice.scales)[index] =
        __float2bfloat16(0.005f + 0.00001f * (float)(salt & 1023));
    if (has_zeros) {
        ((uint8_t *)slice.zeros)[index] = salt >> 16 & 15;
    }
}

static uint8_t *make_bytes(uint64_t n_bytes, uint32_t mask)
{
    uint8_t *memory;
    CHECK(cudaMalloc(&memory, n_bytes));
    fill_words<<<1024, 256>>>((uint32_t *)memory, n_bytes / 4, mask);
    return memory;
}

static weight make_weight(const layer &shape, bool has_zeros)
{
    weight w = {shape, {}, has_zeros, {}, {}, {}};
    w.lie = {nullptr, shape.n / STRIP_N, shape.k / STRIP_SLICE_K, 4, 64, has_zeros ? 32u : 0u};
    uint32_t slice_bytes = STRIP_CODES_BYTES + w.lie.slice_scale_bytes + w.lie.slice_zero_bytes;
    uint64_t n_bytes = (uint64_t)w.lie.n_strips * w.lie.n_slices * strip_align(slice_bytes);
    uint64_t n_elems = (uint64_t)shape.n * shape.k;
    for (uint64_t i = 0; i < rotation_bytes / n_bytes + 1; i++) {
        w.lie.records = make_bytes(n_bytes, UINT32_MAX);
        w.copies.push_back(const_cast<uint8_t *>(w.lie.records));
        fill_groups<<<dim3((shape.n + 255) / 256, shape.k / STRIP_GROUP_MAX), 256>>>(w.lie,
                                                                                     has_zeros);
    }
    for (uint64_t i = 0; i < rotation_bytes / (2 * n_elems) + 1; i++) {
        w.plain.push_back(make_bytes(2 * n_elems, 0));
        fill_normal<<<1024, 256>>>((__nv_bfloat16 *)w.plain.back(), n_elems, 0.05f);
    }
    for (uint64_t i = 0; i < rotation_bytes / n_elems + 1; i++) {
        w.narrow.push_back(make_bytes(n_elems, 0xbfbfbfbfu));
    }
    CHECK(cudaDeviceSynchronize());
    return w;
}

static void free_weight(const weight &w)
{
    for (const std::vector<uint8_t *> &some : {w.copies, w.plain, w.narrow}) {
        for (uint8_t *memory : some) {
            CHECK(cudaFree(memory));
        }
    }
}

static rows make_rows(const layer &shape, uint32_t m_max)
{
    rows r;
    uint64_t n_elems = (uint64_t)m_max * shape.k;
    CHECK(cudaMalloc(&r.x, n_elems * 2));
    CHECK(cudaMalloc(&r.y, (uint64_t)m_max * shape.n * 4));
    CHECK(cudaMalloc(&r.workspace, w8a8_x_bytes(W8A8_FP8, m_max, shape.n, shape.k)));
    CHECK(cudaMallocManaged(&r.sums, 3 * sizeof(double)));
    r.x_narrow = make_bytes(n_elems, 0xbfbfbfbfu);
    fill_normal<<<1024, 256>>>(r.x, n_elems, 1.0f);
    return r;
}

static void free_rows(const rows &r)
{
    CHECK(cudaFree(r.x));
    CHECK(cudaFree(r.x_narrow));
    CHECK(cudaFree(r.y));
    CHECK(cudaFree(r.workspace));
    CHECK(cudaFree(r.sums));
}

/* ---- launches ---- */

static strip_args base_of(const weight &w, const uint8_t *records, bool is_f32)
{
    strip_args base = {};
    base.records = records;
    base.n = w.shape.n;
    base.k = w.shape.k;
    base.n_strips = w.lie.n_strips;
    base.n_slices = w.lie.n_slices;
    base.n_slice_groups = 2;
    base.row_scale_group_n = 1;
    base.code_bits = 4;
    base.scaling = STRIP_SCALES_PAIRS;
    base.has_zeros = w.has_zeros;
    base.x_dtype = base.scale_dtype = DTYPE_BF16;
    base.y_dtype = is_f32 ? DTYPE_F32 : DTYPE_BF16;
    return base;
}

static void quantise(const weight &w, const rows &r, uint32_t m, cudaStream_t stream)
{
    w8a8_lay_out_args args = {};
    args.x = w8a8_x_of(W8A8_FP8, m, w.shape.n, w.shape.k, r.workspace);
    args.m = m;
    args.k = w.shape.k;
    args.kind = W8A8_FP8;
    args.rule.act = act_fp8_token;
    args.form = W8A8_X_STRIPS;
    args.x_dtype = DTYPE_BF16;
    args.prefill = {(const uint8_t *)r.x, nullptr, w.shape.k * 2ull, 0};
    CHECK(w8a8_lay_out_enqueue(&args, true, stream));
}

static void multiply(const weight &w, const rows &r, uint32_t m, uint32_t i_copy, bool is_f32,
                     cudaStream_t stream)
{
    w4a8_args args = {};
    args.base = base_of(w, w.copies[i_copy], is_f32);
    args.x = w8a8_x_of(W8A8_FP8, m, w.shape.n, w.shape.k, r.workspace);
    args.m = m;
    args.y = r.y;
    args.y_stride_bytes = (uint64_t)w.shape.n * (is_f32 ? 4 : 2);
    CHECK(w4a8_enqueue(&args, true, stream));
}

static void multiply_wide(const weight &w, const rows &r, uint32_t m, uint32_t i_copy, bool is_f32,
                          cudaStream_t stream)
{
    strip_prefill_args args = {};
    args.base = base_of(w, w.copies[i_copy], is_f32);
    args.x = r.x;
    args.x_stride_bytes = w.shape.k * 2ull;
    args.y = r.y;
    args.y_stride_bytes = (uint64_t)w.shape.n * (is_f32 ? 4 : 2);
    args.m = m;
    CHECK(strip_prefill_enqueue(&args, strip_prefill_best_tile(&args, true), nullptr, stream));
}

/* ---- checking ---- */

static __device__ double value_at(const strip_records &lie, bool has_zeros, uint32_t i_n,
                                  uint32_t i_k)
{
    strip_slice slice = strip_slice_at(lie, i_n, i_k);
    uint32_t index = strip_scale_index(STRIP_SCALES_PAIRS, 2, i_n, i_k);
    int zero = has_zeros ? slice.zeros[index] : 8;
    return (double)((int)strip_int_code(&slice, 4, i_n, i_k) - zero) *
           (double)__bfloat162float(((const __nv_bfloat16 *)slice.scales)[index]);
}

static __device__ double sum_of_lanes(double sum)
{
    for (int i = 16; i > 0; i /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, i);
    }
    return sum;
}

/* A warp an element of y. sums: the squares of its error with x quantised, with x as it came, and
 * of the value. */
__global__ void sample_errors(strip_records lie, bool has_zeros, layer shape,
                              const __nv_bfloat16 *x, uint32_t m, const float *y, double *sums)
{
    uint32_t i_m = blockIdx.x < 64 ? m - 1 - blockIdx.x % m : hash(blockIdx.x) % m;
    uint32_t i_n = blockIdx.x % 8 == 0 ? shape.n - 1 - blockIdx.x / 8 % shape.n
                                       : hash(blockIdx.x + 123) % shape.n;
    const __nv_bfloat16 *row = x + (uint64_t)i_m * shape.k;
    float largest = 0;
    for (uint32_t i = threadIdx.x; i < shape.k; i += 32) {
        largest = fmaxf(largest, fabsf(__bfloat162float(row[i])));
    }
    for (int i = 16; i > 0; i /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, i));
    }
    float scale = fmaxf(__fdiv_rn(largest, 448.0f), 1.0f / 229376.0f);
    double sum = 0, quantised = 0;
    for (uint32_t i = threadIdx.x; i < shape.k; i += 32) {
        double w = value_at(lie, has_zeros, i_n, i);
        float v = __bfloat162float(row[i]);
        sum += w * (double)v;
        quantised += w * (double)(float)__nv_fp8_e4m3(__fdiv_rn(v, scale)) * (double)scale;
    }
    sum = sum_of_lanes(sum);
    quantised = sum_of_lanes(quantised);
    if (threadIdx.x == 0) {
        double seen = y[(uint64_t)i_m * shape.n + i_n];
        atomicAdd(&sums[0], (seen - quantised) * (seen - quantised));
        atomicAdd(&sums[1], (seen - sum) * (seen - sum));
        atomicAdd(&sums[2], sum * sum);
    }
}

struct errors {
    double quantised, all;
};

static errors errors_of(const weight &w, const rows &r, uint32_t m)
{
    strip_records lie = w.lie;
    lie.records = w.copies[0];
    memset(r.sums, 0, 3 * sizeof(double));
    sample_errors<<<4096, 32>>>(lie, w.has_zeros, w.shape, r.x, m, (const float *)r.y, r.sums);
    CHECK(cudaDeviceSynchronize());
    return {sqrt(r.sums[0] / r.sums[2]), sqrt(r.sums[1] / r.sums[2])};
}

static void check(const weight &w, const rows &r, uint32_t m)
{
    uint64_t y_bytes = (uint64_t)m * w.shape.n * 4;
    CHECK(cudaMemset(r.y, 0xff, y_bytes));
    multiply_wide(w, r, m, 0, true, nullptr);
    errors wide = errors_of(w, r, m);
    CHECK(cudaMemset(r.y, 0xff, y_bytes));
    CHECK(cudaMemset(r.workspace, 0xff, w8a8_x_bytes(W8A8_FP8, m, w.shape.n, w.shape.k)));
    quantise(w, r, m, nullptr);
    multiply(w, r, m, 0, true, nullptr);
    errors narrow = errors_of(w, r, m);
    printf("%-8s m %4u  error %.1e all %.1e, w4a16 %.1e", w.shape.name, m, narrow.quantised,
           narrow.all, wide.all);
}

/* ---- timing ---- */

/* One way to make the product, as a graph of a few launches. */
struct contender {
    const char *name;
    cudaGraphExec_t graph;
    uint32_t n_launches;
    std::vector<float> usec;
};

static contender capture(const char *name, double usec_guess, size_t n_copies, cudaStream_t stream,
                         const std::function<void(uint32_t)> &launch)
{
    contender c = {name, nullptr, std::max<uint32_t>(2, (uint32_t)(1000 / usec_guess)), {}};
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < c.n_launches; i++) {
        launch(i % (uint32_t)n_copies);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&c.graph, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return c;
}

static void run_turns(std::vector<contender> &all, cudaStream_t stream, int n_turns)
{
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    for (int i = 0; i <= n_turns; i++) {
        for (contender &c : all) {
            float ms;
            CHECK(cudaEventRecord(start, stream));
            CHECK(cudaGraphLaunch(c.graph, stream));
            CHECK(cudaEventRecord(end, stream));
            CHECK(cudaEventSynchronize(end));
            CHECK(cudaEventElapsedTime(&ms, start, end));
            if (i > 0) {
                c.usec.push_back(ms * 1000 / (float)c.n_launches);
            }
        }
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
}

static double median(std::vector<float> v)
{
    std::sort(v.begin(), v.end());
    return (double)v[v.size() / 2];
}

static void measure(const weight &w, const rows &r, uint32_t m, cublaslt *lt, cublaslt_8bit *lt8)
{
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    double flops = 2.0 * m * w.shape.n * w.shape.k, guess = 10 + flops / 0.7e9;
    std::vector<contender> all;
    auto add = [&](const char *name, size_t n_copies, const std::function<void(uint32_t)> &launch) {
        all.push_back(capture(name, guess, n_copies, stream, launch));
    };
    add("w4a8", w.copies.size(), [&](uint32_t i) {
        quantise(w, r, m, stream);
        multiply(w, r, m, i, false, stream);
    });
    add("product", w.copies.size(), [&](uint32_t i) { multiply(w, r, m, i, false, stream); });
    add("quantise", 1, [&](uint32_t) { quantise(w, r, m, stream); });
    add("w4a16", w.copies.size(), [&](uint32_t i) { multiply_wide(w, r, m, i, false, stream); });
    if (lt != nullptr && lt->prepare(m, w.shape.n, w.shape.k, true)) {
        add("lt bf16", w.plain.size(),
            [&](uint32_t i) { lt->enqueue(r.x, w.plain[i], r.y, stream); });
    }
    uint32_t n_ways =
        lt8 != nullptr ? lt8->prepare(m, w.shape.n, w.shape.k, CUBLASLT_TENSOR_FAST) : 0;
    for (uint32_t j = 0; j < std::min<uint32_t>(n_ways, 2); j++) {
        lt8->choose_algorithm(j);
        add("lt fp8", w.narrow.size(),
            [&](uint32_t i) { lt8->enqueue(r.x_narrow, w.narrow[i], r.y, stream); });
    }
    run_turns(all, stream, 5);
    double usec[5] = {}; /* w4a8, product, w4a16, bf16, fp8 */
    for (contender &c : all) {
        double one = median(c.usec);
        printf("  %s %.1f", c.name, one);
        static const char *const names[] = {"w4a8", "product", "w4a16", "lt bf16", "lt fp8"};
        for (int i = 0; i < 5; i++) {
            if (strcmp(c.name, names[i]) == 0 && (usec[i] == 0 || one < usec[i])) {
                usec[i] = one;
            }
        }
        CHECK(cudaGraphExecDestroy(c.graph));
    }
    printf("  | product %.0f TF, w4a8 / w4a16 %.3f, / bf16 %.3f, / fp8 %.3f\n",
           flops / usec[1] * 1e-6, usec[0] / usec[2], usec[3] != 0 ? usec[0] / usec[3] : 0,
           usec[4] != 0 ? usec[0] / usec[4] : 0);
    CHECK(cudaStreamDestroy(stream));
}

static const char *layer_asked(int argc, char **argv)
{
    for (const layer &shape : layers) {
        for (int i = 1; i < argc; i++) {
            if (strcmp(argv[i], shape.name) == 0) {
                return shape.name;
            }
        }
    }
    return nullptr;
}

int main(int argc, char **argv)
{
    bool has_zeros = false;
    const char *name = layer_asked(argc, argv);
    std::vector<uint32_t> ms;
    for (int i = 1; i < argc; i++) {
        uint32_t m = (uint32_t)strtoul(argv[i], nullptr, 10);
        has_zeros |= strcmp(argv[i], "zeros") == 0;
        if (m > CUDA_ROWS_MAX && (name == nullptr || strcmp(argv[i], name) != 0)) {
            ms.push_back(m);
        }
    }
    if (ms.empty()) {
        ms = {128, 256, 512, 1024, 2048, 4096, 8192};
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    CHECK(w8a8_lay_out_load());
    CHECK(w4a8_load());
    CHECK(strip_prefill_load());
    cublaslt lt;
    cublaslt_8bit lt8;
    bool has_lt = lt.open() && lt8.open();
    for (const layer &shape : layers) {
        if (name != nullptr && strcmp(name, shape.name) != 0) {
            continue;
        }
        weight w = make_weight(shape, has_zeros);
        rows r = make_rows(shape, *std::max_element(ms.begin(), ms.end()));
        for (uint32_t m : ms) {
            check(w, r, m);
            measure(w, r, m, has_lt ? &lt : nullptr, has_lt ? &lt8 : nullptr);
        }
        free_weight(w);
        free_rows(r);
    }
    return 0;
}
