/* model.h - a small checkpoint on disk together with the same weights in canonical form, so that a
 * test can say what the daemon's products have to be. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"
#include "tests/harness/random.h"
#include "tests/harness/safetensors_writer.h"

enum test_weight_index {
    TEST_INT4 = 0,    /* GPTQ, 4 bit, groups of 128 */
    TEST_INT4_COLUMN, /* GPTQ, 4 bit, one group along k */
    TEST_PLAIN,       /* f32 with bias; n and k fit no tile */
    TEST_WEIGHTS,
};

struct test_weight {
    const char *module; /* the module's path within the model */
    struct gk_canonical canonical;
};

struct test_model {
    char path[300]; /* folder of the checkpoint */
    struct test_weight weights[TEST_WEIGHTS];
};

/* test_model_write() - into FOLDER/NAME; the same seed gives the same numbers. */
void test_model_write(struct test_model *model, const struct temp_folder *folder, const char *name,
                      uint64_t seed);
/* test_model_write_sized() - the same with shapes of the caller's, (n, k) each. */
void test_model_write_sized(struct test_model *model, const struct temp_folder *folder,
                            const char *name, uint64_t seed,
                            const uint32_t shapes[TEST_WEIGHTS][2]);
void test_model_finish(struct test_model *model); /* memory only; the folder removes the files */

/* test_folder_write() - a new folder of config.json and model.safetensors. */
void test_folder_write(const char *path, const char *config, const struct tensor_file *file);

/* test_gptq_write() - a checkpoint of one GPTQ module "w" (n, k), group 128, at FOLDER/NAME. */
void test_gptq_write(const struct temp_folder *folder, const char *name, uint32_t n, uint32_t k,
                     uint64_t seed);
