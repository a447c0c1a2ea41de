/* bench-strip.cu - strip_gemm, strip_wide and strip_batch on the layers the field measures with:
 * time over the floor, alone and in a chain of overlapping launches. Checks every point against
 * float64 before timing it.
 *
 *   bench-strip [f16] [many] [FORMAT...]
 *
 * many: 16 to 64 rows only, by strip_gemm too, in launches of 16, and beside them cuBLASLt with a
 * weight of 16 bits, on three layers.
 *
 * Weights are random words and rotate through copies of together 600 MB, so that they come from
 * memory; launches are replayed from a graph; medians. Floor: 1.5 us + bytes / 4.55 TB/s. */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "ipc/base/dtype.h"
#include "ipc/base/f8.h"
#include "kernels/cuda/strip_batch.h"
#include "kernels/cuda/strip_gemm.h"
#include "kernels/cuda/strip_wide.h"
#include "kernels/layout/strip.h"
#include "tests/bench/cuda/cublaslt.h"
#include "tests/bench/cuda/layers.cuh"

__global__ void fill_words(uint32_t *words, uint64_t n, uint32_t seed, uint32_t mask)
{
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) {
        words[i] = hash((uint32_t)i * 2654435761u + seed) & mask;
    }
}

enum kernel { GEMM, WIDE, BATCH };

static const char *const kernel_names[] = {"gemm", "wide", "batch"};

/* What is measured. Records need no padding at these k. */
struct format {
    const char *name;
    uint32_t bits;
    strip_scaling scaling;
    uint32_t n_groups; /* sums of a slice */
    uint32_t scale_bytes;
    uint32_t slice_scale_bytes;
    kernel many; /* that for more than 16 rows */
};

static const format formats[] = {
    {"u4", 4, STRIP_SCALES_PAIRS, 2, 2, 64, WIDE},
    {"u4g64", 4, STRIP_SCALES_PAIRS, 4, 2, 128, BATCH},
    {"u4g32", 4, STRIP_SCALES_PAIRS, 8, 2, 256, BATCH},
    {"u8", 8, STRIP_SCALES_PAIRS, 2, 2, 64, BATCH},
    {"u8g32", 8, STRIP_SCALES_PAIRS, 8, 2, 256, BATCH},
    {"fp8", 8, STRIP_SCALES_STRIP, 2, 4, 8, BATCH},
    {"mxfp8", 8, STRIP_SCALES_E8M0, 8, 1, 128, BATCH},
    {"mxfp4", 4, STRIP_SCALES_E8M0, 8, 1, 128, BATCH},
    {"nvfp4", 4, STRIP_SCALES_E4M3, 2, 1, 256, BATCH},
};

static uint32_t codes_bytes(const format &f)
{
    return STRIP_CODES_BYTES_OF(f.bits);
}

static uint32_t slice_bytes(const format &f)
{
    return codes_bytes(f) + f.slice_scale_bytes;
}

/* Scales around 0.01 in every record: 16 slices of codes, then their scales. */
__global__ void fill_scales(uint8_t *records, uint64_t n_records, format f, bool is_bf16)
{
    uint64_t n = 16 * f.slice_scale_bytes / f.scale_bytes;
    uint64_t record_bytes = 16ull * (f.bits * 512 + f.slice_scale_bytes);
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n * n_records;
         i += gridDim.x * 256ull) {
        uint32_t random = (uint32_t)i * 2654435761u >> 20 & 1023;
        float v = 0.005f + 0.00001f * (float)random;
        uint8_t *place = records + i / n * record_bytes + 16 * 512 * f.bits + i % n * f.scale_bytes;
        if (f.scaling == STRIP_SCALES_STRIP) {
            *(float *)place = v;
        } else if (f.scaling != STRIP_SCALES_PAIRS) {
            *place =
                (uint8_t)(f.scaling == STRIP_SCALES_E8M0 ? 118 + random % 4 : 0x02 + random % 16);
        } else {
            *(uint16_t *)place = is_bf16 ? __bfloat16_as_ushort(__float2bfloat16(v))
                                         : __half_as_ushort(__float2half(v));
        }
    }
}

struct weight {
    layer shape;
    format form;
    uint32_t n_strips, n_slices;
    uint64_t bytes;
    std::vector<uint8_t *> copies; /* of the slices */
};

static weight make_weight(const layer &shape, const format &f, bool is_bf16)
{
    weight w = {shape, f, (shape.n + 15) / 16, (shape.k + 255) / 256, 0, {}};
    uint64_t n_slices = (uint64_t)w.n_strips * w.n_slices;
    /* No NaN among 8-bit floats: they are not weights. */
    uint32_t mask = f.bits == 8 && f.scaling != STRIP_SCALES_PAIRS ? 0xf7f7f7f7u : ~0u;
    w.bytes = n_slices * slice_bytes(f);
    uint64_t n_copies = std::max<uint64_t>(2, 600000000 / w.bytes + 1);
    for (uint64_t i = 0; i < n_copies; i++) {
        uint8_t *memory;
        CHECK(cudaMalloc(&memory, w.bytes));
        fill_words<<<1024, 256>>>((uint32_t *)memory, w.bytes / 4, 17, mask);
        fill_scales<<<1024, 256>>>(memory, n_slices / 16, f, is_bf16);
        w.copies.push_back(memory);
    }
    CHECK(cudaDeviceSynchronize());
    return w;
}

static void free_weight(weight &w)
{
    for (uint8_t *copy : w.copies) {
        CHECK(cudaFree(copy));
    }
}

static float to_float(uint16_t bits, bool is_bf16)
{
    if (is_bf16) {
        uint32_t wide = (uint32_t)bits << 16;
        float v;
        memcpy(&v, &wide, 4);
        return v;
    }
    __half_raw raw = {bits};
    return __half2float(__half(raw));
}

/* A code, less its zero point. */
static double code_at(const uint8_t *codes, const format &f, uint32_t i_row, uint32_t i_k)
{
    bool is_int = f.scaling == STRIP_SCALES_PAIRS;
    if (f.bits == 8) {
        return is_int ? codes[strip_byte_of(i_row, i_k)] - 128
                      : (double)e4m3_to_f32(codes[strip_e4m3_of(i_row, i_k)]);
    }
    struct strip_place place = strip_place_of(i_row, i_k);
    uint32_t word;
    memcpy(&word, codes + place.word_offset, sizeof(word));
    if (!is_int) {
        struct strip_e2m1_place parts = strip_e2m1_of(i_row, i_k);
        return (double)e2m1_to_f32((uint8_t)strip_e2m1_code(word, &parts));
    }
    word = word >> STRIP_ROTATION | word << (32 - STRIP_ROTATION);
    return (int)(word >> place.shift & 15) - 8;
}

static double scale_at(const uint8_t *scales, const format &f, uint32_t i_row, uint32_t i_k,
                       bool is_bf16)
{
    uint32_t i = strip_scale_index(f.scaling, f.n_groups, i_row, i_k);
    if (f.scaling == STRIP_SCALES_STRIP) {
        return ((const float *)scales)[i];
    }
    if (f.scaling == STRIP_SCALES_PAIRS) {
        return to_float(((const uint16_t *)scales)[i], is_bf16);
    }
    return f.scaling == STRIP_SCALES_E8M0 ? e8m0_to_f32(scales[i]) : e4m3_to_f32(scales[i]);
}

/* Row i_n of the dequantised weight, read back by the formulas of strip.h. */
static std::vector<double> dequant_row(const weight &w, uint32_t i_n, bool is_bf16)
{
    std::vector<double> row(w.shape.k);
    uint32_t i_strip = i_n / 16, i_row = i_n % 16;
    uint32_t n_bytes = codes_bytes(w.form), n_scale_bytes = w.form.slice_scale_bytes;
    std::vector<uint8_t> codes(n_bytes);
    std::vector<uint8_t> scales(n_scale_bytes);
    for (uint32_t i_slice = 0; i_slice < w.n_slices; i_slice++) {
        uint64_t record =
            ((uint64_t)(i_slice / 16) * w.n_strips + i_strip) * 16 * slice_bytes(w.form);
        const uint8_t *from = w.copies[0] + record;
        CHECK(cudaMemcpy(codes.data(), from + i_slice % 16 * n_bytes, n_bytes,
                         cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(scales.data(), from + 16 * n_bytes + i_slice % 16 * n_scale_bytes,
                         n_scale_bytes, cudaMemcpyDeviceToHost));
        for (uint32_t i = 0; i < 256; i++) {
            row[i_slice * 256 + i] = code_at(codes.data(), w.form, i_row, i) *
                                     scale_at(scales.data(), w.form, i_row, i, is_bf16);
        }
    }
    return row;
}

struct rows {
    uint16_t *x, *y;
    uint8_t *workspace;
    std::vector<uint16_t> host_x;
};

static rows make_rows(const layer &shape, bool is_bf16)
{
    rows r;
    r.host_x.resize(64ull * shape.k);
    for (size_t i = 0; i < r.host_x.size(); i++) {
        float u = (float)hash((uint32_t)i + 1) / 4294967296.0f,
              v = (float)hash((uint32_t)i + 77777) / 4294967296.0f;
        float z = sqrtf(-2 * logf(u + 1e-9f)) * cosf(6.2831853f * v);
        r.host_x[i] =
            is_bf16 ? __bfloat16_as_ushort(__float2bfloat16(z)) : __half_as_ushort(__float2half(z));
    }
    CHECK(cudaMalloc(&r.x, r.host_x.size() * 2));
    CHECK(cudaMalloc(&r.y, 64ull * shape.n * 4));
    CHECK(cudaMalloc(&r.workspace, std::max(strip_wide_workspace_bytes(64, shape.n, shape.k),
                                            strip_batch_workspace_bytes(64, shape.n, shape.k))));
    CHECK(cudaMemcpy(r.x, r.host_x.data(), r.host_x.size() * 2, cudaMemcpyHostToDevice));
    return r;
}

static strip_args make_args(const weight &w, uint32_t i_copy, bool is_bf16, bool f32)
{
    strip_args args = {};
    args.records = w.copies[i_copy];
    args.n = w.shape.n;
    args.k = w.shape.k;
    args.n_strips = w.n_strips;
    args.n_slices = w.n_slices;
    args.code_bits = static_cast<uint8_t>(w.form.bits);
    args.scaling = static_cast<uint8_t>(w.form.scaling);
    args.n_slice_groups = w.form.n_groups;
    args.x_dtype = is_bf16 ? DTYPE_BF16 : DTYPE_F16;
    args.y_dtype = f32 ? static_cast<uint8_t>(DTYPE_F32) : args.x_dtype;
    args.scale_dtype = args.x_dtype;
    return args;
}

/* One product by one of the kernels. */
static void enqueue(const weight &w, const rows &r, uint32_t m, uint32_t i_copy, bool is_bf16,
                    bool f32, kernel which, bool may_overlap, cudaStream_t stream)
{
    strip_args args = make_args(w, i_copy, is_bf16, f32);
    cuda_rows table = {};
    for (uint32_t i = 0; i < m; i++) {
        table.x[i] = r.x + (uint64_t)i * w.shape.k;
        table.y[i] = (uint8_t *)r.y + (uint64_t)i * w.shape.n * (f32 ? 4 : 2);
    }
    if (which == WIDE) {
        strip_parts_args wide = {};
        wide.base = args;
        wide.rows = table;
        wide.m = m;
        wide.x_tiles = r.workspace;
        CHECK(strip_wide_enqueue(&wide, may_overlap, stream));
        return;
    }
    if (which == BATCH) {
        strip_parts_args batch = {};
        batch.base = args;
        batch.rows = table;
        batch.m = m;
        batch.x_tiles = r.workspace;
        CHECK(strip_batch_enqueue(&batch, may_overlap, stream));
        return;
    }
    for (uint32_t i = 0; i < m; i += args.m) {
        args.m = std::min(m - i, STRIP_TILE_M_MAX);
        memcpy(args.x_rows, table.x + i, args.m * sizeof(void *));
        memcpy(args.y_rows, table.y + i, args.m * sizeof(void *));
        CHECK(strip_gemm_enqueue(&args, nullptr, may_overlap, stream));
    }
}

/* Relative error over sampled rows of W; also that the others have the bits of strip_gemm in all
 * rows, and strip_gemm in row 0 those of m = 1. */
static double check(const weight &w, const rows &r, uint32_t m, bool is_bf16, kernel which)
{
    uint32_t m1 = which == GEMM ? 1 : m;
    std::vector<float> y((size_t)m * w.shape.n), y1((size_t)m1 * w.shape.n);
    CHECK(cudaMemset(r.y, 0xff, 64ull * w.shape.n * 4));
    enqueue(w, r, m, 0, is_bf16, true, which, true, nullptr);
    CHECK(cudaMemcpy(y.data(), r.y, y.size() * 4, cudaMemcpyDeviceToHost));
    enqueue(w, r, m1, 0, is_bf16, true, GEMM, true, nullptr);
    CHECK(cudaMemcpy(y1.data(), r.y, y1.size() * 4, cudaMemcpyDeviceToHost));
    if (memcmp(y.data(), y1.data(), y1.size() * 4) != 0) {
        printf("  BITS differ between m = %u and strip_gemm with m = %u\n", m, m1);
    }
    for (float v : y) {
        if (v != v) {
            printf("  NaN in y at m = %u\n", m);
            break;
        }
    }
    double error = 0, norm = 0;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t i_n = i < 2 ? i * (w.shape.n - 1) : hash(i) % w.shape.n;
        std::vector<double> row = dequant_row(w, i_n, is_bf16);
        for (uint32_t i_m = 0; i_m < m; i_m++) {
            double sum = 0;
            for (uint32_t i_k = 0; i_k < w.shape.k; i_k++) {
                sum +=
                    row[i_k] * (double)to_float(r.host_x[(size_t)i_m * w.shape.k + i_k], is_bf16);
            }
            double d = y[(size_t)i_m * w.shape.n + i_n] - sum;
            error += d * d;
            norm += sum * sum;
        }
    }
    return sqrt(error / norm);
}

/* Of one of so many launches, each made by enqueue_one(i, stream), from a graph. */
template <typename launcher> static double time_usec(uint32_t n_launches, launcher &&enqueue_one)
{
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < n_launches; i++) {
        enqueue_one(i, stream);
    }
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t a, b;
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    std::vector<float> times;
    for (int i = 0; i < 10; i++) {
        CHECK(cudaEventRecord(a, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(b, stream));
        CHECK(cudaEventSynchronize(b));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, a, b));
        if (i >= 3) {
            times.push_back(ms);
        }
    }
    std::sort(times.begin(), times.end());
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    return times[times.size() / 2] * 1000.0 / n_launches;
}

static double floor_usec(uint64_t n_bytes)
{
    return 1.5 + (double)n_bytes / 4.55e6;
}

static uint32_t launches_of(uint64_t n_bytes, size_t n_copies)
{
    return std::max<uint32_t>((uint32_t)n_copies, (uint32_t)(1500 / floor_usec(n_bytes)));
}

struct point {
    uint32_t m;
    bool is_many; /* by the kernel for so many */
};

static const point points[] = {{1, false}, {2, false}, {4, false}, {8, false}, {16, false},
                               {16, true}, {32, true}, {48, true}, {64, true}};
static const point many_points[] = {{16, false}, {17, false}, {17, true},  {32, false}, {32, true},
                                    {48, false}, {48, true},  {64, false}, {64, true}};
constexpr int n_points = sizeof(points) / sizeof(points[0]);
static_assert(sizeof(many_points) == sizeof(points), "the same number");

static const char *const many_layers[] = {"gate", "down", "8192"};

static bool is_measured(const layer &shape, bool is_many)
{
    bool is_one = !is_many;
    for (const char *name : many_layers) {
        is_one |= strcmp(name, shape.name) == 0;
    }
    return is_one;
}

static void run(const format &f, bool is_bf16, bool is_many)
{
    double sums[2][n_points] = {};
    uint32_t n_layers = 0;
    for (const layer &shape : layers) {
        if (!is_measured(shape, is_many)) {
            continue;
        }
        n_layers++;
        weight w = make_weight(shape, f, is_bf16);
        rows r = make_rows(shape, is_bf16);
        double floor = floor_usec(w.bytes);
        for (int i = 0; i < n_points; i++) {
            const point &p = is_many ? many_points[i] : points[i];
            kernel which = p.is_many ? f.many : GEMM;
            double error = check(w, r, p.m, is_bf16, which);
            double usec[2]; /* alone, in a chain */
            for (int j = 0; j < 2; j++) {
                usec[j] = time_usec(launches_of(w.bytes, w.copies.size()),
                                    [&](uint32_t i_launch, cudaStream_t s) {
                                        enqueue(w, r, p.m, i_launch % (uint32_t)w.copies.size(),
                                                is_bf16, false, which, j == 1, s);
                                    });
                sums[j][i] += log(usec[j] / floor);
            }
            printf("%-5s %-8s %-5s m %2u error %.1e floor %5.1f alone %5.1f (%.3f) chain %5.1f "
                   "(%.3f)\n",
                   f.name, shape.name, kernel_names[which], p.m, error, floor, usec[0],
                   usec[0] / floor, usec[1], usec[1] / floor);
        }
        free_weight(w);
        CHECK(cudaFree(r.x));
        CHECK(cudaFree(r.y));
        CHECK(cudaFree(r.workspace));
    }
    for (int i = 0; i < n_points; i++) {
        const point &p = is_many ? many_points[i] : points[i];
        printf("%-5s geomean %-5s m %2u alone %.3f chain %.3f\n", f.name,
               kernel_names[p.is_many ? f.many : GEMM], p.m, exp(sums[0][i] / n_layers),
               exp(sums[1][i] / n_layers));
    }
}

/* What dense weights of 16 bits cost. */
static void run_cublaslt(bool is_bf16)
{
    cublaslt library;
    if (!library.open()) {
        return;
    }
    for (const layer &shape : layers) {
        if (!is_measured(shape, true)) {
            continue;
        }
        uint64_t n_bytes = 2ull * shape.n * shape.k;
        std::vector<void *> copies(std::max<uint64_t>(2, 600000000 / n_bytes + 1));
        for (void *&copy : copies) {
            CHECK(cudaMalloc(&copy, n_bytes));
            fill_words<<<1024, 256>>>((uint32_t *)copy, n_bytes / 4, 17, 0x3fff3fffu);
        }
        rows r = make_rows(shape, is_bf16);
        for (uint32_t m : {16u, 17u, 32u, 48u, 64u}) {
            if (library.prepare(m, shape.n, shape.k, is_bf16)) {
                double usec = time_usec(
                    launches_of(n_bytes, copies.size()), [&](uint32_t i, cudaStream_t stream) {
                        library.enqueue(r.x, copies[i % copies.size()], r.y, stream);
                    });
                printf("%-5s %-8s cuBLASLt m %2u floor %5.1f alone %5.1f (%.3f)\n",
                       is_bf16 ? "bf16" : "f16", shape.name, m, floor_usec(n_bytes), usec,
                       usec / floor_usec(n_bytes));
            }
        }
        for (void *copy : copies) {
            CHECK(cudaFree(copy));
        }
        CHECK(cudaFree(r.x));
        CHECK(cudaFree(r.y));
        CHECK(cudaFree(r.workspace));
    }
}

int main(int argc, char **argv)
{
    int i_format = 1;
    bool is_bf16 = !(argc > i_format && strcmp(argv[i_format], "f16") == 0);
    i_format += is_bf16 ? 0 : 1;
    bool is_many = argc > i_format && strcmp(argv[i_format], "many") == 0;
    i_format += is_many ? 1 : 0;
    CHECK(strip_gemm_load());
    CHECK(strip_wide_load());
    CHECK(strip_batch_load());
    if (is_many) {
        run_cublaslt(is_bf16);
    }
    for (const format &f : formats) {
        bool is_asked = argc <= i_format;
        for (int i = i_format; i < argc; i++) {
            is_asked |= strcmp(argv[i], f.name) == 0;
        }
        if (is_asked) {
            run(f, is_bf16, is_many);
        }
    }
    return 0;
}
