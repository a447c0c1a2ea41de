/* test-served-families.c - a checkpoint of every family through the real daemon: products against
 * the double precision reference, and what VERIFY says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/control_job.h"
#include "tests/harness/family_cases.h"
#include "tests/harness/fixture.h"
#include "tests/harness/product.h"
#include "tests/harness/tiny.h"

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

static void write_model(const char *folder, const struct family_case *family,
                        const struct gk_canonical *canonical)
{
    struct tensor_file file;
    tensor_file_init(&file);
    tensor_file_add_weight(&file, "w", family->family, canonical);
    test_folder_write(folder, family->config, &file);
    tensor_file_finish(&file);
}

static void expect_products(const char *name, const struct test_weight *weight)
{
    static const uint32_t row_counts[] = {1, 17};
    static const enum gemmd_dtype x_dtypes[] = {GEMMD_F32, GEMMD_F16, GEMMD_BF16};
    for (uint32_t i = 0; i < ARRAY_LENGTH(row_counts) * ARRAY_LENGTH(x_dtypes); i++) {
        struct product product;
        const struct product_shape shape = {
            .m = row_counts[i % 2], .x_dtype = x_dtypes[i / 2], .y_dtype = GEMMD_F32, .seed = i};
        if (!product_init(&product, client, name, weight, &shape) ||
            !product_run(&product, client) || !product_is_right(&product)) {
            fail_msg("%s: m %u, x type %d", name, shape.m, (int)shape.x_dtype);
        }
        product_finish(&product);
    }
}

static void expect_served(uint32_t i_case)
{
    char name[16];
    char path[300];
    char text[MSG_TEXT_BYTES] = "";
    uint64_t random = i_case * 2 + 1;
    struct test_weight weight = {.module = "w"};
    random_weight(&weight.canonical, &family_cases[i_case].desc, &random);
    (void)snprintf(name, sizeof(name), "m%u", i_case);
    (void)snprintf(path, sizeof(path), "%s", temp_path(&fixture.folder, name));
    write_model(path, &family_cases[i_case], &weight.canonical);
    if (control_job(client, MSG_VERB_LOAD, name, path, text) != 0) {
        fail_msg("case %u: %s", i_case, text);
    }
    expect_products(name, &weight);
    if (control_job(client, MSG_VERB_VERIFY, name, NULL, text) != 0) {
        fail_msg("case %u: %s", i_case, text);
    }
    assert_non_null(strstr(text, "1 of 1 weights are bit for bit those of the checkpoint"));
    assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, name), 0);
    gk_canonical_finish(&weight.canonical);
}

static void test_every_family(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_family_cases; i++) {
        expect_served(i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_family)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
