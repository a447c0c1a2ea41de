/* canonical.c - weights in canonical form: plain arrays that every reader fills and every packer
 * eats. One byte a code: a loader holds one weight at a time, so simplicity beats size here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gk/gk.h"
#include "ipc/base/error.h"
#include "ipc/base/f8.h"
#include "kernels/canonical.h"
#include "kernels/scalar.h"

/* An array that the format lacks has no elements, and stays NULL. */
static int alloc_array(void *pointer_to_pointer, uint64_t n_elems, uint32_t elem_bytes)
{
    if (n_elems == 0) {
        return 0;
    }
    void *array = calloc(n_elems, elem_bytes);
    if (array == NULL) {
        return err_raise(-ENOMEM);
    }
    memcpy(pointer_to_pointer, &array, sizeof(array));
    return 0;
}

static uint32_t code_bytes(enum gk_code code)
{
    return gk_code_is_plain(code) ? dtype_bytes(gk_code_dtype(code)) : 1;
}

/* All but the codes. */
static int alloc_rest(struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    bool has_column_scales = desc->column_scale != GK_COLUMN_SCALE_NONE;
    int r = alloc_array(&canonical->scales, n_scales, dtype_bytes(desc->scale_dtype));
    if (r == 0) {
        r = alloc_array(&canonical->zeros, desc->has_zeros ? n_scales : 0, 1);
    }
    if (r == 0) {
        r = alloc_array(&canonical->perm, desc->has_perm ? desc->k : 0, sizeof(uint32_t));
    }
    if (r == 0) {
        r = alloc_array(&canonical->column_scales, has_column_scales ? desc->n : 0, sizeof(float));
    }
    if (r == 0) {
        r = alloc_array(&canonical->bias, desc->bias_dtype != DTYPE_NONE ? desc->n : 0,
                        dtype_bytes(desc->bias_dtype));
    }
    return r;
}

int gk_canonical_alloc_rest(struct gk_canonical *canonical, const struct gk_desc *desc)
{
    *canonical = (struct gk_canonical){.desc = *desc};
    int r = alloc_rest(canonical);
    if (r != 0) {
        gk_canonical_finish(canonical);
    }
    return r;
}

int gk_canonical_alloc(struct gk_canonical *canonical, const struct gk_desc *desc)
{
    int r = gk_canonical_alloc_rest(canonical, desc);
    if (r != 0) {
        return r;
    }
    r = alloc_array(&canonical->codes, (uint64_t)desc->n * desc->k, code_bytes(desc->code));
    if (r != 0) {
        gk_canonical_finish(canonical);
    }
    return r;
}

int canonical_alloc_like(struct gk_canonical *canonical, const struct gk_desc *desc,
                         const struct gk_canonical *source)
{
    return source->codes != NULL ? gk_canonical_alloc(canonical, desc)
                                 : gk_canonical_alloc_rest(canonical, desc);
}

void gk_canonical_finish(struct gk_canonical *canonical)
{
    free(canonical->codes);
    free(canonical->scales);
    free(canonical->zeros);
    free(canonical->perm);
    free(canonical->column_scales);
    free(canonical->bias);
    *canonical = (struct gk_canonical){0};
}

/* scale * (code - zero), or scale * code. */
static double quantised_value(const struct gk_canonical *canonical, uint32_t i_n, uint32_t i_k)
{
    const struct gk_desc *desc = &canonical->desc;
    uint8_t code = ((const uint8_t *)canonical->codes)[(uint64_t)i_n * desc->k + i_k];
    uint64_t i_scale = (uint64_t)(i_k / desc->group_k) * gk_desc_scale_columns(desc);
    i_scale += i_n / desc->group_n;
    double scale = (double)scalar_load(canonical->scales, desc->scale_dtype, i_scale);
    if (gk_code_is_int(desc->code)) {
        int zero =
            desc->has_zeros ? canonical->zeros[i_scale] : 1 << (gk_code_bits(desc->code) - 1);
        return scale * (code - zero);
    }
    return scale * (double)(desc->code == GK_CODE_E4M3 ? e4m3_to_f32(code) : e2m1_to_f32(code));
}

double canonical_value_at(const struct gk_canonical *canonical, uint32_t i_n, uint32_t i_position)
{
    const struct gk_desc *desc = &canonical->desc;
    if (gk_code_is_plain(desc->code)) {
        uint64_t i_elem = (uint64_t)i_n * desc->k + i_position;
        return (double)scalar_load(canonical->codes, gk_code_dtype(desc->code), i_elem);
    }
    double value = quantised_value(canonical, i_n, i_position);
    switch (desc->column_scale) {
    case GK_COLUMN_SCALE_MULTIPLIES:
        return value * (double)canonical->column_scales[i_n];
    case GK_COLUMN_SCALE_DIVIDES:
        return value / (double)canonical->column_scales[i_n];
    default:
        return value;
    }
}

/* A perm is a permutation: readers see to that. */
static uint32_t position_of(const struct gk_canonical *canonical, uint32_t i_k)
{
    uint32_t i_position = 0;
    while (canonical->perm[i_position] != i_k) {
        i_position++;
    }
    return i_position;
}

double gk_canonical_value(const struct gk_canonical *canonical, uint32_t i_n, uint32_t i_k)
{
    uint32_t i_position = canonical->desc.has_perm ? position_of(canonical, i_k) : i_k;
    return canonical_value_at(canonical, i_n, i_position);
}

double gk_canonical_bias(const struct gk_canonical *canonical, uint32_t i_n)
{
    if (canonical->bias == NULL) {
        return 0.0;
    }
    return (double)scalar_load(canonical->bias, canonical->desc.bias_dtype, i_n);
}
