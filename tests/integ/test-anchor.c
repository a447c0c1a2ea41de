/* test-anchor.c - one row of x among many others: its row of y never changes, wherever it stands,
 * however many stand with it and whoever shares its launch (T30). GEMMD_TEST_SECONDS sets how long
 * the crowd works; GEMMD_TEST_SECONDS=60 is the long run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/fixture.h"
#include "tests/harness/model.h"
#include "tests/harness/product.h"
#include "tests/harness/status_document.h"

#define N_CROWD        8u
#define CROWD_SECONDS  2.0
#define CROWD_DEADLINE 20.0
#define PAUSE_USEC_MAX 20000u
#define M_MAX          1024u
#define ANCHOR_SEED    5000u

/* AddressSanitizer makes a thousand rows of 2048 a matter of minutes. */
#if defined(__SANITIZE_ADDRESS__)
static const uint32_t sizes[] = {1, 2, 17, 33, 128, 257};
#else
static const uint32_t sizes[] = {1, 2, 17, 33, 128, 257, M_MAX};
#endif

static const uint32_t shapes[TEST_WEIGHTS][2] = {{2048, 2048}, {40, 128}, {2048, 2048}};

static struct fixture fixture;
static struct test_model model;
static _Atomic uint64_t *n_products; /* of the crowd */

static int set_up(void **state)
{
    (void)state;
    char argument[512];
    fixture_init(&fixture);
    test_model_write_sized(&model, &fixture.folder, "anchor", 17, shapes);
    (void)snprintf(argument, sizeof(argument), "anchor=%s", model.path);
    const struct fixture_options options = {.model = argument};
    fixture_start(&fixture, &options);
    n_products =
        mmap(NULL, sizeof(*n_products), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return n_products == MAP_FAILED ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)munmap((void *)(uintptr_t)n_products, sizeof(*n_products));
    int code = fixture_stop(&fixture);
    fixture_finish(&fixture);
    test_model_finish(&model);
    return code;
}

/* The anchor alone, judged; and rows around it, of which each request takes a stretch. */
struct rows {
    gemmd_client_t *client;
    struct product alone;
    struct product around; /* the anchor is row M_MAX - 1 of 2 M_MAX - 1 */
};

static void rows_finish(struct rows *rows)
{
    product_finish(&rows->alone);
    product_finish(&rows->around);
    gemmd_close(rows->client);
}

static bool rows_init(struct rows *rows, enum gemmd_path path, uint32_t i_weight)
{
    const struct test_weight *weight = &model.weights[i_weight];
    struct product_shape shape = {
        .m = 1, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = ANCHOR_SEED};
    *rows = (struct rows){.client = fixture_open(&fixture, path)};
    if (!product_init(&rows->alone, rows->client, "anchor", weight, &shape)) {
        return false;
    }
    shape.m = 2 * M_MAX - 1;
    shape.seed = ANCHOR_SEED - (M_MAX - 1);
    return product_init(&rows->around, rows->client, "anchor", weight, &shape) &&
           product_run(&rows->alone, rows->client);
}

/* m rows, the anchor at `place` among them: the same bytes as alone. */
static bool anchor_holds(struct rows *rows, uint32_t m, uint32_t place)
{
    struct product *around = &rows->around;
    around->gemm.m = m;
    around->gemm.x_offset_bytes = (M_MAX - 1 - place) * around->x_stride * sizeof(uint16_t);
    product_clear(around);
    if (!product_run(around, rows->client)) {
        return false;
    }
    if (!product_same_row(&rows->alone, 0, around, place)) {
        (void)fprintf(stderr, "row %u of %u differs from what it is alone\n", place, m);
        return false;
    }
    return true;
}

static void test_every_place(void **state)
{
    (void)state;
    for (uint32_t i_weight = 0; i_weight < TEST_WEIGHTS; i_weight++) {
        struct rows rows;
        assert_true(rows_init(&rows, GEMMD_PATH_RING, i_weight));
        assert_true(product_is_right(&rows.alone));
        for (uint32_t i = 0; i < 3 * ARRAY_LENGTH(sizes); i++) {
            uint32_t m = sizes[i / 3];
            assert_true(anchor_holds(&rows, m, i % 3 * (m - 1) / 2));
        }
        rows_finish(&rows);
    }
}

/* ---- the crowd ---------------------------------------------------------------------------------
 */

/* Of 1 to M_MAX rows, few being as likely as many. */
static uint32_t random_size(uint64_t *random)
{
    uint64_t limit = 1ull << test_random(random) % 11;
    return 1 + (uint32_t)(test_random(random) % limit);
}

static bool crowd_member(uint32_t i_member, double seconds)
{
    struct rows rows;
    uint64_t random = i_member * 2 + 1;
    if (!rows_init(&rows, i_member % 4 == 3 ? GEMMD_PATH_ZEROMQ : GEMMD_PATH_RING,
                   i_member % 2 == 0 ? TEST_INT4 : TEST_PLAIN)) {
        return false;
    }
    bool is_right = true;
    for (double end = fixture_now() + seconds; is_right && fixture_now() < end;) {
        uint32_t m = random_size(&random);
        is_right = anchor_holds(&rows, m, (uint32_t)(test_random(&random) % m));
        atomic_fetch_add(n_products, 1);
        (void)usleep((useconds_t)(test_random(&random) % PAUSE_USEC_MAX));
    }
    rows_finish(&rows);
    return is_right;
}

static void run_crowd(double seconds)
{
    pid_t pids[N_CROWD];
    for (uint32_t i = 0; i < N_CROWD; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            _exit(crowd_member(i, seconds) ? 0 : 1);
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
    (void)state;
    const char *text = getenv("GEMMD_TEST_SECONDS");
    double seconds = text != NULL ? strtod(text, NULL) : CROWD_SECONDS;
    struct status_counts before;
    struct status_counts after;
    status_counts_read(&fixture, &before);
    double deadline = fixture_now() + CROWD_DEADLINE;
    do { /* until launches were shared, which is likely from the first, but not certain */
        run_crowd(seconds);
        status_counts_read(&fixture, &after);
    } while (after.n_shared_launches == before.n_shared_launches && fixture_now() < deadline);
    print_message("%ju products in %.0f s; %ju launches, %ju of them shared\n",
                  (uintmax_t)atomic_load(n_products), seconds,
                  (uintmax_t)(after.n_launches - before.n_launches),
                  (uintmax_t)(after.n_shared_launches - before.n_shared_launches));
    assert_true(after.n_shared_launches > before.n_shared_launches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_place),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
