/* Where quantisation settings are found, what contradicts, what is refused. Cases T11 (d, e), T38,
 * T39 as far as they apply. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"

#include "daemon/weights/quant_config.h"

struct config_case {
    const char *config;
    const char *quantize_config;
    int status;
    const char *text; /* part of the sentence */
};

#define QUANT(rest) "{\"quantization_config\":{\"quant_method\":\"gptq\"," rest "}}"
#define PLAIN_GPTQ  "\"bits\":4,\"group_size\":128"
#define BAD         STATUS_BAD_CHECKPOINT
#define NOT_SERVED  STATUS_UNSUPPORTED

static const struct config_case cases[] = {
    {NULL, NULL, 0, NULL},
    {"{}", NULL, 0, NULL},
    {"{\"quantization_config\":null}", NULL, 0, NULL},
    {QUANT(PLAIN_GPTQ), NULL, 0, NULL},
    {QUANT(PLAIN_GPTQ ",\"dynamic\":null,\"pack_dtype\":\"int32\",\"desc_act\":true"), NULL, 0,
     NULL},
    {QUANT(PLAIN_GPTQ ",\"dynamic\":{}"), NULL, 0, NULL},
    {NULL, "{" PLAIN_GPTQ "}", 0, NULL},
    {QUANT(PLAIN_GPTQ), "{" PLAIN_GPTQ ",\"sym\":true}", 0, NULL},
    {QUANT("\"w_bit\":4,\"q_group_size\":64"), NULL, 0, NULL},
    /* damaged */
    {"{", NULL, BAD, "config.json is not valid JSON"},
    {"[]", NULL, BAD, "config.json is not a JSON object"},
    {NULL, "7", BAD, "quantize_config.json is not"},
    {"{\"a\":1,\"a\":2}", NULL, BAD, "duplicate"},
    {"{\"quantization_config\":7}", NULL, BAD, "quantization_config is not an object"},
    /* methods */
    {"{\"quantization_config\":{" PLAIN_GPTQ "}}", NULL, BAD,
     "quant_method is missing; known: 'gptq'"},
    {"{\"quantization_config\":{\"quant_method\":\"GPTQ\"," PLAIN_GPTQ "}}", NULL, NOT_SERVED,
     "'GPTQ' is not served; known, in lower case: 'gptq'"},
    {"{\"quantization_config\":{\"quant_method\":\"awq\"}}", NULL, NOT_SERVED, "'awq'"},
    {"{\"quantization_config\":{\"quant_method\":4}}", NULL, BAD, "not a string"},
    {NULL, "{\"quant_method\":\"awq\"," PLAIN_GPTQ "}", NOT_SERVED,
     "quantize_config.json: quant_method 'awq'"},
    /* values */
    {QUANT("\"bits\":8,\"group_size\":128"), NULL, NOT_SERVED, "bits 8"},
    {QUANT("\"bits\":\"4\",\"group_size\":128"), NULL, BAD, "bits is not a whole number"},
    {QUANT("\"group_size\":128"), NULL, BAD, "bits is missing"},
    {QUANT("\"bits\":4"), NULL, BAD, "group_size is missing"},
    {QUANT("\"bits\":4,\"group_size\":0"), NULL, BAD, "group_size 0"},
    {QUANT("\"bits\":4,\"group_size\":-2"), NULL, BAD, "group_size -2"},
    {QUANT("\"bits\":4,\"group_size\":256"), NULL, NOT_SERVED, "group_size 256"},
    {QUANT("\"bits\":4,\"group_size\":4294967424"), NULL, NOT_SERVED, "group_size 4294967424"},
    {QUANT("\"bits\":4,\"group_size\":128.0"), NULL, BAD, "group_size is not a whole number"},
    {QUANT(PLAIN_GPTQ ",\"sym\":false"), NULL, NOT_SERVED, "sym false"},
    {QUANT(PLAIN_GPTQ ",\"sym\":1"), NULL, BAD, "sym is neither"},
    {QUANT(PLAIN_GPTQ ",\"checkpoint_format\":\"gptq_p\""), NULL, NOT_SERVED, "'gptq_p'"},
    {QUANT(PLAIN_GPTQ ",\"checkpoint_format\":2"), NULL, BAD, "checkpoint_format is not a string"},
    {QUANT(PLAIN_GPTQ ",\"pack_dtype\":\"int16\""), NULL, NOT_SERVED, "'int16'"},
    {QUANT(PLAIN_GPTQ ",\"dynamic\":{\"-:.*down.*\":{}}"), NULL, NOT_SERVED, "'-:.*down.*'"},
    {QUANT(PLAIN_GPTQ ",\"dynamic\":[]"), NULL, BAD, "dynamic is not an object"},
    /* contradictions */
    {QUANT("\"bits\":4,\"wbits\":8,\"group_size\":128"), NULL, BAD, "'bits' and 'wbits' disagree"},
    {QUANT(PLAIN_GPTQ ",\"checkpoint_format\":\"gptq\",\"format\":\"gptq_v2\""), NULL, BAD,
     "'checkpoint_format' and 'format' disagree"},
    {QUANT(PLAIN_GPTQ), "{\"bits\":4,\"group_size\":64}", BAD,
     "config.json quantization_config and quantize_config.json disagree about group_size"},
    {QUANT("\"bits\":8,\"group_size\":128"), "{\"bits\":4,\"group_size\":128}", BAD, "about bits"},
    {"{\"quantization_config\":{\"quant_method\":\"gptq\"," PLAIN_GPTQ
     "},\"compression_config\":{\"quant_method\":\"compressed-tensors\"}}",
     NULL, BAD, "config.json compression_config disagree about quant_method"},
    {"{\"text_config\":{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":3}}}", NULL,
     NOT_SERVED, "text_config.quantization_config: bits 3"},
};

static int parse(const char *config, const char *quantize_config, struct quant_config *ret_config,
                 struct reason *why)
{
    return quant_config_parse(config, config ? strlen(config) : 0, quantize_config,
                              quantize_config ? strlen(quantize_config) : 0, ret_config, why);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct quant_config config;
        struct reason why = REASON_NULL;
        int r = parse(cases[i].config, cases[i].quantize_config, &config, &why);
        if (r != cases[i].status || (r != 0 && !strstr(why.text, cases[i].text))) {
            fail_msg("case %zu: %d '%s', expected %d '%s'", i, r, why.text, cases[i].status,
                     cases[i].text);
        }
    }
}

static void test_values(void **state)
{
    (void)state;
    struct quant_config config;
    assert_int_equal(parse(NULL, NULL, &config, NULL), 0);
    assert_false(config.is_quantised);
    assert_int_equal(parse(QUANT(PLAIN_GPTQ), NULL, &config, NULL), 0);
    assert_true(config.is_quantised);
    assert_true(config.is_v1);
    assert_true(config.is_symmetric);
    assert_int_equal(config.bits, 4);
    assert_int_equal(config.group_size, 128);
    assert_int_equal(
        parse(QUANT("\"bits\":4,\"group_size\":-1,\"format\":\"gptq_v2\""), NULL, &config, NULL),
        0);
    assert_false(config.is_v1);
    assert_int_equal(config.group_size, -1);
    /* the second place fills in what the first leaves out */
    assert_int_equal(parse(QUANT("\"bits\":4"), "{\"group_size\":32}", &config, NULL), 0);
    assert_int_equal(config.group_size, 32);
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
        assert_int_equal(parse(dtypes[i].config, NULL, &config, NULL), 0);
        assert_int_equal(config.act_dtype, dtypes[i].dtype);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_act_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
