/* model.c - see model.h. */
#include "tests/harness/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ipc/base/half.h"

#define GPTQ_SETTINGS(group)                                                                       \
    "{\"torch_dtype\": \"float16\", \"quantization_config\": {\"quant_method\": \"gptq\", "        \
    "\"bits\": 4, \"group_size\": " group                                                          \
    ", \"sym\": true, \"desc_act\": false, \"checkpoint_format\": \"gptq\"}}"

static void need(int is_done, const char *what)
{
    if (!is_done) {
        perror(what);
        abort();
    }
}

static void int4_init(struct gk_canonical *canonical, uint32_t n, uint32_t k, uint32_t group_size,
                      uint64_t *random)
{
    const struct gk_desc desc = {.n = n,
                                 .k = k,
                                 .code = GK_CODE_U4,
                                 .group_n = 1,
                                 .group_k = group_size,
                                 .scale_dtype = DTYPE_F16};
    need(gk_canonical_alloc(canonical, &desc) == 0, "gk_canonical_alloc");
    uint8_t *codes = canonical->codes;
    for (uint64_t i = 0; i < (uint64_t)n * k; i++) {
        codes[i] = (uint8_t)(test_random(random) % 16);
    }
    uint16_t *scales = canonical->scales;
    for (uint64_t i = 0; i < (uint64_t)gk_desc_groups(&desc) * n; i++) {
        scales[i] = half_from_f32(0.01f + (float)(test_random(random) % 1000) * 2e-5f);
    }
}

static void plain_init(struct gk_canonical *canonical, uint32_t n, uint32_t k, uint64_t *random)
{
    const struct gk_desc desc = {.n = n, .k = k, .code = GK_CODE_F32, .bias_dtype = DTYPE_F32};
    need(gk_canonical_alloc(canonical, &desc) == 0, "gk_canonical_alloc");
    float *values = canonical->codes;
    for (uint64_t i = 0; i < (uint64_t)n * k; i++) {
        values[i] = (float)test_random_unit(random) * 0.1f;
    }
    float *bias = canonical->bias;
    for (uint32_t i = 0; i < n; i++) {
        bias[i] = (float)test_random_unit(random);
    }
}

/* The file wants codes as (k, n); the canonical form has them as (n, k). */
static void add_int4(struct tensor_file *file, const char *module,
                     const struct gk_canonical *canonical)
{
    uint32_t n = canonical->desc.n;
    uint32_t k = canonical->desc.k;
    const uint8_t *by_column = canonical->codes;
    uint8_t *codes = malloc((size_t)n * k);
    need(codes != NULL, "malloc");
    for (uint32_t i_n = 0; i_n < n; i_n++) {
        for (uint32_t i_k = 0; i_k < k; i_k++) {
            codes[(size_t)i_k * n + i_n] = by_column[(size_t)i_n * k + i_k];
        }
    }
    const struct gptq_layer layer = {.name = module,
                                     .n = n,
                                     .k = k,
                                     .n_scale_rows = gk_desc_groups(&canonical->desc),
                                     .codes = codes,
                                     .scales = canonical->scales,
                                     .zero = 7}; /* v1 stores 8 minus one */
    tensor_file_add_gptq(file, &layer);
    free(codes);
}

static void add_plain(struct tensor_file *file, const char *module,
                      const struct gk_canonical *canonical)
{
    char name[64];
    const uint64_t shape[] = {canonical->desc.n, canonical->desc.k};
    (void)snprintf(name, sizeof(name), "%s.weight", module);
    tensor_file_add(file, name, "F32", 2, shape, canonical->codes, shape[0] * shape[1] * 4);
    (void)snprintf(name, sizeof(name), "%s.bias", module);
    tensor_file_add(file, name, "F32", 1, shape, canonical->bias, shape[0] * 4);
}

void test_folder_write(const char *path, const char *config, const struct tensor_file *file)
{
    char name[512];
    need(mkdir(path, 0700) == 0, path);
    (void)snprintf(name, sizeof(name), "%s/config.json", path);
    write_text(name, config);
    (void)snprintf(name, sizeof(name), "%s/model.safetensors", path);
    tensor_file_write(file, name);
}

void test_model_write(struct test_model *model, const struct temp_folder *folder, const char *name,
                      uint64_t seed)
{
    static const uint32_t shapes[TEST_WEIGHTS][2] = {{96, 256}, {40, 128}, {37, 75}};
    test_model_write_sized(model, folder, name, seed, shapes);
}

void test_model_write_sized(struct test_model *model, const struct temp_folder *folder,
                            const char *name, uint64_t seed, const uint32_t shapes[TEST_WEIGHTS][2])
{
    static const char *const modules[TEST_WEIGHTS] = {"layer.int4", "layer.wide", "layer.plain"};
    uint64_t random = seed * 2 + 1;
    (void)snprintf(model->path, sizeof(model->path), "%s", temp_path(folder, name));
    for (uint32_t i = 0; i < TEST_WEIGHTS; i++) {
        struct gk_canonical *canonical = &model->weights[i].canonical;
        if (i == TEST_PLAIN) {
            plain_init(canonical, shapes[i][0], shapes[i][1], &random);
        } else {
            int4_init(canonical, shapes[i][0], shapes[i][1], 128, &random);
        }
    }
    struct tensor_file file;
    tensor_file_init(&file);
    for (uint32_t i = 0; i < TEST_WEIGHTS; i++) {
        model->weights[i].module = modules[i];
        const struct gk_canonical *canonical = &model->weights[i].canonical;
        (i == TEST_PLAIN ? add_plain : add_int4)(&file, modules[i], canonical);
    }
    test_folder_write(model->path, GPTQ_SETTINGS("128"), &file);
    tensor_file_finish(&file);
}

void test_model_finish(struct test_model *model)
{
    for (uint32_t i = 0; i < TEST_WEIGHTS; i++) {
        gk_canonical_finish(&model->weights[i].canonical);
    }
}

void test_gptq_write(const struct temp_folder *folder, const char *name, uint32_t n, uint32_t k,
                     uint64_t seed)
{
    uint64_t random = seed * 2 + 1;
    struct gk_canonical canonical;
    struct tensor_file file;
    int4_init(&canonical, n, k, 128, &random);
    tensor_file_init(&file);
    add_int4(&file, "w", &canonical);
    test_folder_write(temp_path(folder, name), GPTQ_SETTINGS("128"), &file);
    tensor_file_finish(&file);
    gk_canonical_finish(&canonical);
}
