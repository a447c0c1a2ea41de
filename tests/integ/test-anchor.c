/* test-anchor.c - one row of x among many others: its row of y never changes, wherever it stands,
 * however many stand with it and whoever shares its launch (T30). GEMMD_TEST_SECONDS sets how long
 * the crowd works; GEMMD_TEST_SECONDS=60 is the long run, on the host or, with tests/gpu/run, on a
 * GPU. */
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
#include "tests/harness/anchor.h"
#include "tests/harness/fixture.h"
#include "tests/harness/model.h"
#include "tests/harness/status_document.h"

#define N_CROWD        8u
#define CROWD_SECONDS  2.0
#define CROWD_DEADLINE 20.0
#define PAUSE_USEC_MAX 20000u

/* AddressSanitizer makes a thousand rows of 2048 a matter of minutes. */
#if defined(__SANITIZE_ADDRESS__)
static const uint32_t sizes[] = {1, 2, 17, 33, 128, 257};
#else
static const uint32_t sizes[] = {1, 2, 17, 33, 128, 257, ANCHOR_ROWS_MAX};
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

static void test_every_place(void **state)
{
    (void)state;
    for (uint32_t i_weight = 0; i_weight < TEST_WEIGHTS; i_weight++) {
        struct anchor anchor;
        gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
        assert_true(anchor_init(&anchor, client, "anchor", &model.weights[i_weight], GEMMD_F32));
        assert_true(product_is_right(&anchor.alone));
        for (uint32_t i = 0; i < 3 * ARRAY_LENGTH(sizes); i++) {
            uint32_t m = sizes[i / 3];
            assert_true(anchor_holds(&anchor, client, m, i % 3 * (m - 1) / 2));
        }
        anchor_finish(&anchor);
        gemmd_close(client);
    }
}

/* ---- the crowd ---- */

/* Of 1 to ANCHOR_ROWS_MAX rows, few being as likely as many. */
static uint32_t random_size(uint64_t *random)
{
    uint64_t limit = 1ull << test_random(random) % 11;
    return 1 + (uint32_t)(test_random(random) % limit);
}

static bool crowd_member(uint32_t i_member, double seconds)
{
    struct anchor anchor;
    uint64_t random = i_member * 2 + 1;
    const struct test_weight *weight = &model.weights[i_member % 2 == 0 ? TEST_INT4 : TEST_PLAIN];
    gemmd_client_t *client =
        fixture_open(&fixture, i_member % 4 == 3 ? GEMMD_PATH_ZEROMQ : GEMMD_PATH_RING);
    bool is_right = anchor_init(&anchor, client, "anchor", weight, GEMMD_F32);
    for (double end = fixture_now() + seconds; is_right && fixture_now() < end;) {
        uint32_t m = random_size(&random);
        is_right = anchor_holds(&anchor, client, m, (uint32_t)(test_random(&random) % m));
        atomic_fetch_add(n_products, 1);
        (void)usleep((useconds_t)(test_random(&random) % PAUSE_USEC_MAX));
    }
    anchor_finish(&anchor);
    gemmd_close(client);
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
