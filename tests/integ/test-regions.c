/* test-regions.c - shared memory through the C API: slices of one region, one region under two
 * names, names given back under way, and clients of other pid namespaces (T22, T23, T25, T27). */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/harness/fixture.h"
#include "tests/harness/model.h"
#include "tests/harness/product.h"
#include "tests/harness/status_document.h"
#include "tests/harness/tiny.h"

#define SLICES         4u
#define SLICE_BYTES    (1u << 20)
#define K              128u
#define N              128u
#define M              4u
#define N_AT_ONCE      64u
#define N_RELEASES     100u
#define M_LONG         4096u
#define GUARD          0x5a
#define SETTLE_SECONDS 20.0

static struct fixture fixture;
static struct test_model model;

/* "ones/w": n x k, every element 1. */
static void write_ones(char ret_path[300])
{
    struct tensor_file file;
    (void)snprintf(ret_path, 300, "%s", temp_path(&fixture.folder, "ones"));
    assert_int_equal(mkdir(ret_path, 0700), 0);
    tensor_file_init(&file);
    tensor_file_add_flat_plain(&file, "w", N, K, 1.0f);
    write_text(temp_path(&fixture.folder, "ones/config.json"), "{}");
    tensor_file_write(&file, temp_path(&fixture.folder, "ones/model.safetensors"));
    tensor_file_finish(&file);
}

static int set_up(void **state)
{
    (void)state;
    char path[300];
    char config[700];
    fixture_init(&fixture);
    test_model_write(&model, &fixture.folder, "tiny", 23);
    write_ones(path);
    (void)snprintf(config, sizeof(config), "models = ones=%s\nmodels = tiny=%s\n", path,
                   model.path);
    const struct fixture_options options = {.config = config};
    fixture_spawn(&fixture, &options);
    fixture_wait_ready(&fixture, true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return tiny_stop(&fixture, &model);
}

/* ---- T22: slices ---- */

/* Every float of a slice, beyond the M x N that it was to hold, still has its guard. */
static bool slice_is(const uint8_t *slice, float expected)
{
    const float *y = (const float *)slice;
    bool is_right = true;
    for (uint32_t i = 0; i < M * N; i++) {
        is_right = is_right && y[i] >= expected && y[i] <= expected;
    }
    for (uint32_t i = M * N * sizeof(float); i < SLICE_BYTES; i++) {
        is_right = is_right && slice[i] == GUARD;
    }
    return is_right;
}

/* Four slices of one region into four of another, in one burst: 128, 256, 384 and 512. */
static void test_slices_of_one_region(void **state)
{
    (void)state;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    gemmd_buffer_t *x;
    gemmd_buffer_t *y;
    struct gemmd_gemm gemms[SLICES];
    gemmd_ticket_t tickets[SLICES];
    assert_int_equal(gemmd_find_weight(client, "ones/w", &weight), GEMMD_OK);
    assert_int_equal(gemmd_buffer_alloc(client, 0, SLICES * SLICE_BYTES, &x), GEMMD_OK);
    assert_int_equal(gemmd_buffer_alloc(client, 0, SLICES * SLICE_BYTES, &y), GEMMD_OK);
    memset(gemmd_buffer_data(y), GUARD, SLICES * SLICE_BYTES);
    for (uint32_t i = 0; i < SLICES; i++) {
        float *values = (float *)((uint8_t *)gemmd_buffer_data(x) + i * SLICE_BYTES);
        for (uint32_t j = 0; j < SLICE_BYTES / sizeof(float); j++) {
            values[j] = (float)(i + 1);
        }
        gemms[i] = (struct gemmd_gemm)GEMMD_GEMM_INIT;
        gemms[i].weight = &weight;
        gemms[i].m = M;
        gemms[i].x = x;
        gemms[i].x_offset_bytes = i * SLICE_BYTES;
        gemms[i].y = y;
        gemms[i].y_offset_bytes = (SLICES - 1 - i) * SLICE_BYTES;
    }
    assert_int_equal(gemmd_submit(client, gemms, SLICES, tickets), GEMMD_OK);
    for (uint32_t i = 0; i < SLICES; i++) {
        assert_int_equal(gemmd_wait(client, tickets[i], GEMMD_WAIT_FOREVER, NULL), GEMMD_OK);
    }
    for (uint32_t i = 0; i < SLICES; i++) {
        const uint8_t *slice = (uint8_t *)gemmd_buffer_data(y) + (SLICES - 1 - i) * SLICE_BYTES;
        assert_true(slice_is(slice, (float)(K * (i + 1))));
    }
    gemmd_buffer_free(x);
    gemmd_buffer_free(y);
    gemmd_close(client);
}

/* ---- T23, T25: two names ---- */

struct twins {
    gemmd_client_t *client;
    gemmd_weight_t weight;
    gemmd_buffer_t *x;
    gemmd_buffer_t *names[2]; /* of the same memory, for y */
};

static void twins_init(struct twins *twins)
{
    uint64_t y_bytes = N_AT_ONCE * 2 * N * sizeof(float);
    *twins = (struct twins){.client = fixture_open(&fixture, GEMMD_PATH_RING)};
    twins->weight = (gemmd_weight_t)GEMMD_WEIGHT_INIT;
    int fd = memfd_create("twins", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, (off_t)y_bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(gemmd_find_weight(twins->client, "ones/w", &twins->weight), GEMMD_OK);
    assert_int_equal(gemmd_buffer_alloc(twins->client, 0, N_AT_ONCE * 2 * K * 4, &twins->x),
                     GEMMD_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(gemmd_buffer_import_fd(twins->client, 0, fd, y_bytes, &twins->names[i]),
                         GEMMD_OK);
    }
    (void)close(fd);
    float *x = gemmd_buffer_data(twins->x);
    for (uint32_t i = 0; i < N_AT_ONCE * 2 * K; i++) {
        x[i] = (float)(i / K);
    }
}

/* N_AT_ONCE requests of row first + i into row first + i of y, by both names in turn. */
static bool submit_rows(struct twins *twins, uint32_t first, gemmd_ticket_t *ret_tickets)
{
    struct gemmd_gemm gemms[N_AT_ONCE];
    for (uint32_t i = 0; i < N_AT_ONCE; i++) {
        gemms[i] = (struct gemmd_gemm)GEMMD_GEMM_INIT;
        gemms[i].weight = &twins->weight;
        gemms[i].m = 1;
        gemms[i].x = twins->x;
        gemms[i].x_offset_bytes = (first + i) * K * sizeof(float);
        gemms[i].y = twins->names[i % 2];
        gemms[i].y_offset_bytes = (first + i) * N * sizeof(float);
    }
    return gemmd_submit(twins->client, gemms, N_AT_ONCE, ret_tickets) == GEMMD_OK;
}

static bool rows_are_right(struct twins *twins, uint32_t first, gemmd_ticket_t *tickets)
{
    bool is_right = true;
    const float *y = gemmd_buffer_data(twins->names[1]);
    for (uint32_t i = 0; i < N_AT_ONCE; i++) {
        int r = gemmd_wait(twins->client, tickets[i], GEMMD_WAIT_FOREVER, NULL);
        float expected = (float)((first + i) * K);
        float got = y[(first + i) * N + i % N];
        is_right = is_right && r == GEMMD_OK && got >= expected && got <= expected;
    }
    return is_right;
}

struct half {
    struct twins *twins;
    uint32_t first;
    bool is_right;
};

static void *run_half(void *argument)
{
    struct half *half = argument;
    gemmd_ticket_t tickets[N_AT_ONCE];
    half->is_right = submit_rows(half->twins, half->first, tickets) &&
                     rows_are_right(half->twins, half->first, tickets);
    return NULL;
}

static void test_two_names_from_two_threads(void **state)
{
    (void)state;
    struct twins twins;
    twins_init(&twins);
    for (uint32_t i_round = 0; i_round < 20; i_round++) {
        struct half halves[2] = {{&twins, 0, false}, {&twins, N_AT_ONCE, false}};
        pthread_t threads[2];
        memset(gemmd_buffer_data(twins.names[0]), GUARD, gemmd_buffer_bytes(twins.names[0]));
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, run_half, &halves[i]), 0);
        }
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_true(halves[i].is_right);
        }
    }
    gemmd_buffer_free(twins.names[0]);
    gemmd_ticket_t tickets[N_AT_ONCE];
    twins.names[0] = twins.names[1]; /* the other name is as good as before */
    assert_true(submit_rows(&twins, 0, tickets) && rows_are_right(&twins, 0, tickets));
    gemmd_buffer_free(twins.names[1]);
    gemmd_buffer_free(twins.x);
    gemmd_close(twins.client);
    struct status_counts counts;
    status_counts_settle(&fixture, 1, SETTLE_SECONDS, &counts);
    assert_int_equal(counts.n_buffers, 0);
}

/* The name goes at once behind the submit, the memory with the request: all of them are done, and
 * the daemon never writes what is unmapped. */
static void release_under_way(enum gemmd_path path, uint32_t m, uint32_t n)
{
    const struct product_shape shape = {
        .m = m, .x_dtype = GEMMD_F32, .y_dtype = GEMMD_F32, .seed = 4};
    struct product product;
    gemmd_ticket_t tickets[N_AT_ONCE];
    gemmd_client_t *client = fixture_open(&fixture, path);
    assert_true(product_init(&product, client, "tiny", &model.weights[TEST_INT4], &shape));
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(gemmd_submit(client, &product.gemm, 1, &tickets[i]), GEMMD_OK);
    }
    product_finish(&product);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(gemmd_wait(client, tickets[i], GEMMD_WAIT_FOREVER, NULL), GEMMD_OK);
    }
    gemmd_close(client);
}

static void test_release_under_way(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_RELEASES; i++) {
        release_under_way(GEMMD_PATH_RING, 1, N_AT_ONCE);
    }
    release_under_way(GEMMD_PATH_RING, M_LONG, 4);
    release_under_way(GEMMD_PATH_ZEROMQ, 1, N_AT_ONCE);
    struct status_counts counts;
    status_counts_settle(&fixture, 1, SETTLE_SECONDS, &counts);
    assert_int_equal(counts.buffer_bytes, 0);
}

/* ---- T27: pid namespaces ---- */

/* Pid 1 of a namespace of its own: products until told to stop, or until killed. */
static void live_as_pid_1(int stop_fd)
{
    struct product first;
    struct product again;
    char byte;
    const struct product_shape shape = {
        .m = 3, .x_dtype = GEMMD_F32, .y_dtype = GEMMD_F32, .seed = 8};
    const struct test_weight *weight = &model.weights[TEST_INT4];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = getpid() == 1 && product_init(&first, client, "tiny", weight, &shape) &&
                    product_init(&again, client, "tiny", weight, &shape) &&
                    product_run(&first, client) && product_is_right(&first);
    is_right = is_right && write(stop_fd, "r", 1) == 1;
    while (is_right && recv(stop_fd, &byte, 1, MSG_DONTWAIT) != 1) {
        product_clear(&again);
        is_right = product_run(&again, client) && product_same_bytes(&first, &again);
    }
    _exit(is_right ? 0 : 1);
}

/* A child that is pid 1 of a namespace of its own; its pid as we see it. By hand, since fork()
 * takes no flags; no other thread is there to hold a lock at this moment. */
static pid_t start_as_pid_1(int stop_fd)
{
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        live_as_pid_1(stop_fd);
    }
    return pid;
}

static void test_two_clients_with_pid_1(void **state)
{
#if defined(__SANITIZE_THREAD__)
    skip(); /* it has no threads in a child that it did not see being made */
#endif
    (void)state;
    pid_t pids[2];
    int ends[2][2];
    char byte;
    int child;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[i]), 0);
        pids[i] = start_as_pid_1(ends[i][1]);
        if (pids[i] < 0) {
            skip(); /* namespaces want a right that we do not have */
        }
        assert_int_equal(read(ends[i][0], &byte, 1), 1);
    }
    assert_int_equal(kill(pids[0], SIGKILL), 0);
    assert_int_equal(waitpid(pids[0], &child, 0), pids[0]);
    struct status_counts counts;
    status_counts_settle(&fixture, 2, SETTLE_SECONDS, &counts);
    assert_int_equal(counts.n_sessions, 2); /* the one that lives, and the one that asks */
    assert_int_equal(counts.n_buffers, 4);
    assert_int_equal(write(ends[1][0], "s", 1), 1);
    assert_int_equal(waitpid(pids[1], &child, 0), pids[1]);
    assert_int_equal(child, 0);
    for (uint32_t i = 0; i < 2; i++) {
        (void)close(ends[i][0]);
        (void)close(ends[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_of_one_region),
        cmocka_unit_test(test_two_names_from_two_threads),
        cmocka_unit_test(test_release_under_way),
        cmocka_unit_test(test_two_clients_with_pid_1),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
