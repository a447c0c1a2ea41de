/* Any shape and any cut: a slice that is granted is a weight that can be packed, and has the values
 * of the whole; slices put together along n are the whole again. */
#include <stdlib.h>

#include "gk/gk.h"
#include "ipc/base/check.h"
#include "ipc/base/num.h"

#define HEAD_BYTES 12u
#define EXTENT_MAX 136u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static struct gk_desc parse_desc(const uint8_t *head)
{
    static const enum gk_code codes[] = {GK_CODE_F16,  GK_CODE_U4,   GK_CODE_U8,
                                         GK_CODE_E4M3, GK_CODE_E2M1, GK_CODE_BF16};
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32, DTYPE_F8_E4M3,
                                        DTYPE_NONE};
    static const enum gk_act acts[] = {GK_ACT_FLOAT, GK_ACT_FP8_GROUP, GK_ACT_FP8_TOKEN,
                                       GK_ACT_INT8_TOKEN};
    uint32_t n = 1 + head[1] % EXTENT_MAX, k = 1 + head[2] % EXTENT_MAX;
    struct gk_desc desc = {.n = n, .k = k, .code = codes[head[0] % ARRAY_LENGTH(codes)]};
    desc.bias_dtype = (head[5] & 1) != 0 ? DTYPE_F16 : DTYPE_NONE;
    if (!gk_code_is_plain(desc.code)) {
        desc.group_n = 1 + head[3] % n;
        desc.group_k = 1 + head[4] % k;
        desc.scale_dtype = dtypes[head[6] % ARRAY_LENGTH(dtypes)];
        desc.has_zeros = (head[5] & 2) != 0;
        desc.has_perm = (head[5] & 4) != 0;
        desc.column_scale = (enum gk_column_scale)(head[7] % 3);
        desc.act = acts[head[5] / 8 % ARRAY_LENGTH(acts)];
    }
    return desc;
}

/* Bytes that differ from place to place; the weight is one of numbers, not NaN, as readers see to.
 */
static void fill(struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    uint32_t code_bytes = gk_code_is_plain(desc->code) ? 2 : 1;
    uint32_t mask = desc->code == GK_CODE_U4 || desc->code == GK_CODE_E2M1 ? 15 : 0x37;
    for (uint64_t i = 0; i < (uint64_t)desc->n * desc->k * code_bytes; i++) {
        ((uint8_t *)canonical->codes)[i] = (uint8_t)(i * 2654435761u >> 16 & mask);
    }
    for (uint64_t i = 0; i < n_scales * dtype_bytes(desc->scale_dtype); i++) {
        ((uint8_t *)canonical->scales)[i] = (uint8_t)(i * 40503u >> 8 & 0x37);
    }
    for (uint64_t i = 0; i < n_scales && desc->has_zeros; i++) {
        canonical->zeros[i] = (uint8_t)(i & 15);
    }
    for (uint32_t i = 0; i < desc->k && desc->has_perm; i++) {
        canonical->perm[i] = desc->k - 1 - i;
    }
    for (uint32_t i = 0; i < desc->n && canonical->column_scales != NULL; i++) {
        canonical->column_scales[i] = 1.0f + (float)i;
    }
    for (uint64_t i = 0; i < desc->n && canonical->bias != NULL; i++) {
        ((uint16_t *)canonical->bias)[i] = (uint16_t)i;
    }
}

static void check(const struct gk_canonical *part, const struct gk_canonical *whole,
                  uint32_t first_n, uint32_t first_k)
{
    GD_ASSERT(gk_desc_check(&part->desc, NULL) == 0);
    for (uint32_t i_n = 0; i_n < part->desc.n; i_n++) {
        for (uint32_t i_k = 0; i_k < part->desc.k; i_k++) {
            double value = gk_canonical_value(whole, first_n + i_n, first_k + i_k);
            GD_ASSERT(gk_canonical_value(part, i_n, i_k) == value);
        }
        if (part->bias != NULL) {
            GD_ASSERT(gk_canonical_bias(part, i_n) == gk_canonical_bias(whole, first_n + i_n));
        }
    }
}

static void slice_k(const struct gk_canonical *whole, uint32_t first_k, uint32_t k)
{
    struct gk_canonical slice;
    struct reason why = REASON_NULL;
    int r = gk_canonical_slice_k(whole, first_k, k, &slice, &why);
    if (r != 0) {
        GD_ASSERT(r == why.status && why.text[0] != '\0');
        return;
    }
    check(&slice, whole, 0, first_k);
    gk_canonical_finish(&slice);
}

static void slice_n(const struct gk_canonical *whole, uint32_t cut)
{
    struct gk_canonical slices[2], again;
    uint32_t n = whole->desc.n;
    if (cut >= n) {
        GD_ASSERT(gk_canonical_slice_n(whole, cut, 1, &again, NULL) == STATUS_INVALID_ARGUMENT);
        return;
    }
    if (cut == 0) {
        return;
    }
    GD_ASSERT(gk_canonical_slice_n(whole, 0, cut, &slices[0], NULL) == 0);
    GD_ASSERT(gk_canonical_slice_n(whole, cut, n - cut, &slices[1], NULL) == 0);
    check(&slices[0], whole, 0, 0);
    check(&slices[1], whole, cut, 0);
    GD_ASSERT(gk_canonical_concat_n(slices, 2, &again, NULL) == 0);
    check(&again, whole, 0, 0);
    gk_canonical_finish(&slices[0]);
    gk_canonical_finish(&slices[1]);
    gk_canonical_finish(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes < HEAD_BYTES) {
        return 0;
    }
    struct gk_desc desc = parse_desc(data);
    struct gk_canonical whole;
    if (gk_desc_check(&desc, NULL) != 0) {
        return 0;
    }
    GD_ASSERT(gk_canonical_alloc(&whole, &desc) == 0);
    fill(&whole);
    slice_k(&whole, data[8], data[9]);
    slice_n(&whole, data[10]);
    gk_canonical_finish(&whole);
    return 0;
}
