/* Which tensors make a layer, and which do not go together. Cases T11 (a, f, g), T35, T38, T39 (a),
 * T40. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/safetensors_writer.h"
#include "tests/unit/weights/config_text.h"

#include "daemon/weights/modules.h"

struct fixture {
    struct temp_folder folder;
    struct checkpoint checkpoint;
    struct quant_config config;
    struct module_list modules;
    struct warnings warnings;
    struct reason why;
};

static struct fixture f;

/* config.json of the cases; NULL: there is none. */

#define GPTQ(rest) "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4," rest "}}"
#define CT(format, weights, more)                                                                  \
    "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"" format       \
    "\",\"config_groups\":{\"g\":{\"targets\":[\"Linear\"],\"weights\":{" weights "}" more "}}}}"

#define FP8(rest)                                                                                  \
    "{\"quantization_config\":{\"quant_method\":\"fp8\",\"activation_scheme\":\"" rest "\"}}"
#define FP8_STATIC  FP8("static")
#define FP8_DYNAMIC FP8("dynamic")
#define MODELOPT(algorithm)                                                                        \
    "{\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":\"" algorithm "\"}}"
#define LEFT_ALONE GPTQ("\"group_size\":32,\"dynamic\":{\"-:p\":{}}")
#define NAMED                                                                                      \
    "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":"                \
    "\"pack-quantized\",\"config_groups\":{\"g\":{\"targets\":[\"q\"],\"weights\":"                \
    "{\"num_bits\":4,\"group_size\":32}}}}}"

static const char g32[] = GPTQ("\"group_size\":32");

static void forget(void)
{
    modules_finish(&f.modules);
    quant_config_finish(&f.config);
    checkpoint_finish(&f.checkpoint);
    warnings_finish(&f.warnings);
    f.why = REASON_NULL;
}

static int set_up(void **state)
{
    (void)state;
    f = (struct fixture){.checkpoint = CHECKPOINT_NULL};
    temp_folder_init(&f.folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    forget();
    temp_folder_finish(&f.folder);
    return 0;
}

/* Append one entry of zeros, shape [n_rows] or [n_rows,n_cols], to a header. */
static void append_entry(char *json, size_t json_bytes, uint64_t *offset, const char *name,
                         const char *dtype, const char *shape, uint64_t n_elements)
{
    uint64_t end = *offset + n_elements * dtype_bytes(dtype_parse(dtype));
    size_t used = strlen(json);
    (void)snprintf(json + used, json_bytes - used,
                   "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                   used > 1 ? "," : "", name, dtype, shape, (unsigned long long)*offset,
                   (unsigned long long)end);
    *offset = end;
}

/* The layers of the file that was written. */
static int find_modules(const char *config)
{
    assert_int_equal(checkpoint_open(f.folder.path, &f.warnings, &f.checkpoint, &f.why), 0);
    assert_int_equal(config_parse_texts(config, NULL, NULL, &f.warnings, &f.config, &f.why), 0);
    return modules_find(&f.checkpoint, &f.config, &f.warnings, &f.modules, &f.why);
}

/* The layers of a file of zeros that has the tensors "NAME DTYPE N_ROWS[xN_COLS];"... */
static int find_in(const char *tensors, const char *config)
{
    char json[4096] = "{";
    uint64_t offset = 0;
    char name[128];
    char dtype[16];
    char shape[64];
    int n_read;
    for (const char *at = tensors;
         sscanf(at, " %127s %15s %63[0-9x];%n", name, dtype, shape, &n_read) == 3; at += n_read) {
        unsigned n_rows = 1;
        unsigned n_cols = 1;
        (void)sscanf(shape, "%ux%u", &n_rows, &n_cols);
        char *x = strchr(shape, 'x');
        if (x) {
            *x = ',';
        }
        append_entry(json, sizeof(json), &offset, name, dtype, shape, (uint64_t)n_rows * n_cols);
    }
    size_t used = strlen(json);
    (void)snprintf(json + used, sizeof(json) - used, "}");
    forget();
    write_safetensors(temp_path(&f.folder, "model.safetensors"), json, offset);
    return find_modules(config);
}

struct refusal {
    const char *tensors;
    const char *config;
    int status;
    const char *text;
};

#define QWEIGHT "p.qweight I32 48x64;" /* k 384, n 64, 12 groups of 32 */
#define QZEROS  "p.qzeros I32 12x8;"
#define SCALES  "p.scales F16 12x64;"
#define BAD     STATUS_BAD_CHECKPOINT

static const struct refusal refusals[] = {
    {"p.bias F16 8;", NULL, BAD, "no linear layer"},
    {QWEIGHT QZEROS SCALES, NULL, BAD, "neither config.json nor quantize_config.json says how"},
    {QWEIGHT QZEROS, g32, BAD, "'p.scales' is missing"},
    {QWEIGHT QZEROS "p.scales F16 24x64;", g32, BAD, "'p.scales' is [24, 64], expected [12, 64]"},
    {QWEIGHT QZEROS "p.scales F16 13x64;", g32, BAD, "'p.scales' is [13, 64], expected [12, 64]"},
    {QWEIGHT QZEROS "p.scales F16 12x32;", g32, BAD, "expected [12, 64]"},
    {QWEIGHT QZEROS "p.scales F16 768;", g32, BAD, "is [768], expected [12, 64]"},
    {QWEIGHT QZEROS "p.scales F64 12x64;", g32, STATUS_UNSUPPORTED, "'p.scales' is F64"},
    {QWEIGHT QZEROS "p.scales I32 12x64;", g32, STATUS_UNSUPPORTED, "'p.scales' is I32"},
    {QWEIGHT QZEROS "p.scales F8_E4M3 12x64;", g32, STATUS_UNSUPPORTED, "'p.scales' is F8_E4M3"},
    {QWEIGHT SCALES "p.qzeros I32 12x64;", g32, BAD, "'p.qzeros' is [12, 64], expected [12, 8]"},
    {QWEIGHT SCALES "p.qzeros F16 12x8;", g32, STATUS_UNSUPPORTED, "'p.qzeros' is F16"},
    {"p.qweight F16 48x64;" QZEROS SCALES, g32, BAD,
     "'p.qweight' is F16, but config.json quantization_config (rule 'every module') says GPTQ"},
    {"p.qweight I32 3072;" QZEROS SCALES, g32, BAD, "expected two dimensions"},
    {"p.qweight I32 48x0;" QZEROS SCALES, g32, BAD, "a weight without elements"},
    {QWEIGHT QZEROS SCALES "p.g_idx I32 383;", g32, BAD, "'p.g_idx' is [383], expected [384]"},
    {QWEIGHT QZEROS SCALES "p.bias F16 63;", g32, BAD, "'p.bias' is [63], expected [64]"},
    {QWEIGHT QZEROS SCALES "p.bias I8 64;", g32, STATUS_UNSUPPORTED, "'p.bias' is I8"},
    {QWEIGHT QZEROS SCALES "p.weight F16 64x384;", g32, BAD, "both 'p.qweight' and 'p.weight'"},
    {"p.weight F8_E4M3 64x64;", NULL, BAD, "'p.weight' (F8_E4M3) is quantised, and neither"},
    {"p.weight I8 64x64;", NULL, BAD, "'p.weight' (I8) is quantised, and neither"},
    {"p.weight I16 64x64;", NULL, STATUS_UNSUPPORTED, "'p.weight' is I16; known: F32, F16"},
    {"p.weight F16 64x0;", NULL, BAD, "a weight without elements"},
    {"p.weight F16 64x32; p.bias F16 32;", NULL, BAD, "'p.bias' is [32]"},
    {"p.weight BF16 64x64; p.weight_scale F32 64;", NULL, BAD,
     "'p.weight_scale' belongs to a quantised weight, and 'p.weight' is BF16"},
    {"p.weight F16 64x64; p.scales F16 1x64;", g32, BAD, "'p.scales' belongs"},
    {"p.weight_packed I32 64x8;", NULL, BAD, "'p.weight_packed' (I32) is quantised"},
    /* tensors against settings */
    {"p.weight F8_E4M3 64x64; p.weight_scale F32 1;", g32, BAD,
     "'p.weight' is F8_E4M3, but config.json quantization_config (rule 'every module') says GPTQ"},
    {"p.weight_packed I32 64x8; p.weight_scale F32 64x1;",
     CT("int-quantized", "\"num_bits\":8,\"strategy\":\"channel\"", ""), BAD,
     "(rule 'Linear') says INT8, which is 'weight' of I8"},
    {QWEIGHT QZEROS SCALES, LEFT_ALONE, BAD,
     "'p.qweight' (I32) is quantised, but config.json quantization_config (rule 'p') says that it"},
    {QWEIGHT QZEROS SCALES, NAMED, BAD, "'p.qweight' (I32) is quantised, and no rule of the"},
    {"q.weight F16 64x64;", NAMED, BAD,
     "'q.weight' is F16, but config.json quantization_config (rule 'q') says that it is quantised"},
    {QWEIGHT SCALES, GPTQ("\"group_size\":32,\"sym\":false"), BAD,
     "'p.qzeros' is missing beside 'p.qweight', which is not symmetric by config.json"},
    {"p.weight_packed I32 64x8; p.weight_scale F32 64x2; p.weight_zero_point I32 8x2;",
     CT("pack-quantized", "\"num_bits\":4,\"group_size\":32", ""), BAD,
     "'p.weight_zero_point' is there, and 'p.weight_packed' is symmetric by"},
    {"p.weight_packed I32 64x8; p.weight_scale F32 64x2;",
     CT("pack-quantized", "\"num_bits\":4,\"group_size\":32,\"symmetric\":false", ""), BAD,
     "'p.weight_zero_point' is missing beside"},
    {"p.weight_packed I32 64x8; p.weight_scale F32 64x1;",
     CT("pack-quantized", "\"num_bits\":4,\"group_size\":32", ""), BAD,
     "'p.weight_scale' is [64, 1], expected [64, 2] (n 64, k 64, a scale for each group of 32 by"},
    {"p.weight_packed I32 64x8; p.weight_scale F32 64x2; p.weight_shape I64 3;",
     CT("pack-quantized", "\"num_bits\":4,\"group_size\":32", ""), BAD,
     "'p.weight_shape' is [3], expected [2]"},
    {"p.weight_packed I32 64x8; p.weight_scale F32 64x2; p.weight_shape I64 2;",
     CT("pack-quantized", "\"num_bits\":4,\"group_size\":32", ""), BAD,
     "'p.weight_shape' says [0, 0], and 'p.weight_packed' is [64, 8] with 8 values a word"},
    {"p.weight F8_E4M3 64x64; p.weight_scale F32 1;", FP8_STATIC, BAD,
     "'p.input_scale' is missing beside 'p.weight'"},
    {"p.weight F8_E4M3 64x64; p.weight_scale F32 1; p.input_scale F32 1;", FP8_STATIC, BAD,
     "'p.input_scale' is 0; it must be positive and finite"},
    {"p.weight F8_E4M3 64x64; p.weight_scale F32 1; p.input_scale F32 2;", FP8_STATIC, BAD,
     "'p.input_scale' is [2], expected one number"},
    {"p.weight F8_E4M3 64x64; p.weight_scale F32 1; p.input_scale F32 1;", FP8_DYNAMIC, BAD,
     "'p.input_scale' is there, but config.json quantization_config says that activations are "
     "dynamic"},
    {"p.weight F8_E4M3 64x64; p.weight_scale F32 1; p.weight_scale_inv F32 1;", FP8_DYNAMIC, BAD,
     "both 'p.weight_scale_inv' and 'p.weight_scale' are there"},
    {"p.weight F8_E4M3 64x64; p.weight_scale F32 1; p.weight_zero_point I8 1;", FP8_DYNAMIC, BAD,
     "'p.weight_zero_point' belongs to a quantised weight of another kind"},
    {"p.weight F16 64x64; p.input_scale F32 1;", FP8_DYNAMIC, BAD,
     "'p.input_scale' belongs to a quantised weight, and 'p.weight' is F16"},
    {"e.embed.weight F16 64x64; e.embed.weight_scale F32 1; p.weight F16 8x8;", NULL, BAD,
     "'e.embed.weight_scale' belongs to a quantised weight, and 'e.embed.weight' is F16"},
    {"p.weight U8 64x32; p.weight_scale F8_E4M3 64x4;", MODELOPT("NVFP4"), BAD,
     "'p.weight_scale_2' is missing beside 'p.weight'"},
    {"p.weight U8 64x32; p.weight_scale F32 64x4; p.weight_scale_2 F32 1;", MODELOPT("NVFP4"),
     STATUS_UNSUPPORTED, "'p.weight_scale' is F32; known: F8_E4M3"},
    {"p.weight F8_E4M3 64x64; p.weight_scale F32 64x2;", MODELOPT("MXFP8"), STATUS_UNSUPPORTED,
     "'p.weight_scale' is F32; known: F8_E8M0, U8"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
        int r = find_in(refusals[i].tensors, refusals[i].config);
        if (r != refusals[i].status || !strstr(f.why.text, refusals[i].text)) {
            fail_msg("%s: %d '%s', expected %d '%s'", refusals[i].tensors, r, f.why.text,
                     refusals[i].status, refusals[i].text);
        }
    }
}

static void test_gptq_layer(void **state)
{
    (void)state;
    assert_int_equal(find_in(QWEIGHT QZEROS SCALES "p.bias BF16 64; p.g_idx I32 384;", g32), 0);
    assert_int_equal(f.modules.n, 1);
    const struct module *module = &f.modules.items[0];
    assert_string_equal(module->name, "p");
    assert_int_equal(module->desc.code, GK_CODE_U4);
    assert_int_equal(module->desc.n, 64);
    assert_int_equal(module->desc.k, 384);
    assert_int_equal(module->desc.group_k, 32);
    assert_int_equal(module->desc.scale_dtype, DTYPE_F16);
    assert_int_equal(module->desc.bias_dtype, DTYPE_BF16);
    assert_true(module->is_v1);
    assert_int_equal(module_bytes(module),
                     48 * 64 * 4 + 12 * 8 * 4 + 12 * 64 * 2 + 64 * 2 + 384 * 4);
    assert_int_equal(f.modules.act_dtype, DTYPE_F16);
}

/* -1, and a group that is longer than k, are one group over all of k. */
static void test_one_group(void **state)
{
    (void)state;
    static const char *const configs[] = {GPTQ("\"group_size\":-1"), GPTQ("\"group_size\":128")};
    for (size_t i = 0; i < ARRAY_LENGTH(configs); i++) {
        assert_int_equal(find_in("p.qweight I32 8x64; p.scales BF16 1x64;", configs[i]), 0);
        assert_int_equal(f.modules.items[0].desc.group_k, 64);
        assert_int_equal(f.modules.act_dtype, DTYPE_BF16);
    }
}

static void test_plain_layers(void **state)
{
    (void)state;
    assert_int_equal(find_in("z.dense.weight F32 8x16; z.dense.bias F32 8; a.fc.weight F16 24x8;"
                             "a.norm.weight F16 8; weight F16 8x8; lm_head.weight F16 32x8;",
                             NULL),
                     0);
    assert_int_equal(f.modules.n, 3);
    assert_string_equal(f.modules.items[0].name, "a.fc");
    assert_string_equal(f.modules.items[1].name, "lm_head");
    const struct module *dense = &f.modules.items[2];
    assert_int_equal(dense->desc.n, 8);
    assert_int_equal(dense->desc.k, 16);
    assert_int_equal(dense->desc.code, GK_CODE_F32);
    assert_int_equal(dense->desc.bias_dtype, DTYPE_F32);
    assert_int_equal(f.modules.act_dtype, DTYPE_F16);
    assert_int_equal(f.warnings.n, 0);
}

static void test_look_up_tables(void **state)
{
    (void)state;
    assert_int_equal(
        find_in("model.embed_tokens.weight F16 64x8; e.word_embeddings.weight F16 64x8;"
                "t.wte.weight F16 64x8; t.wpe.weight F16 64x8;"
                "embed_out.weight F16 64x8; vision_embeddings.proj.weight F16 8x8;",
                NULL),
        0);
    assert_int_equal(f.modules.n, 2);
    assert_string_equal(f.modules.items[0].name, "embed_out");
    assert_string_equal(f.modules.items[1].name, "vision_embeddings.proj");
}

static void test_act_dtype(void **state)
{
    (void)state;
    assert_int_equal(find_in("p.weight F16 8x8;", "{\"torch_dtype\":\"bfloat16\"}"), 0);
    assert_int_equal(f.modules.act_dtype, DTYPE_BF16);
    assert_int_equal(find_in("p.weight F32 8x8;", NULL), 0);
    assert_int_equal(f.modules.act_dtype, DTYPE_F16);
    assert_int_equal(find_in("p.weight F32 8x8; q.weight BF16 8x8;", NULL), 0);
    assert_int_equal(f.modules.act_dtype, DTYPE_BF16);
}

/* A class is no name: floats are served as they are. */
static void test_plain_beside_a_class(void **state)
{
    (void)state;
    assert_int_equal(find_in("p.weight F16 8x8; q.weight I8 8x8; q.weight_scale F32 8x1;",
                             CT("int-quantized", "\"num_bits\":8,\"strategy\":\"channel\"", "")),
                     0);
    assert_int_equal(f.modules.n, 2);
    assert_int_equal(f.modules.items[0].family, QUANT_NONE);
    assert_int_equal(f.modules.items[1].family, QUANT_INT8);
    assert_int_equal(f.warnings.n, 1);
    assert_non_null(strstr(f.warnings.items[0], "'p.weight' is F16 and served so, though"));
    assert_int_equal(find_in("p.weight F16 8x8;", g32), 0);
    assert_int_equal(f.warnings.n, 0);
}

/* T38 through tensors: groups and bits by module, and one that is left alone. */
static void test_dynamic_rules(void **state)
{
    (void)state;
    static const char config[] =
        GPTQ("\"group_size\":32,\"dynamic\":{\"+:.*layers\\\\.0\\\\..*\":{\"group_size\":64},"
             "\"-:.*layers\\\\.1\\\\..*\":{},\".*layers\\\\.2\\\\..*\":{\"bits\":8},\"no\":{}}");
    assert_int_equal(find_in("l.layers.0.down.qweight I32 16x8; l.layers.0.down.scales F16 2x8;"
                             "l.layers.1.down.weight F16 8x16;"
                             "l.layers.2.down.qweight I32 32x8; l.layers.2.down.scales F16 4x8;"
                             "lm_head.qweight I32 16x8; lm_head.scales F16 4x8;",
                             config),
                     0);
    assert_int_equal(f.modules.n, 4);
    assert_int_equal(f.modules.items[0].desc.group_k, 64);
    assert_int_equal(f.modules.items[1].desc.code, GK_CODE_F16);
    assert_int_equal(f.modules.items[2].desc.code, GK_CODE_U8);
    assert_int_equal(f.modules.items[2].desc.k, 128);
    assert_string_equal(f.modules.items[3].name, "lm_head");
    assert_int_equal(f.modules.items[3].desc.group_k, 32);
    assert_int_equal(f.warnings.n, 1);
    assert_non_null(strstr(f.warnings.items[0], "the rule 'no' applies to no module"));
}

static void test_orphans_are_warned_about(void **state)
{
    (void)state;
    assert_int_equal(find_in("p.weight F16 8x8; q.scales F16 8x8; r.g_idx I32 8;", g32), 0);
    assert_int_equal(f.warnings.n, 2);
    assert_non_null(strstr(f.warnings.items[0], "'q.scales' is ignored"));
}

static int find_in_header(const char *json, uint64_t data_bytes)
{
    forget();
    write_safetensors(temp_path(&f.folder, "model.safetensors"), json, data_bytes);
    return find_modules(NULL);
}

/* An unknown type is no obstacle as long as no layer needs it. */
static void test_unknown_dtype(void **state)
{
    (void)state;
    assert_int_equal(
        find_in_header("{\"extra\":{\"dtype\":\"F6_E2M3\",\"shape\":[8,8],\"data_offsets\":[2,50]},"
                       "\"p.weight\":{\"dtype\":\"F16\",\"shape\":[1,1],\"data_offsets\":[0,2]}}",
                       50),
        0);
    assert_int_equal(
        find_in_header(
            "{\"p.weight\":{\"dtype\":\"F6_E2M3\",\"shape\":[8,8],\"data_offsets\":[0,48]}}", 48),
        STATUS_UNSUPPORTED);
    assert_non_null(strstr(f.why.text, "'p.weight' is F6_E2M3"));
}

static void test_convolution_is_warned_about(void **state)
{
    (void)state;
    assert_int_equal(
        find_in_header("{\"c.weight\":{\"dtype\":\"U8\",\"shape\":[1,1,1],\"data_offsets\":[0,1]},"
                       "\"p.weight\":{\"dtype\":\"F16\",\"shape\":[1,1],\"data_offsets\":[1,3]}}",
                       3),
        0);
    assert_int_equal(f.modules.n, 1);
    assert_int_equal(f.warnings.n, 1);
    assert_non_null(strstr(f.warnings.items[0], "'c.weight' is [1, 1, 1]"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_refusals),
        CASE(test_gptq_layer),
        CASE(test_one_group),
        CASE(test_plain_layers),
        CASE(test_look_up_tables),
        CASE(test_act_dtype),
        CASE(test_plain_beside_a_class),
        CASE(test_dynamic_rules),
        CASE(test_orphans_are_warned_about),
        CASE(test_unknown_dtype),
        CASE(test_convolution_is_warned_about),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
