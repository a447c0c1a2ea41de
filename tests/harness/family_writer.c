/* family_writer.c - see family_writer.h. Every packed tensor is a bit stream of fields; families
 * differ in the order in which elements enter it. */
#include "tests/harness/family_writer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "tests/harness/random.h"

static void *need(void *memory)
{
    if (!memory) {
        perror("malloc");
        abort();
    }
    return memory;
}

/* ---- random weights ---- */

static uint8_t random_code(enum gk_code code, uint64_t *random)
{
    uint8_t value = (uint8_t)(test_random(random) % (1u << gk_code_bits(code)));
    bool is_nan = code == GK_CODE_E4M3 && (value & 0x7f) == 0x7f;
    return is_nan ? 0x38 : value;
}

static void put_float(void *array, enum dtype dtype, uint64_t i, float value)
{
    switch (dtype) {
    case DTYPE_F16:
        ((uint16_t *)array)[i] = half_from_f32(value);
        return;
    case DTYPE_BF16:
        ((uint16_t *)array)[i] = bf16_from_f32(value);
        return;
    default:
        ((float *)array)[i] = value;
    }
}

static void fill_codes(struct gk_canonical *canonical, uint64_t *random)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_codes = (uint64_t)desc->n * desc->k;
    for (uint64_t i = 0; i < n_codes; i++) {
        if (gk_code_is_plain(desc->code)) {
            put_float(canonical->codes, gk_code_dtype(desc->code), i,
                      (float)test_random_unit(random) * 0.1f);
        } else {
            ((uint8_t *)canonical->codes)[i] = random_code(desc->code, random);
        }
    }
}

static uint64_t n_scales(const struct gk_desc *desc)
{
    return (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
}

static void fill_scales(struct gk_canonical *canonical, uint64_t *random)
{
    const struct gk_desc *desc = &canonical->desc;
    for (uint64_t i = 0; i < n_scales(desc); i++) {
        if (desc->scale_dtype == DTYPE_F8_E4M3) {
            ((uint8_t *)canonical->scales)[i] = (uint8_t)(0x20 + test_random(random) % 32);
        } else if (desc->scale_dtype == DTYPE_F8_E8M0) {
            ((uint8_t *)canonical->scales)[i] = (uint8_t)(118 + test_random(random) % 6);
        } else {
            float value = 0.01f + (float)(test_random(random) % 1000) * 2e-5f;
            put_float(canonical->scales, desc->scale_dtype, i, value);
        }
        if (desc->has_zeros) {
            canonical->zeros[i] = random_code(desc->code, random);
        }
    }
}

/* Groups of equal size with their elements all over k, in ascending order within each. */
static void fill_perm(struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint32_t n_groups = gk_desc_groups(desc);
    uint32_t i_position = 0;
    for (uint32_t i_group = 0; i_group < n_groups; i_group++) {
        for (uint32_t i_k = i_group; i_k < desc->k; i_k += n_groups) {
            canonical->perm[i_position++] = i_k;
        }
    }
}

void random_weight(struct gk_canonical *canonical, const struct gk_desc *desc, uint64_t *random)
{
    if (gk_canonical_alloc(canonical, desc) != 0) {
        abort();
    }
    fill_codes(canonical, random);
    fill_scales(canonical, random);
    if (desc->has_perm) {
        fill_perm(canonical);
    }
    float column_scale = 0.5f + (float)(test_random(random) % 64) / 64.0f;
    for (uint32_t i = 0; i < desc->n; i++) {
        if (desc->column_scale != GK_COLUMN_SCALE_NONE) {
            canonical->column_scales[i] = column_scale;
        }
        if (desc->bias_dtype != DTYPE_NONE) {
            put_float(canonical->bias, desc->bias_dtype, i, (float)test_random_unit(random));
        }
    }
}

/* ---- tensors ---- */

struct out {
    struct tensor_file *file;
    const char *module;
    const struct gk_canonical *canonical;
    const struct gk_desc *desc;
};

/* Takes the data over. */
static void add(const struct out *out, const char *leaf, const char *dtype, uint32_t n_dims,
                uint64_t n_rows, uint64_t n_cols, void *data, uint64_t size_bytes)
{
    char name[256];
    const uint64_t dims[] = {n_rows, n_cols};
    (void)snprintf(name, sizeof(name), "%s.%s", out->module, leaf);
    tensor_file_add(out->file, name, dtype, n_dims, dims, data, size_bytes);
    free(data);
}

static void put_field(uint8_t *bytes, uint64_t i_field, uint32_t bits, uint32_t value)
{
    uint64_t i_bit = i_field * bits;
    bytes[i_bit / 8] = (uint8_t)(bytes[i_bit / 8] | value << i_bit % 8);
}

static uint32_t bits_of(const struct out *out)
{
    return gk_code_bits(out->desc->code);
}

/* The code of element i_k of x, wherever act-order has put it. */
static uint8_t *codes_by_element(const struct out *out)
{
    uint64_t k = out->desc->k;
    uint8_t *codes = need(malloc(out->desc->n * k));
    for (uint64_t i_n = 0; i_n < out->desc->n; i_n++) {
        for (uint64_t i = 0; i < k; i++) {
            uint64_t i_k = out->desc->has_perm ? out->canonical->perm[i] : i;
            codes[i_n * k + i_k] = ((const uint8_t *)out->canonical->codes)[i_n * k + i];
        }
    }
    return codes;
}

static uint32_t zero_of(const struct out *out, uint64_t i_scale)
{
    return out->desc->has_zeros ? out->canonical->zeros[i_scale] : 1u << (bits_of(out) - 1);
}

/* Scales as (groups, columns), or turned into (columns, groups). */
static void add_scales(const struct out *out, const char *leaf, const char *dtype, bool is_turned)
{
    uint64_t n_groups = gk_desc_groups(out->desc);
    uint64_t n_columns = gk_desc_scale_columns(out->desc);
    uint64_t bytes = dtype_bytes(out->desc->scale_dtype);
    uint8_t *data = need(malloc(n_groups * n_columns * bytes));
    for (uint64_t i = 0; i < n_groups * n_columns; i++) {
        uint64_t i_turned = i % n_columns * n_groups + i / n_columns;
        memcpy(data + (is_turned ? i_turned : i) * bytes,
               (const uint8_t *)out->canonical->scales + i * bytes, bytes);
    }
    dtype = dtype ? dtype : dtype_safetensors_name(out->desc->scale_dtype);
    add(out, leaf, dtype, 2, is_turned ? n_columns : n_groups, is_turned ? n_groups : n_columns,
        data, n_groups * n_columns * bytes);
}

static void add_g_idx(const struct out *out, const char *leaf)
{
    int32_t *g_idx = need(malloc(out->desc->k * sizeof(*g_idx)));
    for (uint32_t i = 0; i < out->desc->k; i++) {
        g_idx[out->canonical->perm[i]] = (int32_t)(i / out->desc->group_k);
    }
    add(out, leaf, "I32", 1, out->desc->k, 0, g_idx, out->desc->k * sizeof(*g_idx));
}

/* A float's number as a tensor of shape []. */
static void add_number(const struct out *out, const char *leaf, float value)
{
    float *data = need(malloc(sizeof(*data)));
    *data = value;
    add(out, leaf, "F32", 0, 0, 0, data, sizeof(*data));
}

/* ---- families ---- */

static void add_gptq_codes(const struct out *out)
{
    uint32_t n = out->desc->n;
    uint32_t k = out->desc->k;
    uint32_t bits = bits_of(out);
    uint32_t n_fields = 32 / bits;
    uint8_t *codes = codes_by_element(out);
    uint8_t *qweight = need(calloc((uint64_t)n * k, bits / 4));
    for (uint64_t i_n = 0; i_n < n; i_n++) {
        for (uint64_t i_k = 0; i_k < k; i_k++) {
            uint64_t i_field = (i_k / n_fields * n + i_n) * n_fields + i_k % n_fields;
            put_field(qweight, i_field, bits, codes[i_n * k + i_k]);
        }
    }
    free(codes);
    add(out, "qweight", "I32", 2, k / n_fields, n, qweight, (uint64_t)n * k * bits / 8);
}

static void add_gptq(const struct out *out, bool is_v1)
{
    uint32_t n = out->desc->n;
    uint32_t n_groups = gk_desc_groups(out->desc);
    uint32_t bits = bits_of(out);
    uint8_t *qzeros = need(calloc((uint64_t)n * n_groups, bits / 4));
    for (uint64_t i = 0; i < (uint64_t)n_groups * n; i++) {
        put_field(qzeros, i, bits, (zero_of(out, i) - is_v1) & ((1u << bits) - 1));
    }
    add_gptq_codes(out);
    add(out, "qzeros", "I32", 2, n_groups, n * bits / 32, qzeros,
        (uint64_t)n * n_groups * bits / 8);
    add_scales(out, "scales", NULL, false);
    if (out->desc->has_perm) {
        add_g_idx(out, "g_idx");
    }
}

/* Column j of eight lies in nibble place[j]. */
static uint64_t awq_field(uint64_t i_row, uint64_t i_n, uint64_t n)
{
    static const uint32_t place[] = {0, 4, 1, 5, 2, 6, 3, 7};
    return (i_row * (n / 8) + i_n / 8) * 8 + place[i_n % 8];
}

static void add_awq(const struct out *out)
{
    uint64_t n = out->desc->n;
    uint64_t k = out->desc->k;
    uint64_t n_groups = gk_desc_groups(out->desc);
    uint8_t *qweight = need(calloc(n, k));
    uint8_t *qzeros = need(calloc(n, n_groups));
    for (uint64_t i_n = 0; i_n < n; i_n++) {
        for (uint64_t i_k = 0; i_k < k; i_k++) {
            put_field(qweight, awq_field(i_k, i_n, n), 4,
                      ((const uint8_t *)out->canonical->codes)[i_n * k + i_k]);
        }
        for (uint64_t i_group = 0; i_group < n_groups; i_group++) {
            put_field(qzeros, awq_field(i_group, i_n, n), 4, zero_of(out, i_group * n + i_n));
        }
    }
    add(out, "qweight", "I32", 2, k, n / 8, qweight, n * k / 2);
    add(out, "qzeros", "I32", 2, n_groups, n / 8, qzeros, n * n_groups / 2);
    add_scales(out, "scales", NULL, false);
}

static void add_ct_zeros(const struct out *out)
{
    uint64_t n_groups = gk_desc_groups(out->desc);
    uint64_t n_columns = gk_desc_scale_columns(out->desc);
    uint32_t bits = bits_of(out);
    uint64_t n_fields = 32 / bits;
    uint64_t n_words = num_div_up(n_columns, n_fields);
    uint8_t *zeros = need(calloc(n_words * n_groups, 4));
    for (uint64_t i = 0; i < n_groups * n_columns; i++) {
        uint64_t i_column = i % n_columns;
        uint64_t i_word = i_column / n_fields * n_groups + i / n_columns;
        put_field(zeros, i_word * n_fields + i_column % n_fields, bits, zero_of(out, i));
    }
    add(out, "weight_zero_point", "I32", 2, n_words, n_groups, zeros, n_words * n_groups * 4);
}

static void add_ct_packed(const struct out *out)
{
    uint64_t n = out->desc->n;
    uint64_t k = out->desc->k;
    uint32_t bits = bits_of(out);
    uint64_t n_words = num_div_up(k * bits, 32);
    uint8_t *packed = need(calloc(n * n_words, 4));
    uint8_t *codes = codes_by_element(out);
    int64_t *shape = need(malloc(2 * sizeof(*shape)));
    for (uint64_t i = 0; i < n * k; i++) {
        put_field(packed, i / k * n_words * (32 / bits) + i % k, bits, codes[i]);
    }
    free(codes);
    shape[0] = (int64_t)n;
    shape[1] = (int64_t)k;
    add(out, "weight_packed", "I32", 2, n, n_words, packed, n * n_words * 4);
    add(out, "weight_shape", "I64", 1, 2, 0, shape, 2 * sizeof(*shape));
    add_scales(out, "weight_scale", NULL, true);
    if (out->desc->has_zeros) {
        add_ct_zeros(out);
    }
    if (out->desc->has_perm) {
        add_g_idx(out, "weight_g_idx");
    }
}

static void add_bytes(const struct out *out, const char *dtype, uint8_t offset)
{
    uint64_t n_codes = (uint64_t)out->desc->n * out->desc->k;
    uint8_t *weight = need(malloc(n_codes));
    for (uint64_t i = 0; i < n_codes; i++) {
        weight[i] = (uint8_t)(((const uint8_t *)out->canonical->codes)[i] - offset);
    }
    add(out, "weight", dtype, 2, out->desc->n, out->desc->k, weight, n_codes);
}

static void add_fp4(const struct out *out, const char *leaf)
{
    uint64_t n = out->desc->n;
    uint64_t k = out->desc->k;
    uint8_t *packed = need(calloc(n, k));
    for (uint64_t i = 0; i < n * k; i++) {
        put_field(packed, i, 4, ((const uint8_t *)out->canonical->codes)[i]);
    }
    add(out, leaf, "U8", 2, n, k / 2, packed, n * k / 2);
}

static void add_act(const struct out *out)
{
    if (out->desc->act != GK_ACT_FP8_TENSOR && out->desc->act != GK_ACT_INT8_TENSOR) {
        return;
    }
    add_number(out, "input_scale", out->desc->act_scale);
    if (out->desc->act_zero != 0) {
        int8_t *zero = need(malloc(1));
        *zero = (int8_t)out->desc->act_zero;
        add(out, "input_zero_point", "I8", 1, 1, 0, zero, 1);
    }
}

static void add_bias(const struct out *out)
{
    if (out->desc->bias_dtype == DTYPE_NONE) {
        return;
    }
    uint64_t size_bytes = (uint64_t)out->desc->n * dtype_bytes(out->desc->bias_dtype);
    void *bias = need(malloc(size_bytes));
    memcpy(bias, out->canonical->bias, size_bytes);
    add(out, "bias", dtype_safetensors_name(out->desc->bias_dtype), 1, out->desc->n, 0, bias,
        size_bytes);
}

static void add_plain(const struct out *out)
{
    enum dtype dtype = gk_code_dtype(out->desc->code);
    uint64_t size_bytes = (uint64_t)out->desc->n * out->desc->k * dtype_bytes(dtype);
    void *weight = need(malloc(size_bytes));
    memcpy(weight, out->canonical->codes, size_bytes);
    add(out, "weight", dtype_safetensors_name(dtype), 2, out->desc->n, out->desc->k, weight,
        size_bytes);
}

void tensor_file_add_weight(struct tensor_file *file, const char *module,
                            enum written_family family, const struct gk_canonical *canonical)
{
    const struct out out = {file, module, canonical, &canonical->desc};
    switch (family) {
    case WRITTEN_PLAIN:
        add_plain(&out);
        break;
    case WRITTEN_GPTQ_V1:
    case WRITTEN_GPTQ_V2:
        add_gptq(&out, family == WRITTEN_GPTQ_V1);
        break;
    case WRITTEN_AWQ:
        add_awq(&out);
        break;
    case WRITTEN_CT_PACKED:
        add_ct_packed(&out);
        break;
    case WRITTEN_CT_INT8:
        add_bytes(&out, "I8", 128);
        add_scales(&out, "weight_scale", NULL, true);
        break;
    case WRITTEN_FP8:
    case WRITTEN_FP8_INV:
        add_bytes(&out, "F8_E4M3", 0);
        add_scales(&out, family == WRITTEN_FP8 ? "weight_scale" : "weight_scale_inv", NULL, true);
        break;
    case WRITTEN_CT_NVFP4:
    case WRITTEN_OPT_NVFP4:
        add_fp4(&out, family == WRITTEN_CT_NVFP4 ? "weight_packed" : "weight");
        add_scales(&out, "weight_scale", NULL, true);
        add_number(&out, family == WRITTEN_CT_NVFP4 ? "weight_global_scale" : "weight_scale_2",
                   canonical->column_scales[0]);
        break;
    case WRITTEN_CT_MXFP4:
        add_fp4(&out, "weight_packed");
        add_scales(&out, "weight_scale", "U8", true);
        break;
    case WRITTEN_MXFP8:
        add_bytes(&out, "F8_E4M3", 0);
        add_scales(&out, "weight_scale", "U8", true);
        break;
    }
    add_act(&out);
    add_bias(&out);
}
