/* decode_model.h - a checkpoint with the shapes of a decoder's linear layers, four a block, int4
 * g128; what it multiplies by is zero, which takes as long as anything else. */
#pragma once

#include <stdint.h>

#include "tests/harness/safetensors_writer.h"

#define DECODE_LINEARS     4u
#define DECODE_WEIGHTS_MAX 128u

struct decode_shape {
    uint32_t n_blocks;
    uint32_t hidden;
    uint32_t qkv;          /* rows of the fused q, k, v */
    uint32_t intermediate; /* of the MLP; gate and up are fused */
};

/* decode_model_write() - to FOLDER/NAME. A file with holes: it takes next to no disk. */
void decode_model_write(const struct temp_folder *folder, const char *name,
                        const struct decode_shape *shape);

/* decode_linear_shape() - of one of the DECODE_LINEARS layers of a block. */
void decode_linear_shape(const struct decode_shape *shape, uint32_t i_linear, uint32_t *ret_n,
                         uint32_t *ret_k);

/* decode_weight_name() - of the i-th weight in the order of a pass, as "b3.qkv". */
void decode_weight_name(uint32_t i, char *text, uint32_t size_bytes);
