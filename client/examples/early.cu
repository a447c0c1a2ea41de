/* early.cu - a chain of products on a GPU whose kernels in between are in their places in time.
 *
 * What a decoder does: gemmd makes y = x W^T, a kernel of ours the next x out of y, and so on, all
 * in the order of one CUDA stream. The kernel waits for y and says that x is ready by the functions
 * of gemmd_device.h. Launched one behind the end of the other, each kernel starts only when the one
 * before has ended; with programmatic dependent launch it is there when its y comes. This program
 * runs the chain both ways, checks that they give the same x, and prints what a step takes.
 *
 *     nvcc -arch=sm_90 early.cu -lgemmd -o early
 *     ./early MODEL/WEIGHT [STEPS]
 *
 * It needs a GPU of compute capability 9.0 and MPS, without which kernels of two processes cannot
 * wait for each other. Exit status 0: both ways gave the same. */
#include <gemmd_device.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define THREADS 128 /* one small block: whoever waits leaves room for the product */

struct chain {
    gemmd_client_t *client;
    gemmd_weight_t weight;
    gemmd_buffer_t *x; /* (k) bf16 */
    gemmd_buffer_t *y; /* (n) bf16 */
    struct gemmd_gemm gemm;
    cudaStream_t cuda_stream;
    gemmd_stream_t *stream;
};

[[noreturn]] static void fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "early: %s: %s\n", what, why);
    exit(1);
}

static void need(int status, const char *what)
{
    if (status != GEMMD_OK) {
        fail(what, gemmd_last_error());
    }
}

static void need_cuda(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fail(what, cudaGetErrorString(error));
    }
}

/* ---- the kernel ---- */

/* The next x out of y; the first one, which has no product before it, out of nothing. */
static __device__ float next(const __nv_bfloat16 *y, uint32_t n, uint32_t i, bool is_first)
{
    float v = is_first ? (float)(i % 13) - 6 : __bfloat162float(y[i % n]);
    return v / (1 + fabsf(v));
}

static __global__ void __launch_bounds__(THREADS)
    step(const __nv_bfloat16 *y, uint32_t n, __nv_bfloat16 *x, uint32_t k, gemmd_signal before,
         gemmd_signal after)
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize(); /* the kernel before this one has ended */
#endif
    if (threadIdx.x == 0 && before.done != nullptr) {
        gemmd_signal_wait(&before);
    }
    __syncthreads();
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion(); /* not before: two that wait leave no room */
#endif
    for (uint32_t i = threadIdx.x; i < k; i += THREADS) {
        x[i] = __float2bfloat16(next(y, n, i, before.done == nullptr));
    }
    __syncthreads();
    if (threadIdx.x == 0 && after.done != nullptr) {
        gemmd_signal_ready(&after);
    }
}

static void launch_step(const chain &chain, const gemmd_signal &before, const gemmd_signal &after,
                        bool is_early)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = is_early;
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = THREADS;
    config.stream = chain.cuda_stream;
    config.attrs = &early;
    config.numAttrs = 1;
    auto *x = static_cast<__nv_bfloat16 *>(gemmd_buffer_data(chain.x));
    auto *y = static_cast<const __nv_bfloat16 *>(gemmd_buffer_data(chain.y));
    need_cuda(
        cudaLaunchKernelEx(&config, step, y, chain.weight.n, x, chain.weight.k, before, after),
        "a step");
}

/* ---- the chain ---- */

static void chain_init(chain *chain, const char *weight)
{
    *chain = {};
    chain->weight = GEMMD_WEIGHT_INIT;
    chain->gemm = GEMMD_GEMM_INIT;
    need(gemmd_open(nullptr, &chain->client), "the daemon");
    need(gemmd_find_weight(chain->client, weight, &chain->weight), weight);
    need(gemmd_buffer_alloc(chain->client, chain->weight.device_index, chain->weight.k * 2ull,
                            &chain->x),
         "x");
    need(gemmd_buffer_alloc(chain->client, chain->weight.device_index, chain->weight.n * 2ull,
                            &chain->y),
         "y");
    need_cuda(cudaStreamCreateWithFlags(&chain->cuda_stream, cudaStreamNonBlocking), "a stream");
    need(gemmd_stream_open(chain->client, chain->weight.device_index, chain->cuda_stream,
                           GEMMD_ORDER_KERNEL, &chain->stream),
         "products in stream order");
    /* A multiprocessor that is split otherwise takes no block of a product while step() waits. */
    need_cuda(cudaFuncSetAttribute(step, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared),
              "step");
    chain->gemm.weight = &chain->weight;
    chain->gemm.m = 1;
    chain->gemm.x = chain->x;
    chain->gemm.y = chain->y;
    chain->gemm.x_dtype = chain->gemm.y_dtype = GEMMD_BF16;
}

static void chain_finish(chain *chain)
{
    gemmd_stream_close(chain->stream);
    gemmd_close(chain->client);
    need_cuda(cudaStreamDestroy(chain->cuda_stream), "a stream");
}

/* So many products, and a kernel before, between and behind them. Returns when all have run; us. */
static double run(const chain &chain, uint32_t n_steps, bool is_early)
{
    gemmd_signal before = {};
    auto begin = std::chrono::steady_clock::now();
    for (uint32_t i = 0; i <= n_steps; i++) {
        gemmd_signal after = {};
        int status = GEMMD_BUSY; /* as many are in flight as can be */
        while (i < n_steps && status == GEMMD_BUSY) {
            status = gemmd_submit_on_stream(chain.stream, &chain.gemm, &after);
        }
        need(i < n_steps ? status : GEMMD_OK, "a product");
        launch_step(chain, before, after, is_early);
        before = after;
    }
    need_cuda(cudaStreamSynchronize(chain.cuda_stream), "the stream");
    need(gemmd_stream_status(chain.stream), "the products");
    std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
    return taken.count();
}

static std::vector<uint16_t> read_x(const chain &chain)
{
    std::vector<uint16_t> x(chain.weight.k);
    need_cuda(cudaMemcpy(x.data(), gemmd_buffer_data(chain.x), x.size() * 2, cudaMemcpyDefault),
              "x");
    return x;
}

int main(int argc, char **argv)
{
    uint32_t n_steps = argc > 2 ? (uint32_t)strtoul(argv[2], nullptr, 10) : 1000;
    if (argc < 2 || argc > 3 || n_steps == 0) {
        (void)fprintf(stderr, "usage: early MODEL/WEIGHT [STEPS]\n");
        return 2;
    }
    chain chain;
    chain_init(&chain, argv[1]);
    (void)run(chain, n_steps, false); /* so that the daemon knows the order */
    double usec = run(chain, n_steps, false);
    std::vector<uint16_t> x = read_x(chain);
    double early_usec = run(chain, n_steps, true);
    bool is_same = x == read_x(chain);
    (void)printf("%u steps of %ux%u: %.2f us each, %.2f with kernels in their places; %s\n",
                 n_steps, chain.weight.n, chain.weight.k, usec / n_steps, early_usec / n_steps,
                 is_same ? "the same x" : "ANOTHER X");
    chain_finish(&chain);
    return is_same ? 0 : 1;
}
