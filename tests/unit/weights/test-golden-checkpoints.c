/* test-golden-checkpoints.c - the checkpoints of tests/data/golden/, from the settings that their
 * tools wrote to the products that their tools compute: what a person gets who loads such a model.
 */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/base/num.h"

#include "daemon/weights/model_load.h"
#include "daemon/weights/module_read.h"

#define GOLDEN_M 2u
#define N_MAX    72u
#define K_MAX    256u

/* What gk_desc_format() says of each: codes, extent and type of scales, zero points, act-order,
 * activations. */
static const struct golden_checkpoint {
    const char *name;
    const char *format;
} CHECKPOINTS[] = {
    {"awq-int4", "int4 g32 f16"},
    {"ct-fp8-block", "fp8 72x128 bf16, fp8 group activations"},
    {"ct-fp8-channel", "fp8 channel bf16, fp8 token activations"},
    {"ct-fp8-tensor", "fp8 tensor bf16, fp8 token activations"},
    {"ct-int4-act-order", "int4 sym g32 act-order f16"},
    {"ct-int4-asym", "int4 g32 bf16"},
    {"ct-int4-sym", "int4 sym g32 bf16"},
    {"ct-int8-asym", "int8 channel bf16"},
    {"ct-int8-packed-asym", "int8 channel bf16"},
    {"ct-int8-w8a8", "int8 sym channel bf16, int8 token activations"},
    {"ct-mxfp4", "fp4 g32 f8_e8m0"},
    {"ct-mxfp8", "fp8 g32 f8_e8m0"},
    {"ct-nvfp4", "fp4 g16 f8_e4m3 x column"},
    {"fp8-block", "fp8 32x128 f32, fp8 group activations"},
    {"gptq-v1-int4-asym", "int4 g64 f16"},
    {"gptq-v1-int4-sym", "int4 sym g32 f16"},
    {"gptq-v1-int8-asym", "int8 g64 f16"},
    {"gptq-v2-int4-act-order", "int4 g32 act-order f16"},
    {"gptq-v2-int8-channel", "int8 sym channel f16"},
    {"modelopt-fp8", "fp8 tensor f32, fp8 tensor activations"},
    {"modelopt-mxfp8", "fp8 g32 f8_e8m0"},
    {"modelopt-nvfp4", "fp4 g16 f8_e4m3 x column"},
};

/* The tool's inputs and products. */
struct expected {
    float x[GOLDEN_M * K_MAX];
    double y[GOLDEN_M * N_MAX];
};

static void read_tensor(const struct safetensors *file, const char *name, void *bytes,
                        uint64_t size_bytes)
{
    const struct safetensors_tensor *tensor = safetensors_find(file, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->size_bytes, size_bytes);
    assert_int_equal(safetensors_read(file, tensor, 0, bytes, size_bytes, NULL), 0);
}

static void read_expected(const char *folder, const struct gk_desc *desc, struct expected *expected)
{
    struct safetensors file;
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(folder_fd >= 0);
    assert_true(desc->n <= N_MAX && desc->k <= K_MAX);
    assert_int_equal(safetensors_open(folder_fd, "expected.safetensors", &file, NULL), 0);
    read_tensor(&file, "x", expected->x, GOLDEN_M * desc->k * sizeof(float));
    read_tensor(&file, "y", expected->y, GOLDEN_M * desc->n * sizeof(double));
    safetensors_finish(&file);
    close(folder_fd);
}

/* The tools round elements to f32 where scales have more bits than it has room for. */
static void check_products(const char *name, const struct gk_canonical *canonical,
                           const struct expected *expected)
{
    uint32_t n = canonical->desc.n, k = canonical->desc.k;
    for (uint32_t i = 0; i < GOLDEN_M * n; i++) {
        double y = 0, magnitude = 0;
        for (uint32_t i_k = 0; i_k < k; i_k++) {
            double term = (double)expected->x[i / n * k + i_k];
            term *= gk_canonical_value(canonical, i % n, i_k);
            y += term;
            magnitude += fabs(term);
        }
        if (!(fabs(y - expected->y[i]) <= 0x1p-23 * magnitude)) {
            fail_msg("%s: y (%u, %u) is %.17g, not %.17g", name, i / n, i % n, y, expected->y[i]);
        }
    }
}

static void check(void **state)
{
    const struct golden_checkpoint *golden = *state;
    const struct msg_shaping whole = {.tp_size = 1};
    struct model_source source = MODEL_SOURCE_NULL;
    struct warnings warnings = WARNINGS_NULL;
    struct progress progress;
    struct gk_canonical canonical;
    struct expected expected;
    struct reason why = REASON_NULL;
    char folder[512], format[128];
    (void)snprintf(folder, sizeof(folder), "%s/tests/data/golden/%s", getenv("GEMMD_SOURCE_DIR"),
                   golden->name);
    if (model_source_open(folder, &whole, &warnings, &source, &why) != 0) {
        fail_msg("%s: %s", golden->name, why.text);
    }
    assert_int_equal(source.modules.n, 1);
    const struct module *module = &source.modules.items[0];
    assert_string_equal(module->name, "layer");
    gk_desc_format(&module->desc, format, sizeof(format));
    assert_string_equal(format, golden->format);
    progress_init(&progress);
    if (module_read(module, &progress, &warnings, &canonical, &why) != 0) {
        fail_msg("%s: %s", golden->name, why.text);
    }
    read_expected(folder, &canonical.desc, &expected);
    check_products(golden->name, &canonical, &expected);
    gk_canonical_finish(&canonical);
    progress_finish(&progress);
    warnings_finish(&warnings);
    model_source_finish(&source);
}

int main(void)
{
    struct CMUnitTest tests[ARRAY_LENGTH(CHECKPOINTS)];
    for (uint32_t i = 0; i < ARRAY_LENGTH(CHECKPOINTS); i++) {
        void *state = (void *)(uintptr_t)&CHECKPOINTS[i];
        tests[i] = (struct CMUnitTest){CHECKPOINTS[i].name, check, NULL, NULL, state};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
