/* test-gpu-two-ends.c - two GPUs, and daemons that end: a fault of the one device ends the process,
 * and the next adopts the weights of both; weights are found again by the UUID of their GPU,
 * whatever index it has by then; one that is owned no more is let go of. Skipped on a machine with
 * fewer than two. The parent never uses CUDA: it forks. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/gpu/two.h"

#define N_PRODUCTS 150u
#define N_FAULT    "lost:100" /* the launch, of each device, that is its last */

static struct two two;

static int set_up(void **state)
{
    (void)state;
    two_init(&two);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    two_finish(&two);
    return 0;
}

/* ---- a device that is lost ---- */

static void order_fault(void *arg)
{
    (void)setenv("GEMMD_FAULT", arg, 1);
}

/* Works on one GPU, whatever becomes of the daemon: the library asks the next one. */
static bool child_that_lives_on(uint32_t i_gpu)
{
    struct product product;
    struct gemmd_options patient = GEMMD_OPTIONS_INIT;
    patient.socket_dir = two.fixture.socket_dir;
    gemmd_client_t *client;
    if (gemmd_open(&patient, &client) != GEMMD_OK ||
        !two_product(&two, &product, client, i_gpu, i_gpu)) {
        return false;
    }
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < N_PRODUCTS; i++) {
        product_clear(&product);
        is_right = product_run(&product, client) && product_is_right(&product);
        if (!is_right) {
            (void)fprintf(stderr, "product %u on GPU %u\n", i, i_gpu);
        }
    }
    product_finish(&product);
    gemmd_close(client);
    return is_right;
}

static void test_a_device_that_is_lost(void **state)
{
    (void)state;
    const struct fixture_options options = {.config = "devices = auto\n",
                                            .is_kept = true,
                                            .in_child = order_fault,
                                            .arg = (void *)(uintptr_t)N_FAULT};
    assert_true(two_start(&two, &options));
    assert_true(gpu_children(TWO_GPUS, child_that_lives_on));
    assert_true(fixture_logged(&two.fixture, "a device is lost") >= 1);
    assert_true(fixture_logged(&two.fixture, "2 models with 6 weights adopted") >= 1);
    assert_int_equal(fixture_logged(&two.fixture, "load: model"), TWO_GPUS);
    assert_int_equal(fixture_stop(&two.fixture), 0);
}

/* ---- adopted ---- */

/* End the daemon, and have the next one own other devices, or the same in another order. */
static void end_and_await(const char *config)
{
    uint32_t n_served = fixture_logged(&two.fixture, "serves on");
    write_text(temp_path(&two.fixture.folder, "conf"), config);
    assert_int_equal(kill(fixture_daemon_pid(&two.fixture), SIGKILL), 0);
    fixture_wait_logged(&two.fixture, "serves on", n_served + 1);
}

static bool child_of_both(uint32_t i_child)
{
    (void)i_child;
    static const uint32_t swapped[TWO_GPUS] = {1, 0};
    gemmd_client_t *client = fixture_open(&two.fixture, GEMMD_PATH_RING);
    bool is_right = two_serve(&two, client, swapped);
    gemmd_close(client);
    return is_right;
}

static bool child_of_the_second(uint32_t i_child)
{
    (void)i_child;
    struct product product;
    struct gemmd_weight gone = GEMMD_WEIGHT_INIT;
    gemmd_client_t *client = fixture_open(&two.fixture, GEMMD_PATH_RING);
    bool is_right = two_product(&two, &product, client, 1, 3) && product.handle.device_index == 0 &&
                    product_run(&product, client) && product_is_right(&product) &&
                    gemmd_find_weight(client, "first/layer.int4", &gone) == GEMMD_NOT_FOUND;
    if (!is_right) {
        (void)fprintf(stderr, "the second GPU alone: %s\n", gemmd_last_error());
    }
    gemmd_close(client);
    return is_right;
}

static void test_weights_are_found_by_uuid(void **state)
{
    (void)state;
    const struct fixture_options options = {.config = "devices = cuda:0\ndevices = cuda:1\n",
                                            .is_kept = true};
    assert_true(two_start(&two, &options));
    end_and_await("devices = cuda:1\ndevices = cuda:0\n");
    assert_true(gpu_children(1, child_of_both));
    assert_int_equal(fixture_logged(&two.fixture, "load: model"), TWO_GPUS);
    end_and_await("devices = cuda:1\n");
    assert_true(gpu_children(1, child_of_the_second));
    assert_int_equal(fixture_logged(&two.fixture, "kept model 'first' is not adopted"), 1);
    assert_int_equal(fixture_stop(&two.fixture), 0);
}

int main(void)
{
    two_need();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_device_that_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_weights_are_found_by_uuid, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
