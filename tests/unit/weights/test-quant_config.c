/* Where quantisation settings are found, what contradicts, what is refused, and which rule a module
 * gets. Cases T11 (d, e), T38, T39. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"

#include "tests/unit/weights/config_text.h"

struct config_case {
    const char *config;
    const char *quantize_config;
    const char *hf_quant_config;
    int status;
    const char *text; /* part of the sentence */
};

#define QUANT(method, rest) "{\"quantization_config\":{\"quant_method\":\"" method "\"" rest "}}"
#define GPTQ(rest)          QUANT("gptq", "," rest)
#define PLAIN_GPTQ          "\"bits\":4,\"group_size\":128"
#define AWQ(rest)           QUANT("awq", ",\"w_bit\":4,\"q_group_size\":128" rest)
#define FP8(rest)           QUANT("fp8", rest)
#define OPT(rest)           "{\"quantization\":{" rest "}}"
#define KNOWN               "known, in lower case: 'gptq', 'awq', 'compressed-tensors', 'fp8', 'fbgemm_fp8'"
#define BAD                 STATUS_BAD_CHECKPOINT
#define NOT_SERVED          STATUS_UNSUPPORTED
#define NO_FILES            NULL, NULL

static const struct config_case cases[] = {
    {NULL, NO_FILES, 0, NULL},
    {"{}", NO_FILES, 0, NULL},
    {"{\"quantization_config\":null}", NO_FILES, 0, NULL},
    {GPTQ(PLAIN_GPTQ), NO_FILES, 0, NULL},
    {GPTQ(PLAIN_GPTQ ",\"dynamic\":null,\"pack_dtype\":\"int32\",\"desc_act\":true"), NO_FILES, 0,
     NULL},
    {GPTQ(PLAIN_GPTQ ",\"dynamic\":{}"), NO_FILES, 0, NULL},
    {NULL, "{" PLAIN_GPTQ "}", NULL, 0, NULL},
    {GPTQ(PLAIN_GPTQ), "{" PLAIN_GPTQ ",\"sym\":true}", NULL, 0, NULL},
    {GPTQ("\"w_bit\":4,\"q_group_size\":64"), NO_FILES, 0, NULL},
    {GPTQ("\"bits\":8,\"group_size\":256,\"sym\":false"), NO_FILES, 0, NULL},
    {AWQ(""), NO_FILES, 0, NULL},
    {AWQ(",\"version\":\"GEMM\",\"modules_to_not_convert\":null"), NO_FILES, 0, NULL},
    {FP8(",\"activation_scheme\":\"static\""), NO_FILES, 0, NULL},
    {QUANT("fbgemm_fp8", ",\"activation_scale_ub\":1200.0"), NO_FILES, 0, NULL},
    {NULL, NULL, OPT("\"quant_algo\":\"NVFP4\",\"group_size\":16"), 0, NULL},
    {QUANT("modelopt", ",\"quant_algo\":\"FP8\",\"ignore\":[\"lm_head\"]"), NULL,
     OPT("\"quant_algo\":\"FP8\",\"exclude_modules\":[\"lm_head\"]"), 0, NULL},
    /* damaged */
    {"{", NO_FILES, BAD, "config.json is not valid JSON"},
    {"[]", NO_FILES, BAD, "config.json is not a JSON object"},
    {NULL, "7", NULL, BAD, "quantize_config.json is not"},
    {NULL, NULL, "7", BAD, "hf_quant_config.json is not"},
    {"{\"a\":1,\"a\":2}", NO_FILES, BAD, "duplicate"},
    {"{\"quantization_config\":7}", NO_FILES, BAD, "quantization_config is not an object"},
    /* methods */
    {"{\"quantization_config\":{" PLAIN_GPTQ "}}", NO_FILES, BAD,
     "quant_method is missing; " KNOWN},
    {QUANT("GPTQ", ""), NO_FILES, NOT_SERVED, "'GPTQ' is not served; " KNOWN},
    {QUANT("mxfp4", ""), NO_FILES, NOT_SERVED, "'mxfp4' is not served"},
    {"{\"quantization_config\":{\"quant_method\":4}}", NO_FILES, BAD, "not a string"},
    /* gptq */
    {GPTQ("\"bits\":3,\"group_size\":128"), NO_FILES, NOT_SERVED, "bits 3"},
    {GPTQ("\"bits\":\"4\",\"group_size\":128"), NO_FILES, BAD, "bits is not a whole number"},
    {GPTQ("\"group_size\":128"), NO_FILES, BAD, "bits is missing"},
    {GPTQ("\"bits\":4"), NO_FILES, BAD, "group_size is missing"},
    {GPTQ("\"bits\":4,\"group_size\":0"), NO_FILES, BAD, "group_size 0"},
    {GPTQ("\"bits\":4,\"group_size\":-2"), NO_FILES, BAD, "group_size -2"},
    {GPTQ("\"bits\":4,\"group_size\":4294967424"), NO_FILES, BAD, "group_size 4294967424"},
    {GPTQ("\"bits\":4,\"group_size\":128.0"), NO_FILES, BAD, "group_size is not a whole number"},
    {GPTQ(PLAIN_GPTQ ",\"sym\":1"), NO_FILES, BAD, "sym is neither"},
    {GPTQ(PLAIN_GPTQ ",\"checkpoint_format\":\"gptq_p\""), NO_FILES, NOT_SERVED, "'gptq_p'"},
    {GPTQ(PLAIN_GPTQ ",\"checkpoint_format\":2"), NO_FILES, BAD, "format is not a string"},
    {GPTQ(PLAIN_GPTQ ",\"pack_dtype\":\"int16\""), NO_FILES, NOT_SERVED, "'int16'"},
    {GPTQ(PLAIN_GPTQ ",\"dynamic\":[]"), NO_FILES, BAD, "dynamic is not an object"},
    {GPTQ(PLAIN_GPTQ ",\"dynamic\":{\"a\":7}"), NO_FILES, BAD, "dynamic 'a' is not an object"},
    {GPTQ(PLAIN_GPTQ ",\"dynamic\":{\"+:a(\":{}}"), NO_FILES, BAD, "'a(' is no regular expression"},
    {GPTQ(PLAIN_GPTQ ",\"dynamic\":{\"a\":{\"bits\":2}}"), NO_FILES, NOT_SERVED,
     "dynamic 'a': config.json quantization_config: bits 2"},
    /* awq */
    {AWQ(",\"version\":\"gemv\""), NO_FILES, NOT_SERVED, "version 'gemv'"},
    {AWQ(",\"zero_point\":true,\"sym\":true"), NO_FILES, BAD, "zero_point and sym contradict"},
    {AWQ(",\"modules_to_not_convert\":[7]"), NO_FILES, BAD,
     "entry 0 of modules_to_not_convert is not a string"},
    {QUANT("awq", ",\"bits\":8,\"group_size\":128"), NO_FILES, NOT_SERVED, "bits 8"},
    {QUANT("awq", ",\"bits\":4"), NO_FILES, BAD, "bits or group_size is missing"},
    /* fp8 */
    {FP8(""), NO_FILES, BAD, "activation_scheme is missing; known: 'static', 'dynamic'"},
    {FP8(",\"activation_scheme\":\"lazy\""), NO_FILES, NOT_SERVED, "'lazy'"},
    {FP8(",\"activation_scheme\":\"static\",\"fmt\":\"e5m2\""), NO_FILES, NOT_SERVED, "fmt 'e5m2'"},
    {FP8(",\"activation_scheme\":\"static\",\"scale_fmt\":\"e5m2\""), NO_FILES, NOT_SERVED,
     "scale_fmt 'e5m2'"},
    {FP8(",\"activation_scheme\":\"static\",\"scale_fmt\":\"float\""), NO_FILES, 0, NULL},
    {FP8(",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[64,64]"), NO_FILES, NOT_SERVED,
     "weight_block_size [64, 64]"},
    {FP8(",\"activation_scheme\":\"dynamic\",\"scale_fmt\":\"e5m2\""), NO_FILES, NOT_SERVED,
     "scale_fmt 'e5m2' is not served; known: 'float', 'ue8m0'"},
    {FP8(",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128]"), NO_FILES, BAD,
     "weight_block_size is not a pair"},
    {FP8(",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[0,128]"), NO_FILES, BAD,
     "weight_block_size is not a pair"},
    {FP8(",\"activation_scheme\":\"static\",\"weight_block_size\":[128,128]"), NO_FILES, NOT_SERVED,
     "'static' is not served with weight_block_size"},
    /* modelopt */
    {NULL, NULL, OPT(""), BAD, "hf_quant_config.json: quant_algo is missing"},
    {NULL, NULL, OPT("\"quant_algo\":\"W4A8_AWQ\""), NOT_SERVED, "'W4A8_AWQ'"},
    {NULL, NULL, OPT("\"quant_algo\":\"NVFP4\",\"group_size\":32"), NOT_SERVED, "group_size 32"},
    {NULL, NULL, OPT("\"quant_algo\":\"MIXED_PRECISION\""), BAD, "quantized_layers is missing"},
    {NULL, NULL, OPT("\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{\"a\":{}}"), BAD,
     "quantized_layers 'a': hf_quant_config.json: quant_algo is missing"},
    /* contradictions */
    {GPTQ("\"bits\":4,\"wbits\":8,\"group_size\":128"), NO_FILES, BAD,
     "'bits' and 'wbits' disagree"},
    {GPTQ(PLAIN_GPTQ ",\"checkpoint_format\":\"gptq\",\"format\":\"gptq_v2\""), NO_FILES, BAD,
     "'format' and 'checkpoint_format' disagree"},
    {GPTQ(PLAIN_GPTQ), "{\"bits\":4,\"group_size\":64}", NULL, BAD,
     "config.json quantization_config and quantize_config.json disagree about group_size"},
    {GPTQ("\"bits\":3,\"group_size\":128"), "{\"bits\":4,\"group_size\":128}", NULL, BAD,
     "about bits"},
    {AWQ(""), "{" PLAIN_GPTQ "}", NULL, BAD, "disagree about quant_method"},
    {GPTQ(PLAIN_GPTQ), NULL, OPT("\"quant_algo\":\"FP8\""), BAD,
     "config.json quantization_config and hf_quant_config.json disagree about quant_method"},
    {QUANT("modelopt", ",\"quant_algo\":\"FP8\",\"ignore\":[\"lm_head\"]"), NULL,
     OPT("\"quant_algo\":\"FP8\",\"exclude_modules\":[]"), BAD, "disagree about ignore"},
    {"{\"quantization_config\":{\"quant_method\":\"gptq\"," PLAIN_GPTQ
     "},\"compression_config\":{\"quant_method\":\"compressed-tensors\"}}",
     NO_FILES, BAD, "config.json compression_config disagree about quant_method"},
    {"{\"text_config\":{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":3,"
     "\"group_size\":128}}}",
     NO_FILES, NOT_SERVED, "text_config.quantization_config: bits 3"},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct quant_config config = QUANT_CONFIG_NULL;
        struct reason why = REASON_NULL;
        int r = config_parse_texts(cases[i].config, cases[i].quantize_config,
                                   cases[i].hf_quant_config, NULL, &config, &why);
        if (r != cases[i].status || (r != 0 && !strstr(why.text, cases[i].text))) {
            fail_msg("case %zu: %d '%s', expected %d '%s'", i, r, why.text, cases[i].status,
                     cases[i].text);
        }
        quant_config_finish(&config);
    }
}

/* ---- schemes ---- */

struct scheme_case {
    const char *config;
    const char *hf_quant_config;
    const char *module;
    struct quant_scheme scheme;
};

#define DYNAMIC                                                                                    \
    GPTQ(PLAIN_GPTQ ",\"dynamic\":{\"+:.*layers\\\\.0\\\\..*down_proj.*\":{\"group_size\":64},"    \
                    "\"-:.*layers\\\\.1\\\\..*\":{},\".*layers\\\\.2\\\\..*\":{\"bits\":8},"       \
                    "\".*layers\\\\.2\\\\..*down_proj\":{\"sym\":false},\"nothing\":{}}")
#define GPTQ_SCHEME .family = QUANT_GPTQ, .group_n = 1, .is_v1 = true
#define FP8_SCHEME  .family = QUANT_FP8, .is_symmetric = true

static const struct scheme_case schemes[] = {
    {GPTQ(PLAIN_GPTQ), NULL, "p", {GPTQ_SCHEME, .bits = 4, .group_k = 128, .is_symmetric = true}},
    {GPTQ("\"bits\":8,\"group_size\":-1,\"sym\":false,\"desc_act\":true"),
     NULL,
     "p",
     {GPTQ_SCHEME, .bits = 8, .group_k = QUANT_WHOLE, .is_act_order = true}},
    {GPTQ(PLAIN_GPTQ ",\"format\":\"gptq_v2\""),
     NULL,
     "lm_head",
     {.family = QUANT_GPTQ, .group_n = 1, .bits = 4, .group_k = 128, .is_symmetric = true}},
    /* T38: the first rule in the order of the file counts */
    {DYNAMIC,
     NULL,
     "model.layers.0.mlp.down_proj",
     {GPTQ_SCHEME, .bits = 4, .group_k = 64, .is_symmetric = true}},
    {DYNAMIC,
     NULL,
     "model.layers.0.mlp.up_proj",
     {GPTQ_SCHEME, .bits = 4, .group_k = 128, .is_symmetric = true}},
    {DYNAMIC, NULL, "model.layers.1.mlp.down_proj", {.family = QUANT_NONE}},
    {DYNAMIC,
     NULL,
     "model.layers.2.mlp.down_proj",
     {GPTQ_SCHEME, .bits = 8, .group_k = 128, .is_symmetric = true}},
    {AWQ(",\"modules_to_not_convert\":[\"gate\"]"),
     NULL,
     "layers.0.mlp.up",
     {.family = QUANT_AWQ, .bits = 4, .group_n = 1, .group_k = 128}},
    {AWQ(",\"modules_to_not_convert\":[\"gate\"]"), NULL, "layers.0.mlp.gate.x", {0}},
    {AWQ(",\"sym\":true"),
     NULL,
     "p",
     {.family = QUANT_AWQ, .bits = 4, .group_n = 1, .group_k = 128, .is_symmetric = true}},
    {FP8(",\"activation_scheme\":\"static\",\"ignored_layers\":[\"lm_head\"]"),
     NULL,
     "p",
     {FP8_SCHEME, .act = GK_ACT_FP8_TENSOR}},
    {FP8(",\"activation_scheme\":\"static\",\"ignored_layers\":[\"lm_head\"]"),
     NULL,
     "lm_head",
     {0}},
    {FP8(",\"activation_scheme\":\"static\",\"modules_to_not_convert\":[\"gate\"]"),
     NULL,
     "mlp.gate",
     {0}},
    {FP8(",\"activation_scheme\":\"static\",\"modules_to_not_convert\":[\"gate\"]"),
     NULL,
     "mlp.gate_proj",
     {FP8_SCHEME, .act = GK_ACT_FP8_TENSOR}},
    {FP8(",\"activation_scheme\":\"dynamic\""), NULL, "p", {FP8_SCHEME, .act = GK_ACT_FP8_TOKEN}},
    {FP8(",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128],"
         "\"scale_fmt\":\"ue8m0\""),
     NULL,
     "p",
     {FP8_SCHEME, .group_n = 128, .group_k = 128, .act = GK_ACT_FP8_GROUP,
      .is_act_scale_pow2 = true}},
    {FP8(",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128],"
         "\"scale_fmt\":\"float\""),
     NULL,
     "p",
     {FP8_SCHEME, .group_n = 128, .group_k = 128, .act = GK_ACT_FP8_GROUP}},
    {QUANT("fbgemm_fp8", ""),
     NULL,
     "p",
     {FP8_SCHEME, .group_n = 1, .group_k = QUANT_WHOLE, .act = GK_ACT_FP8_TOKEN}},
    {NULL,
     OPT("\"quant_algo\":\"FP8\",\"exclude_modules\":[\"*.self_attn*\",\"lm_head\"]"),
     "model.layers.0.mlp.up_proj",
     {FP8_SCHEME, .group_n = QUANT_WHOLE, .group_k = QUANT_WHOLE, .act = GK_ACT_FP8_TENSOR}},
    {NULL,
     OPT("\"quant_algo\":\"FP8\",\"exclude_modules\":[\"*.self_attn*\",\"lm_head\"]"),
     "model.layers.0.self_attn.q_proj",
     {0}},
    {NULL,
     OPT("\"quant_algo\":\"FP8\",\"exclude_modules\":[\"*.self_attn*\",\"lm_head\"]"),
     "lm_head",
     {0}},
    {NULL,
     OPT("\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{\"a\":{\"quant_algo\":"
         "\"NVFP4\",\"group_size\":16},\"b\":{\"quant_algo\":\"FP8_PB_WO\"}}"),
     "a",
     {.family = QUANT_NVFP4, .group_n = 1, .group_k = 16, .is_symmetric = true}},
    {NULL,
     OPT("\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{\"a\":{\"quant_algo\":"
         "\"NVFP4\",\"group_size\":16},\"b\":{\"quant_algo\":\"FP8_PB_WO\"}}"),
     "b",
     {FP8_SCHEME, .group_n = 128, .group_k = 128}},
};

static bool is_same_scheme(const struct quant_scheme *a, const struct quant_scheme *b)
{
    return a->family == b->family && a->bits == b->bits && a->group_n == b->group_n &&
           a->group_k == b->group_k && a->is_symmetric == b->is_symmetric && a->is_v1 == b->is_v1 &&
           a->is_act_order == b->is_act_order && a->act == b->act &&
           a->is_act_scale_pow2 == b->is_act_scale_pow2;
}

static void test_schemes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(schemes); i++) {
        struct quant_config config;
        struct reason why = REASON_NULL;
        const struct quant_rule *rule;
        assert_int_equal(config_parse_texts(schemes[i].config, NULL, schemes[i].hf_quant_config,
                                            NULL, &config, &why),
                         0);
        assert_int_equal(quant_rules_find(&config.rules, schemes[i].module, &rule, &why), 0);
        if (!rule || !is_same_scheme(&rule->scheme, &schemes[i].scheme)) {
            fail_msg("case %zu, module '%s'", i, schemes[i].module);
        }
        quant_config_finish(&config);
    }
}

static void test_nothing_said(void **state)
{
    (void)state;
    struct quant_config config;
    const struct quant_rule *rule;
    assert_int_equal(config_parse_texts(NULL, NULL, NULL, NULL, &config, NULL), 0);
    assert_int_equal(config.rules.n, 0);
    assert_string_equal(config.rules.place, "");
    assert_int_equal(quant_rules_find(&config.rules, "p", &rule, NULL), 0);
    assert_null(rule);
}

/* The second place fills in what the first leaves out. */
static void test_two_places(void **state)
{
    (void)state;
    struct quant_config config;
    assert_int_equal(
        config_parse_texts(GPTQ("\"bits\":4"), "{\"group_size\":32}", NULL, NULL, &config, NULL),
        0);
    assert_int_equal(config.rules.items[0].scheme.group_k, 32);
    quant_config_finish(&config);
}

static void test_unused_rules_are_told(void **state)
{
    (void)state;
    struct quant_config config;
    struct warnings warnings = WARNINGS_NULL;
    const struct quant_rule *rule;
    static const char *const modules[] = {"l.layers.0.down_proj", "l.layers.1.x", "l.layers.2.x"};
    assert_int_equal(config_parse_texts(DYNAMIC, NULL, NULL, &warnings, &config, NULL), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(modules); i++) {
        assert_int_equal(quant_rules_find(&config.rules, modules[i], &rule, NULL), 0);
    }
    quant_rules_tell_unused(&config.rules, &warnings);
    assert_int_equal(warnings.n, 2);
    assert_non_null(strstr(warnings.items[0], "down_proj' applies to no module")); /* comes 2nd */
    assert_string_equal(warnings.items[1], "config.json quantization_config: the rule 'nothing' "
                                           "applies to no module of the checkpoint");
    warnings_finish(&warnings);
    quant_config_finish(&config);
}

static void test_act_dtype(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        enum dtype dtype;
    } dtypes[] = {
        {"{}", DTYPE_NONE},
        {"{\"torch_dtype\":\"float16\"}", DTYPE_F16},
        {"{\"dtype\":\"bfloat16\"}", DTYPE_BF16},
        {"{\"torch_dtype\":\"float32\"}", DTYPE_NONE},
        {"{\"torch_dtype\":16}", DTYPE_NONE},
        {"{\"text_config\":{\"torch_dtype\":\"bfloat16\"}}", DTYPE_BF16},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(dtypes); i++) {
        struct quant_config config;
        assert_int_equal(config_parse_texts(dtypes[i].config, NULL, NULL, NULL, &config, NULL), 0);
        assert_int_equal(config.act_dtype, dtypes[i].dtype);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_schemes),
        cmocka_unit_test(test_nothing_said),
        cmocka_unit_test(test_two_places),
        cmocka_unit_test(test_unused_rules_are_told),
        cmocka_unit_test(test_act_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
