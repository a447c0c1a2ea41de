/* bench-load.c - how long loading takes for each GB of a checkpoint that lies in memory already:
 * headers, reading, canonical form, packing; on a GPU also the copy over the bus.
 *
 * Usage: bench-load [MIB [DEVICE [FAMILY]]]. Writes one checkpoint of that size (default 512) for
 * each family under /dev/shm, loads it on the device (default host) three times, and prints the
 * quickest; layers are 4096 x 4096. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/weights/model_load.h"
#include "ipc/base/num.h"
#include "tests/harness/family_writer.h"

#define SIDE    4096u
#define N_TIMES 3

#define METHOD(method, rest) "{\"quantization_config\":{\"quant_method\":\"" method "\"" rest "}}"
#define CT(format, weights)                                                                        \
    METHOD("compressed-tensors",                                                                   \
           ",\"format\":\"" format "\",\"config_groups\":{\"g\":{\"targets\":[\"Linear\"],"        \
           "\"weights\":{" weights "}}}")
#define DESC(code_, group_n_, group_k_, scale_)                                                    \
    .n = SIDE, .k = SIDE, .code = (code_), .group_n = (group_n_), .group_k = (group_k_),           \
    .scale_dtype = (scale_)

static const struct bench_case {
    const char *title;
    enum written_family family;
    const char *config;
    struct gk_desc desc;
} cases[] = {
    {"gptq int4 g128",
     WRITTEN_GPTQ_V1,
     METHOD("gptq", ",\"bits\":4,\"group_size\":128"),
     {DESC(GK_CODE_U4, 1, 128, DTYPE_F16)}},
    {"gptq int8 g128",
     WRITTEN_GPTQ_V1,
     METHOD("gptq", ",\"bits\":8,\"group_size\":128"),
     {DESC(GK_CODE_U8, 1, 128, DTYPE_F16)}},
    {"awq int4 g128",
     WRITTEN_AWQ,
     METHOD("awq", ",\"bits\":4,\"group_size\":128"),
     {DESC(GK_CODE_U4, 1, 128, DTYPE_F16), .has_zeros = true}},
    {"packed int4 g128",
     WRITTEN_CT_PACKED,
     CT("pack-quantized", "\"num_bits\":4,\"group_size\":128"),
     {DESC(GK_CODE_U4, 1, 128, DTYPE_BF16)}},
    {"int8 channel",
     WRITTEN_CT_INT8,
     CT("int-quantized", "\"num_bits\":8,\"strategy\":\"channel\""),
     {DESC(GK_CODE_U8, 1, SIDE, DTYPE_F32)}},
    {"fp8 128x128",
     WRITTEN_FP8_INV,
     METHOD("fp8", ",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128]"),
     {DESC(GK_CODE_E4M3, 128, 128, DTYPE_F32), .act = GK_ACT_FP8_GROUP}},
    {"bf16", WRITTEN_PLAIN, "{}", {.n = SIDE, .k = SIDE, .code = GK_CODE_BF16}},
    {"nvfp4",
     WRITTEN_OPT_NVFP4,
     METHOD("modelopt", ",\"quant_algo\":\"NVFP4\""),
     {DESC(GK_CODE_E2M1, 1, 16, DTYPE_F8_E4M3), .column_scale = GK_COLUMN_SCALE_MULTIPLIES}},
};

static double now(clockid_t clock)
{
    struct timespec at;
    (void)clock_gettime(clock, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* The same layer under as many names as it takes; returns the bytes of its tensors in all. */
static uint64_t write_checkpoint(const struct temp_folder *folder, const struct bench_case *bench,
                                 uint64_t wanted_bytes)
{
    struct gk_canonical canonical;
    struct tensor_file file;
    uint64_t random = 1;
    random_weight(&canonical, &bench->desc, &random);
    tensor_file_init(&file);
    for (uint32_t i = 0; file.data_bytes < wanted_bytes; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "l.%u.proj", i);
        tensor_file_add_weight(&file, name, bench->family, &canonical);
    }
    gk_canonical_finish(&canonical);
    write_text(temp_path(folder, "config.json"), bench->config);
    tensor_file_write(&file, temp_path(folder, "model.safetensors"));
    uint64_t size_bytes = file.data_bytes;
    tensor_file_finish(&file);
    return size_bytes;
}

struct took {
    double seconds;
    double cpu_seconds;             /* of the process: what it would take on a machine of its own */
    double shares[MSG_LOAD_PHASES]; /* of the time of all threads */
};

/* Or ends the program. */
static struct took load_once(const char *path, struct device *device)
{
    const struct msg_shaping whole = {.tp_size = 1};
    struct progress progress;
    struct reason why = REASON_NULL;
    struct model *model;
    progress_init(&progress);
    double start = now(CLOCK_MONOTONIC);
    double cpu_start = now(CLOCK_PROCESS_CPUTIME_ID);
    int r = model_load("m", path, device, &whole, &progress, NULL, &model, &why);
    struct took took = {.seconds = now(CLOCK_MONOTONIC) - start,
                        .cpu_seconds = now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start};
    progress_shares(&progress, took.shares);
    if (r != 0) {
        (void)fprintf(stderr, "bench-load: %s\n", why.text);
        exit(1);
    }
    model_free(model);
    progress_finish(&progress);
    return took;
}

static void run_case(const struct bench_case *bench, struct device *device, uint64_t wanted_bytes)
{
    struct temp_folder folder;
    temp_folder_init(&folder);
    double size_bytes = (double)write_checkpoint(&folder, bench, wanted_bytes);
    struct took best = load_once(folder.path, device);
    for (int i = 1; i < N_TIMES; i++) {
        struct took took = load_once(folder.path, device);
        best = took.seconds < best.seconds ? took : best;
    }
    double gb = size_bytes * 1e-9;
    (void)printf("%-18s %8.3f %9.3f %9.3f %12.2f %12.2f %12.2f", bench->title, gb, best.seconds,
                 best.cpu_seconds, best.cpu_seconds / gb, gb / best.cpu_seconds, gb / best.seconds);
    for (uint32_t i = 0; i < MSG_LOAD_PHASES; i++) {
        (void)printf(" %7.0f%%", 1e2 * best.shares[i]);
    }
    (void)printf("\n");
    (void)fflush(stdout);
    temp_folder_finish(&folder);
}

int main(int argc, char **argv)
{
    uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 512;
    struct device *device;
    struct reason why = REASON_NULL;
    (void)setenv("TMPDIR", "/dev/shm", 1);
    if (mib == 0 || device_open(argc > 2 ? argv[2] : "host", 0, 1, &device, &why) != 0) {
        (void)fprintf(stderr, "bench-load: %s\n",
                      mib ? why.text : "usage: bench-load [MIB [DEVICE [FAMILY]]]");
        return 1;
    }
    (void)printf("%-18s %8s %9s %9s %12s %12s %12s %8s %8s %8s %8s\n", "family", "GB", "seconds",
                 "CPU s", "CPU s / GB", "GB / CPU s", "GB / s", "reading", "copying", "packing",
                 "prepare");
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        if (argc > 3 && strstr(cases[i].title, argv[3]) == NULL) {
            continue;
        }
        run_case(&cases[i], device, mib << 20);
    }
    device_close(device);
    return 0;
}
