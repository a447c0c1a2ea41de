/* bench-plain.cu - prefill of plain bf16 weights as the daemon launches it, on the layers the field
 * measures with, beside a single call of cuBLASLt for as many rows.
 *
 *   bench-plain [f16] [bias] [M...]
 *
 * That call is of the algorithm which the library ranks first, free to split k, with W (n, k) as
 * checkpoints have it. Both take turns, since at these sizes the GPU is at its power limit and its
 * clock moves; weights rotate through copies of together 300 MB. The time that planning took when
 * the weight was loaded is told for each layer, and what it takes a process that has the plan. */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define _Noreturn __attribute__((noreturn)) /* C's, which the headers below are written in */
extern "C" {
#include "gk/gk.h"
#include "kernels/cuda/registry.h"
}
#include "tests/bench/cuda/cublaslt.h"
#include "tests/bench/cuda/layers.cuh"

constexpr uint32_t m_max = GK_PREFILL_ROWS_MAX;
constexpr int n_turns = 9;

/* Normal enough: the sum of four, in bf16 bits or f16's. */
__global__ void fill(uint16_t *elems, uint64_t n, float scale, bool is_bf16)
{
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) {
        uint32_t bits = hash((uint32_t)i ^ (uint32_t)(i >> 32) * 0x9e3779b9u);
        float sum = 0;
        for (uint32_t j = 0; j < 4; j++) {
            sum += (float)(bits >> 8 * j & 255u) - 127.5f;
        }
        float value = sum * (scale / 147.0f);
        elems[i] = is_bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value))
                           : __half_as_ushort(__float2half_rn(value));
    }
}

static uint16_t *make(uint64_t n, float scale, bool is_bf16)
{
    uint16_t *elems;
    CHECK(cudaMalloc(&elems, n * 2));
    fill<<<2048, 256>>>(elems, n, scale, is_bf16);
    CHECK(cudaGetLastError());
    return elems;
}

/* Copies of a weight, which both sides read each in the order of its own, and rows. */
struct bench {
    gk_problem problem;
    std::vector<uint16_t *> copies;
    uint16_t *x, *y;
    void *workspace;
};

static bench make_bench(const layer &shape, bool is_bf16, bool has_bias)
{
    bench b = {};
    gk_desc desc = {};
    desc.n = shape.n;
    desc.k = shape.k;
    desc.code = is_bf16 ? GK_CODE_BF16 : GK_CODE_F16;
    desc.bias_dtype = has_bias ? gk_code_dtype(desc.code) : DTYPE_NONE;
    b.problem.desc = desc;
    b.problem.layout = gk_layout_for(&desc, GK_DEVICE_CUDA);
    b.problem.x_dtype = b.problem.y_dtype = gk_code_dtype(desc.code);
    b.problem.cuda_arch = 90;
    uint64_t n_elems = b.problem.layout->packed_bytes(&desc) / 2;
    for (uint64_t i = 0; i < 150000000 / n_elems + 1; i++) {
        b.copies.push_back(make(n_elems, 0.02f, is_bf16));
    }
    b.x = make((uint64_t)m_max * shape.k, 1.0f, is_bf16);
    b.y = make((uint64_t)m_max * shape.n, 1.0f, is_bf16);
    CHECK(cudaDeviceSynchronize());
    return b;
}

/* Milliseconds that loading the first weight of that shape waits for; plans are made anew for each
 * number of multiprocessors. */
static double plan(const bench &b, uint32_t n_sms, gk_planning &planning)
{
    gk_problem problem = b.problem;
    problem.m = 1;
    problem.n_sms = n_sms;
    auto start = std::chrono::steady_clock::now();
    CHECK((cudaError_t)cuda_plain_cublaslt_prefill.plan(&problem, b.copies[0], &planning));
    std::chrono::duration<double, std::milli> msec = std::chrono::steady_clock::now() - start;
    if (planning.note.status != 0) {
        printf("%s\n", planning.note.text);
    }
    return msec.count();
}

static void plan_twice(bench &b, const char *name)
{
    gk_planning first = {}, second = {};
    double first_msec = plan(b, 0, first);
    second.kept = first.text;
    printf("%-8s planned in %.0f ms, with what was kept of that in %.0f ms\n", name, first_msec,
           plan(b, 1, second));
    b.problem.is_prefill = true;
    b.problem.m = m_max;
    CHECK(cudaMalloc(&b.workspace, cuda_plain_cublaslt_prefill.workspace_bytes(&b.problem)));
}

static void free_bench(bench &b)
{
    for (uint16_t *copy : b.copies) {
        CHECK(cudaFree(copy));
    }
    CHECK(cudaFree(b.x));
    CHECK(cudaFree(b.y));
    CHECK(cudaFree(b.workspace));
}

static void enqueue(const bench &b, uint32_t i_copy, cudaStream_t stream)
{
    gk_launch launch = {};
    launch.problem = b.problem;
    launch.packed = b.copies[i_copy];
    launch.prefill.x = b.x;
    launch.prefill.y = b.y;
    launch.prefill.x_stride_bytes = b.problem.desc.k * 2ull;
    launch.prefill.y_stride_bytes = b.problem.desc.n * 2ull;
    launch.workspace = b.workspace;
    CHECK((cudaError_t)cuda_plain_cublaslt_prefill.enqueue(&launch, stream));
}

/* ---- measuring ---- */

static float time_launches(cudaStream_t stream, uint32_t n_launches, uint32_t n_copies,
                           const std::function<void(uint32_t)> &launch)
{
    static cudaEvent_t a, b;
    if (a == nullptr) {
        CHECK(cudaEventCreate(&a));
        CHECK(cudaEventCreate(&b));
    }
    float msec;
    CHECK(cudaEventRecord(a, stream));
    for (uint32_t i = 0; i < n_launches; i++) {
        launch(i % n_copies);
    }
    CHECK(cudaEventRecord(b, stream));
    CHECK(cudaEventSynchronize(b));
    CHECK(cudaEventElapsedTime(&msec, a, b));
    return msec * 1000 / (float)n_launches;
}

static float median(std::vector<float> v)
{
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

static void measure(bench &b, const char *name, uint32_t m, cublaslt &lt, cudaStream_t stream)
{
    const gk_desc &desc = b.problem.desc;
    double flops = 2.0 * m * desc.n * desc.k;
    uint32_t n_copies = (uint32_t)b.copies.size();
    uint32_t n_launches = std::max(4u, (uint32_t)(2000 / (10 + flops / 0.6e9)));
    std::vector<float> ours, theirs;
    b.problem.m = m;
    if (!lt.prepare(m, desc.n, desc.k, desc.code == GK_CODE_BF16)) {
        exit(1);
    }
    for (int i = 0; i < n_turns; i++) {
        ours.push_back(time_launches(stream, n_launches, n_copies,
                                     [&](uint32_t i_copy) { enqueue(b, i_copy, stream); }));
        theirs.push_back(time_launches(stream, n_launches, n_copies, [&](uint32_t i_copy) {
            lt.enqueue(b.x, b.copies[i_copy], b.y, stream);
        }));
    }
    float usec = median(ours);
    float lt_usec = median(theirs);
    printf("%-8s %5u  %8.1f  %5.0f  %8.1f  %5.0f  %6.3f\n", name, m, usec, flops / usec * 1e-6,
           lt_usec, flops / lt_usec * 1e-6, usec / lt_usec);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    bool is_bf16 = true;
    bool has_bias = false;
    std::vector<uint32_t> ms;
    for (int i = 1; i < argc; i++) {
        is_bf16 = is_bf16 && strcmp(argv[i], "f16") != 0;
        has_bias = has_bias || strcmp(argv[i], "bias") == 0;
        if (uint32_t m = (uint32_t)strtoul(argv[i], nullptr, 10)) {
            ms.push_back(m);
        }
    }
    if (ms.empty()) {
        ms = {65, 96, 128, 192, 256, 384, 512, 768, 1024};
    }
    cublaslt lt;
    cudaStream_t stream;
    if (!lt.open()) {
        return 1;
    }
    CHECK(cudaStreamCreate(&stream));
    CHECK((cudaError_t)cuda_plain_cublaslt_prefill.load());
    printf("layer        m        us   TF/s  cuBLASLt   TF/s   ratio   (%s%s)\n",
           is_bf16 ? "bf16" : "f16", has_bias ? ", ours with a bias" : "");
    for (const layer &shape : layers) {
        bench b = make_bench(shape, is_bf16, has_bias);
        plan_twice(b, shape.name);
        for (uint32_t m : ms) {
            measure(b, shape.name, m, lt, stream);
        }
        free_bench(b);
    }
    return 0;
}
