/* bench_format.c - see bench_format.h. A template is a desc without a shape: a group of 0 is all of
 * that side, a scale type of DTYPE_NONE that of the activations. All names fit one sentence, which
 * a test holds them to. */
#include "daemon/weights/bench_format.h"

#include <stdio.h>
#include <string.h>

#include "ipc/base/num.h"

struct bench_format {
    const char *name;
    struct gk_desc desc;
};

#define PLAIN(code_)                                                                               \
    {                                                                                              \
        .code = GK_CODE_##code_                                                                    \
    }
#define FORMAT(code_, group_n_, group_k_, scale_, ...)                                             \
    {                                                                                              \
        .code = GK_CODE_##code_, .group_n = (group_n_), .group_k = (group_k_),                     \
        .scale_dtype = DTYPE_##scale_, __VA_ARGS__                                                 \
    }
#define ACT(act_) .act = GK_ACT_##act_

static const struct bench_format formats[] = {
    {"bf16", PLAIN(BF16)},
    {"f16", PLAIN(F16)},
    {"f32", PLAIN(F32)},
    {"int4-g128", FORMAT(U4, 1, 128, NONE, )},
    {"int4-g128-zeros", FORMAT(U4, 1, 128, NONE, .has_zeros = true)},
    {"int4-g128-act-order", FORMAT(U4, 1, 128, NONE, .has_perm = true)},
    {"int4-g32", FORMAT(U4, 1, 32, NONE, )},
    {"int4-channel", FORMAT(U4, 1, 0, NONE, )},
    {"int8-g128", FORMAT(U8, 1, 128, NONE, )},
    {"int8-channel", FORMAT(U8, 1, 0, NONE, )},
    {"fp8-tensor", FORMAT(E4M3, 0, 0, F32, )},
    {"fp8-channel", FORMAT(E4M3, 1, 0, F32, )},
    {"fp8-128x128", FORMAT(E4M3, 128, 128, F32, )},
    {"mxfp8", FORMAT(E4M3, 1, 32, F8_E8M0, )},
    {"nvfp4", FORMAT(E2M1, 1, 16, F8_E4M3, .column_scale = GK_COLUMN_SCALE_MULTIPLIES)},
    {"mxfp4", FORMAT(E2M1, 1, 32, F8_E8M0, )},
    {"fp8-tensor-w8a8", FORMAT(E4M3, 0, 0, F32, ACT(FP8_TENSOR), .act_scale = 0x1p-8f)},
    {"fp8-channel-w8a8", FORMAT(E4M3, 1, 0, F32, ACT(FP8_TOKEN))},
    {"fp8-128x128-w8a8", FORMAT(E4M3, 128, 128, F32, ACT(FP8_GROUP))},
    {"int8-channel-w8a8", FORMAT(U8, 1, 0, F32, ACT(INT8_TOKEN))},
    {"int4-g128-w4a8", FORMAT(U4, 1, 128, NONE, ACT(FP8_TOKEN))},
};

const char *bench_format_name(uint32_t i)
{
    return i < ARRAY_LENGTH(formats) ? formats[i].name : NULL;
}

static const struct bench_format *find_format(const char *name)
{
    for (uint32_t i = 0; i < ARRAY_LENGTH(formats); i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}

static int unknown_format(const char *name, struct reason *why)
{
    char names[REASON_TEXT_BYTES] = "";
    for (uint32_t i = 0; i < ARRAY_LENGTH(formats); i++) {
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%s%s", i == 0 ? "" : ", ",
                       formats[i].name);
    }
    return reason_set(why, STATUS_UNSUPPORTED, "no format '%.16s'; there are %s", name, names);
}

static uint32_t cut(uint32_t group, uint32_t extent)
{
    return group == 0 || group > extent ? extent : group;
}

int bench_format_desc(const char *name, uint32_t n, uint32_t k, enum dtype act_dtype,
                      struct gk_desc *ret_desc, struct reason *why)
{
    const struct bench_format *format = find_format(name);
    if (!format) {
        return unknown_format(name, why);
    }
    struct gk_desc desc = format->desc;
    desc.n = n;
    desc.k = k;
    desc.bias_dtype = DTYPE_NONE;
    if (!gk_code_is_plain(desc.code)) {
        desc.group_n = cut(desc.group_n, n);
        desc.group_k = cut(desc.group_k, k);
        desc.scale_dtype = desc.scale_dtype == DTYPE_NONE ? act_dtype : desc.scale_dtype;
    }
    int r = gk_desc_check(&desc, why);
    if (r == 0) {
        *ret_desc = desc;
    }
    return r;
}
