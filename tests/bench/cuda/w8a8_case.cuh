/* w8a8_case.cuh - what bench-w8a8 measures: weights of random codes, rows, launches of the 8-bit
 * kernels, their check against float64 and their time.
 *
 * Weights rotate through copies of together 600 MB, so that they come from memory; launches are
 * replayed from a graph; medians. */
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "ipc/base/dtype.h"
#include "kernels/cuda/w8a8.h"
#include "kernels/layout/swizzle.h"
#include "tests/bench/cuda/layers.cuh"

/* Those of enum w8a8_kind, and e4m3 summed in the tensor core for all of k. */
static const char *const kind_names[] = {"fp8", "group", "int8", "fast"};
constexpr uint32_t n_kinds = sizeof(kind_names) / sizeof(kind_names[0]);

/* e4m3 codes up to 16 in magnitude, or any int8. */
__global__ void fill_codes(uint8_t *codes, uint64_t n, uint32_t seed, bool is_int8)
{
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) {
        uint32_t v = hash((uint32_t)i * 2654435761u + seed);
        codes[i] = (uint8_t)(is_int8 ? v : (v & 0x80) | (v >> 8) % 0x58);
    }
}

__global__ void fill_floats(float *values, uint64_t n, float low, float high)
{
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) {
        values[i] = low + (high - low) * (float)(hash((uint32_t)i + 99) & 0xffff) / 65536.0f;
    }
}

/* About normal. */
__global__ void fill_x(__nv_bfloat16 *x, uint64_t n)
{
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) {
        float sum = 0;
        for (uint32_t j = 0; j < 4; j++) {
            sum += (float)(hash((uint32_t)i * 4 + j) & 0xffff) / 32768.0f - 1.0f;
        }
        x[i] = __float2bfloat16(sum);
    }
}

struct weight {
    layer shape;
    uint32_t kind;
    bool is_fast;
    uint64_t bytes;
    uint32_t n_scale_columns;
    std::vector<uint8_t *> copies;
    float *scales;
    int32_t *code_sums;
};

/* kind: of kind_names. */
static weight make_weight(const layer &shape, uint32_t i_kind)
{
    bool is_fast = i_kind == W8A8_N_KINDS;
    uint32_t kind = is_fast ? static_cast<uint32_t>(W8A8_FP8) : i_kind;
    weight w = {shape, kind, is_fast, (uint64_t)shape.n * shape.k, 0, {}, nullptr, nullptr};
    for (uint64_t i = 0; i < std::max<uint64_t>(2, 600000000 / w.bytes + 1); i++) {
        uint8_t *memory;
        CHECK(cudaMalloc(&memory, w.bytes));
        fill_codes<<<1024, 256>>>(memory, w.bytes, 17, kind == W8A8_INT8);
        w.copies.push_back(memory);
    }
    w.n_scale_columns = kind == W8A8_FP8_GROUP ? (shape.n + 127) / 128 : shape.n;
    uint64_t n_scales = (uint64_t)w.n_scale_columns * (kind == W8A8_FP8_GROUP ? shape.k / 128 : 1);
    CHECK(cudaMalloc(&w.scales, n_scales * 4));
    fill_floats<<<64, 256>>>(w.scales, n_scales, 0.005f, 0.015f);
    CHECK(cudaMalloc(&w.code_sums, shape.n * 4));
    CHECK(cudaMemset(w.code_sums, 0, shape.n * 4));
    CHECK(cudaDeviceSynchronize());
    return w;
}

static void free_weight(weight &w)
{
    for (uint8_t *copy : w.copies) {
        CHECK(cudaFree(copy));
    }
    CHECK(cudaFree(w.scales));
    CHECK(cudaFree(w.code_sums));
}

struct rows {
    __nv_bfloat16 *x;
    uint8_t *y;
    uint8_t *workspace;
};

constexpr uint32_t m_max = 1024;

static rows make_rows(const layer &shape)
{
    rows r;
    CHECK(cudaMalloc(&r.x, (uint64_t)m_max * shape.k * 2));
    CHECK(cudaMalloc(&r.y, (uint64_t)m_max * shape.n * 4));
    CHECK(cudaMalloc(&r.workspace, w8a8_x_bytes(W8A8_FP8_GROUP, m_max, shape.n, shape.k)));
    fill_x<<<256, 256>>>(r.x, (uint64_t)m_max * shape.k);
    CHECK(cudaDeviceSynchronize());
    return r;
}

static w8a8_lay_out_args lay_out_args(const weight &w, const rows &r, uint32_t m)
{
    static const uint32_t acts[] = {2, 3, 5}; /* a token, a group, a token */
    w8a8_lay_out_args args = {};
    args.x = w8a8_x_of(w.kind, m, w.shape.n, w.shape.k, r.workspace);
    args.m = m;
    args.k = w.shape.k;
    args.kind = w.kind;
    args.rule.act = acts[w.kind];
    args.x_dtype = DTYPE_BF16;
    for (uint32_t i = 0; i < std::min(m, CUDA_ROWS_MAX); i++) {
        args.rows[i] = r.x + (uint64_t)i * w.shape.k;
    }
    if (m > CUDA_ROWS_MAX) {
        args.prefill = {(const uint8_t *)r.x, nullptr, w.shape.k * 2ull, 0};
    }
    return args;
}

static void lay_out(const weight &w, const rows &r, uint32_t m, bool may_overlap,
                    cudaStream_t stream)
{
    w8a8_lay_out_args args = lay_out_args(w, r, m);
    CHECK(w8a8_lay_out_enqueue(&args, may_overlap, stream));
}

static w8a8_gemm_args gemm_args(const weight &w, const rows &r, uint32_t m, uint32_t i_copy,
                                bool f32)
{
    w8a8_gemm_args args = {};
    args.x = w8a8_x_of(w.kind, m, w.shape.n, w.shape.k, r.workspace);
    args.m = m;
    args.n = w.shape.n;
    args.k = w.shape.k;
    args.kind = w.kind;
    args.group_n = w.kind == W8A8_FP8_GROUP ? 128 : 1;
    args.scale_columns = w.n_scale_columns;
    args.codes = w.copies[i_copy];
    args.scales = w.scales;
    args.code_sums = w.code_sums;
    args.scale_dtype = DTYPE_F32;
    args.is_fast = w.is_fast;
    args.y_dtype = f32 ? DTYPE_F32 : DTYPE_BF16;
    for (uint32_t i = 0; i < std::min(m, CUDA_ROWS_MAX); i++) {
        args.y[i] = r.y + (uint64_t)i * w.shape.n * (f32 ? 4 : 2);
    }
    if (m > CUDA_ROWS_MAX) {
        args.prefill_y = r.y;
        args.y_stride_bytes = (uint64_t)w.shape.n * (f32 ? 4 : 2);
    }
    return args;
}

static void multiply(const weight &w, const rows &r, uint32_t m, uint32_t i_copy, bool f32,
                     bool may_overlap, cudaStream_t stream)
{
    w8a8_gemm_args args = gemm_args(w, r, m, i_copy, f32);
    CHECK(m > CUDA_ROWS_MAX ? w8a8_prefill_enqueue(&args, may_overlap, stream)
                            : w8a8_gemm_enqueue(&args, may_overlap, stream));
}

/* Both in one. */
static void gather(const weight &w, const rows &r, uint32_t m, uint32_t i_copy, bool f32,
                   bool may_overlap, cudaStream_t stream)
{
    w8a8_gemm_args args = gemm_args(w, r, m, i_copy, f32);
    w8a8_lay_out_args x = lay_out_args(w, r, m);
    CHECK(w8a8_gather_gemm_enqueue(&args, &x, may_overlap, stream));
}

/* ---- checking ---- */

__device__ double value_of(uint8_t code, bool is_int8)
{
    __nv_fp8_e4m3 v;
    v.__x = code;
    return is_int8 ? (double)(int8_t)code : (double)(float)v;
}

/* One warp an element: sums in f64 of what lies in the packed weight and in the stages of x. */
__global__ void reference(w8a8_gemm_args args, const uint32_t *columns, double *y)
{
    uint32_t i_n = columns[blockIdx.x], i_m = blockIdx.y, lane = threadIdx.x;
    bool is_int8 = args.kind == W8A8_INT8;
    uint64_t n_groups = (args.n + 7) / 8;
    double total = 0;
    for (uint32_t i_block = 0; i_block < args.k / 128; i_block++) {
        const uint8_t *w = args.codes + (i_block * n_groups + i_n / 8) * 1024;
        uint32_t in_stage = i_block % args.x.stage_blocks;
        const uint8_t *stage =
            args.x.stages + (uint64_t)(i_block / args.x.stage_blocks) * args.x.stage_bytes;
        const uint8_t *x = stage + in_stage * args.x.n_rows * 128 + i_m / 8 * 1024;
        double sum = 0;
        for (uint32_t i = lane; i < 128; i += 32) {
            sum += value_of(w[swizzle_byte_of(i_n % 8, i)], is_int8) *
                   value_of(x[swizzle_byte_of(i_m % 8, i)], is_int8);
        }
        if (args.kind == W8A8_FP8_GROUP) {
            const float *x_scales =
                (const float *)(stage + args.x.stage_blocks * args.x.n_rows * 128);
            sum *= (double)x_scales[in_stage * args.x.n_rows + i_m] *
                   ((const float *)args.scales)[(uint64_t)i_block * args.scale_columns + i_n / 128];
        }
        total += sum;
    }
    for (uint32_t i = 16; i > 0; i /= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, i);
    }
    double scale = args.kind == W8A8_FP8_GROUP ? 1.0 : ((const float *)args.scales)[i_n];
    y[blockIdx.x * args.m + i_m] = total * scale * args.x.scales[i_m];
}

constexpr uint32_t n_columns = 256;

static double check(const weight &w, const rows &r, uint32_t m, std::vector<float> &first_row)
{
    std::vector<uint32_t> columns(n_columns);
    for (uint32_t i = 0; i < n_columns; i++) {
        columns[i] = i < 64 ? w.shape.n - 1 - i : hash(i) % w.shape.n;
    }
    uint32_t *device_columns;
    double *device_y;
    CHECK(cudaMalloc(&device_columns, n_columns * 4));
    CHECK(cudaMalloc(&device_y, n_columns * m * 8));
    CHECK(cudaMemcpy(device_columns, columns.data(), n_columns * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(r.y, 0xff, (uint64_t)m * w.shape.n * 4));
    CHECK(cudaMemset(r.workspace, 0xff, w8a8_x_bytes(W8A8_FP8_GROUP, m, w.shape.n, w.shape.k)));
    lay_out(w, r, m, true, nullptr);
    multiply(w, r, m, 0, true, true, nullptr);
    reference<<<dim3(n_columns, m), 32>>>(gemm_args(w, r, m, 0, true), device_columns, device_y);
    std::vector<float> y((size_t)m * w.shape.n);
    std::vector<double> sums(n_columns * m);
    CHECK(cudaMemcpy(y.data(), r.y, y.size() * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(sums.data(), device_y, sums.size() * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device_columns));
    CHECK(cudaFree(device_y));
    if (first_row.empty()) {
        first_row.assign(y.begin(), y.begin() + w.shape.n);
    } else if (memcmp(first_row.data(), y.data(), w.shape.n * 4) != 0) {
        printf("  BITS of row 0 differ at m = %u\n", m);
    }
    if (m <= 8) {
        std::vector<float> again(y.size());
        CHECK(cudaMemset(r.y, 0xff, (uint64_t)m * w.shape.n * 4));
        gather(w, r, m, 0, true, true, nullptr);
        CHECK(cudaMemcpy(again.data(), r.y, y.size() * 4, cudaMemcpyDeviceToHost));
        if (memcmp(again.data(), y.data(), y.size() * 4) != 0) {
            printf("  BITS differ when x is gathered, m = %u\n", m);
        }
    }
    for (float v : y) {
        if (v != v) {
            printf("  NaN in y at m = %u\n", m);
            break;
        }
    }
    double error = 0, norm = 0;
    for (uint32_t i = 0; i < n_columns * m; i++) {
        double d = y[(size_t)(i % m) * w.shape.n + columns[i / m]] - sums[i];
        error += d * d;
        norm += sums[i] * sums[i];
    }
    return sqrt(error / norm);
}

/* ---- timing ---- */

enum what { PRODUCT, QUANTISED_PRODUCT, GATHERED_PRODUCT, QUANTISATION };

/* The clock of the SMs while what was timed last ran, in MHz: a GPU at its limit of power lowers it
 * by a third and more, so that times compare only beside it. 0: not known. */
static double timed_mhz;

struct stamp {
    uint64_t nsec, cycles, i_sm;
};

__global__ void read_clocks(stamp *to)
{
    uint32_t i_sm;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(to->nsec));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(i_sm));
    to->cycles = clock64();
    to->i_sm = i_sm;
}

/* Of two stamps on the GPU, of one SM. */
static double mhz_between(const stamp *stamps)
{
    stamp at[2];
    CHECK(cudaMemcpy(at, stamps, sizeof(at), cudaMemcpyDeviceToHost));
    return at[0].i_sm != at[1].i_sm
               ? 0
               : 1000.0 * (double)(at[1].cycles - at[0].cycles) / (double)(at[1].nsec - at[0].nsec);
}

/* The median time of a launch, of as many in a graph as take about 1.5 ms: enqueue(i, stream). */
template <typename function>
static double time_launches(uint32_t n_launches, const function &enqueue)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t start, end;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < n_launches; i++) {
        enqueue(i, stream);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    stamp *stamps;
    CHECK(cudaMalloc(&stamps, 2 * sizeof(*stamps)));
    for (int i = 0; i < 7; i++) {
        float ms;
        read_clocks<<<1, 1, 0, stream>>>(stamps);
        CHECK(cudaEventRecord(start, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(end, stream));
        read_clocks<<<1, 1, 0, stream>>>(stamps + 1);
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, start, end));
        if (i >= 2) {
            times.push_back(ms);
        }
    }
    std::sort(times.begin(), times.end());
    CHECK(cudaStreamSynchronize(stream));
    timed_mhz = mhz_between(stamps);
    CHECK(cudaFree(stamps));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    return times[times.size() / 2] * 1000.0 / n_launches;
}

/* The weight's copies, or as many launches as take about 1.5 ms. */
static uint32_t n_launches_of(const weight &w, uint32_t m)
{
    double memory = 1.5 + (double)w.bytes / 4.55e6, sums = 2.0 * m * (double)w.bytes / 1.4e9;
    return std::max<uint32_t>((uint32_t)w.copies.size(), (uint32_t)(1500 / std::max(memory, sums)));
}

static double time_usec(const weight &w, const rows &r, uint32_t m, what what, bool may_overlap)
{
    return time_launches(n_launches_of(w, m), [&](uint32_t i, cudaStream_t stream) {
        uint32_t i_copy = i % w.copies.size();
        if (what == QUANTISED_PRODUCT || what == QUANTISATION) {
            lay_out(w, r, m, may_overlap, stream);
        }
        if (what == GATHERED_PRODUCT) {
            gather(w, r, m, i_copy, false, may_overlap, stream);
        } else if (what != QUANTISATION) {
            multiply(w, r, m, i_copy, false, may_overlap || what != PRODUCT, stream);
        }
    });
}
