/* rect.c - see rect.h. */
#include "kernels/rect.h"

#include <string.h>

#include "ipc/base/check.h"
#include "kernels/scalar.h"

/* One float from array to array, widened where the types differ. */
static void copy_float(const void *from, enum dtype from_dtype, uint64_t i_from, void *to,
                       enum dtype to_dtype, uint64_t i_to)
{
    uint32_t elem_bytes = dtype_bytes(to_dtype);
    char *to_elem = (char *)to + i_to * elem_bytes;
    if (from_dtype == to_dtype) {
        memcpy(to_elem, (const char *)from + i_from * elem_bytes, elem_bytes);
        return;
    }
    GD_ASSERT(to_dtype == DTYPE_F32);
    float value = scalar_load(from, from_dtype, i_from);
    memcpy(to_elem, &value, sizeof(value));
}

/* -0 in F32, F16 and BF16: the sign bit alone. Unlike +0, no sum is changed by it. */
static void store_minus_zero(void *array, enum dtype dtype, uint64_t index)
{
    uint32_t elem_bytes = dtype_bytes(dtype);
    char *elem = (char *)array + index * elem_bytes;
    memset(elem, 0, elem_bytes);
    elem[elem_bytes - 1] = (char)0x80;
}

static void copy_codes(const struct gk_canonical *from, const struct rect *rect,
                       struct gk_canonical *to)
{
    enum gk_code code = to->desc.code;
    uint64_t code_bytes = gk_code_is_plain(code) ? dtype_bytes(gk_code_dtype(code)) : 1;
    for (uint64_t i_n = 0; i_n < rect->n; i_n++) {
        uint64_t i_from = (rect->from_n + i_n) * from->desc.k + rect->from_k;
        uint64_t i_to = (rect->to_n + i_n) * to->desc.k;
        memcpy((char *)to->codes + i_to * code_bytes, (char *)from->codes + i_from * code_bytes,
               rect->k * code_bytes);
    }
}

/* Each scale of `to` takes that of its first element. */
static void copy_scales(const struct gk_canonical *from, const struct rect *rect,
                        struct gk_canonical *to)
{
    const struct gk_desc *from_desc = &from->desc, *desc = &to->desc;
    uint8_t symmetric = (uint8_t)(1u << (gk_code_bits(desc->code) - 1));
    uint64_t n_from = gk_desc_scale_columns(from_desc), n_to = gk_desc_scale_columns(desc);
    GD_ASSERT(rect->to_n % desc->group_n == 0);
    for (uint64_t k = 0; k < rect->k; k += desc->group_k) {
        uint64_t from_row = (rect->from_k + k) / from_desc->group_k * n_from;
        uint64_t to_row = k / desc->group_k * n_to;
        for (uint64_t n = 0; n < rect->n; n += desc->group_n) {
            uint64_t i_from = from_row + (rect->from_n + n) / from_desc->group_n;
            uint64_t i_to = to_row + (rect->to_n + n) / desc->group_n;
            copy_float(from->scales, from_desc->scale_dtype, i_from, to->scales, desc->scale_dtype,
                       i_to);
            if (desc->has_zeros) {
                to->zeros[i_to] = from_desc->has_zeros ? from->zeros[i_from] : symmetric;
            }
        }
    }
}

static void copy_rows(const struct gk_canonical *from, const struct rect *rect,
                      struct gk_canonical *to)
{
    for (uint32_t i_n = 0; i_n < rect->n; i_n++) {
        uint32_t i_from = rect->from_n + i_n, i_to = rect->to_n + i_n;
        if (to->column_scales != NULL) {
            to->column_scales[i_to] =
                from->column_scales != NULL ? from->column_scales[i_from] : 1.0f;
        }
        if (to->bias != NULL && from->bias != NULL) {
            copy_float(from->bias, from->desc.bias_dtype, i_from, to->bias, to->desc.bias_dtype,
                       i_to);
        }
        if (to->bias != NULL && from->bias == NULL) {
            store_minus_zero(to->bias, to->desc.bias_dtype, i_to);
        }
    }
}

void rect_copy(const struct gk_canonical *from, const struct rect *rect, struct gk_canonical *to)
{
    if (to->codes != NULL) {
        copy_codes(from, rect, to);
    }
    if (!gk_code_is_plain(to->desc.code)) {
        copy_scales(from, rect, to);
    }
    copy_rows(from, rect, to);
    if (to->desc.has_perm) {
        memcpy(to->perm, from->perm, to->desc.k * sizeof(*to->perm));
    }
}
