/* Settings of compressed-tensors: groups, targets and their order, arguments. Case T39 (b). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"

#include "tests/unit/weights/config_text.h"

#define CT(rest) "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\"," rest "}}"
#define GROUP(format, weights, more)                                                               \
    CT("\"format\":\"" format "\",\"config_groups\":{\"g\":{\"targets\":[\"Linear\"],"             \
       "\"weights\":{" weights "}" more "}}")
#define INT4       "\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":128"
#define INT8       "\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\""
#define FLOAT8     "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\""
#define ACT(rest)  ",\"input_activations\":{" rest "}"
#define BAD        STATUS_BAD_CHECKPOINT
#define NOT_SERVED STATUS_UNSUPPORTED

static const struct {
    const char *config;
    int status;
    const char *text;
} refusals[] = {
    {CT("\"format\":\"dense\""), BAD, "config_groups is missing"},
    {GROUP("marlin-24", INT4, ""), NOT_SERVED, "format 'marlin-24' is not served; known: 'pack-"},
    {GROUP("pack-quantized", FLOAT8, ""), NOT_SERVED, "'float' with 8 bits are not served in"},
    {GROUP("int-quantized", INT4, ""), NOT_SERVED, "'int' with 4 bits are not served in format"},
    {GROUP("pack-quantized", "\"num_bits\":3,\"type\":\"int\"", ""), NOT_SERVED, "with 3 bits"},
    {GROUP("pack-quantized", "\"num_bits\":4,\"type\":\"int\",\"strategy\":\"moon\"", ""),
     NOT_SERVED, "strategy 'moon' of weights"},
    {GROUP("pack-quantized", "\"num_bits\":4,\"strategy\":\"group\",\"group_size\":0", ""), BAD,
     "group 'g': config.json quantization_config: group_size 0"},
    {GROUP("float-quantized", "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\"", ""), BAD,
     "block_structure is not a pair"},
    {GROUP("float-quantized", FLOAT8, ACT("\"num_bits\":4,\"type\":\"float\"")), NOT_SERVED,
     "input_activations of 4 bits"},
    {GROUP("float-quantized", FLOAT8,
           ACT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":64,"
               "\"dynamic\":true")),
     NOT_SERVED, "dynamic fp8 activations of strategy 'group' (group 64)"},
    {GROUP("int-quantized", INT8,
           ACT("\"num_bits\":8,\"type\":\"int\",\"strategy\":\"token\",\"dynamic\":false")),
     NOT_SERVED, "static int8 activations of strategy 'token'"},
    {GROUP("pack-quantized", INT4, ",\"output_activations\":{}"), NOT_SERVED, "output_activations"},
    {CT("\"config_groups\":{\"g\":{\"targets\":[\"Linear\"]}}"), BAD, "weights is missing"},
    {CT("\"format\":\"pack-quantized\",\"config_groups\":{\"g\":{\"targets\":[\"re:a(\"],"
        "\"weights\":{" INT4 "}}}"),
     BAD, "group 'g': config.json quantization_config: 'a(' is no regular expression"},
    {CT("\"format\":\"pack-quantized\",\"config_groups\":{},\"ignore\":[\"re:*\"]"), BAD,
     "'*' is no regular expression"},
    {CT("\"config_groups\":{},\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}"), NOT_SERVED,
     "sparsity_config of format 'sparse-24-bitmask'"},
    {CT("\"config_groups\":{},\"transform_config\":{\"config_groups\":{\"u\":{}}}"), NOT_SERVED,
     "transform_config"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
        struct quant_config config = QUANT_CONFIG_NULL;
        struct reason why = REASON_NULL;
        int r = config_parse_texts(refusals[i].config, NULL, NULL, NULL, &config, &why);
        if (r != refusals[i].status || !strstr(why.text, refusals[i].text)) {
            fail_msg("case %zu: %d '%s', expected %d '%s'", i, r, why.text, refusals[i].status,
                     refusals[i].text);
        }
        quant_config_finish(&config);
    }
}

/* ---- schemes ---- */

#define DYNAMIC_TOKEN "\"num_bits\":8,\"dynamic\":true,\"strategy\":\"token\","

static const struct {
    const char *config;
    struct quant_scheme scheme;
} schemes[] = {
    {GROUP("pack-quantized", INT4, ""),
     {.family = QUANT_PACKED, .bits = 4, .group_n = 1, .group_k = 128, .is_symmetric = true}},
    {GROUP("pack-quantized", INT4 ",\"symmetric\":false,\"actorder\":\"group\"", ""),
     {.family = QUANT_PACKED, .bits = 4, .group_n = 1, .group_k = 128, .is_act_order = true}},
    {GROUP("pack-quantized", INT4 ",\"actorder\":\"weight\"", ""),
     {.family = QUANT_PACKED, .bits = 4, .group_n = 1, .group_k = 128, .is_symmetric = true}},
    {GROUP("pack-quantized", "\"num_bits\":8,\"group_size\":-1", ""),
     {.family = QUANT_PACKED,
      .bits = 8,
      .group_n = 1,
      .group_k = QUANT_WHOLE,
      .is_symmetric = true}},
    {GROUP("int-quantized", INT8, ACT(DYNAMIC_TOKEN "\"type\":\"int\"")),
     {.family = QUANT_INT8,
      .bits = 8,
      .group_n = 1,
      .group_k = QUANT_WHOLE,
      .is_symmetric = true,
      .act = GK_ACT_INT8_TOKEN}},
    {GROUP("int-quantized", INT8, ACT(DYNAMIC_TOKEN "\"type\":\"int\",\"symmetric\":false")),
     {.family = QUANT_INT8,
      .bits = 8,
      .group_n = 1,
      .group_k = QUANT_WHOLE,
      .is_symmetric = true,
      .act = GK_ACT_INT8_TOKEN_ZERO}},
    {GROUP("int-quantized", INT8, ACT("\"num_bits\":8,\"type\":\"int\"")),
     {.family = QUANT_INT8,
      .bits = 8,
      .group_n = 1,
      .group_k = QUANT_WHOLE,
      .is_symmetric = true,
      .act = GK_ACT_INT8_TENSOR}},
    {GROUP("float-quantized", FLOAT8, ACT(DYNAMIC_TOKEN "\"type\":\"float\"")),
     {.family = QUANT_FP8,
      .bits = 8,
      .group_n = QUANT_WHOLE,
      .group_k = QUANT_WHOLE,
      .is_symmetric = true,
      .act = GK_ACT_FP8_TOKEN}},
    /* dynamic, one scale a tensor: served a scale a row */
    {GROUP("naive-quantized", FLOAT8, ACT("\"num_bits\":8,\"type\":\"float\",\"dynamic\":true")),
     {.family = QUANT_FP8,
      .bits = 8,
      .group_n = QUANT_WHOLE,
      .group_k = QUANT_WHOLE,
      .is_symmetric = true,
      .act = GK_ACT_FP8_TOKEN}},
    {GROUP("float-quantized",
           "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\","
           "\"block_structure\":[128,128]",
           ACT("\"num_bits\":8,\"type\":\"float\",\"dynamic\":true,\"strategy\":\"group\","
               "\"group_size\":128")),
     {.family = QUANT_FP8,
      .bits = 8,
      .group_n = 128,
      .group_k = 128,
      .is_symmetric = true,
      .act = GK_ACT_FP8_GROUP}},
    {GROUP("nvfp4-pack-quantized",
           "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16",
           ACT("\"num_bits\":4,\"type\":\"float\",\"dynamic\":\"local\"")),
     {.family = QUANT_NVFP4, .bits = 4, .group_n = 1, .group_k = 16, .is_symmetric = true}},
    {GROUP("mxfp4-pack-quantized",
           "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":32", ""),
     {.family = QUANT_MXFP4, .bits = 4, .group_n = 1, .group_k = 32, .is_symmetric = true}},
};

static bool is_same_scheme(const struct quant_scheme *a, const struct quant_scheme *b)
{
    return a->family == b->family && a->bits == b->bits && a->group_n == b->group_n &&
           a->group_k == b->group_k && a->is_symmetric == b->is_symmetric &&
           a->is_act_order == b->is_act_order && a->act == b->act;
}

static void test_schemes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(schemes); i++) {
        struct quant_config config;
        struct reason why = REASON_NULL;
        const struct quant_rule *rule;
        int r = config_parse_texts(schemes[i].config, NULL, NULL, NULL, &config, &why);
        if (r != 0) {
            fail_msg("case %zu: %s", i, why.text);
        }
        assert_int_equal(quant_rules_find(&config.rules, "p", &rule, &why), 0);
        if (!rule || !is_same_scheme(&rule->scheme, &schemes[i].scheme)) {
            fail_msg("case %zu", i);
        }
        quant_config_finish(&config);
    }
}

/* ---- which group ---- */

/* The class comes first in the file and last in the search. */
#define SEVERAL                                                                                    \
    CT("\"format\":\"mixed-precision\",\"ignore\":[\"lm_head\",\"re:.*gate$\"],\"config_groups\":" \
       "{\"all\":{\"targets\":[\"Linear\"],\"format\":\"pack-quantized\",\"weights\":{" INT4 "}}," \
       "\"some\":{\"targets\":[\"re:.*proj\"],\"format\":\"int-quantized\",\"weights\":{" INT8     \
       "}},\"two\":{\"targets\":[\"a.q_proj\",\"a.k_proj\",\"Moon\"],"                             \
       "\"format\":\"float-quantized\",\"weights\":{" FLOAT8 "}}}")

static void test_order_of_targets(void **state)
{
    (void)state;
    static const struct {
        const char *module;
        enum quant_family family;
    } modules[] = {
        {"a.q_proj", QUANT_FP8},     {"a.k_proj", QUANT_FP8}, {"b.q_proj", QUANT_INT8},
        {"a.dense", QUANT_PACKED},   {"lm_head", QUANT_NONE}, {"a.gate", QUANT_NONE},
        {"a.lm_head", QUANT_PACKED},
    };
    struct quant_config config;
    struct warnings warnings = WARNINGS_NULL;
    const struct quant_rule *rule;
    assert_int_equal(config_parse_texts(SEVERAL, NULL, NULL, &warnings, &config, NULL), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(modules); i++) {
        assert_int_equal(quant_rules_find(&config.rules, modules[i].module, &rule, NULL), 0);
        if (!rule || rule->scheme.family != modules[i].family) {
            fail_msg("module '%s'", modules[i].module);
        }
    }
    quant_rules_tell_unused(&config.rules, &warnings);
    assert_int_equal(warnings.n, 1);
    assert_non_null(strstr(warnings.items[0], "the rule 'Moon' applies to no module"));
    warnings_finish(&warnings);
    quant_config_finish(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_schemes),
        cmocka_unit_test(test_order_of_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
