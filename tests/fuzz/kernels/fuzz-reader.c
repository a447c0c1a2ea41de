/* Any bytes as a small quantised layer: eight of them say what kind, the rest are the tensors. What
 * a reader accepts is finite in every element, and act-order is a permutation. */
#include <math.h>
#include <stdlib.h>

#include "gk/gk.h"
#include "ipc/base/check.h"
#include "ipc/base/num.h"

#define HEAD_BYTES  8u
#define N_MAX       48u
#define K_MAX       96u
#define TENSORS_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum family { GPTQ, AWQ, CT_PACKED, INT8, FP8, FP4, N_FAMILIES };

struct layer {
    enum family family;
    struct gk_desc desc;
    bool is_v1;
    bool has_zeros_tensor;
    bool has_global_scale;
    const uint8_t *data; /* what is left of the input */
    size_t n_bytes;
    uint8_t *tensors[TENSORS_MAX];
    uint32_t n_tensors;
};

/* A block of exactly that size, filled with the next bytes of the input, then zeros. */
static void *tensor(struct layer *layer, uint64_t size_bytes)
{
    GD_ASSERT(layer->n_tensors < TENSORS_MAX);
    uint8_t *bytes = calloc(1, size_bytes);
    GD_ASSERT(bytes != NULL);
    for (uint64_t i = 0; i < size_bytes && layer->n_bytes > 0; i++) {
        bytes[i] = *layer->data++;
        layer->n_bytes--;
    }
    layer->tensors[layer->n_tensors++] = bytes;
    return bytes;
}

static void parse_head(struct layer *layer, const uint8_t *head)
{
    static const enum gk_code codes[N_FAMILIES] = {GK_CODE_U4, GK_CODE_U4,   GK_CODE_U4,
                                                   GK_CODE_U8, GK_CODE_E4M3, GK_CODE_E2M1};
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32, DTYPE_F8_E4M3,
                                        DTYPE_F8_E8M0};
    layer->family = head[0] % N_FAMILIES;
    uint32_t n = 1 + head[1] % N_MAX, k = 1 + head[2] % K_MAX;
    bool is_wide = (head[6] & 1) != 0 && codes[layer->family] == GK_CODE_U4;
    layer->desc = (struct gk_desc){.n = n,
                                   .k = k,
                                   .code = is_wide ? GK_CODE_U8 : codes[layer->family],
                                   .group_n = 1 + head[3] % n,
                                   .group_k = 1 + head[4] % k,
                                   .scale_dtype = dtypes[head[5] % ARRAY_LENGTH(dtypes)],
                                   .has_zeros = (head[6] & 2) != 0,
                                   .has_perm = (head[6] & 4) != 0,
                                   .column_scale = (enum gk_column_scale)(head[7] % 3)};
    layer->is_v1 = (head[6] & 8) != 0;
    layer->has_zeros_tensor = (head[6] & 16) != 0;
    layer->has_global_scale = (head[6] & 32) != 0;
}

static int read_words(struct layer *layer, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_desc *desc = &layer->desc;
    uint64_t fields = 32 / gk_code_bits(desc->code);
    uint64_t n_groups = gk_desc_groups(desc), n_columns = gk_desc_scale_columns(desc);
    uint64_t n_scales = n_groups * n_columns;
    void *scales = tensor(layer, n_scales * dtype_bytes(desc->scale_dtype));
    void *zeros = tensor(layer, num_div_up(n_columns, fields) * n_groups * 4);
    if (!layer->has_zeros_tensor) {
        zeros = NULL;
    }
    if (layer->family == GPTQ) {
        void *qweight = tensor(layer, num_div_up(desc->k, fields) * desc->n * 4);
        const struct gk_gptq source = {qweight, zeros, scales, layer->is_v1};
        uint64_t n_wrapped;
        return gk_gptq_read(&source, canonical, &n_wrapped, why);
    }
    if (layer->family == AWQ) {
        void *qweight = tensor(layer, num_div_up(desc->n, fields) * desc->k * 4);
        const struct gk_awq source = {qweight, zeros, scales};
        return gk_awq_read(&source, canonical, why);
    }
    void *shape = tensor(layer, 16);
    void *packed = tensor(layer, num_div_up(desc->k, fields) * desc->n * 4);
    const struct gk_ct_packed source = {packed, scales, zeros, layer->is_v1 ? shape : NULL};
    return gk_ct_packed_read(&source, canonical, why);
}

static int read_bytes(struct layer *layer, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_desc *desc = &layer->desc;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    void *scales = tensor(layer, n_scales * dtype_bytes(desc->scale_dtype));
    if (layer->family == FP4) {
        void *global_scale = tensor(layer, 4);
        void *weight = tensor(layer, (uint64_t)desc->n * desc->k / 2);
        const struct gk_fp4 source = {weight, scales,
                                      layer->has_global_scale ? global_scale : NULL};
        return gk_fp4_read(&source, canonical, why);
    }
    void *zeros = tensor(layer, n_scales);
    void *weight = tensor(layer, (uint64_t)desc->n * desc->k);
    if (layer->family == FP8) {
        const struct gk_fp8 source = {weight, scales};
        return gk_fp8_read(&source, canonical, why);
    }
    const struct gk_int8 source = {weight, scales, layer->has_zeros_tensor ? zeros : NULL};
    return gk_int8_read(&source, canonical, why);
}

static int read_perm(struct layer *layer, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_desc *desc = &layer->desc;
    enum gk_g_idx kind;
    void *g_idx = tensor(layer, (uint64_t)desc->k * 4);
    int r = gk_g_idx_read(g_idx, desc->k, desc->group_k, layer->is_v1, canonical->perm, &kind, why);
    for (uint32_t i = 0; i < desc->k && r == 0 && kind != GK_G_IDX_ORDER; i++) {
        canonical->perm[i] = i;
    }
    return r;
}

static void check(const struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    bool is_seen[K_MAX] = {false};
    for (uint32_t i = 0; i < desc->k && desc->has_perm; i++) {
        GD_ASSERT(canonical->perm[i] < desc->k && !is_seen[canonical->perm[i]]);
        is_seen[canonical->perm[i]] = true;
    }
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
            GD_ASSERT(isfinite(gk_canonical_value(canonical, i_n, i_k)));
        }
    }
}

static void run(struct layer *layer)
{
    struct gk_canonical canonical;
    struct reason why = REASON_NULL;
    if (gk_desc_check(&layer->desc, &why) != 0) {
        return;
    }
    GD_ASSERT(gk_canonical_alloc(&canonical, &layer->desc) == 0);
    int r = layer->desc.has_perm ? read_perm(layer, &canonical, &why) : 0;
    if (r == 0) {
        r = layer->family <= CT_PACKED ? read_words(layer, &canonical, &why)
                                       : read_bytes(layer, &canonical, &why);
    }
    if (r == 0) {
        check(&canonical);
    } else {
        GD_ASSERT(r == why.status && why.text[0] != '\0');
    }
    gk_canonical_finish(&canonical);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes < HEAD_BYTES) {
        return 0;
    }
    struct layer layer = {.data = data + HEAD_BYTES, .n_bytes = n_bytes - HEAD_BYTES};
    parse_head(&layer, data);
    run(&layer);
    for (uint32_t i = 0; i < layer.n_tensors; i++) {
        free(layer.tensors[i]);
    }
    return 0;
}
