/* test-gpu-two.c - a daemon with two GPUs (T21): each weight is computed where it lies, by a worker
 * of its own; memory of the other GPU is refused by name; a GPU that is not there is too. Skipped
 * on a machine with fewer than two. The parent never uses CUDA: it forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "client/client.h"
#include "tests/gpu/chain.h"
#include "tests/gpu/gpu.h"
#include "tests/harness/control_job.h"
#include "tests/harness/model.h"

#define SKIPPED      77
#define N_GPUS       2u
#define N_TURNS      1000u
#define N_STEPS      300u
#define K_MAX        256u
#define MARGIN_BYTES (64ull << 20)

static const char *const names[N_GPUS] = {"first", "second"};

static struct fixture fixture;
static struct test_model models[N_GPUS];

static bool sees_two(uint32_t i_child)
{
    (void)i_child;
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess && n >= (int)N_GPUS;
}

static bool load(gemmd_client_t *client, uint32_t i, const char *device)
{
    char text[MSG_TEXT_BYTES];
    int r = control_load_on(client, names[i], models[i].path, device, text);
    if (r != GEMMD_OK) {
        (void)fprintf(stderr, "load to %s: 0x%x %s\n", device, (unsigned)r, text);
    }
    return r == GEMMD_OK;
}

static int set_up(void **state)
{
    (void)state;
    fixture_init(&fixture);
    for (uint32_t i = 0; i < N_GPUS; i++) {
        test_model_write(&models[i], &fixture.folder, names[i], i + 1);
    }
    const struct fixture_options options = {.config = "devices = cuda:0\ndevices = cuda:1\n"};
    fixture_start(&fixture, &options);
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_loaded = load(client, 0, "cuda:0") && load(client, 1, "cuda:1");
    gemmd_close(client);
    return is_loaded ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    int code = fixture_stop(&fixture);
    fixture_finish(&fixture);
    for (uint32_t i = 0; i < N_GPUS; i++) {
        test_model_finish(&models[i]);
    }
    return code;
}

static bool init(struct product *product, gemmd_client_t *client, uint32_t i_gpu, uint64_t seed)
{
    return product_init(product, client, names[i_gpu], &models[i_gpu].weights[TEST_INT4],
                        &(struct product_shape){
                            .m = 3, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = seed}) &&
           product->handle.device_index == i_gpu;
}

/* ---- each where it lies ------------------------------------------------------------------------
 */

/* Device memory that is free for all, of both. */
static bool free_bytes(uint64_t ret_bytes[N_GPUS])
{
    for (uint32_t i = 0; i < N_GPUS; i++) {
        size_t n_free, n_total;
        if (cudaSetDevice((int)i) != cudaSuccess ||
            cudaMemGetInfo(&n_free, &n_total) != cudaSuccess) {
            return false;
        }
        ret_bytes[i] = n_free;
    }
    return cudaSetDevice(0) == cudaSuccess;
}

/* One connection that takes turns, in host memory and in each GPU's own. */
static bool take_turns(gemmd_client_t *client, struct product products[N_GPUS],
                       struct gpu_buffer y[N_GPUS])
{
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < N_TURNS; i++) {
        struct product *product = &products[i % N_GPUS];
        struct gemmd_gemm gemm = product->gemm;
        gemm.y = i / N_GPUS % 2 == 0 ? product->y : y[i % N_GPUS].buffer;
        product_clear(product);
        is_right = gemmd_gemm(client, &gemm) == GEMMD_OK &&
                   (gemm.y == product->y ||
                    gpu_copy(gemmd_buffer_data(product->y), gemmd_buffer_data(gemm.y),
                             gemmd_buffer_bytes(product->y))) &&
                   product_is_right(product);
    }
    if (!is_right) {
        (void)fprintf(stderr, "in turns: %s\n", gemmd_last_error());
    }
    return is_right;
}

static bool child_of_turns(uint32_t i_child)
{
    struct product products[N_GPUS];
    struct gpu_buffer y[N_GPUS];
    uint64_t before[N_GPUS], after[N_GPUS];
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < N_GPUS; i++) {
        is_right =
            init(&products[i], client, i, i_child) &&
            gpu_buffer_init_on(&y[i], client, GPU_ARENA, i, gemmd_buffer_bytes(products[i].y));
    }
    is_right =
        is_right && free_bytes(before) && take_turns(client, products, y) && free_bytes(after);
    for (uint32_t i = 0; is_right && i < N_GPUS; i++) {
        is_right = after[i] + MARGIN_BYTES >= before[i];
        gpu_buffer_finish(&y[i]);
        product_finish(&products[i]);
    }
    gemmd_close(client);
    return is_right;
}

static void test_each_weight_where_it_lies(void **state)
{
    (void)state;
    assert_true(gpu_children(2, child_of_turns));
}

/* ---- streams -----------------------------------------------------------------------------------
 */

static bool run_chain(gemmd_client_t *client, uint32_t i_gpu, enum chain_way way,
                      uint16_t ret_x[K_MAX])
{
    char weight[64];
    struct chain chain;
    (void)snprintf(weight, sizeof(weight), "%s/layer.int4", names[i_gpu]);
    if (cudaSetDevice((int)i_gpu) != cudaSuccess) {
        return false;
    }
    bool is_right = chain_init(&chain, client, weight, way) && chain_seed(&chain, 5) &&
                    chain_steps(&chain, N_STEPS) && chain_read(&chain, ret_x);
    chain_finish(&chain);
    return is_right;
}

static bool child_of_streams(uint32_t i_child)
{
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < N_GPUS; i++) {
        uint16_t expected[K_MAX], x[K_MAX];
        uint32_t i_gpu = (i + i_child) % N_GPUS;
        is_right = run_chain(client, i_gpu, CHAIN_SYNC, expected) &&
                   run_chain(client, i_gpu, CHAIN_MEMORY, x) && memcmp(expected, x, sizeof(x)) == 0;
    }
    gemmd_close(client);
    return is_right;
}

static void test_streams_of_both(void **state)
{
    (void)state;
    assert_true(gpu_children(2, child_of_streams));
}

/* ---- refusals ----------------------------------------------------------------------------------
 */

static bool is_refused(int r, int status, const char *words)
{
    if (r != status || strstr(gemmd_last_error(), words) == NULL) {
        (void)fprintf(stderr, "0x%x '%s', not 0x%x with '%s'\n", (unsigned)r, gemmd_last_error(),
                      (unsigned)status, words);
        return false;
    }
    return true;
}

/* Memory of the one for a product of the other; the daemon goes on. */
static bool child_that_mixes(uint32_t i_child)
{
    (void)i_child;
    struct product products[N_GPUS];
    struct gpu_buffer wrong;
    gemmd_buffer_t *buffer;
    gemmd_stream_t *stream;
    void *memory;
    char text[MSG_TEXT_BYTES];
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = init(&products[0], client, 0, 1) && init(&products[1], client, 1, 2) &&
                    gpu_buffer_init_on(&wrong, client, GPU_ARENA, 0, 1u << 20) &&
                    cudaSetDevice(0) == cudaSuccess && cudaMalloc(&memory, 1u << 20) == cudaSuccess;
    struct gemmd_gemm gemm = products[1].gemm;
    gemm.y = wrong.buffer;
    is_right =
        is_right &&
        is_refused(gemmd_gemm(client, &gemm), GEMMD_INVALID_ARGUMENT, "of device 0 (cuda:0)") &&
        is_refused(gemmd_buffer_import_cuda(client, 1, memory, 1u << 20, &buffer),
                   GEMMD_INVALID_ARGUMENT, "GPU") &&
        is_refused(gemmd_stream_open(client, 1, cudaStreamPerThread, GEMMD_ORDER_MEMORY, &stream),
                   GEMMD_INVALID_ARGUMENT, "primary context") &&
        is_refused(gemmd_buffer_alloc(client, 2, 4096, &buffer), GEMMD_NOT_FOUND, "owns 2") &&
        control_load_on(client, "third", models[0].path, "cuda:7", text) == GEMMD_NOT_FOUND;
    for (uint32_t i = 0; is_right && i < N_GPUS; i++) {
        is_right = product_run(&products[i], client) && product_is_right(&products[i]);
    }
    gemmd_close(client);
    return is_right;
}

static void test_memory_of_the_other_is_refused(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_that_mixes));
}

int main(void)
{
    gpu_need();
    if (!gpu_children(1, sees_two)) {
        (void)puts("skipped: this machine has one GPU");
        return SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_weight_where_it_lies),
        cmocka_unit_test(test_streams_of_both),
        cmocka_unit_test(test_memory_of_the_other_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
