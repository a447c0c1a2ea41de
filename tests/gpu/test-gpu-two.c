/* test-gpu-two.c - a daemon with two GPUs (T21): each weight is computed where it lies, by a worker
 * of its own, in every kind of memory and in stream order; memory of the other GPU is refused by
 * name; a GPU that is not there is too; a client that sees one of them uses that one. Skipped on a
 * machine with fewer than two. The parent never uses CUDA: it forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "client/client.h"
#include "tests/gpu/chain.h"
#include "tests/gpu/two.h"
#include "tests/harness/control_job.h"
#include "tests/harness/status_document.h"

#define N_TURNS      1000u
#define N_STEPS      300u
#define K_MAX        256u
#define MARGIN_BYTES (64ull << 20)

#define WAIT_SECONDS 30.0

static struct two two;
static _Atomic uint32_t *n_set_up; /* children of turns that have what they need */

static int set_up(void **state)
{
    (void)state;
    n_set_up =
        mmap(NULL, sizeof(*n_set_up), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n_set_up == MAP_FAILED) {
        return -1;
    }
    two_init(&two);
    return two_start(&two, &(struct fixture_options){.config = "devices = auto\n"}) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    int code = fixture_stop(&two.fixture);
    two_finish(&two);
    (void)munmap((void *)(uintptr_t)n_set_up, sizeof(*n_set_up));
    return code;
}

/* ---- each where it lies ---- */

/* Device memory that is free for all, of both. */
static bool free_bytes(uint64_t ret_bytes[TWO_GPUS])
{
    for (uint32_t i = 0; i < TWO_GPUS; i++) {
        size_t n_free, n_total;
        if (cudaSetDevice((int)i) != cudaSuccess ||
            cudaMemGetInfo(&n_free, &n_total) != cudaSuccess) {
            return false;
        }
        ret_bytes[i] = n_free;
    }
    return cudaSetDevice(0) == cudaSuccess;
}

/* The product, with y in the host's memory or in that of its GPU. */
static bool run_turn(gemmd_client_t *client, struct product *product, struct gpu_buffer *y)
{
    struct gemmd_gemm gemm = product->gemm;
    gemm.y = y != NULL ? y->buffer : product->y;
    product_clear(product);
    if (gemmd_gemm(client, &gemm) != GEMMD_OK) {
        (void)fprintf(stderr, "%s: %s\n", product->handle.name, gemmd_last_error());
        return false;
    }
    return (y == NULL || gpu_copy(gemmd_buffer_data(product->y), gemmd_buffer_data(y->buffer),
                                  gemmd_buffer_bytes(product->y))) &&
           product_is_right(product);
}

/* One connection that takes turns, from that GPU on. */
static bool take_turns(gemmd_client_t *client, struct product products[TWO_GPUS],
                       struct gpu_buffer y[TWO_GPUS], uint32_t i_first)
{
    for (uint32_t i = 0; i < N_TURNS; i++) {
        uint32_t i_gpu = i_first + i % (TWO_GPUS - i_first);
        bool is_host = i / TWO_GPUS % 2 == 0;
        if (!run_turn(client, &products[i_gpu], is_host ? NULL : &y[i_gpu])) {
            (void)fprintf(stderr, "turn %u, on GPU %u\n", i, i_gpu);
            return false;
        }
    }
    return true;
}

/* Until both children have their contexts, which take memory. */
static bool await_both(void)
{
    double deadline = fixture_now() + WAIT_SECONDS;
    atomic_fetch_add(n_set_up, 1);
    while (atomic_load(n_set_up) < 2 && fixture_now() < deadline) {
        fixture_sleep(0.001);
    }
    return atomic_load(n_set_up) == 2;
}

/* The one alternates, the other works on the second GPU only; neither costs memory. */
static bool child_of_turns(uint32_t i_child)
{
    struct product products[TWO_GPUS];
    struct gpu_buffer y[TWO_GPUS];
    uint64_t before[TWO_GPUS], after[TWO_GPUS];
    gemmd_client_t *client = fixture_open(&two.fixture, GEMMD_PATH_RING);
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < TWO_GPUS; i++) {
        is_right =
            two_product(&two, &products[i], client, i, i_child) &&
            gpu_buffer_init_on(&y[i], client, GPU_ARENA, i, gemmd_buffer_bytes(products[i].y));
    }
    is_right = is_right && free_bytes(before) && await_both() && free_bytes(before) &&
               take_turns(client, products, y, i_child) && free_bytes(after);
    for (uint32_t i = 0; is_right && i < TWO_GPUS; i++) {
        is_right = after[i] + MARGIN_BYTES >= before[i];
        if (!is_right) {
            (void)fprintf(stderr, "GPU %u had %ju bytes free, and has %ju\n", i,
                          (uintmax_t)before[i], (uintmax_t)after[i]);
        }
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

/* ---- every kind of memory ---- */

static bool run_kind(gemmd_client_t *client, struct product *product, enum gpu_kind kind,
                     uint32_t i_gpu)
{
    struct gpu_buffer y;
    if (!gpu_buffer_init_on(&y, client, kind, i_gpu, gemmd_buffer_bytes(product->y))) {
        return false;
    }
    bool is_right = gpu_copy(gemmd_buffer_data(y.buffer), gemmd_buffer_data(product->y),
                             gemmd_buffer_bytes(product->y)) &&
                    run_turn(client, product, &y);
    gpu_buffer_finish(&y);
    if (!is_right) {
        (void)fprintf(stderr, "y of kind %d on GPU %u\n", (int)kind, i_gpu);
    }
    return is_right;
}

/* The child's present device has to be that GPU, whose index the daemon has for it is given. */
static bool run_kinds(gemmd_client_t *client, uint32_t i_gpu)
{
    struct product product;
    bool is_right = two_product(&two, &product, client, i_gpu, 11);
    for (int kind = 0; is_right && kind < GPU_KINDS; kind++) {
        is_right = run_kind(client, &product, (enum gpu_kind)kind, i_gpu);
    }
    product_finish(&product);
    return is_right;
}

static bool child_of_kinds(uint32_t i_gpu)
{
    gemmd_client_t *client = fixture_open(&two.fixture, GEMMD_PATH_RING);
    bool is_right = cudaSetDevice((int)i_gpu) == cudaSuccess && run_kinds(client, i_gpu);
    gemmd_close(client);
    return is_right;
}

static void test_every_kind_of_memory(void **state)
{
    (void)state;
    assert_true(gpu_children(TWO_GPUS, child_of_kinds));
}

/* ---- streams ---- */

static bool run_chain(gemmd_client_t *client, uint32_t i_gpu, enum chain_way way,
                      uint16_t ret_x[K_MAX])
{
    char weight[64];
    struct chain chain;
    (void)snprintf(weight, sizeof(weight), "%s/layer.int4", two_names[i_gpu]);
    if (!chain_init(&chain, client, weight, way)) {
        return false;
    }
    bool is_right = chain.weight.k <= K_MAX && chain_seed(&chain, 5) &&
                    chain_steps(&chain, N_STEPS) && chain_read(&chain, ret_x);
    chain_finish(&chain);
    return is_right;
}

static bool run_ways(gemmd_client_t *client, uint32_t i_gpu)
{
    uint16_t expected[K_MAX] = {0}, x[K_MAX] = {0};
    bool is_right = run_chain(client, i_gpu, CHAIN_SYNC, expected);
    for (int way = CHAIN_SYNC + 1; is_right && way < CHAIN_WAYS; way++) {
        if (!chain_has_way(client, i_gpu, (enum chain_way)way)) {
            continue;
        }
        is_right =
            run_chain(client, i_gpu, (enum chain_way)way, x) && memcmp(expected, x, sizeof(x)) == 0;
        if (!is_right) {
            (void)fprintf(stderr, "a chain by %s on GPU %u\n", chain_way_names[way], i_gpu);
        }
    }
    return is_right;
}

/* One after the other, of one connection: the children begin with different ones. */
static bool child_of_streams(uint32_t i_child)
{
    gemmd_client_t *client = fixture_open(&two.fixture, GEMMD_PATH_RING);
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < TWO_GPUS; i++) {
        uint32_t i_gpu = (i + i_child) % TWO_GPUS;
        is_right = cudaSetDevice((int)i_gpu) == cudaSuccess && run_ways(client, i_gpu);
    }
    gemmd_close(client);
    return is_right;
}

static void test_streams_of_both(void **state)
{
    (void)state;
    assert_true(gpu_children(2, child_of_streams));
}

/* ---- refusals ---- */

static bool is_refused(int r, int status, const char *words)
{
    if (r != status || strstr(gemmd_last_error(), words) == NULL) {
        (void)fprintf(stderr, "0x%x '%s', not 0x%x with '%s'\n", (unsigned)r, gemmd_last_error(),
                      (unsigned)status, words);
        return false;
    }
    return true;
}

/* Memory of GPU 0, in each of its kinds, shared for a weight of GPU 1. */
static bool imports_are_refused(gemmd_client_t *client)
{
    void *plain;
    uint64_t vmm_bytes = 1u << 20;
    gemmd_buffer_t *buffer;
    void *vmm = gpu_vmm_alloc(&vmm_bytes, true);
    bool is_right = vmm != NULL && cudaMalloc(&plain, 1u << 20) == cudaSuccess;
    is_right = is_right &&
               is_refused(gemmd_buffer_import_cuda(client, 1, plain, 1u << 20, &buffer),
                          GEMMD_INVALID_ARGUMENT, "another GPU") &&
               is_refused(gemmd_buffer_import_cuda(client, 1, vmm, vmm_bytes, &buffer),
                          GEMMD_INVALID_ARGUMENT, "not on cuda:1");
    return is_right;
}

/* Memory of the one for a product of the other; the daemon goes on. */
static bool child_that_mixes(uint32_t i_child)
{
    (void)i_child;
    static const uint32_t indices[TWO_GPUS] = {0, 1};
    struct product product;
    struct gpu_buffer wrong;
    gemmd_buffer_t *buffer;
    gemmd_stream_t *stream;
    cudaStream_t cuda_stream;
    char text[MSG_TEXT_BYTES];
    gemmd_client_t *client = fixture_open(&two.fixture, GEMMD_PATH_RING);
    if (!two_product(&two, &product, client, 1, 2) ||
        !gpu_buffer_init_on(&wrong, client, GPU_ARENA, 0, 1u << 20) ||
        cudaSetDevice(0) != cudaSuccess || cudaStreamCreate(&cuda_stream) != cudaSuccess) {
        return false;
    }
    struct gemmd_gemm gemm = product.gemm;
    gemm.y = wrong.buffer;
    bool is_right =
        is_refused(gemmd_gemm(client, &gemm), GEMMD_INVALID_ARGUMENT, "of device 0 (cuda:0)");
    is_right &= imports_are_refused(client);
    is_right &= is_refused(gemmd_stream_open(client, 1, cuda_stream, GEMMD_ORDER_MEMORY, &stream),
                           GEMMD_INVALID_ARGUMENT, "primary context");
    is_right &=
        is_refused(gemmd_buffer_alloc(client, 2, 4096, &buffer), GEMMD_NOT_FOUND, "owns 2") &&
        control_load_on(client, "third", two.models[0].path, "cuda:7", text) == GEMMD_NOT_FOUND;
    is_right &= two_serve(&two, client, indices);
    gemmd_close(client);
    return is_right;
}

static void test_memory_of_the_other_is_refused(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_that_mixes));
}

/* ---- a client that sees one ---- */

/* Its device 0 is the daemon's 1: what says which is the GPU's UUID. */
static bool child_that_sees_one(uint32_t i_child)
{
    (void)i_child;
    gemmd_buffer_t *buffer;
    (void)setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    gemmd_client_t *client = fixture_open(&two.fixture, GEMMD_PATH_RING);
    bool is_right = run_kinds(client, 1) && run_ways(client, 1) &&
                    is_refused(gemmd_buffer_alloc(client, 0, 4096, &buffer), GEMMD_UNSUPPORTED,
                               "not among the 1 that this process sees");
    gemmd_close(client);
    return is_right;
}

static void test_a_client_that_sees_one(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_that_sees_one));
}

/* ---- status ---- */

static const char *text_at(const json_t *array, uint32_t i, const char *key)
{
    const char *text = json_string_value(json_object_get(json_array_get(array, i), key));
    return text != NULL ? text : "";
}

static void test_status_names_both(void **state)
{
    (void)state;
    json_t *document = status_document_read(&two.fixture);
    const json_t *devices = json_object_get(document, "devices");
    assert_true(json_array_size(devices) >= TWO_GPUS);
    assert_string_equal(text_at(devices, 0, "name"), "cuda:0");
    assert_string_equal(text_at(devices, 1, "name"), "cuda:1");
    assert_string_not_equal(text_at(devices, 0, "uuid"), text_at(devices, 1, "uuid"));
    for (uint32_t i = 0; i < TWO_GPUS; i++) {
        const json_t *worker = json_object_get(json_array_get(devices, i), "worker");
        assert_true(json_integer_value(json_object_get(worker, "ok")) > 0);
    }
    json_decref(document);
}

int main(void)
{
    two_need();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_weight_where_it_lies),
        cmocka_unit_test(test_every_kind_of_memory),
        cmocka_unit_test(test_streams_of_both),
        cmocka_unit_test(test_memory_of_the_other_is_refused),
        cmocka_unit_test(test_a_client_that_sees_one),
        cmocka_unit_test(test_status_names_both),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
