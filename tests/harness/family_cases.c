/* family_cases.c - see family_cases.h. */
#include "tests/harness/family_cases.h"

#include "ipc/base/num.h"

#define METHOD(method, rest) "{\"quantization_config\":{\"quant_method\":\"" method "\"," rest "}}"
#define GPTQ(rest)           METHOD("gptq", rest)
#define CT(format, weights, more)                                                                  \
    METHOD("compressed-tensors",                                                                   \
           "\"format\":\"" format "\",\"config_groups\":{\"g\":{\"targets\":[\"Linear\"],"         \
           "\"weights\":{" weights "}" more "}}")
#define CT_INT(bits, rest) CT("pack-quantized", "\"num_bits\":" #bits ",\"type\":\"int\"," rest, "")
#define CT_ACT(rest)       ",\"input_activations\":{\"num_bits\":8," rest "}"
#define INT8_CHANNEL       "\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\""
#define FP8_BLOCK          "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\","
#define FP8_ACT(rest)      CT_ACT("\"type\":\"float\"," rest)
#define INT8_ACT(rest)     CT_ACT("\"type\":\"int\"," rest)
#define FP8(rest)          METHOD("fp8", rest)
#define OPT(algorithm)     METHOD("modelopt", "\"quant_algo\":\"" algorithm "\"")

#define U4      .code = GK_CODE_U4
#define U8      .code = GK_CODE_U8
#define E4M3    .code = GK_CODE_E4M3
#define E2M1    .code = GK_CODE_E2M1
#define F16     .scale_dtype = DTYPE_F16
#define F32     .scale_dtype = DTYPE_F32
#define BF16    .scale_dtype = DTYPE_BF16
#define G(n, k) .group_n = (n), .group_k = (k)

const struct family_case family_cases[] = {
    {WRITTEN_PLAIN, "{}", {.n = 40, .k = 96, .code = GK_CODE_F16, .bias_dtype = DTYPE_F16}},
    {WRITTEN_PLAIN, "{}", {.n = 13, .k = 100, .code = GK_CODE_BF16}},
    {WRITTEN_PLAIN, "{}", {.n = 9, .k = 50, .code = GK_CODE_F32, .bias_dtype = DTYPE_F32}},
    {WRITTEN_GPTQ_V1,
     GPTQ("\"bits\":4,\"group_size\":32"),
     {.n = 40, .k = 96, U4, G(1, 32), F16, .bias_dtype = DTYPE_F16}},
    {WRITTEN_GPTQ_V2,
     GPTQ("\"bits\":4,\"group_size\":64,\"sym\":false,\"format\":\"gptq_v2\""),
     {.n = 40, .k = 128, U4, G(1, 64), F16, .has_zeros = true}},
    {WRITTEN_GPTQ_V1,
     GPTQ("\"bits\":4,\"group_size\":-1,\"sym\":false"),
     {.n = 8, .k = 96, U4, G(1, 96), BF16, .has_zeros = true}},
    {WRITTEN_GPTQ_V1,
     GPTQ("\"bits\":8,\"group_size\":128"),
     {.n = 12, .k = 192, U8, G(1, 128), F16}},
    {WRITTEN_GPTQ_V2,
     GPTQ("\"bits\":8,\"group_size\":32,\"sym\":false,\"format\":\"gptq_v2\""),
     {.n = 12, .k = 64, U8, G(1, 32), F32, .has_zeros = true}},
    {WRITTEN_GPTQ_V1,
     GPTQ("\"bits\":4,\"group_size\":32,\"desc_act\":true,\"sym\":false"),
     {.n = 16, .k = 128, U4, G(1, 32), F16, .has_zeros = true, .has_perm = true}},
    {WRITTEN_AWQ,
     METHOD("awq", "\"w_bit\":4,\"q_group_size\":64,\"version\":\"GEMM\""),
     {.n = 48, .k = 192, U4, G(1, 64), F16, .has_zeros = true, .bias_dtype = DTYPE_F16}},
    {WRITTEN_CT_PACKED,
     CT_INT(4, "\"strategy\":\"group\",\"group_size\":32"),
     {.n = 13, .k = 96, U4, G(1, 32), BF16}},
    {WRITTEN_CT_PACKED,
     CT_INT(4, "\"strategy\":\"channel\",\"symmetric\":false"),
     {.n = 13, .k = 100, U4, G(1, 100), F16, .has_zeros = true}},
    {WRITTEN_CT_PACKED,
     CT_INT(8, "\"group_size\":32,\"symmetric\":false"),
     {.n = 13, .k = 64, U8, G(1, 32), F32, .has_zeros = true}},
    {WRITTEN_CT_PACKED,
     CT_INT(4, "\"group_size\":32,\"actorder\":\"group\""),
     {.n = 16, .k = 128, U4, G(1, 32), BF16, .has_perm = true}},
    {WRITTEN_CT_PACKED, CT_INT(4, "\"strategy\":\"tensor\""), {.n = 8, .k = 64, U4, G(8, 64), F32}},
    {WRITTEN_CT_INT8,
     CT("int-quantized", INT8_CHANNEL, INT8_ACT("\"dynamic\":true,\"strategy\":\"token\"")),
     {.n = 9, .k = 50, U8, G(1, 50), F32, .act = GK_ACT_INT8_TOKEN}},
    {WRITTEN_CT_INT8,
     CT("int-quantized", INT8_CHANNEL,
        INT8_ACT("\"dynamic\":true,\"strategy\":\"token\",\"symmetric\":false")),
     {.n = 9, .k = 50, U8, G(1, 50), F32, .act = GK_ACT_INT8_TOKEN_ZERO}},
    {WRITTEN_CT_INT8,
     CT("int-quantized", INT8_CHANNEL, INT8_ACT("\"symmetric\":false")),
     {.n = 9,
      .k = 50,
      U8,
      G(1, 50),
      F32,
      .act = GK_ACT_INT8_TENSOR,
      .act_scale = 0.25f,
      .act_zero = -7}},
    {WRITTEN_CT_INT8, CT("int-quantized", INT8_CHANNEL, ""), {.n = 9, .k = 50, U8, G(1, 50), BF16}},
    {WRITTEN_FP8,
     FP8("\"activation_scheme\":\"static\""),
     {.n = 24, .k = 40, E4M3, G(24, 40), F32, .act = GK_ACT_FP8_TENSOR, .act_scale = 0.5f}},
    {WRITTEN_FP8,
     FP8("\"activation_scheme\":\"dynamic\""),
     {.n = 24, .k = 40, E4M3, G(1, 40), F32, .act = GK_ACT_FP8_TOKEN, .bias_dtype = DTYPE_BF16}},
    {WRITTEN_FP8_INV,
     FP8("\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128]"),
     {.n = 200, .k = 300, E4M3, G(128, 128), F32, .act = GK_ACT_FP8_GROUP}},
    {WRITTEN_FP8_INV,
     FP8("\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128],\"scale_fmt\":"
         "\"ue8m0\""),
     {.n = 130,
      .k = 128,
      E4M3,
      G(128, 128),
      BF16,
      .act = GK_ACT_FP8_GROUP,
      .is_act_scale_pow2 = true}},
    {WRITTEN_FP8,
     METHOD("fbgemm_fp8", "\"activation_scale_ub\":null"),
     {.n = 24, .k = 40, E4M3, G(1, 40), F32, .act = GK_ACT_FP8_TOKEN}},
    {WRITTEN_FP8,
     CT("float-quantized", FP8_BLOCK "\"block_structure\":[128,128]",
        FP8_ACT("\"dynamic\":true,\"strategy\":\"group\",\"group_size\":128")),
     {.n = 200, .k = 256, E4M3, G(128, 128), F32, .act = GK_ACT_FP8_GROUP}},
    {WRITTEN_FP8,
     OPT("FP8"),
     {.n = 24, .k = 40, E4M3, G(24, 40), F32, .act = GK_ACT_FP8_TENSOR, .act_scale = 2.0f}},
    {WRITTEN_FP8, OPT("FP8_PB_WO"), {.n = 200, .k = 256, E4M3, G(128, 128), F32}},
    {WRITTEN_MXFP8, OPT("MXFP8"), {.n = 8, .k = 96, E4M3, G(1, 32), .scale_dtype = DTYPE_F8_E8M0}},
    {WRITTEN_OPT_NVFP4,
     OPT("NVFP4"),
     {.n = 8,
      .k = 96,
      E2M1,
      G(1, 16),
      .scale_dtype = DTYPE_F8_E4M3,
      .column_scale = GK_COLUMN_SCALE_MULTIPLIES}},
    {WRITTEN_CT_NVFP4,
     CT("nvfp4-pack-quantized",
        "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16", ""),
     {.n = 8,
      .k = 96,
      E2M1,
      G(1, 16),
      .scale_dtype = DTYPE_F8_E4M3,
      .column_scale = GK_COLUMN_SCALE_DIVIDES}},
    {WRITTEN_CT_MXFP4,
     CT("mxfp4-pack-quantized",
        "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":32", ""),
     {.n = 8, .k = 96, E2M1, G(1, 32), .scale_dtype = DTYPE_F8_E8M0}},
};

const uint32_t n_family_cases = ARRAY_LENGTH(family_cases);
