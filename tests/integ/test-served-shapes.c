/* test-served-shapes.c - fused weights and tensor-parallel slices through the real daemon: the
 * parts of a product concatenate or sum to the whole; and activations that are quantised by
 * request. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/control_job.h"
#include "tests/harness/family_writer.h"
#include "tests/harness/fixture.h"
#include "tests/harness/product.h"
#include "tests/harness/random.h"
#include "tests/harness/tiny.h"

#define K       256u
#define M       5u
#define N_RANKS 4u

static const struct {
    const char *name;
    uint32_t n;
} layers[] = {{"l.q_proj", 64}, {"l.k_proj", 16}, {"l.v_proj", 16}, {"l.o_proj", 40}};

static struct fixture fixture;
static gemmd_client_t *client;
static char path[300];
static float x[M * K];

static void write_model(uint32_t group_k)
{
    struct tensor_file file;
    uint64_t random = 5;
    char config[200];
    (void)snprintf(path, sizeof(path), "%s", fixture.folder.path);
    (void)snprintf(config, sizeof(config),
                   "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
                   "\"group_size\":%u}}",
                   group_k);
    write_text(temp_path(&fixture.folder, "config.json"), config);
    tensor_file_init(&file);
    for (size_t i = 0; i < ARRAY_LENGTH(layers); i++) {
        struct gk_canonical canonical;
        const struct gk_desc desc = {.n = layers[i].n,
                                     .k = K,
                                     .code = GK_CODE_U4,
                                     .group_n = 1,
                                     .group_k = group_k,
                                     .scale_dtype = DTYPE_F16,
                                     .bias_dtype = DTYPE_F16};
        random_weight(&canonical, &desc, &random);
        tensor_file_add_weight(&file, layers[i].name, WRITTEN_GPTQ_V1, &canonical);
        gk_canonical_finish(&canonical);
    }
    tensor_file_write(&file, temp_path(&fixture.folder, "model.safetensors"));
    tensor_file_finish(&file);
    for (size_t i = 0; i < ARRAY_LENGTH(x); i++) {
        x[i] = (float)test_random_unit(&random);
    }
}

static int set_up(void **state)
{
    (void)state;
    int r = bare_start(&fixture, &client);
    write_model(64);
    return r;
}

static int tear_down(void **state)
{
    (void)state;
    return bare_stop(&fixture, client);
}

static void load(const char *name, const struct msg_shaping *shaping)
{
    char text[MSG_TEXT_BYTES] = "";
    if (control_load(client, name, path, shaping, text) != 0) {
        fail_msg("%s: %s", name, text);
    }
    if (control_job(client, MSG_VERB_VERIFY, name, NULL, text) != 0) {
        fail_msg("%s: %s", name, text);
    }
}

/* y (M, *ret_n) of the weight for columns [first_k, ...) of x; the caller frees it. */
static float *multiply(const char *name, uint32_t first_k, uint32_t *ret_n)
{
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    float columns[M * K];
    assert_int_equal(gemmd_find_weight(client, name, &weight), GEMMD_OK);
    for (uint32_t i = 0; i < M; i++) {
        memcpy(columns + (size_t)i * weight.k, x + i * K + first_k, weight.k * sizeof(float));
    }
    float *y = product_of_rows(client, &weight, columns, M);
    assert_non_null(y);
    *ret_n = weight.n;
    return y;
}

/* Columns [at_n, at_n + n) of y are those of `part`, from first_n on: bit for bit, for a column's
 * sum does not depend on its neighbours. */
static void expect_columns(const float *y, uint32_t y_n, uint32_t at_n, const float *part,
                           uint32_t part_n, uint32_t first_n, uint32_t n)
{
    for (uint32_t i = 0; i < M; i++) {
        assert_memory_equal(y + (size_t)i * y_n + at_n, part + (size_t)i * part_n + first_n,
                            n * sizeof(float));
    }
}

static void test_fused_is_its_parts(void **state)
{
    (void)state;
    uint32_t n;
    uint32_t fused_n;
    load("whole", NULL);
    load("fused", &(struct msg_shaping){.fuse = "qkv_proj=q_proj,k_proj,v_proj"});
    float *fused = multiply("fused/l.qkv_proj", 0, &fused_n);
    uint32_t at_n = 0;
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "whole/%s", layers[i].name);
        float *part = multiply(name, 0, &n);
        expect_columns(fused, fused_n, at_n, part, n, 0, n);
        at_n += n;
        free(part);
    }
    assert_int_equal(fused_n, at_n);
    free(fused);
    /* what is fused is served fused only; a reload keeps the shape */
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    assert_int_equal(gemmd_find_weight(client, "fused/l.q_proj", &weight), GEMMD_NOT_FOUND);
    assert_int_equal(control_job(client, MSG_VERB_RELOAD, "fused", NULL, NULL), 0);
    assert_int_equal(gemmd_find_weight(client, "fused/l.qkv_proj", &weight), GEMMD_OK);
    assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, "fused"), 0);
    assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, "whole"), 0);
}

static void load_rank(uint32_t rank, char name[16])
{
    (void)snprintf(name, 16, "rank%u", rank);
    load(name, &(struct msg_shaping){.tp_rank = rank, .tp_size = N_RANKS, .fuse = "usual"});
}

static void add_to(double *sums, const float *y, size_t n_elements)
{
    for (size_t i = 0; i < n_elements; i++) {
        sums[i] += (double)y[i];
    }
}

static void test_ranks_make_the_whole(void **state)
{
    (void)state;
    uint32_t qkv_n;
    uint32_t o_n;
    double sums[M * 40] = {0};
    load("whole", &(struct msg_shaping){.fuse = "usual"});
    float *qkv = multiply("whole/l.qkv_proj", 0, &qkv_n);
    float *o = multiply("whole/l.o_proj", 0, &o_n);
    for (uint32_t rank = 0; rank < N_RANKS; rank++) {
        char name[16];
        char weight[64];
        uint32_t n;
        load_rank(rank, name);
        (void)snprintf(weight, sizeof(weight), "%s/l.qkv_proj", name);
        float *part = multiply(weight, 0, &n);
        assert_int_equal(n, 24);
        expect_columns(qkv, qkv_n, rank * 16, part, n, 0, 16);     /* its rows of q */
        expect_columns(qkv, qkv_n, 64 + rank * 4, part, n, 16, 4); /* of k */
        expect_columns(qkv, qkv_n, 80 + rank * 4, part, n, 20, 4); /* of v */
        free(part);
        (void)snprintf(weight, sizeof(weight), "%s/l.o_proj", name);
        part = multiply(weight, rank * (K / N_RANKS), &n);
        add_to(sums, part, (size_t)M * n);
        free(part);
        assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, name), 0);
    }
    for (uint32_t i = 0; i < M * o_n; i++) {
        assert_true(fabs(sums[i] - (double)o[i]) < 1e-4);
    }
    free(qkv);
    free(o);
    assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, "whole"), 0);
}

static void test_another_shape_is_another_model(void **state)
{
    (void)state;
    char text[MSG_TEXT_BYTES];
    const struct msg_shaping fused = {.fuse = "usual"};
    load("m", &fused);
    assert_int_equal(control_load(client, "m", path, &fused, text), 0);
    assert_non_null(strstr(text, "is served already"));
    assert_int_equal(control_load(client, "m", path, NULL, text), GEMMD_EXISTS);
    assert_non_null(strstr(text, "model 'm' is loaded in another shape"));
    assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, "m"), 0);
    const struct msg_shaping bad = {.tp_size = 3};
    assert_int_equal(control_load(client, "m", path, &bad, text), GEMMD_UNSUPPORTED);
    assert_non_null(strstr(text, "cannot be cut into 3 equal pieces"));
}

/* How far y is from another one, beside the latter. */
static double distance(const float *y, const float *other, uint32_t n_elements)
{
    double error = 0, norm = 0;
    for (uint32_t i = 0; i < n_elements; i++) {
        double difference = (double)y[i] - (double)other[i];
        error += difference * difference;
        norm += (double)other[i] * (double)other[i];
    }
    return sqrt(error / norm);
}

/* load() has the daemon compare products with the reference, x quantised. e4m3 is off by 2^-4 at
 * most. */
static void test_activations_by_request(void **state)
{
    (void)state;
    char text[MSG_TEXT_BYTES];
    uint32_t n;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    const struct msg_shaping all = {.act = "fp8"};
    assert_int_equal(control_load(client, "m", path, &all, text), GEMMD_UNSUPPORTED);
    assert_non_null(strstr(text, "cannot have fp8 activations: they go with groups of 128"));
    write_model(128);
    load("float", NULL);
    load("fp8", &(struct msg_shaping){.act = "fp8 o_proj=float"});
    assert_int_equal(gemmd_find_weight(client, "fp8/l.q_proj", &weight), GEMMD_OK);
    assert_int_equal(weight.act, GEMMD_ACT_FP8_TOKEN);
    float *exact = multiply("float/l.q_proj", 0, &n);
    float *rounded = multiply("fp8/l.q_proj", 0, &n);
    double error = distance(rounded, exact, M * n);
    assert_true(error > 0.005 && error < 0.0625);
    free(exact);
    free(rounded);
    exact = multiply("float/l.o_proj", 0, &n);
    rounded = multiply("fp8/l.o_proj", 0, &n);
    assert_memory_equal(rounded, exact, (size_t)M * n * sizeof(float));
    free(exact);
    free(rounded);
    assert_int_equal(control_job(client, MSG_VERB_RELOAD, "fp8", NULL, NULL), 0);
    assert_int_equal(gemmd_find_weight(client, "fp8/l.q_proj", &weight), GEMMD_OK);
    assert_int_equal(weight.act, GEMMD_ACT_FP8_TOKEN);
    assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, "float"), 0);
    assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, "fp8"), 0);
    write_model(64);
}

static void test_shape_from_the_configuration(void **state)
{
    (void)state;
    char config[1024];
    char model[512];
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    gemmd_close(client);
    assert_int_equal(fixture_stop(&fixture), 0);
    (void)snprintf(model, sizeof(model), "m=%s", path);
    (void)snprintf(config, sizeof(config),
                   "models = %s\nmodel_options = m: fuse=usual tp_rank=1 tp_size=2\n", model);
    fixture_start(&fixture, &(struct fixture_options){.config = config});
    client = fixture_open(&fixture, GEMMD_PATH_RING);
    assert_int_equal(gemmd_find_weight(client, "m/l.qkv_proj", &weight), GEMMD_OK);
    assert_int_equal(weight.n, 48);
    assert_int_equal(weight.k, K);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fused_is_its_parts),
        cmocka_unit_test(test_ranks_make_the_whole),
        cmocka_unit_test(test_another_shape_is_another_model),
        cmocka_unit_test(test_activations_by_request),
        cmocka_unit_test(test_shape_from_the_configuration),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
