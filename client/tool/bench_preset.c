/* bench_preset.c - the layers of well-known models, n x k, as they are served: q, k and v in one
 * weight, gate and up in one. The sizes are those of the models' public configurations. */
#include <stdio.h>
#include <string.h>

#include "ipc/base/num.h"

#include "client/tool/bench.h"

#define LAYERS_MAX 9u

struct layer {
    const char *name;
    uint32_t n;
    uint32_t k;
};

struct preset {
    const char *name;
    struct layer layers[LAYERS_MAX]; /* up to the first without a name */
};

static const struct preset presets[] = {
    {"llama-3-8b",
     {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}}},
    {"llama-3-70b",
     {{"qkv", 10240, 8192}, {"o", 8192, 8192}, {"gate_up", 57344, 8192}, {"down", 8192, 28672}}},
    {"qwen-2.5-7b",
     {{"qkv", 4608, 3584}, {"o", 3584, 3584}, {"gate_up", 37888, 3584}, {"down", 3584, 18944}}},
    {"qwen-2.5-72b",
     {{"qkv", 10240, 8192}, {"o", 8192, 8192}, {"gate_up", 59136, 8192}, {"down", 8192, 29568}}},
    {"mixtral-8x7b",
     {{"qkv", 6144, 4096},
      {"o", 4096, 4096},
      {"expert gate_up", 28672, 4096},
      {"expert down", 4096, 14336}}},
    {"deepseek-v3",
     {{"q_a", 1536, 7168},
      {"kv_a", 576, 7168},
      {"q_b", 24576, 1536},
      {"kv_b", 32768, 512},
      {"o", 7168, 16384},
      {"gate_up", 36864, 7168},
      {"down", 7168, 18432},
      {"expert gate_up", 4096, 7168},
      {"expert down", 7168, 2048}}},
};

const char *bench_preset_names(void)
{
    static char names[256];
    size_t used = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(presets) && used < sizeof(names); i++) {
        int n = snprintf(names + used, sizeof(names) - used, "%s%s", i == 0 ? "" : ", ",
                         presets[i].name);
        used += n > 0 ? (size_t)n : 0;
    }
    return names;
}

/* As the daemon names them in its refusal of another, which a test holds this to. */
static const char format_names[] =
    "bf16, f16, f32, int4-g128, int4-g128-zeros, int4-g128-act-order, int4-g32,\n"
    "  int4-channel, int8-g128, int8-channel, fp8-tensor, fp8-channel, fp8-128x128,\n"
    "  mxfp8, nvfp4, mxfp4, fp8-tensor-w8a8, fp8-channel-w8a8, fp8-128x128-w8a8,\n"
    "  int8-channel-w8a8, int4-g128-w4a8";

void bench_print_notes(FILE *stream)
{
    (void)fprintf(stream,
                  "Presets:\n  %s\nFormats (the plain one of --act is always measured too):\n  %s\n"
                  "Defaults: --shape 4096x4096 --format int4-g128 --m 1..64 --act bf16, the first "
                  "device.\n",
                  bench_preset_names(), format_names);
}

static bool add_layers(const struct preset *preset, struct bench_options *options)
{
    for (uint32_t i = 0; i < LAYERS_MAX && preset->layers[i].name; i++) {
        if (options->n_shapes == BENCH_SHAPES_MAX) {
            return false;
        }
        struct bench_shape *shape = &options->shapes[options->n_shapes++];
        shape->n = preset->layers[i].n;
        shape->k = preset->layers[i].k;
        (void)snprintf(shape->name, sizeof(shape->name), "%s %s", preset->name,
                       preset->layers[i].name);
    }
    return true;
}

bool bench_add_preset(const char *name, struct bench_options *options)
{
    for (size_t i = 0; i < ARRAY_LENGTH(presets); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return add_layers(&presets[i], options);
        }
    }
    return false;
}
