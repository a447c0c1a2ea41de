/* canonical.c - weights in canonical form: plain arrays that every reader fills and every packer
 * eats. One byte a code: a loader holds one weight at a time, so simplicity beats size here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gk/gk.h"
#include "ipc/base/error.h"
#include "kernels/scalar.h"

static int alloc_array(void *pointer_to_pointer, uint64_t n_elems, enum dtype dtype)
{
    void *array = calloc(n_elems, dtype_bytes(dtype));
    if (array == NULL) {
        return err_raise(-ENOMEM);
    }
    memcpy(pointer_to_pointer, &array, sizeof(array));
    return 0;
}

static int alloc_arrays(struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_elems = (uint64_t)desc->n * desc->k;
    int r = 0;
    if (desc->kind == GK_KIND_PLAIN) {
        r = alloc_array(&canonical->values, n_elems, desc->value_dtype);
    }
    if (desc->kind == GK_KIND_INT) {
        uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * desc->n;
        r = alloc_array(&canonical->codes, n_elems, DTYPE_U8);
        if (r == 0) {
            r = alloc_array(&canonical->scales, n_scales, desc->scale_dtype);
        }
    }
    if (r == 0 && desc->bias_dtype != DTYPE_NONE) {
        r = alloc_array(&canonical->bias, desc->n, desc->bias_dtype);
    }
    return r;
}

int gk_canonical_alloc(struct gk_canonical *canonical, const struct gk_desc *desc)
{
    *canonical = (struct gk_canonical){.desc = *desc};
    int r = alloc_arrays(canonical);
    if (r != 0) {
        gk_canonical_finish(canonical);
    }
    return r;
}

void gk_canonical_finish(struct gk_canonical *canonical)
{
    free(canonical->codes);
    free(canonical->scales);
    free(canonical->values);
    free(canonical->bias);
    *canonical = (struct gk_canonical){0};
}

double gk_canonical_value(const struct gk_canonical *canonical, uint32_t i_n, uint32_t i_k)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t i_elem = (uint64_t)i_n * desc->k + i_k;
    if (desc->kind == GK_KIND_PLAIN) {
        return (double)scalar_load(canonical->values, desc->value_dtype, i_elem);
    }
    uint64_t i_scale = (uint64_t)(i_k / desc->group_size) * desc->n + i_n;
    double scale = (double)scalar_load(canonical->scales, desc->scale_dtype, i_scale);
    int zero = 1 << (desc->bits - 1);
    return scale * (canonical->codes[i_elem] - zero);
}

double gk_canonical_bias(const struct gk_canonical *canonical, uint32_t i_n)
{
    if (canonical->bias == NULL) {
        return 0.0;
    }
    return (double)scalar_load(canonical->bias, canonical->desc.bias_dtype, i_n);
}
