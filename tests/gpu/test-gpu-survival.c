/* test-gpu-survival.c - weights in a GPU's memory that outlive their daemon. Skipped without a GPU.
 *
 * One test kills the daemon under load, with SIGKILL, and under MPS also by a fault of a client on
 * the GPU, which takes every context there with it; GEMMD_KILLS says how often. The other leaves
 * GEMMD_TEST_GIB of weights behind and measures how soon the next daemon serves them. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/server/supervisor.h"
#include "daemon/weights/store.h"
#include "tests/gpu/chain.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/step.h"
#include "tests/harness/fake_supervisor.h"
#include "tests/harness/status_document.h"

#define N_KILLS       6u
#define N_CLIENTS     4u
#define GIB           2u
#define FAULT_EVERY   4u
#define LAYER_N       28672u
#define LAYER_K       8192u
#define READY_SECONDS 30.0

struct shared {
    atomic_bool is_over;
    _Atomic uint64_t n_products[N_CLIENTS];
};

static struct fixture fixture;
static struct test_model model;
static struct fixture_options options;
static char argument[512];
static struct shared *shared;

static int set_up(void **state)
{
    (void)state;
    fixture_init(&fixture);
    test_model_write(&model, &fixture.folder, "tiny", 1);
    (void)snprintf(argument, sizeof(argument), "tiny=%s", model.path);
    options = (struct fixture_options){.model = argument, .config = "devices = cuda:0\n"};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_finish(&fixture);
    test_model_finish(&model);
    return 0;
}

/* ---- deaths under load ---- */

/* Rows in CPU memory: a process without a context is not touched by what happens to the GPU. */
static bool live(uint32_t i_client)
{
    struct product first;
    struct product again;
    const struct product_shape shape = {
        .m = 1 + i_client * 5, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = i_client};
    struct gemmd_options patient = GEMMD_OPTIONS_INIT;
    patient.socket_dir = fixture.socket_dir;
    patient.path = i_client == 0 ? GEMMD_PATH_ZEROMQ : GEMMD_PATH_RING;
    gemmd_client_t *client;
    if (gemmd_open(&patient, &client) != GEMMD_OK ||
        !product_init(&first, client, "tiny", &model.weights[TEST_INT4], &shape) ||
        !product_init(&again, client, "tiny", &model.weights[TEST_INT4], &shape) ||
        !product_run(&first, client) || !product_is_right(&first)) {
        return false;
    }
    while (!atomic_load(&shared->is_over)) {
        product_clear(&again);
        if (!product_run(&again, client) || !product_same_bytes(&first, &again)) {
            (void)fprintf(stderr, "client %u: %s\n", i_client, gemmd_last_error());
            return false;
        }
        atomic_fetch_add(&shared->n_products[i_client], 1);
    }
    gemmd_close(client);
    return true;
}

static void await_products(void)
{
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        double deadline = fixture_now() + READY_SECONDS;
        uint64_t n = atomic_load(&shared->n_products[i]) + 2;
        while (atomic_load(&shared->n_products[i]) < n) {
            if (fixture_now() > deadline) {
                fixture_fail(&fixture, "client %u makes no products any more", i);
            }
            fixture_sleep(0.001);
        }
    }
}

static bool child_that_faults(uint32_t i_child)
{
    (void)i_child;
    cudaStream_t stream;
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
           fault_enqueue(stream) == 0 && cudaStreamSynchronize(stream) != cudaSuccess;
}

static bool has_mps(void)
{
    return getenv("CUDA_MPS_PIPE_DIRECTORY") != NULL;
}

/* Until the keeper has seen the end of that daemon and another one serves. */
static void end_daemon(uint32_t i_kill, bool can_fault, double *worst_seconds)
{
    bool is_fault = can_fault && i_kill % FAULT_EVERY == FAULT_EVERY - 1;
    pid_t pid = fixture_daemon_pid(&fixture);
    uint32_t n_ends = fixture_logged(&fixture, "serves on");
    double start = fixture_now();
    if (is_fault) {
        assert_true(gpu_children(1, child_that_faults));
    } else {
        assert_int_equal(kill(pid, SIGKILL), 0);
    }
    fixture_wait_logged(&fixture, "serves on", n_ends + 1);
    double seconds = fixture_now() - start;
    (void)fprintf(stderr, "note: death %u by %s: served again after %.2f s\n", i_kill,
                  is_fault ? "a fault" : "SIGKILL", seconds);
    *worst_seconds = seconds > *worst_seconds ? seconds : *worst_seconds;
}

static void start_clients(bool (*way)(uint32_t), pid_t *pids)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            _exit(way(i) ? 0 : 1);
        }
    }
    await_products();
}

static void end_clients(const pid_t *pids)
{
    atomic_store(&shared->is_over, true);
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        int child;
        assert_int_equal(waitpid(pids[i], &child, 0), pids[i]);
        assert_int_equal(child, 0);
    }
    (void)munmap(shared, sizeof(*shared));
}

static void outlive(bool (*way)(uint32_t), uint32_t n_kills, bool can_fault)
{
    pid_t pids[N_CLIENTS];
    double worst_seconds = 0;
    options.is_kept = true;
    fixture_start(&fixture, &options);
    start_clients(way, pids);
    uint32_t n_fds = fixture_fds(&fixture);
    for (uint32_t i = 0; i < n_kills; i++) {
        end_daemon(i, can_fault, &worst_seconds);
        await_products();
    }
    assert_int_equal(fixture_fds(&fixture), n_fds);
    assert_int_equal(fixture_logged(&fixture, "load: model 'tiny'"), 1);
    end_clients(pids);
    (void)fprintf(stderr, "note: %u deaths, %u of them faults; served again within %.2f s\n",
                  n_kills, fixture_logged(&fixture, "a device is lost"), worst_seconds);
    assert_int_equal(fixture_stop(&fixture), 0);
}

static void test_deaths_under_load(void **state)
{
    (void)state;
    outlive(live, fixture_number("GEMMD_KILLS", N_KILLS), has_mps());
}

/* What is in a buffer stays in it, whatever kind it is: the next daemon reads and writes the same
 * memory. One client for each kind. */
static bool live_with_kind(uint32_t i_client)
{
    enum gpu_kind kind = (enum gpu_kind)i_client;
    struct product product;
    struct gpu_buffer x;
    struct gpu_buffer y;
    const struct product_shape shape = {
        .m = 7, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = 70};
    struct gemmd_options patient = GEMMD_OPTIONS_INIT;
    patient.socket_dir = fixture.socket_dir;
    gemmd_client_t *client;
    if (gemmd_open(&patient, &client) != GEMMD_OK ||
        !product_init(&product, client, "tiny", &model.weights[TEST_INT4], &shape)) {
        return false;
    }
    uint64_t x_bytes = gemmd_buffer_bytes(product.x);
    uint64_t y_bytes = gemmd_buffer_bytes(product.y);
    struct gemmd_gemm gemm = product.gemm;
    bool is_right = gpu_buffer_init(&x, client, kind, x_bytes) &&
                    gpu_buffer_init(&y, client, kind, y_bytes) &&
                    gpu_copy(gemmd_buffer_data(x.buffer), gemmd_buffer_data(product.x), x_bytes);
    gemm.x = x.buffer;
    gemm.y = y.buffer;
    while (is_right && !atomic_load(&shared->is_over)) {
        product_clear(&product);
        is_right = gpu_copy(gemmd_buffer_data(y.buffer), gemmd_buffer_data(product.y), y_bytes) &&
                   gemmd_gemm(client, &gemm) == GEMMD_OK &&
                   gpu_copy(gemmd_buffer_data(product.y), gemmd_buffer_data(y.buffer), y_bytes) &&
                   product_is_right(&product);
        atomic_fetch_add(&shared->n_products[i_client], is_right);
    }
    if (!is_right) {
        (void)fprintf(stderr, "kind %u: %s\n", i_client, gemmd_last_error());
    }
    gpu_buffer_finish(&x);
    gpu_buffer_finish(&y);
    product_finish(&product);
    gemmd_close(client);
    return is_right;
}

static void test_buffers_of_every_kind(void **state)
{
    (void)state;
    static_assert(N_CLIENTS == GPU_KINDS, "a client for each kind");
    outlive(live_with_kind, N_KILLS, false);
}

/* ---- streams ---- */

static void end_and_await(void)
{
    uint32_t n_served = fixture_logged(&fixture, "serves on");
    (void)kill(fixture_daemon_pid(&fixture), SIGKILL);
    fixture_wait_logged(&fixture, "serves on", n_served + 1);
}

static bool init_chain(struct chain *chain, gemmd_client_t *client)
{
    enum chain_way way = chain_has_way(client, 0, CHAIN_KERNEL) ? CHAIN_KERNEL : CHAIN_MEMORY;
    return chain_init(chain, client, "tiny/layer.int4", way) && chain_seed(chain, 1) &&
           chain_steps(chain, 20);
}

/* Products in stream order are not done anew; the stream goes on without them, and says so. */
static bool live_with_streams(uint32_t i_child)
{
    (void)i_child;
    struct chain chain;
    struct chain next;
    gemmd_stream_t *other = NULL;
    struct gemmd_options patient = GEMMD_OPTIONS_INIT;
    patient.socket_dir = fixture.socket_dir;
    gemmd_client_t *client;
    if (gemmd_open(&patient, &client) != GEMMD_OK || !init_chain(&chain, client) ||
        !chain_sync(&chain)) {
        return false;
    }
    end_and_await();
    bool is_right = gemmd_gemm_on_stream(chain.stream, &chain.gemm) == GEMMD_DISCONNECTED &&
                    cudaStreamSynchronize(chain.cuda_stream) == cudaSuccess &&
                    gemmd_gemm(client, &chain.gemm) == GEMMD_OK &&
                    gemmd_gemm_on_stream(chain.stream, &chain.gemm) == GEMMD_DISCONNECTED &&
                    gemmd_stream_open(client, 0, chain.cuda_stream, GEMMD_ORDER_AUTO, &other) ==
                        GEMMD_DISCONNECTED;
    chain_finish(&chain);
    is_right = is_right && init_chain(&next, client) && chain_sync(&next);
    if (is_right) {
        chain_finish(&next);
    } else {
        (void)fprintf(stderr, "streams: %s\n", gemmd_last_error());
    }
    gemmd_close(client);
    return is_right;
}

static void test_streams(void **state)
{
    (void)state;
    options.is_kept = true;
    fixture_start(&fixture, &options);
    assert_true(gpu_children(1, live_with_streams));
    assert_int_equal(fixture_stop(&fixture), 0);
}

/* ---- much memory ---- */

static bool add_layer(struct model *large, uint32_t i)
{
    const struct gk_desc desc = {.n = LAYER_N,
                                 .k = LAYER_K,
                                 .code = GK_CODE_U4,
                                 .group_n = 1,
                                 .group_k = 128,
                                 .scale_dtype = DTYPE_F16};
    struct weight *weight;
    struct reason why = REASON_NULL;
    if (weight_new(large->device, &weight) != 0) {
        return false;
    }
    large->weights[large->n_weights++] = weight;
    (void)snprintf(weight->name, sizeof(weight->name), "large/%03u", i);
    weight->desc = desc;
    weight->layout = gk_layout_for(&desc, GK_DEVICE_CUDA);
    weight->act_dtype = DTYPE_F16;
    if (large->device->ops->region_new(large->device, "layer", weight->layout->packed_bytes(&desc),
                                       &weight->packed, &why) != 0 ||
        cudaMemset(weight->packed.base, (int)i * 37, weight->packed.size_bytes / 2) !=
            cudaSuccess) {
        (void)fprintf(stderr, "layer %u: %s\n", i, why.text);
        return false;
    }
    return true;
}

/* A daemon's share of the work, without a checkpoint: fill the memory, and have it kept. */
static bool leave_weights(uint32_t n_layers)
{
    struct supervisor nobody = SUPERVISOR_NULL;
    struct keep keep;
    struct device *device;
    struct model *large;
    struct reason why = REASON_NULL;
    if (supervisor_keep(&nobody, &keep) != 0 || device_open("cuda:0", 0, 0, &device, &why) != 0 ||
        model_new("large", "/nowhere", device, n_layers, &large) != 0) {
        (void)fprintf(stderr, "leaving weights: %s\n", why.text);
        return false;
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        if (!add_layer(large, i)) {
            return false;
        }
    }
    large->act_dtype = DTYPE_F16;
    large->generation = 1;
    return keep_digest(large, &why) == 0 && keep_put(&keep, large) == 0;
}

static void expect_adopted(const char *what, double seconds)
{
    json_t *document = status_document_read(&fixture);
    const json_t *start = json_object_get(document, "start");
    double gigabytes = 1e-9 * json_number_value(json_object_get(start, "adopted_bytes"));
    double digest_seconds = json_number_value(json_object_get(start, "digest_seconds"));
    (void)fprintf(stderr,
                  "note: %s: exec to ready %.3f s; %.1f GB of %lld weights adopted in %.3f s, "
                  "digests in %.4f s (%.0f GB/s)\n",
                  what, seconds, gigabytes,
                  (long long)json_integer_value(json_object_get(start, "adopted_weights")),
                  json_number_value(json_object_get(start, "adopt_seconds")), digest_seconds,
                  gigabytes / digest_seconds);
    assert_int_equal(json_integer_value(json_object_get(start, "adopted_models")), 1);
    json_decref(document);
}

static void test_much_memory(void **state)
{
    (void)state;
    struct fake_supervisor supervisor;
    fake_supervisor_init(&supervisor);
    uint64_t layer_bytes = (uint64_t)LAYER_N * LAYER_K / 2;
    uint32_t n_layers =
        (uint32_t)(((uint64_t)fixture_number("GEMMD_TEST_GIB", GIB) << 30) / layer_bytes);
    pid_t pid = fork();
    if (pid == 0) {
        (void)setenv("NOTIFY_SOCKET", supervisor.address, 1);
        _exit(leave_weights(n_layers) ? 0 : 1);
    }
    int child;
    while (waitpid(pid, &child, WNOHANG) == 0) {
        fake_supervisor_read(&supervisor);
        fixture_sleep(0.001);
    }
    fake_supervisor_read(&supervisor);
    assert_int_equal(child, 0);
    assert_int_equal(supervisor.store.n, n_layers + 1);
    options.model = NULL;
    fake_supervisor_manage(&supervisor, &options);
    for (uint32_t i = 0; i < 3; i++) {
        double start = fixture_now();
        fixture_spawn(&fixture, &options);
        fake_supervisor_await(&supervisor, &fixture, &supervisor.n_ready, i + 1);
        expect_adopted(i == 0 ? "the first time" : "after SIGKILL", fixture_now() - start);
        fixture_kill(&fixture);
    }
    fake_supervisor_finish(&supervisor);
}

int main(void)
{
    gpu_need();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_much_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_deaths_under_load, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_buffers_of_every_kind, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_streams, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
