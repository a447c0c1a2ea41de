/* test-gpu-shared.c - published cases of memory that a client shares on a GPU: slices of one
 * allocation (T22), two names of one slice from two threads (T23), a release at once behind the
 * submit (T25), ranges that leave the slice (T26), the order of the client's writes and the
 * daemon's reads (T28), a y of 2^31 elements (T16). Skipped without a GPU. The parent never uses
 * CUDA: it forks. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "ipc/base/num.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/step.h"
#include "tests/harness/model.h"
#include "tests/harness/status_document.h"

#define SLICE_BYTES (1u << 20)
#define N_SLICES    4u
#define N_REQUESTS  32u
#define POISON      0x5a
#define BIG_N       32768u /* of TEST_PLAIN; 2^31 elements are 65536 rows of y */
#define BIG_K       64u
#define BIG_M       65536u
#define BIG_REPEAT  512u

static struct fixture fixture;
static struct test_model model;

static int set_up(void **state)
{
    (void)state;
    char argument[512];
    fixture_init(&fixture);
    static const uint32_t shapes[TEST_WEIGHTS][2] = {{96, 256}, {40, 128}, {BIG_N, BIG_K}};
    test_model_write_sized(&model, &fixture.folder, "tiny", 1, shapes);
    (void)snprintf(argument, sizeof(argument), "tiny=%s", model.path);
    const struct fixture_options options = {.model = argument,
                                            .config = "devices = cuda:0\n"
                                                      "rows_max = 65536\n"
                                                      "buffer_bytes_max = 8G\n"
                                                      "user_buffer_bytes_max = 8G\n"};
    fixture_start(&fixture, &options);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    int code = fixture_stop(&fixture);
    fixture_finish(&fixture);
    test_model_finish(&model);
    return code;
}

static bool init(struct product *product, gemmd_client_t *client, uint32_t m, uint64_t seed)
{
    return product_init(
        product, client, "tiny", &model.weights[TEST_INT4],
        &(struct product_shape){.m = m, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = seed});
}

static bool is_good(int status, const char *what)
{
    if (status != GEMMD_OK) {
        (void)fprintf(stderr, "%s: %s\n", what, gemmd_last_error());
    }
    return status == GEMMD_OK;
}

/* ---- slices ---- */

/* Two allocations cut into slices, each slice a buffer of its own: x of the one, y of the other. */
struct slices {
    char *x;
    char *y;
    gemmd_buffer_t *x_buffers[N_SLICES];
    gemmd_buffer_t *y_buffers[N_SLICES];
    struct product products[N_SLICES];
};

static bool slices_init(struct slices *slices, gemmd_client_t *client)
{
    *slices = (struct slices){.x = NULL};
    bool is_right = cudaMalloc((void **)&slices->x, N_SLICES * SLICE_BYTES) == cudaSuccess &&
                    cudaMalloc((void **)&slices->y, N_SLICES * SLICE_BYTES) == cudaSuccess &&
                    cudaMemset(slices->x, 0xff, N_SLICES * SLICE_BYTES) == cudaSuccess &&
                    cudaMemset(slices->y, POISON, N_SLICES * SLICE_BYTES) == cudaSuccess;
    for (uint32_t i = 0; is_right && i < N_SLICES; i++) {
        struct product *product = &slices->products[i];
        char *x = slices->x + i * SLICE_BYTES;
        is_right =
            is_good(gemmd_buffer_import_cuda(client, 0, x, SLICE_BYTES, &slices->x_buffers[i]),
                    "a slice of x") &&
            is_good(gemmd_buffer_import_cuda(client, 0, slices->y + i * SLICE_BYTES, SLICE_BYTES,
                                             &slices->y_buffers[i]),
                    "a slice of y") &&
            init(product, client, 4, 100 * i) &&
            gpu_copy(x, gemmd_buffer_data(product->x), gemmd_buffer_bytes(product->x));
    }
    return is_right;
}

static void slices_finish(struct slices *slices)
{
    for (uint32_t i = 0; i < N_SLICES; i++) {
        product_finish(&slices->products[i]);
        gemmd_buffer_free(slices->x_buffers[i]);
        gemmd_buffer_free(slices->y_buffers[i]);
    }
    (void)cudaFree(slices->x);
    (void)cudaFree(slices->y);
}

/* The product of a slice came into its own slice, and nothing behind it was touched. */
static bool slice_is_right(struct slices *slices, uint32_t i)
{
    struct product *product = &slices->products[i];
    uint64_t y_bytes = gemmd_buffer_bytes(product->y);
    uint8_t behind[4096];
    char *y = slices->y + i * SLICE_BYTES;
    if (!gpu_copy(gemmd_buffer_data(product->y), y, y_bytes) ||
        !gpu_copy(behind, y + y_bytes, sizeof(behind)) || !product_is_right(product)) {
        return false;
    }
    for (uint32_t j = 0; j < sizeof(behind); j++) {
        if (behind[j] != POISON) {
            (void)fprintf(stderr, "slice %u: byte %u behind y was written\n", i, j);
            return false;
        }
    }
    return true;
}

static bool child_of_slices(uint32_t i_child)
{
    (void)i_child;
    struct slices slices;
    struct gemmd_gemm gemms[N_SLICES];
    gemmd_ticket_t tickets[N_SLICES];
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = slices_init(&slices, client);
    for (uint32_t i = 0; i < N_SLICES; i++) {
        gemms[i] = slices.products[i].gemm;
        gemms[i].x = slices.x_buffers[i];
        gemms[i].y = slices.y_buffers[i];
    }
    is_right = is_right && is_good(gemmd_submit(client, gemms, N_SLICES, tickets), "a burst");
    for (uint32_t i = 0; is_right && i < N_SLICES; i++) {
        is_right = is_good(gemmd_wait(client, tickets[i], GEMMD_WAIT_FOREVER, NULL), "a slice");
    }
    for (uint32_t i = 0; is_right && i < N_SLICES; i++) {
        is_right = slice_is_right(&slices, i);
    }
    slices_finish(&slices);
    gemmd_close(client);
    return is_right;
}

static void test_t22_slices_of_one_allocation(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_slices));
}

/* ---- two names ---- */

struct name {
    gemmd_client_t *client;
    struct gemmd_gemm gemm;
    gemmd_ticket_t tickets[N_REQUESTS];
    bool is_right;
};

static void *submit_all(void *arg)
{
    struct name *name = arg;
    name->is_right = true;
    for (uint32_t i = 0; name->is_right && i < N_REQUESTS; i++) {
        name->is_right =
            is_good(gemmd_submit(name->client, &name->gemm, 1, &name->tickets[i]), "by name");
    }
    return NULL;
}

/* The same slice of x under two names, into two slices of y; the first name goes while both have
 * requests in flight. */
static bool run_names(gemmd_client_t *client, struct slices *slices, gemmd_buffer_t *second)
{
    pthread_t threads[2];
    struct name names[2];
    for (uint32_t i = 0; i < 2; i++) {
        names[i] = (struct name){.client = client, .gemm = slices->products[0].gemm};
        names[i].gemm.x = i == 0 ? slices->x_buffers[0] : second;
        names[i].gemm.y = slices->y_buffers[i];
        if (pthread_create(&threads[i], NULL, submit_all, &names[i]) != 0) {
            return false;
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    gemmd_buffer_free(slices->x_buffers[0]);
    slices->x_buffers[0] = NULL;
    bool is_right = names[0].is_right && names[1].is_right;
    for (uint32_t i = 0; is_right && i < 2 * N_REQUESTS; i++) {
        gemmd_ticket_t ticket = names[i % 2].tickets[i / 2];
        is_right = is_good(gemmd_wait(client, ticket, GEMMD_WAIT_FOREVER, NULL), "by its name");
    }
    return is_right;
}

static bool child_of_names(uint32_t i_child)
{
    (void)i_child;
    struct slices slices;
    gemmd_buffer_t *second = NULL;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right =
        slices_init(&slices, client) &&
        is_good(gemmd_buffer_import_cuda(client, 0, slices.x, SLICE_BYTES, &second), "again") &&
        run_names(client, &slices, second) && slice_is_right(&slices, 0);
    gemmd_buffer_free(second);
    slices_finish(&slices);
    gemmd_close(client);
    return is_right;
}

static void test_t23_two_names_from_two_threads(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_names));
}

/* ---- ranges ---- */

static bool is_refused(gemmd_client_t *client, const struct gemmd_gemm *gemm, const char *words)
{
    int r = gemmd_gemm(client, gemm);
    if (r != GEMMD_INVALID_ARGUMENT || strstr(gemmd_last_error(), words) == NULL) {
        (void)fprintf(stderr, "0x%x '%s', not refused with '%s'\n", (unsigned)r, gemmd_last_error(),
                      words);
        return false;
    }
    return true;
}

static bool child_of_ranges(uint32_t i_child)
{
    (void)i_child;
    struct slices slices;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = slices_init(&slices, client);
    struct gemmd_gemm good = slices.products[0].gemm; /* 4 x 256 of bf16 */
    good.x = slices.x_buffers[0];
    good.y = slices.y_buffers[0];
    struct gemmd_gemm gemm = good;
    gemm.x_offset_bytes = SLICE_BYTES - 2046;
    is_right = is_right && is_refused(client, &gemm, "1048578");
    gemm.x_offset_bytes = UINT64_MAX - 15;
    is_right = is_right && is_refused(client, &gemm, "x");
    gemm = good;
    gemm.y_stride = 1ull << 62;
    is_right = is_right && is_refused(client, &gemm, "y");
    gemm = good;
    gemm.x_stride = 1;
    is_right = is_right && is_refused(client, &gemm, "stride 1 ");
    gemm = good;
    gemm.y = gemm.x;
    is_right = is_right && is_refused(client, &gemm, "overlaps");
    gemm = good;
    gemm.m = BIG_M + 1;
    is_right = is_right && is_refused(client, &gemm, "65537");
    gemm.m = 0;
    is_right = is_right && is_good(gemmd_gemm(client, &gemm), "no rows") &&
               is_good(gemmd_gemm(client, &good), "after all") && slice_is_right(&slices, 0);
    slices_finish(&slices);
    gemmd_close(client);
    return is_right;
}

static void test_t26_ranges(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_ranges));
}

/* ---- large products ---- */

/* m rows of TEST_PLAIN, of which those BIG_REPEAT apart are alike; y is NaN before. */
struct big {
    struct product product; /* the first BIG_REPEAT rows */
    struct gpu_buffer x, y, alone;
    struct gemmd_gemm gemm;
};

static bool big_init(struct big *big, gemmd_client_t *client, uint32_t m)
{
    const uint64_t x_bytes = (uint64_t)m * BIG_K * 2, y_bytes = (uint64_t)m * BIG_N * 2;
    const struct product_shape shape = {
        .m = BIG_REPEAT, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_BF16, .seed = 5};
    *big = (struct big){.gemm = GEMMD_GEMM_INIT};
    bool is_right =
        product_init(&big->product, client, "tiny", &model.weights[TEST_PLAIN], &shape) &&
        gpu_buffer_init(&big->x, client, GPU_IPC, x_bytes) &&
        gpu_buffer_init(&big->y, client, GPU_IPC, y_bytes) &&
        gpu_buffer_init(&big->alone, client, GPU_ARENA, BIG_N * 2) &&
        cudaMemset(gemmd_buffer_data(big->y.buffer), 0xff, y_bytes) == cudaSuccess;
    for (uint64_t i = 0; is_right && i < m; i += BIG_REPEAT) {
        is_right = gpu_copy((char *)gemmd_buffer_data(big->x.buffer) + i * BIG_K * 2,
                            gemmd_buffer_data(big->product.x), (uint64_t)BIG_REPEAT * BIG_K * 2);
    }
    big->gemm = big->product.gemm;
    big->gemm.m = m;
    big->gemm.x = big->x.buffer;
    big->gemm.y = big->y.buffer;
    return is_right;
}

static void big_finish(struct big *big)
{
    gpu_buffer_finish(&big->alone);
    gpu_buffer_finish(&big->y);
    gpu_buffer_finish(&big->x);
    product_finish(&big->product);
}

/* Row i of y, against the same row by itself. */
static bool row_is_right(gemmd_client_t *client, const struct big *big, const char *y,
                         uint64_t i_row)
{
    const uint64_t row_bytes = BIG_N * 2ull;
    uint16_t expected[BIG_N], row[BIG_N];
    struct gemmd_gemm gemm = big->product.gemm;
    gemm.m = 1;
    gemm.y = big->alone.buffer;
    gemm.x_offset_bytes = i_row % BIG_REPEAT * BIG_K * 2;
    bool is_right = is_good(gemmd_gemm(client, &gemm), "a row by itself") &&
                    gpu_copy(expected, gemmd_buffer_data(gemm.y), row_bytes) &&
                    gpu_copy(row, y + i_row * row_bytes, row_bytes);
    if (is_right && memcmp(expected, row, row_bytes) != 0) {
        (void)fprintf(stderr, "row %u of %u has other bits\n", (unsigned)i_row, big->gemm.m);
        return false;
    }
    return is_right;
}

static bool child_of_many(uint32_t i_child)
{
    (void)i_child;
    static const uint64_t rows[] = {0, 1, 32767, 32768, BIG_M - 2, BIG_M - 1};
    struct big big;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right =
        big_init(&big, client, BIG_M) && is_good(gemmd_gemm(client, &big.gemm), "2^31 elements");
    for (uint32_t i = 0; is_right && i < ARRAY_LENGTH(rows); i++) {
        is_right = row_is_right(client, &big, gemmd_buffer_data(big.y.buffer), rows[i]);
    }
    big_finish(&big);
    gemmd_close(client);
    return is_right;
}

static void test_t16_two_to_the_31_elements(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_many));
}

/* A long product whose buffers go as soon as it has begun; the memory is the client's own, so it
 * can look at what came into it. */
static bool child_that_lets_go(uint32_t i_child)
{
    (void)i_child;
    struct big big;
    struct status_counts counts;
    gemmd_ticket_t ticket;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right =
        big_init(&big, client, BIG_M / 4) &&
        is_good(gemmd_submit(client, &big.gemm, 1, &ticket), "a long one") &&
        status_counts_reach(&fixture, offsetof(struct status_counts, n_in_flight), 1, 5.0, &counts);
    const char *y = gemmd_buffer_data(big.y.buffer);
    gemmd_buffer_free(big.x.buffer);
    gemmd_buffer_free(big.y.buffer);
    big.x.buffer = big.y.buffer = NULL;
    is_right = is_right && is_good(gemmd_wait(client, ticket, GEMMD_WAIT_FOREVER, NULL), "late");
    is_right = is_right && row_is_right(client, &big, y, big.gemm.m - 1) &&
               row_is_right(client, &big, y, 0);
    big_finish(&big);
    gemmd_close(client);
    return is_right;
}

static void test_t25_let_go_of_in_flight(void **state)
{
    (void)state;
    assert_true(gpu_children(2, child_that_lets_go));
}

/* ---- order ---- */

/* x is written behind a kernel that takes its time; each product has the newest. */
static bool run_orders(gemmd_client_t *client, struct slices *slices, gemmd_stream_t *stream,
                       cudaStream_t cuda_stream)
{
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < 40; i++) {
        struct product *product = &slices->products[i % N_SLICES];
        struct gemmd_gemm gemm = product->gemm;
        gemm.x = slices->x_buffers[0];
        gemm.y = slices->y_buffers[i % N_SLICES];
        is_right = delay_enqueue(5000, cuda_stream) == 0 &&
                   cudaMemcpyAsync(slices->x, gemmd_buffer_data(product->x),
                                   gemmd_buffer_bytes(product->x), cudaMemcpyDefault,
                                   cuda_stream) == cudaSuccess;
        if (i % 2 == 0) {
            is_right = is_right && cudaStreamSynchronize(cuda_stream) == cudaSuccess &&
                       is_good(gemmd_gemm(client, &gemm), "after synchronising");
        } else {
            is_right = is_right && is_good(gemmd_gemm_on_stream(stream, &gemm), "in order") &&
                       cudaStreamSynchronize(cuda_stream) == cudaSuccess &&
                       is_good(gemmd_stream_status(stream), "in stream order");
        }
        is_right = is_right && slice_is_right(slices, i % N_SLICES);
    }
    return is_right;
}

static bool child_of_orders(uint32_t i_child)
{
    (void)i_child;
    struct slices slices;
    gemmd_stream_t *stream = NULL;
    cudaStream_t cuda_stream;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right =
        slices_init(&slices, client) &&
        cudaStreamCreateWithFlags(&cuda_stream, cudaStreamNonBlocking) == cudaSuccess &&
        is_good(gemmd_stream_open(client, 0, cuda_stream, GEMMD_ORDER_AUTO, &stream), "open") &&
        run_orders(client, &slices, stream, cuda_stream);
    gemmd_stream_close(stream);
    slices_finish(&slices);
    gemmd_close(client);
    return is_right;
}

static void test_t28_writes_before_reads(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_orders));
}

/* ---- what is left ---- */

static void test_nothing_is_left(void **state)
{
    (void)state;
    struct status_counts counts;
    status_counts_settle(&fixture, 1, 5.0, &counts);
    assert_int_equal(counts.n_buffers, 0);
    assert_int_equal(counts.buffer_bytes, 0);
    assert_int_equal(counts.n_in_flight, 0);
}

int main(void)
{
    gpu_need();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_t22_slices_of_one_allocation),
        cmocka_unit_test(test_t23_two_names_from_two_threads),
        cmocka_unit_test(test_t25_let_go_of_in_flight),
        cmocka_unit_test(test_t26_ranges),
        cmocka_unit_test(test_t16_two_to_the_31_elements),
        cmocka_unit_test(test_t28_writes_before_reads),
        cmocka_unit_test(test_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
