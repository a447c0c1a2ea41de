/* test-gpu-plans.c - how a GPU multiplies plain weights is found out once, and kept: daemons that
 * come later find it in a file, believe none that is damaged, and give the same bits. Skipped
 * without a GPU or the vendor's library. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/half.h"
#include "kernels/cuda/cublaslt.h"
#include "tests/gpu/gpu.h"

#define N          512u
#define K          1024u
#define FILE_BYTES 16384u

static struct fixture fixture;
static struct test_weight weight = {.module = "w"};
static char model_argument[512], config[512], plans[300];
static const struct product_shape shape = {
    .m = 100, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_BF16, .seed = 5};

static void write_model(const char *path)
{
    const struct gk_desc desc = {.n = N, .k = K, .code = GK_CODE_BF16};
    const uint64_t dims[] = {N, K};
    uint64_t random = 7;
    struct tensor_file file;
    assert_int_equal(gk_canonical_alloc(&weight.canonical, &desc), 0);
    uint16_t *values = weight.canonical.codes;
    for (uint32_t i = 0; i < N * K; i++) {
        values[i] = bf16_from_f32((float)test_random_unit(&random) * 0.1f);
    }
    tensor_file_init(&file);
    tensor_file_add(&file, "w.weight", "BF16", 2, dims, values, N * K * sizeof(*values));
    tensor_file_write(&file, path);
    tensor_file_finish(&file);
}

static int set_up(void **state)
{
    (void)state;
    fixture_init(&fixture);
    const char *path = temp_path(&fixture.folder, "plain.safetensors");
    write_model(path);
    (void)snprintf(model_argument, sizeof(model_argument), "plain=%s", path);
    (void)snprintf(config, sizeof(config), "devices = cuda:0\ntuning = no\ntuning_file = %s\n",
                   temp_path(&fixture.folder, "kept"));
    (void)snprintf(plans, sizeof(plans), "%s", temp_path(&fixture.folder, "kept.plans"));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_finish(&fixture);
    gk_canonical_finish(&weight.canonical);
    return 0;
}

/* ---- the file ---- */

static void read_plans(char text[FILE_BYTES])
{
    FILE *stream = fopen(plans, "r");
    assert_non_null(stream);
    size_t n = fread(text, 1, FILE_BYTES - 1, stream);
    text[n] = '\0';
    assert_true(n > 0 && n < FILE_BYTES - 1);
    assert_int_equal(fclose(stream), 0);
}

/* The one plan that there is, behind its key. */
static char *plan_in(char *text)
{
    char *tab = strchr(text, '\t');
    assert_non_null(tab);
    return tab + 1;
}

static void kill_daemon(void)
{
    uint32_t n_served = fixture_logged(&fixture, "serves on");
    double start = fixture_now();
    assert_int_equal(kill(fixture_daemon_pid(&fixture), SIGKILL), 0);
    fixture_wait_logged(&fixture, "serves on", n_served + 1);
    print_message("served again after %.2f s\n", fixture_now() - start);
}

/* ---- tests ---- */

static void expect_same(const struct product *first, struct product *again, gemmd_client_t *client)
{
    product_clear(again);
    assert_true(product_run(again, client));
    assert_true(product_same_bytes(first, again));
}

static void test_plans_outlive_the_daemon(void **state)
{
    (void)state;
    const struct fixture_options options = {
        .model = model_argument, .config = config, .is_kept = true};
    struct product first, again;
    char kept[FILE_BYTES], text[FILE_BYTES];
    fixture_start(&fixture, &options);
    struct gemmd_options patient = GEMMD_OPTIONS_INIT;
    gemmd_client_t *client;
    patient.socket_dir = fixture.socket_dir;
    assert_int_equal(gemmd_open(&patient, &client), GEMMD_OK);
    assert_true(product_init(&first, client, "plain", &weight, &shape));
    assert_true(product_init(&again, client, "plain", &weight, &shape));
    assert_true(product_run(&first, client) && product_is_right(&first));
    read_plans(kept);
    kill_daemon();
    expect_same(&first, &again, client);
    read_plans(text);
    assert_string_equal(text, kept);
    assert_int_equal(fixture_logged(&fixture, "thrown away"), 0);

    char *digit = plan_in(text) + 100;
    *digit = *digit == '1' ? '2' : '1';
    write_text(plans, text);
    kill_daemon();
    assert_int_equal(fixture_logged(&fixture, "the kept plan is thrown away: it is damaged"), 1);
    expect_same(&first, &again, client);
    read_plans(text); /* made anew, perhaps of others that are as fast */
    kill_daemon();
    expect_same(&first, &again, client);
    assert_int_equal(fixture_logged(&fixture, "thrown away"), 1);

    product_finish(&first);
    product_finish(&again);
    gemmd_close(client);
    assert_int_equal(fixture_stop(&fixture), 0);
}

/* In a child: this process forks. */
static bool has_library(uint32_t i_child)
{
    (void)i_child;
    return cublaslt_open() == NULL;
}

int main(void)
{
    gpu_need();
    if (!gpu_children(1, has_library)) {
        print_message("skipped: the vendor's library is not here\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plans_outlive_the_daemon, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
