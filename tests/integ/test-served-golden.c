/* test-served-golden.c - checkpoints that the field's own tools wrote, loaded by the real daemon:
 * its products against those of the tools' own dequantisation. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/weights/safetensors.h"
#include "ipc/base/half.h"
#include "tests/harness/control_job.h"
#include "tests/harness/fixture.h"
#include "tests/harness/product.h"
#include "tests/harness/tiny.h"

#define M 2u

/* What dequantised weights give, up to the rounding of f32 sums; and with x quantised on the way,
 * as those settings ask for. */
#define TOLERANCE_FLOAT     1e-5
#define TOLERANCE_QUANTISED 4e-2

/* Blocks whose activations would be quantised in groups of 32. */
#define NOT_SERVED "fp8-block-32"

static struct fixture fixture;
static gemmd_client_t *client;

static int set_up(void **state)
{
    (void)state;
    return bare_start(&fixture, &client);
}

static int tear_down(void **state)
{
    (void)state;
    return bare_stop(&fixture, client);
}

/* The whole tensor; the caller frees it. */
static void *read_tensor(const struct safetensors *file, const char *name, uint64_t size_bytes)
{
    const struct safetensors_tensor *tensor = safetensors_find(file, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->size_bytes, size_bytes);
    void *bytes = malloc(size_bytes);
    assert_non_null(bytes);
    assert_int_equal(safetensors_read(file, tensor, 0, bytes, size_bytes, NULL), 0);
    return bytes;
}

static double relative_error(const float *y, const double *expected, uint64_t n)
{
    double error = 0;
    double norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        error += ((double)y[i] - expected[i]) * ((double)y[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    return sqrt(error / norm);
}

/* The tools' products are without the bias that some of the layers have. */
static void add_bias(const char *folder, uint32_t n, double *y)
{
    char path[1024];
    struct safetensors file;
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    assert_int_equal(safetensors_open(AT_FDCWD, path, &file, NULL), 0);
    if (safetensors_find(&file, "layer.bias") != NULL) {
        uint16_t *bias = read_tensor(&file, "layer.bias", n * sizeof(*bias));
        for (uint32_t i = 0; i < M * n; i++) {
            y[i] += (double)half_to_f32(bias[i % n]);
        }
        free(bias);
    }
    safetensors_finish(&file);
}

static void expect_product(const char *name, const char *folder)
{
    char path[1024];
    char weight_name[300];
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    struct safetensors file;
    (void)snprintf(path, sizeof(path), "%s/expected.safetensors", folder);
    (void)snprintf(weight_name, sizeof(weight_name), "%s/layer", name);
    assert_int_equal(gemmd_find_weight(client, weight_name, &weight), GEMMD_OK);
    assert_int_equal(safetensors_open(AT_FDCWD, path, &file, NULL), 0);
    float *x = read_tensor(&file, "x", (uint64_t)M * weight.k * sizeof(float));
    double *expected = read_tensor(&file, "y", (uint64_t)M * weight.n * sizeof(double));
    float *y = product_of_rows(client, &weight, x, M);
    assert_non_null(y);
    add_bias(folder, weight.n, expected);
    double error = relative_error(y, expected, (uint64_t)M * weight.n);
    double limit = weight.act == GEMMD_ACT_FLOAT ? TOLERANCE_FLOAT : TOLERANCE_QUANTISED;
    print_message("%-24s %-40s %.2e\n", name, weight.format, error);
    if (!(error <= limit)) {
        fail_msg("%s: relative error %.3g over %.0e", name, error, limit);
    }
    free(x);
    free(expected);
    free(y);
    safetensors_finish(&file);
}

static void expect_served(const char *name, const char *folder)
{
    char text[MSG_TEXT_BYTES] = "";
    int r = control_job(client, MSG_VERB_LOAD, name, folder, text);
    if (strcmp(name, NOT_SERVED) == 0) {
        assert_int_equal(r, GEMMD_UNSUPPORTED);
        assert_non_null(strstr(text, "weight_block_size [32, 32] is not served"));
        return;
    }
    if (r != 0) {
        fail_msg("%s: %s", name, text);
    }
    expect_product(name, folder);
    if (control_job(client, MSG_VERB_VERIFY, name, NULL, text) != 0) {
        fail_msg("%s: %s", name, text);
    }
    assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, name), 0);
}

static void test_every_tool(void **state)
{
    (void)state;
    char golden[512];
    (void)snprintf(golden, sizeof(golden), "%s/tests/data/golden", getenv("GEMMD_SOURCE_DIR"));
    DIR *folders = opendir(golden);
    assert_non_null(folders);
    uint32_t n_served = 0;
    for (struct dirent *entry = readdir(folders); entry != NULL; entry = readdir(folders)) {
        char folder[900];
        if (strchr(entry->d_name, '.') != NULL) {
            continue; /* . and .. and the README */
        }
        (void)snprintf(folder, sizeof(folder), "%s/%s", golden, entry->d_name);
        expect_served(entry->d_name, folder);
        n_served++;
    }
    (void)closedir(folders);
    assert_true(n_served >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_tool)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
