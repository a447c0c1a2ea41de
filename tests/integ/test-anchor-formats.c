/* test-anchor-formats.c - weights of every family of checkpoints: a row of y has the same bits in
 * products of any size and in any place (T30). 2048 x 2048 and up to 1024 rows on a GPU; less on
 * the host, where one kernel serves many formats and test-anchor has the large weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/anchor.h"
#include "tests/harness/control_job.h"
#include "tests/harness/family_cases.h"
#include "tests/harness/fixture.h"
#include "tests/harness/tiny.h"

static const uint32_t sizes[] = {1, 2, 17, 33, 64, 65, 128, 257, ANCHOR_ROWS_MAX};

static struct fixture fixture;
static gemmd_client_t *client;
static bool is_gpu;

static int set_up(void **state)
{
    (void)state;
    is_gpu = getenv("GEMMD_TEST_GPU") != NULL;
    return bare_start(&fixture, &client);
}

static int tear_down(void **state)
{
    (void)state;
    return bare_stop(&fixture, client);
}

/* That family's description of a square weight. A group that is all of n or k stays so. */
static struct gk_desc square(const struct gk_desc *desc, uint32_t side)
{
    struct gk_desc large = *desc;
    bool is_block = desc->group_n == 128;
    large.n = large.k = side;
    large.group_n = desc->group_n == desc->n && !is_block ? side : desc->group_n;
    large.group_k = desc->group_k == desc->k && !is_block ? side : desc->group_k;
    return large;
}

static void load(const char *name, const struct family_case *family,
                 const struct gk_canonical *canonical)
{
    char path[300];
    char text[MSG_TEXT_BYTES] = "";
    struct tensor_file file;
    (void)snprintf(path, sizeof(path), "%s", temp_path(&fixture.folder, name));
    tensor_file_init(&file);
    tensor_file_add_weight(&file, "w", family->family, canonical);
    test_folder_write(path, family->config, &file);
    tensor_file_finish(&file);
    if (control_load(client, name, path, NULL, text) != 0) {
        fail_msg("%s: %s", name, text);
    }
}

/* In f32, where every bit of a sum shows. */
static void expect_same_bits(const char *name, const struct test_weight *weight)
{
    struct anchor anchor;
    uint32_t n_sizes = ARRAY_LENGTH(sizes) - !is_gpu;
    bool is_right = anchor_init(&anchor, client, name, weight, GEMMD_F32);
    for (uint32_t i = 0; is_right && i < 3 * n_sizes; i++) {
        uint32_t m = sizes[i / 3];
        is_right = anchor_holds(&anchor, client, m, i % 3 * (m - 1) / 2);
    }
    anchor_finish(&anchor);
    assert_true(is_right);
}

/* In bf16, whose rounding is coarser than the sums of any kernel. */
static void expect_right(const char *name, const struct test_weight *weight)
{
    struct product product;
    const struct product_shape shape = {
        .m = 2, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_BF16, .seed = 5};
    assert_true(product_init(&product, client, name, weight, &shape));
    assert_true(product_run(&product, client) && product_is_right(&product));
    product_finish(&product);
}

static void test_every_format(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_family_cases; i++) {
        char name[16];
        uint64_t random = i * 2 + 1;
        struct test_weight weight = {.module = "w"};
        struct gk_desc desc = square(&family_cases[i].desc, is_gpu ? 2048 : 256);
        random_weight(&weight.canonical, &desc, &random);
        (void)snprintf(name, sizeof(name), "m%u", i);
        load(name, &family_cases[i], &weight.canonical);
        expect_right(name, &weight);
        expect_same_bits(name, &weight);
        assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, name), 0);
        gk_canonical_finish(&weight.canonical);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_format)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
