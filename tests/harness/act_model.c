/* act_model.c - see act_model.h. */
#include "tests/harness/act_model.h"

#include <stdio.h>

#include "tests/harness/family_writer.h"
#include "tests/harness/random.h"

#define GROUP(name, format, weights, act)                                                          \
    "\"" name "\": {\"targets\": [\"re:.*\\\\." name "$\"], \"format\": \"" format "\", "          \
    "\"weights\": {\"num_bits\": 8, " weights "}, "                                                \
    "\"input_activations\": {\"num_bits\": 8, " act "}}"
#define FP8_GROUP(name, weights, act)                                                              \
    GROUP(name, "float-quantized", "\"type\": \"float\", " weights, "\"type\": \"float\", " act)
#define INT8_GROUP(name, act)                                                                      \
    GROUP(name, "int-quantized", "\"type\": \"int\", \"strategy\": \"channel\"",                   \
          "\"type\": \"int\", " act)
#define TENSOR        "\"strategy\": \"tensor\", \"dynamic\": false"
#define TOKEN         "\"strategy\": \"token\", \"dynamic\": true"
#define NOT_SYMMETRIC ", \"symmetric\": false"

static const char
    config[] = "{\"torch_dtype\": \"bfloat16\", \"quantization_config\": {"
               "\"quant_method\": \"compressed-tensors\", \"format\": \"mixed-precision\", "
               "\"config_groups\": {" FP8_GROUP("fp8_tensor", "\"strategy\": \"tensor\"", TENSOR) ", " FP8_GROUP(
                   "fp8_token", "\"strategy\": \"channel\"",
                   TOKEN) ", " FP8_GROUP("fp8_group",
                                         "\"strategy\": \"block\", \"block_structure\": [128, 128]",
                                         "\"strategy\": \"group\", \"group_size\": 128, "
                                         "\"dynamic\": true") ", " INT8_GROUP("int8_tensor",
                                                                              TENSOR
                                                                                  NOT_SYMMETRIC) ","
                                                                                                 " " INT8_GROUP("int8_token", TOKEN) ", " INT8_GROUP(
                                                                                                     "int8_token_zero",
                                                                                                     TOKEN
                                                                                                         NOT_SYMMETRIC) "}}}";

static const struct {
    const char *module;
    enum written_family family;
    struct gk_desc desc;
} layers[ACT_WEIGHTS] = {
    [ACT_FP8_TENSOR] = {"layer.fp8_tensor",
                        WRITTEN_FP8,
                        {.n = 70,
                         .k = 144,
                         .code = GK_CODE_E4M3,
                         .group_n = 70,
                         .group_k = 144,
                         .scale_dtype = DTYPE_F32,
                         .act = GK_ACT_FP8_TENSOR,
                         .act_scale = 0x1.3p-9f}},
    [ACT_FP8_TOKEN] = {"layer.fp8_token",
                       WRITTEN_FP8,
                       {.n = 65,
                        .k = 200,
                        .code = GK_CODE_E4M3,
                        .group_n = 1,
                        .group_k = 200,
                        .scale_dtype = DTYPE_BF16,
                        .act = GK_ACT_FP8_TOKEN}},
    [ACT_FP8_GROUP] = {"layer.fp8_group",
                       WRITTEN_FP8,
                       {.n = 200,
                        .k = 320,
                        .code = GK_CODE_E4M3,
                        .group_n = 128,
                        .group_k = 128,
                        .scale_dtype = DTYPE_F32,
                        .act = GK_ACT_FP8_GROUP}},
    [ACT_INT8_TENSOR] = {"layer.int8_tensor",
                         WRITTEN_CT_INT8,
                         {.n = 40,
                          .k = 96,
                          .code = GK_CODE_U8,
                          .group_n = 1,
                          .group_k = 96,
                          .scale_dtype = DTYPE_F32,
                          .act = GK_ACT_INT8_TENSOR,
                          .act_scale = 0x1.8p-7f,
                          .act_zero = -9}},
    [ACT_INT8_TOKEN] = {"layer.int8_token",
                        WRITTEN_CT_INT8,
                        {.n = 129,
                         .k = 75,
                         .code = GK_CODE_U8,
                         .group_n = 1,
                         .group_k = 75,
                         .scale_dtype = DTYPE_F32,
                         .act = GK_ACT_INT8_TOKEN,
                         .bias_dtype = DTYPE_BF16}},
    [ACT_INT8_TOKEN_ZERO] = {"layer.int8_token_zero",
                             WRITTEN_CT_INT8,
                             {.n = 33,
                              .k = 256,
                              .code = GK_CODE_U8,
                              .group_n = 1,
                              .group_k = 256,
                              .scale_dtype = DTYPE_BF16,
                              .act = GK_ACT_INT8_TOKEN_ZERO}},
};

void act_model_write(struct act_model *model, const struct temp_folder *folder, const char *name,
                     uint64_t seed)
{
    uint64_t random = seed * 2 + 1;
    struct tensor_file file;
    tensor_file_init(&file);
    (void)snprintf(model->path, sizeof(model->path), "%s", temp_path(folder, name));
    for (uint32_t i = 0; i < ACT_WEIGHTS; i++) {
        struct gk_canonical *canonical = &model->weights[i].canonical;
        model->weights[i].module = layers[i].module;
        random_weight(canonical, &layers[i].desc, &random);
        tensor_file_add_weight(&file, layers[i].module, layers[i].family, canonical);
    }
    test_folder_write(model->path, config, &file);
    tensor_file_finish(&file);
}

void act_model_finish(struct act_model *model)
{
    for (uint32_t i = 0; i < ACT_WEIGHTS; i++) {
        gk_canonical_finish(&model->weights[i].canonical);
    }
}
