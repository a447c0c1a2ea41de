/* test-gpu-fault.c - a client's kernel writes where nothing is (T48). Without MPS the daemon is
 * untouched. Under MPS its context dies with the client's: every request is answered DEVICE_LOST,
 * the process ends for a restart, and nobody waits for ever. Run in both ways. Skipped without a
 * GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/server/exit_code.h"
#include "tests/gpu/chain.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/step.h"
#include "tests/harness/status_document.h"
#include "tests/harness/tiny.h"

#define END_SECONDS 10.0

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
    fixture_finish(&fixture);
    test_model_finish(&model);
    return 0;
}

static bool has_mps(void)
{
    json_t *document = status_document_read(&fixture);
    const char *description = json_string_value(
        json_object_get(json_array_get(json_object_get(document, "devices"), 0), "description"));
    assert_non_null(description);
    bool has = strstr(description, "no MPS") == NULL;
    json_decref(document);
    return has;
}

/* A client whose GPU work is fine until it is not. */
static bool child_that_faults(uint32_t i_child)
{
    (void)i_child;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    struct chain chain;
    bool is_right =
        chain_init(&chain, client, "tiny/layer.int4",
                   chain_has_way(client, 0, CHAIN_KERNEL) ? CHAIN_KERNEL : CHAIN_MEMORY) &&
        chain_seed(&chain, 1) && chain_steps(&chain, 20) && chain_sync(&chain) &&
        chain_steps(&chain, 20) && fault_enqueue(chain.cuda_stream) == 0;
    is_right = is_right && cudaStreamSynchronize(chain.cuda_stream) != cudaSuccess;
    chain_finish(&chain);
    gemmd_close(client); /* on a context that is dead */
    return is_right;
}

/* The rows of this client, which has no context of its own, lie in host memory. */
static int run_until_refused(struct product *product, gemmd_client_t *client)
{
    double end = fixture_now() + END_SECONDS;
    int r = GEMMD_OK;
    while (r == GEMMD_OK && fixture_now() < end) {
        r = gemmd_gemm(client, &product->gemm);
    }
    return r;
}

static void test_a_fault_of_a_client(void **state)
{
    (void)state;
    const struct product_shape shape = {
        .m = 3, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = 4};
    struct product product;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    assert_true(product_init(&product, client, "tiny", &model.weights[TEST_INT4], &shape));
    assert_true(product_run(&product, client) && product_is_right(&product));
    bool is_shared = has_mps();
    (void)fprintf(stderr, "note: with%s MPS\n", is_shared ? "" : "out");
    assert_true(gpu_children(1, child_that_faults));
    if (is_shared) {
        assert_int_equal(run_until_refused(&product, client), GEMMD_DEVICE_LOST);
        assert_non_null(strstr(gemmd_last_error(), "device"));
        assert_int_equal(fixture_wait_exit(&fixture, END_SECONDS), EXIT_CODE_FAILED);
    } else {
        for (uint32_t i = 0; i < 100; i++) {
            assert_true(product_run(&product, client) && product_is_right(&product));
        }
        assert_int_equal(fixture_stop(&fixture), 0);
    }
    product_finish(&product);
    gemmd_close(client);
}

int main(void)
{
    gpu_need();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_fault_of_a_client, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
