/* test-gpu-buffers.c - products on a GPU in every kind of memory that a client can share, by
 * several processes at once; what is refused, what a dead client leaves, and what cycles of
 * registering leave (T22 to T28). Skipped without a GPU. The parent never uses CUDA: it forks. */
#include <setjmp.h>
#include <signal.h>
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
#include "ipc/base/num.h"
#include "tests/gpu/gpu.h"
#include "tests/harness/model.h"
#include "tests/harness/tiny.h"

#define N_CROWD        6u
#define N_CROWD_RUNS   100u
#define N_CYCLES       200u /* times the kinds of memory; GEMMD_CYCLES sets another number */
#define N_KILLS        20u  /* GEMMD_KILLS likewise */
#define N_DYING        5u
#define MARGIN_BYTES   (64ull << 20) /* of device memory, between two looks */
#define MARGIN_ENTRIES 16u           /* of fds and mappings */

static struct fixture fixture;
static struct test_model model;

static int set_up(void **state)
{
    (void)state;
    return tiny_start(&fixture, &model, 1, "devices = cuda:0\n");
}

static int tear_down(void **state)
{
    (void)state;
    return tiny_stop(&fixture, &model);
}

static bool init(struct product *product, gemmd_client_t *client, uint32_t i_weight, uint32_t m,
                 uint64_t seed)
{
    return product_init(product, client, "tiny", &model.weights[i_weight],
                        &(struct product_shape){.m = m,
                                                .x_dtype = GEMMD_BF16,
                                                .y_dtype = GEMMD_F32,
                                                .x_gap = 8,
                                                .y_gap = 3,
                                                .seed = seed});
}

/* ---- every kind ---- */

/* The product in host memory, then in every pair of kinds: right, and the same bytes. */
static bool run_kinds(gemmd_client_t *client, uint32_t i_weight, uint32_t m)
{
    struct product host, other;
    if (!init(&host, client, i_weight, m, 7) || !init(&other, client, i_weight, m, 7)) {
        return false;
    }
    bool is_right = product_run(&host, client) && product_is_right(&host);
    for (uint32_t i = 0; is_right && i < GPU_KINDS * GPU_KINDS; i++) {
        is_right = gpu_product_run(&other, client, i / GPU_KINDS, i % GPU_KINDS) &&
                   product_is_right(&other) && product_same_bytes(&host, &other);
        if (!is_right) {
            (void)fprintf(stderr, "weight %u, m %u, kinds %u and %u\n", i_weight, m, i / GPU_KINDS,
                          i % GPU_KINDS);
        }
    }
    product_finish(&host);
    product_finish(&other);
    return is_right;
}

static bool child_of_kinds(uint32_t i_weight)
{
    static const uint32_t row_counts[] = {1, 17, 64, 65, 130};
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < ARRAY_LENGTH(row_counts); i++) {
        is_right = run_kinds(client, i_weight, row_counts[i]);
    }
    gemmd_close(client);
    return is_right;
}

static void test_every_kind_of_memory(void **state)
{
    (void)state;
    assert_true(gpu_children(TEST_WEIGHTS, child_of_kinds));
}

/* ---- a crowd ---- */

/* Rows by themselves first, then among the others': the same bytes. */
static bool child_of_crowd(uint32_t i_child)
{
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    struct product alone, shared;
    bool is_right = init(&alone, client, TEST_INT4, 3, i_child) &&
                    init(&shared, client, TEST_INT4, 3, i_child) && product_run(&alone, client) &&
                    product_is_right(&alone);
    for (uint32_t i = 0; is_right && i < N_CROWD_RUNS; i++) {
        enum gpu_kind kind = (i + i_child) % GPU_KINDS;
        is_right =
            gpu_product_run(&shared, client, kind, kind) && product_same_bytes(&alone, &shared);
    }
    gemmd_close(client);
    return is_right;
}

static void test_a_crowd_gets_the_same_bytes(void **state)
{
    (void)state;
    assert_true(gpu_children(N_CROWD, child_of_crowd));
}

/* ---- addresses that come again ---- */

static bool run_at(gemmd_client_t *client, struct product *product, gemmd_buffer_t *y, void *memory)
{
    struct gemmd_gemm gemm = product->gemm;
    uint64_t y_bytes = gemmd_buffer_bytes(product->y);
    gemm.y = y;
    product_clear(product);
    return gpu_copy(memory, gemmd_buffer_data(product->y), y_bytes) &&
           gemmd_gemm(client, &gemm) == GEMMD_OK &&
           gpu_copy(gemmd_buffer_data(product->y), memory, y_bytes) && product_is_right(product);
}

/* Free the memory under a buffer, allocate again, share again: with the first buffer freed in time
 * or left over, what is written goes where the new memory is. */
static bool share_anew(gemmd_client_t *client, struct product *product, bool is_freed_in_time)
{
    uint64_t y_bytes = gemmd_buffer_bytes(product->y);
    gemmd_buffer_t *first, *second = NULL;
    void *memory, *again;
    if (cudaMalloc(&memory, y_bytes) != cudaSuccess ||
        gemmd_buffer_import_cuda(client, 0, memory, y_bytes, &first) != GEMMD_OK ||
        !run_at(client, product, first, memory)) {
        return false;
    }
    if (is_freed_in_time) {
        gemmd_buffer_free(first);
    }
    bool is_right = cudaFree(memory) == cudaSuccess && cudaMalloc(&again, y_bytes) == cudaSuccess &&
                    gemmd_buffer_import_cuda(client, 0, again, y_bytes, &second) == GEMMD_OK &&
                    run_at(client, product, second, again);
    if (is_right && again != memory) {
        (void)fprintf(stderr, "note: the address did not come again\n");
    }
    gemmd_buffer_free(is_freed_in_time ? NULL : first);
    gemmd_buffer_free(second);
    return is_right && cudaFree(again) == cudaSuccess;
}

static bool child_that_frees(uint32_t i_child)
{
    (void)i_child;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    struct product product;
    bool is_right = init(&product, client, TEST_PLAIN, 5, 3);
    for (uint32_t i = 0; is_right && i < 20; i++) {
        is_right = share_anew(client, &product, i % 2 == 0);
    }
    gemmd_close(client);
    return is_right;
}

static void test_memory_freed_and_allocated_again(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_that_frees));
}

/* ---- refusals ---- */

static bool is_refused(gemmd_client_t *client, void *memory, uint64_t size_bytes, const char *words)
{
    gemmd_buffer_t *buffer;
    int r = gemmd_buffer_import_cuda(client, 0, memory, size_bytes, &buffer);
    if (r == GEMMD_OK || strstr(gemmd_last_error(), words) == NULL) {
        (void)fprintf(stderr, "not '%s' but %d: %s\n", words, r, gemmd_last_error());
        return false;
    }
    return true;
}

static bool child_that_is_refused(uint32_t i_child)
{
    (void)i_child;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    void *plain, *pooled, *managed;
    uint64_t vmm_bytes = 1;
    void *private = gpu_vmm_alloc(&vmm_bytes, false);
    if (cudaMalloc(&plain, 4u << 20) != cudaSuccess ||
        cudaMallocAsync(&pooled, 1u << 20, 0) != cudaSuccess ||
        cudaMallocManaged(&managed, 1u << 20, cudaMemAttachGlobal) != cudaSuccess) {
        return false;
    }
    bool is_right = is_refused(client, client, 64, "no device memory") &&
                    is_refused(client, pooled, 64, "pool") &&
                    is_refused(client, managed, 64, "managed") &&
                    is_refused(client, private, 64, "not made to be exported") &&
                    is_refused(client, plain, 1ull << 40, "one allocation");
    gemmd_close(client);
    return is_right;
}

static void test_refusals_name_the_mend(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_that_is_refused));
}

/* Handles out of thin air, and ends beyond the allocation, asked for without the library. */
static bool child_that_forges(uint32_t i_child)
{
    (void)i_child;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    uint64_t random = 9;
    for (uint32_t i = 0; i < 64; i++) {
        union side_message question;
        struct side_packet packet;
        side_init(&question, SIDE_IMPORT_IPC, 0);
        question.import_ipc.size_bytes = 4096;
        for (uint32_t j = 0; j < SIDE_IPC_HANDLE_BYTES; j++) {
            question.import_ipc.handle[j] = i == 0 ? 0 : (uint8_t)test_random(&random);
        }
        if (session_ask(client, &question, -1, SIDE_BUFFER, &packet) == 0) {
            (void)fprintf(stderr, "forged handle %u was opened\n", i);
            return false;
        }
    }
    struct product product;
    bool is_right = init(&product, client, TEST_INT4, 1, 1) && product_run(&product, client) &&
                    product_is_right(&product);
    gemmd_close(client);
    return is_right;
}

static void test_forged_handles(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_that_forges));
}

/* ---- what is left ---- */

/* Device memory free for all processes; a child of its own looks, through a pipe. */
static uint64_t free_bytes(void)
{
    int ends[2];
    uint64_t n_bytes = 0;
    assert_int_equal(pipe(ends), 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        size_t n_free = 0, n_total = 0;
        (void)cudaMemGetInfo(&n_free, &n_total);
        n_bytes = n_free;
        _exit(write(ends[1], &n_bytes, sizeof(n_bytes)) == sizeof(n_bytes) ? 0 : 1);
    }
    assert_int_equal(read(ends[0], &n_bytes, sizeof(n_bytes)), sizeof(n_bytes));
    (void)close(ends[0]);
    (void)close(ends[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return n_bytes;
}

static bool child_of_cycles(uint32_t i_child)
{
    (void)i_child;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    uint32_t n_cycles = fixture_number("GEMMD_CYCLES", N_CYCLES) * GPU_KINDS;
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < n_cycles; i++) {
        struct gpu_buffer gpu;
        is_right = gpu_buffer_init(&gpu, client, i % GPU_KINDS, 3u << 20);
        gpu_buffer_finish(&gpu);
    }
    gemmd_close(client);
    return is_right;
}

static void test_cycles_leave_nothing(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_cycles)); /* whatever is made once has been made */
    uint32_t n_fds = fixture_fds(&fixture);
    uint32_t n_maps = fixture_maps(&fixture);
    uint64_t n_free = free_bytes();
    assert_true(gpu_children(2, child_of_cycles));
    assert_true(fixture_fds(&fixture) <= n_fds + MARGIN_ENTRIES);
    assert_true(fixture_maps(&fixture) <= n_maps + MARGIN_ENTRIES);
    assert_true(free_bytes() + MARGIN_BYTES >= n_free);
}

/* Dies with requests in flight on memory of its own. */
static bool child_that_dies(uint32_t i_child)
{
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    struct product product;
    struct gpu_buffer x, y;
    gemmd_ticket_t tickets[32];
    if (!init(&product, client, TEST_INT4, 64, i_child) ||
        !gpu_buffer_init(&x, client, i_child % GPU_KINDS, gemmd_buffer_bytes(product.x)) ||
        !gpu_buffer_init(&y, client, i_child % GPU_KINDS, gemmd_buffer_bytes(product.y))) {
        return false;
    }
    struct gemmd_gemm gemms[ARRAY_LENGTH(tickets)];
    for (uint32_t i = 0; i < ARRAY_LENGTH(tickets); i++) {
        gemms[i] = product.gemm;
        gemms[i].x = x.buffer;
        gemms[i].y = y.buffer;
    }
    if (gemmd_submit(client, gemms, ARRAY_LENGTH(tickets), tickets) != GEMMD_OK) {
        return false;
    }
    return raise(SIGKILL) == 0;
}

/* N_DYING at once. */
static void kill_some(uint32_t i_first)
{
    pid_t pids[N_DYING];
    (void)fflush(NULL);
    for (uint32_t i = 0; i < N_DYING; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            _exit(child_that_dies(i_first + i) ? 0 : 1);
        }
    }
    for (uint32_t i = 0; i < N_DYING; i++) {
        int state;
        assert_int_equal(waitpid(pids[i], &state, 0), pids[i]);
        assert_true(WIFSIGNALED(state));
    }
}

static void test_dead_clients_leave_nothing(void **state)
{
    (void)state;
    kill_some(0);
    fixture_sleep(0.2);
    uint32_t n_fds = fixture_fds(&fixture);
    uint64_t n_free = free_bytes();
    uint32_t n_kills = fixture_number("GEMMD_KILLS", N_KILLS);
    for (uint32_t i = 0; i < n_kills; i += N_DYING) {
        kill_some(i);
    }
    fixture_sleep(0.5);
    assert_true(fixture_fds(&fixture) <= n_fds + MARGIN_ENTRIES);
    assert_true(free_bytes() + MARGIN_BYTES >= n_free);
    assert_true(gpu_children(1, child_of_crowd));
}

int main(void)
{
    gpu_need();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_of_memory),
        cmocka_unit_test(test_a_crowd_gets_the_same_bytes),
        cmocka_unit_test(test_memory_freed_and_allocated_again),
        cmocka_unit_test(test_refusals_name_the_mend),
        cmocka_unit_test(test_forged_handles),
        cmocka_unit_test(test_cycles_leave_nothing),
        cmocka_unit_test(test_dead_clients_leave_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
