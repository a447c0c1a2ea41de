/* test-products.c - products through the real daemon: every type, many m, strides with guarded
 * gaps, both paths, and rows that do not change whoever shares their launch (T20, T30, T31). */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/product.h"
#include "tests/harness/status_document.h"
#include "tests/harness/tiny.h"

#define N_CROWD       6u
#define N_CROWD_RUNS  120u
#define CROWD_SECONDS 20.0

static const enum gemmd_dtype dtypes[] = {GEMMD_F32, GEMMD_F16, GEMMD_BF16};
static const uint32_t row_counts[] = {0,  1,  7,  8,  15,  16,  17,  31, 32,
                                      33, 63, 64, 65, 127, 128, 129, 257};

static struct fixture fixture;
static struct test_model model;
static gemmd_client_t *ring;
static gemmd_client_t *zeromq;

static int set_up(void **state)
{
    (void)state;
    int r = tiny_start(&fixture, &model, 1, NULL);
    ring = fixture_open(&fixture, GEMMD_PATH_RING);
    zeromq = fixture_open(&fixture, GEMMD_PATH_ZEROMQ);
    return r;
}

static int tear_down(void **state)
{
    (void)state;
    gemmd_close(ring);
    gemmd_close(zeromq);
    return tiny_stop(&fixture, &model);
}

static void init(struct product *product, gemmd_client_t *client, uint32_t i_weight,
                 const struct product_shape *shape)
{
    assert_true(product_init(product, client, "tiny", &model.weights[i_weight], shape));
}

/* The same request over both paths: right, and the same bytes. */
static void run_both_paths(uint32_t i_weight, const struct product_shape *shape)
{
    struct product by_ring;
    struct product by_zeromq;
    init(&by_ring, ring, i_weight, shape);
    init(&by_zeromq, zeromq, i_weight, shape);
    assert_true(product_run(&by_ring, ring));
    assert_true(product_run(&by_zeromq, zeromq));
    assert_true(product_is_right(&by_ring));
    assert_true(product_same_bytes(&by_ring, &by_zeromq));
    product_finish(&by_ring);
    product_finish(&by_zeromq);
}

/* Asked for by mistake: refused with the numbers before any of it is taken. */
static void test_more_than_the_machine_has(void **state)
{
    (void)state;
    gemmd_buffer_t *buffer;
    assert_int_equal(gemmd_buffer_alloc_host(ring, 0, 1ull << 50, &buffer), GEMMD_NO_SPACE);
    assert_non_null(strstr(gemmd_last_error(), "1125899906842624 bytes, and this machine has "));
    assert_int_equal(gemmd_buffer_alloc_host(ring, 0, UINT64_MAX, &buffer), GEMMD_NO_SPACE);
}

static void test_what_is_no_descriptor(void **state)
{
    (void)state;
    gemmd_buffer_t *buffer;
    assert_int_equal(gemmd_buffer_import_fd(ring, 0, INT_MAX, 4096, &buffer),
                     GEMMD_INVALID_ARGUMENT);
    assert_non_null(strstr(gemmd_last_error(), "fd is 2147483647: Bad file descriptor"));
}

static void test_every_type(void **state)
{
    (void)state;
    for (uint32_t i_weight = 0; i_weight < TEST_WEIGHTS; i_weight++) {
        for (uint32_t i = 0; i < ARRAY_LENGTH(dtypes) * ARRAY_LENGTH(dtypes); i++) {
            run_both_paths(i_weight, &(struct product_shape){.m = 17,
                                                             .x_dtype = dtypes[i / 3],
                                                             .y_dtype = dtypes[i % 3],
                                                             .seed = i});
        }
    }
}

static void test_every_row_count(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LENGTH(row_counts); i++) {
        for (uint32_t i_weight = 0; i_weight < TEST_WEIGHTS; i_weight++) {
            run_both_paths(i_weight, &(struct product_shape){.m = row_counts[i],
                                                             .x_dtype = dtypes[i % 3],
                                                             .y_dtype = dtypes[i / 3 % 3],
                                                             .seed = 1000 + i});
        }
    }
}

/* T20: the gaps of x hold NaN, which would spoil every sum that reads one; those of y are compared
 * byte by byte. */
static void test_strides(void **state)
{
    (void)state;
    static const uint32_t gaps[] = {1, 8, 64};
    for (uint32_t i = 0; i < 9 * ARRAY_LENGTH(gaps); i++) {
        run_both_paths(i % TEST_WEIGHTS, &(struct product_shape){.m = 3 + i % 2 * 64,
                                                                 .x_dtype = dtypes[i % 9 / 3],
                                                                 .y_dtype = dtypes[i / 3 % 3],
                                                                 .x_gap = gaps[i / 9],
                                                                 .y_gap = gaps[(i + 1) % 3],
                                                                 .seed = 2000 + i});
    }
}

/* ---- refusals ---- */

static int refuse(gemmd_client_t *client, void (*spoil)(struct product *), char sentence[512])
{
    struct product product;
    init(&product, client, TEST_INT4,
         &(struct product_shape){.m = 3, .x_dtype = GEMMD_F32, .y_dtype = GEMMD_F32});
    spoil(&product);
    int r = gemmd_gemm(client, &product.gemm);
    (void)snprintf(sentence, 512, "%s", gemmd_last_error());
    product_finish(&product);
    return r;
}

static void spoil_x_stride(struct product *product)
{
    product->gemm.x_stride = product->handle.k - 1;
}

static void spoil_y_stride(struct product *product)
{
    product->gemm.y_stride = product->handle.n - 1;
}

static void spoil_x_offset(struct product *product)
{
    product->gemm.x_offset_bytes = 2; /* not a multiple of 4 */
}

static void spoil_x_offset_far(struct product *product)
{
    product->gemm.x_offset_bytes = UINT64_MAX - 15;
}

static void spoil_x_range(struct product *product)
{
    product->gemm.x_offset_bytes = gemmd_buffer_bytes(product->x) - 4;
}

static void spoil_y_range(struct product *product)
{
    product->gemm.m = 1000;
    product->gemm.x_stride = product->handle.k;
}

static void spoil_stride_product(struct product *product)
{
    product->gemm.x_stride = UINT64_MAX / 4;
}

static void spoil_shape(struct product *product)
{
    product->handle.k -= 1;
}

static void spoil_weight(struct product *product)
{
    product->handle.id += 1000000;
}

static void spoil_dtype(struct product *product)
{
    product->gemm.x_dtype = (enum gemmd_dtype)77;
}

static void spoil_overlap(struct product *product)
{
    product->gemm.y = product->x;
    product->gemm.y_offset_bytes = 0;
}

/* Buffer and weight ids are counted in both sessions alike, since both did the same so far; so even
 * the numbers in the sentences agree. */
static void test_same_sentences(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(struct product *);
        int status;
        const char *words;
    } cases[] = {
        {spoil_x_stride, GEMMD_INVALID_ARGUMENT, "255"},
        {spoil_y_stride, GEMMD_INVALID_ARGUMENT, "95"},
        {spoil_x_offset, GEMMD_INVALID_ARGUMENT, "offset 2"},
        {spoil_x_offset_far, GEMMD_INVALID_ARGUMENT, "18446744073709551600"},
        {spoil_x_range, GEMMD_INVALID_ARGUMENT, "which has "},
        {spoil_y_range, GEMMD_INVALID_ARGUMENT, "which has "},
        {spoil_stride_product, GEMMD_INVALID_ARGUMENT, "4611686018427387903"},
        {spoil_shape, GEMMD_INVALID_ARGUMENT, "96 x 255"},
        {spoil_weight, GEMMD_NOT_FOUND, "there is no weight"},
        {spoil_dtype, GEMMD_UNSUPPORTED, "77"},
        {spoil_overlap, GEMMD_INVALID_ARGUMENT, "overlaps x"},
    };
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char by_ring[512];
        char by_zeromq[512];
        assert_int_equal(refuse(ring, cases[i].spoil, by_ring), cases[i].status);
        assert_int_equal(refuse(zeromq, cases[i].spoil, by_zeromq), cases[i].status);
        assert_string_equal(by_ring, by_zeromq);
        if (strstr(by_ring, cases[i].words) == NULL) {
            fail_msg("'%s' does not name '%s'", by_ring, cases[i].words);
        }
    }
}

/* ---- rows do not change ---- */

/* T31: large, small, large over buffers that stay dirty; every row as it is alone. */
static void test_sizes_in_turn(void **state)
{
    (void)state;
    static const uint32_t turns[] = {10, 2, 10, 64, 1, 64, 17, 0, 17};
    for (uint32_t i_weight = 0; i_weight < TEST_WEIGHTS; i_weight++) {
        struct product_shape shape = {.x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = 7};
        for (uint32_t i = 0; i < ARRAY_LENGTH(turns); i++) {
            shape.m = turns[i];
            run_both_paths(i_weight, &shape);
        }
    }
}

/* T30: the anchor row at the first, middle and last place of larger products; of a prefill (more
 * than 64 rows) as it is in another one. */
static void test_row_in_any_place(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2, 17, 33, 128, 257, 1100};
    for (uint32_t i_weight = 0; i_weight < TEST_WEIGHTS; i_weight++) {
        struct product alone, prefill;
        struct product_shape shape = {.m = 1, .x_dtype = GEMMD_F16, .y_dtype = GEMMD_F32};
        shape.seed = 5000;
        init(&alone, ring, i_weight, &shape);
        assert_true(product_run(&alone, ring));
        shape.m = 65;
        init(&prefill, ring, i_weight, &shape);
        assert_true(product_run(&prefill, ring));
        /* Only GPUs have an order of sums of their own for so many rows. */
        assert_true(getenv("GEMMD_TEST_GPU") != NULL || product_same_row(&alone, 0, &prefill, 0));
        for (uint32_t i = 0; i < 3 * ARRAY_LENGTH(sizes); i++) {
            struct product many;
            shape.m = sizes[i / 3];
            uint32_t place = i % 3 * (shape.m - 1) / 2;
            shape.seed = 5000 - place;
            init(&many, ring, i_weight, &shape);
            assert_true(product_run(&many, ring));
            assert_true(product_same_row(shape.m > 64 ? &prefill : &alone, 0, &many, place));
            product_finish(&many);
        }
        product_finish(&alone);
        product_finish(&prefill);
    }
}

/* A child of the crowd: the first run is alone to nobody's knowledge, but its bytes are judged; all
 * later ones must repeat them. Several requests at once, so that launches are shared. */
static bool crowd_member(uint32_t i_member)
{
    enum { N_AT_ONCE = 4 };
    struct product products[N_AT_ONCE];
    struct product first[N_AT_ONCE];
    gemmd_client_t *client =
        fixture_open(&fixture, i_member % 3 == 2 ? GEMMD_PATH_ZEROMQ : GEMMD_PATH_RING);
    for (uint32_t i = 0; i < N_AT_ONCE; i++) {
        const struct product_shape shape = {.m = 1 + (i_member * 5 + i * 3) % 10,
                                            .x_dtype = GEMMD_BF16,
                                            .y_dtype = GEMMD_F32,
                                            .seed = 9000 + i_member * 100 + i};
        if (!product_init(&products[i], client, "tiny", &model.weights[TEST_INT4], &shape) ||
            !product_init(&first[i], client, "tiny", &model.weights[TEST_INT4], &shape) ||
            !product_run(&first[i], client) || !product_is_right(&first[i])) {
            return false;
        }
    }
    for (uint32_t i_run = 0; i_run < N_CROWD_RUNS; i_run++) {
        gemmd_ticket_t tickets[N_AT_ONCE];
        struct gemmd_gemm gemms[N_AT_ONCE];
        for (uint32_t i = 0; i < N_AT_ONCE; i++) {
            product_clear(&products[i]);
            gemms[i] = products[i].gemm;
        }
        if (gemmd_submit(client, gemms, N_AT_ONCE, tickets) != GEMMD_OK) {
            return false;
        }
        for (uint32_t i = 0; i < N_AT_ONCE; i++) {
            if (gemmd_wait(client, tickets[i], GEMMD_WAIT_FOREVER, NULL) != GEMMD_OK ||
                !product_same_bytes(&products[i], &first[i])) {
                (void)fprintf(stderr, "member %u, run %u, request %u: %s\n", i_member, i_run, i,
                              gemmd_last_error());
                return false;
            }
        }
    }
    gemmd_close(client);
    return true;
}

static void run_crowd(void)
{
    pid_t pids[N_CROWD];
    for (uint32_t i = 0; i < N_CROWD; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            _exit(crowd_member(i) ? 0 : 1);
        }
    }
    for (uint32_t i = 0; i < N_CROWD; i++) {
        int child;
        assert_int_equal(waitpid(pids[i], &child, 0), pids[i]);
        assert_int_equal(child, 0);
    }
}

static void test_crowd(void **state)
{
#if defined(__SANITIZE_THREAD__)
    skip(); /* TSan has no threads in a child that was forked beside threads (libzmq's) */
#endif
    (void)state;
    struct status_counts before;
    struct status_counts after;
    status_counts_read(&fixture, &before);
    double deadline = fixture_now() + CROWD_SECONDS;
    do { /* sharing is likely, not certain: on a busy machine they may come one by one */
        run_crowd();
        status_counts_read(&fixture, &after);
    } while (after.n_shared_launches == before.n_shared_launches && fixture_now() < deadline);
    assert_true(after.n_shared_launches > before.n_shared_launches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),    cmocka_unit_test(test_every_row_count),
        cmocka_unit_test(test_strides),       cmocka_unit_test(test_same_sentences),
        cmocka_unit_test(test_sizes_in_turn), cmocka_unit_test(test_row_in_any_place),
        cmocka_unit_test(test_crowd),         cmocka_unit_test(test_more_than_the_machine_has),
        cmocka_unit_test(test_crowd),         cmocka_unit_test(test_what_is_no_descriptor),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
