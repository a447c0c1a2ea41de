/* test-activations.c - weights that quantise their activations, through the real daemon: loaded
 * from a checkpoint, right by the reference on both paths, and the same bits whether the daemon
 * quantises a row or the client has done so by the documented rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "kernels/quant/quant.h"
#include "tests/harness/act_model.h"
#include "tests/harness/control_job.h"
#include "tests/harness/fixture.h"
#include "tests/harness/product.h"

static const enum gemmd_dtype dtypes[] = {GEMMD_F32, GEMMD_F16, GEMMD_BF16};

static struct fixture fixture;
static struct act_model model;
static gemmd_client_t *ring;
static gemmd_client_t *zeromq;

static int set_up(void **state)
{
    (void)state;
    char argument[512];
    fixture_init(&fixture);
    act_model_write(&model, &fixture.folder, "acts", 1);
    (void)snprintf(argument, sizeof(argument), "acts=%s", model.path);
    const struct fixture_options options = {.model = argument};
    fixture_start(&fixture, &options);
    ring = fixture_open(&fixture, GEMMD_PATH_RING);
    zeromq = fixture_open(&fixture, GEMMD_PATH_ZEROMQ);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gemmd_close(ring);
    gemmd_close(zeromq);
    int code = fixture_stop(&fixture);
    fixture_finish(&fixture);
    act_model_finish(&model);
    return code;
}

static void init(struct product *product, gemmd_client_t *client, uint32_t i_weight,
                 const struct product_shape *shape)
{
    assert_true(product_init(product, client, "acts", &model.weights[i_weight], shape));
}

/* ---- floats ---- */

static void test_schemes_come_from_the_checkpoint(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ACT_WEIGHTS; i++) {
        struct product product;
        init(&product, ring, i, &(struct product_shape){.m = 1, .x_dtype = 1, .y_dtype = 1});
        assert_int_equal(product.handle.act, model.weights[i].canonical.desc.act);
        assert_non_null(strstr(product.handle.format, "activations"));
        product_finish(&product);
    }
}

static void test_floats_on_both_paths(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 17, 64, 65};
    for (uint32_t i = 0; i < ACT_WEIGHTS * ARRAY_LENGTH(counts) * 3; i++) {
        const struct product_shape shape = {.m = counts[i / ACT_WEIGHTS % 4],
                                            .x_dtype = dtypes[i % 3],
                                            .y_dtype = dtypes[i / 3 % 3],
                                            .x_gap = i % 2,
                                            .y_gap = 1,
                                            .seed = i};
        struct product by_ring;
        struct product by_zeromq;
        init(&by_ring, ring, i % ACT_WEIGHTS, &shape);
        init(&by_zeromq, zeromq, i % ACT_WEIGHTS, &shape);
        assert_true(product_run(&by_ring, ring));
        assert_true(product_run(&by_zeromq, zeromq));
        assert_true(product_is_right(&by_ring));
        assert_true(product_same_bytes(&by_ring, &by_zeromq));
        product_finish(&by_ring);
        product_finish(&by_zeromq);
    }
}

/* The host always promotes: the same bits, and it says so. */
static void test_fast_accumulation(void **state)
{
    (void)state;
    gemmd_client_t *clients[] = {ring, zeromq};
    for (uint32_t i = 0; i < ACT_WEIGHTS * 2; i++) {
        const struct product_shape shape = {
            .m = i % 3 == 0 ? 70 : 3, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = i};
        struct product plain;
        struct product fast;
        init(&plain, clients[i % 2], i / 2, &shape);
        init(&fast, clients[i % 2], i / 2, &shape);
        assert_true(product_run(&plain, clients[i % 2]));
        fast.gemm.accumulation = GEMMD_ACCUMULATION_FAST;
        struct gemmd_result result = GEMMD_RESULT_INIT;
        gemmd_ticket_t ticket;
        assert_int_equal(gemmd_submit(clients[i % 2], &fast.gemm, 1, &ticket), GEMMD_OK);
        assert_int_equal(gemmd_wait(clients[i % 2], ticket, GEMMD_WAIT_FOREVER, &result), GEMMD_OK);
        assert_int_equal(result.accumulation, GEMMD_ACCUMULATION_PROMOTED);
        assert_true(product_same_bytes(&plain, &fast));
        product_finish(&plain);
        product_finish(&fast);
    }
}

/* Against the checkpoint and the reference, by the daemon itself. */
static void test_verify(void **state)
{
    (void)state;
    char text[MSG_TEXT_BYTES];
    assert_int_equal(control_job(ring, MSG_VERB_VERIFY, "acts", NULL, text), 0);
    assert_non_null(strstr(text, "6 weights"));
}

/* ---- codes ---- */

#define CODES_GAP  3u
#define SCALES_GAP 2u

/* The rows of a product as a client quantises them, in buffers of their own. */
struct codes {
    gemmd_buffer_t *x;
    gemmd_buffer_t *x_scale;
    gemmd_buffer_t *y;
    struct gemmd_gemm gemm;
};

static float element(const struct product *product, uint32_t i_m, uint32_t i_k)
{
    const void *x = gemmd_buffer_data(product->x);
    uint64_t i = i_m * product->x_stride + i_k;
    switch (product->gemm.x_dtype) {
    case GEMMD_F16:
        return half_to_f32(((const uint16_t *)x)[i]);
    case GEMMD_BF16:
        return bf16_to_f32(((const uint16_t *)x)[i]);
    default:
        return ((const float *)x)[i];
    }
}

static void quantise(struct codes *codes, const struct product *product)
{
    const struct gk_desc *desc = &product->weight->canonical.desc;
    uint8_t *x = gemmd_buffer_data(codes->x);
    float *scales = gemmd_buffer_data(codes->x_scale);
    for (uint32_t i_m = 0; i_m < codes->gemm.m; i_m++) {
        float values[512];
        for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
            values[i_k] = element(product, i_m, i_k);
        }
        (void)quant_row(&quant_portable, desc, values, x + i_m * codes->gemm.x_stride,
                        scales + i_m * (quant_scales(desc) + SCALES_GAP));
    }
}

static void codes_init(struct codes *codes, gemmd_client_t *client, const struct product *product)
{
    const struct gk_desc *desc = &product->weight->canonical.desc;
    uint64_t m = product->gemm.m;
    uint64_t scale_stride = quant_scales(desc) + SCALES_GAP;
    uint64_t y_bytes = gemmd_buffer_bytes(product->y);
    assert_int_equal(gemmd_buffer_alloc(client, 0, m * (desc->k + CODES_GAP), &codes->x), 0);
    assert_int_equal(gemmd_buffer_alloc(client, 0, m * scale_stride * 4, &codes->x_scale), 0);
    assert_int_equal(gemmd_buffer_alloc(client, 0, y_bytes, &codes->y), 0);
    memset(gemmd_buffer_data(codes->x), 0x7f, gemmd_buffer_bytes(codes->x));
    memcpy(gemmd_buffer_data(codes->y), gemmd_buffer_data(product->y), y_bytes);
    codes->gemm = product->gemm;
    codes->gemm.x = codes->x;
    codes->gemm.x_dtype = (enum gemmd_dtype)gk_act_dtype(desc->act);
    codes->gemm.x_stride = desc->k + CODES_GAP;
    codes->gemm.y = codes->y;
    quantise(codes, product);
    if (gk_desc_x_scales(desc) != 0) {
        codes->gemm.x_scale = codes->x_scale;
        codes->gemm.x_scale_stride = scale_stride;
    }
}

static void codes_finish(struct codes *codes)
{
    gemmd_buffer_free(codes->x);
    gemmd_buffer_free(codes->x_scale);
    gemmd_buffer_free(codes->y);
}

static void check_codes(gemmd_client_t *client, const struct product *floats,
                        const struct product *untouched)
{
    struct codes codes;
    codes_init(&codes, client, untouched);
    assert_int_equal(gemmd_gemm(client, &codes.gemm), GEMMD_OK);
    assert_memory_equal(gemmd_buffer_data(codes.y), gemmd_buffer_data(floats->y),
                        gemmd_buffer_bytes(floats->y));
    codes_finish(&codes);
}

/* But for INT8_TOKEN_ZERO, whose codes come without their zero point. */
static void test_codes_give_the_bits_of_floats(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ACT_INT8_TOKEN_ZERO * 9; i++) {
        const struct product_shape shape = {.m = i % 2 == 0 ? 3 : 70,
                                            .x_dtype = dtypes[i % 3],
                                            .y_dtype = dtypes[i / 3 % 3],
                                            .y_gap = i % 4,
                                            .seed = 500 + i};
        struct product floats;
        struct product untouched; /* y as it was before */
        init(&floats, ring, i % ACT_INT8_TOKEN_ZERO, &shape);
        init(&untouched, ring, i % ACT_INT8_TOKEN_ZERO, &shape);
        assert_true(product_run(&floats, ring));
        check_codes(ring, &floats, &untouched);
        check_codes(zeromq, &floats, &untouched);
        product_finish(&floats);
        product_finish(&untouched);
    }
}

/* A weight takes its own codes only, and the sentence is the same on both paths. */
static void test_refusals(void **state)
{
    (void)state;
    gemmd_client_t *clients[] = {ring, zeromq};
    char sentences[2][256];
    for (int i = 0; i < 2; i++) {
        struct product product;
        struct codes codes;
        init(&product, clients[i], ACT_INT8_TOKEN,
             &(struct product_shape){.m = 2, .x_dtype = GEMMD_F32, .y_dtype = GEMMD_F32});
        codes_init(&codes, clients[i], &product);
        codes.gemm.x_dtype = GEMMD_F8_E4M3;
        assert_int_equal(gemmd_gemm(clients[i], &codes.gemm), GEMMD_UNSUPPORTED);
        (void)snprintf(sentences[i], sizeof(sentences[i]), "%s", gemmd_last_error());
        codes.gemm.x_dtype = GEMMD_I8;
        codes.gemm.x_scale = NULL;
        codes.gemm.x_scale_stride = 0;
        assert_int_equal(gemmd_gemm(clients[i], &codes.gemm), GEMMD_INVALID_ARGUMENT);
        assert_string_equal(gemmd_last_error(),
                            "x comes as i8 without scales, of which each row has 1");
        codes_finish(&codes);
        product_finish(&product);
    }
    assert_non_null(strstr(sentences[0], "takes rows of floats or of i8"));
    assert_string_equal(sentences[0], sentences[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemes_come_from_the_checkpoint),
        cmocka_unit_test(test_floats_on_both_paths),
        cmocka_unit_test(test_fast_accumulation),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_codes_give_the_bits_of_floats),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
