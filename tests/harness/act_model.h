/* act_model.h - a checkpoint whose weights quantise their activations, one by each scheme, in the
 * compressed-tensors way. */
#pragma once

#include "tests/harness/model.h"

enum act_weight_index {
    ACT_FP8_TENSOR = 0, /* static, one scale for the weight too */
    ACT_FP8_TOKEN,      /* a scale for each column */
    ACT_FP8_GROUP,      /* blocks of 128 x 128, ragged on both sides */
    ACT_INT8_TENSOR,    /* static, with a zero point */
    ACT_INT8_TOKEN,
    ACT_INT8_TOKEN_ZERO,
    ACT_WEIGHTS,
};

struct act_model {
    char path[300]; /* folder of the checkpoint */
    struct test_weight weights[ACT_WEIGHTS];
};

/* act_model_write() - into FOLDER/NAME; the same seed gives the same numbers. */
void act_model_write(struct act_model *model, const struct temp_folder *folder, const char *name,
                     uint64_t seed);
void act_model_finish(struct act_model *model); /* memory only; the folder removes the files */
