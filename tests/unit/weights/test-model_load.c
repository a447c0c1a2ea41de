/* What is loaded is what the checkpoint says, product by product. Cases T08, T10, T11. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "tests/unit/weights/loader_fixture.h"

/* ---- T08: zero points ---- */

static void test_zero_point_conventions(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint8_t zero;
    } cases[] = {
        {"\"group_size\":128,\"checkpoint_format\":\"gptq\"", 7},
        {"\"group_size\":128,\"checkpoint_format\":\"gptq_v2\"", 8},
        {"\"group_size\":128", 7},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "m%zu", i);
        write_config(cases[i].config);
        write_flat(128, 128, 1, 9, ONE, cases[i].zero);
        assert_int_equal(run(LOADER_JOB_LOAD, name), 0);
        (void)snprintf(name, sizeof(name), "m%zu/p", i);
        expect_product(name, 128.0f);
    }
}

static void test_zero_point_contradiction(void **state)
{
    (void)state;
    write_config("\"group_size\":128,\"sym\":true");
    write_flat(128, 128, 1, 9, ONE, 8);
    int r = run(LOADER_JOB_LOAD, "m");
    assert_true(r == STATUS_BAD_CHECKPOINT || r == STATUS_UNSUPPORTED);
    assert_non_null(strstr(f.why.text, "'p'"));
    assert_false(store_has_model(f.store, "m"));
}

/* ---- T11: groups ---- */

static void test_too_many_scale_rows(void **state)
{
    (void)state;
    write_config("\"group_size\":32");
    write_flat(64, 384, 24, 9, ONE, 7);
    expect_refusal(STATUS_BAD_CHECKPOINT, "expected [12, 64]");
    write_config("\"group_size\":128");
    write_flat(64, 192, 3, 9, ONE, 7);
    expect_refusal(STATUS_BAD_CHECKPOINT, "expected [2, 64]");
}

static void test_ragged_last_group(void **state)
{
    (void)state;
    enum { N = 64, K = 192 };
    static uint8_t codes[K * N];
    static uint16_t scales[2 * N];
    memset(codes, 9, sizeof(codes));
    for (uint32_t i = 0; i < N; i++) {
        scales[i] = ONE;
        scales[N + i] = TWO;
    }
    struct tensor_file file;
    tensor_file_init(&file);
    tensor_file_add_gptq(&file,
                         &(struct gptq_layer){"p", N, K, 2, codes, scales, 7, .g_idx = NULL});
    tensor_file_write(&file, temp_path(&f.folder, "model.safetensors"));
    tensor_file_finish(&file);
    write_config("\"group_size\":128");
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    expect_product("m/p", 256.0f);
}

static void test_one_group_over_k(void **state)
{
    (void)state;
    write_config("\"group_size\":-1");
    write_flat(32, 4096, 1, 9, 0x3800 /* 0.5 */, 7);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    expect_product("m/p", 2048.0f);
}

/* ---- T10: g_idx ---- */

enum { G_IDX_N = 32, G_IDX_K = 256, G_IDX_GROUP = 64 };

static void write_g_idx(const int32_t *g_idx)
{
    static uint8_t codes[G_IDX_K * G_IDX_N];
    uint16_t scales[4 * G_IDX_N];
    memset(codes, 9, sizeof(codes));
    for (uint32_t i = 0; i < ARRAY_LENGTH(scales); i++) {
        scales[i] = half_from_f32((float)(1 << (i / G_IDX_N)));
    }
    const struct gptq_layer layer = {"p", G_IDX_N, G_IDX_K, 4, codes, scales, 7, g_idx};
    struct tensor_file file;
    tensor_file_init(&file);
    tensor_file_add_gptq(&file, &layer);
    tensor_file_write(&file, temp_path(&f.folder, "model.safetensors"));
    tensor_file_finish(&file);
}

static void test_g_idx_in_order(void **state)
{
    (void)state;
    int32_t in_order[G_IDX_K];
    int32_t unset[G_IDX_K];
    int32_t zeros[G_IDX_K] = {0};
    for (int32_t i = 0; i < G_IDX_K; i++) {
        in_order[i] = i / G_IDX_GROUP;
        unset[i] = -1;
    }
    const struct {
        const int32_t *g_idx;
        const char *config;
        const char *warning;
    } cases[] = {
        {in_order, "\"group_size\":64,\"desc_act\":true", NULL},
        {unset, "\"group_size\":64,\"desc_act\":true", "'p.g_idx' is -1 throughout"},
        {zeros, "\"group_size\":64,\"desc_act\":false", "'p.g_idx' is 0 throughout"},
        {NULL, "\"group_size\":64", NULL},
    };
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "m%u", i);
        write_g_idx(cases[i].g_idx);
        write_config(cases[i].config);
        assert_int_equal(run(LOADER_JOB_LOAD, name), 0);
        expect_warning(name, cases[i].warning);
        (void)snprintf(name, sizeof(name), "m%u/p", i);
        expect_product(name, 64.0f * (1 + 2 + 4 + 8));
    }
}

static void test_g_idx_refusals(void **state)
{
    (void)state;
    static const struct {
        uint32_t i;
        int32_t value;
        int status;
        const char *text;
    } cases[] = {
        {7, 4, STATUS_BAD_CHECKPOINT, "'p.g_idx': g_idx of element 7 is 4, outside the 4 groups"},
        {8, -7, STATUS_BAD_CHECKPOINT, "'p.g_idx': g_idx of element 8 is -7"},
        {9, INT32_MAX, STATUS_BAD_CHECKPOINT, "'p.g_idx': g_idx of element 9 is 2147483647"},
        {10, 3, STATUS_UNSUPPORTED, "'p.g_idx': g_idx puts 63 elements into group 0, not 64"},
    };
    write_config("\"group_size\":64,\"desc_act\":true");
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        int32_t g_idx[G_IDX_K];
        for (int32_t j = 0; j < G_IDX_K; j++) {
            g_idx[j] = j / G_IDX_GROUP;
        }
        g_idx[cases[i].i] = cases[i].value;
        write_g_idx(g_idx);
        expect_refusal(cases[i].status, cases[i].text);
    }
    write_g_idx((int32_t[G_IDX_K]){0});
    expect_refusal(STATUS_UNSUPPORTED, "g_idx puts 256 elements into group 0");
    write_g_idx(NULL);
    expect_refusal(STATUS_BAD_CHECKPOINT, "tensor 'p.g_idx' is missing beside 'p.qweight'");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, loader_set_up, loader_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_zero_point_conventions), CASE(test_zero_point_contradiction),
        CASE(test_too_many_scale_rows),    CASE(test_ragged_last_group),
        CASE(test_one_group_over_k),       CASE(test_g_idx_in_order),
        CASE(test_g_idx_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
