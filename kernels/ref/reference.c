/* reference.c - the slow exact GEMM that everything else is measured against.
 *
 * Double all the way: a product of a dequantised weight (28 significant bits at most) and an f32
 * activation (24) is exact in double, so only the additions round. Activations of quantised schemes
 * are quantised by the rule of kernels/NUMERICS.md, the very function that the host kernels use:
 * that rule has one answer, and tests of its own. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gk/gk.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/f8.h"
#include "ipc/base/num.h"
#include "kernels/canonical.h"
#include "kernels/quant/quant.h"
#include "kernels/scalar.h"

#define K_STEP 64u

/* ---- rows of x ---- */

/* What a row becomes on its way to double; each (k) but scales. */
struct row {
    float *values;
    uint8_t *codes;
    float *scales;
};

static void row_finish(struct row *row)
{
    free(row->values);
    free(row->codes);
    free(row->scales);
}

static int row_init(struct row *row, const struct gk_desc *desc)
{
    *row = (struct row){.values = calloc(desc->k, sizeof(float)),
                        .codes = calloc(desc->k, 1),
                        .scales = calloc(quant_scales(desc) + 1, sizeof(float))};
    if (row->values == NULL || row->codes == NULL || row->scales == NULL) {
        row_finish(row);
        return err_raise(-ENOMEM);
    }
    return 0;
}

/* scale * (code - zero) of element i_k. */
static double dequantise(const struct gk_desc *desc, const struct row *row, uint32_t i_k,
                         int32_t zero)
{
    uint32_t i_scale = desc->act == GK_ACT_FP8_GROUP ? i_k / GK_ACT_GROUP_K : 0;
    double scale = (double)row->scales[i_scale];
    if (gk_act_is_int8(desc->act)) {
        return scale * ((int8_t)row->codes[i_k] - zero);
    }
    return scale * (double)e4m3_to_f32(row->codes[i_k]);
}

/* x (k) of one row becomes `values` (k), in the order of the codes of a packed weight. */
static void fill_row(const struct gk_canonical *canonical, const void *x, enum dtype x_dtype,
                     uint64_t i_x, struct row *row, double *values)
{
    const struct gk_desc *desc = &canonical->desc;
    bool has_offset = desc->act == GK_ACT_FLOAT && gk_code_is_int(desc->code); /* NUMERICS.md */
    for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
        row->values[i_k] = scalar_load(x, x_dtype, i_x + i_k);
    }
    for (uint32_t i_k = 0; has_offset && i_k < desc->k; i_k++) {
        row->values[i_k] = isinf(row->values[i_k]) ? NAN : row->values[i_k];
    }
    int32_t zero = 0;
    if (desc->act != GK_ACT_FLOAT) {
        zero = quant_row(&quant_portable, desc, row->values, row->codes, row->scales);
    }
    for (uint32_t i = 0; i < desc->k; i++) {
        uint32_t i_k = desc->has_perm ? canonical->perm[i] : i;
        values[i] =
            desc->act == GK_ACT_FLOAT ? (double)row->values[i_k] : dequantise(desc, row, i_k, zero);
    }
}

static int fill_rows(const struct gk_canonical *canonical, const void *x, enum dtype x_dtype,
                     uint64_t x_stride_elems, uint32_t m, double *values)
{
    struct row row;
    int r = row_init(&row, &canonical->desc);
    if (r != 0) {
        return r;
    }
    for (uint64_t i_m = 0; i_m < m; i_m++) {
        fill_row(canonical, x, x_dtype, i_m * x_stride_elems, &row,
                 values + i_m * canonical->desc.k);
    }
    row_finish(&row);
    return 0;
}

/* ---- products ---- */

static double sum_step(const double *x, const double *w, uint32_t n_k, double sum)
{
    for (uint32_t i = 0; i < n_k; i++) {
        sum += x[i] * w[i];
    }
    return sum;
}

/* One column of y. The weights of a step of k are dequantised once for all rows. */
static void column(const struct gk_canonical *canonical, uint32_t i_n, const double *x, uint32_t m,
                   double *y)
{
    uint32_t n = canonical->desc.n;
    uint32_t k = canonical->desc.k;
    for (uint32_t i_k = 0; i_k < k; i_k += K_STEP) {
        double w[K_STEP];
        uint32_t n_k = (uint32_t)num_min(K_STEP, k - i_k);
        for (uint32_t i = 0; i < n_k; i++) {
            w[i] = canonical_value_at(canonical, i_n, i_k + i);
        }
        for (uint64_t i_m = 0; i_m < m; i_m++) {
            double *sum = &y[i_m * n + i_n];
            *sum = sum_step(x + i_m * k + i_k, w, n_k, *sum);
        }
    }
    for (uint64_t i_m = 0; canonical->bias != NULL && i_m < m; i_m++) {
        y[i_m * n + i_n] += gk_canonical_bias(canonical, i_n);
    }
}

int gk_reference_gemm(const struct gk_canonical *canonical, const void *x, enum dtype x_dtype,
                      uint64_t x_stride_elems, uint32_t m, double *y)
{
    CLEAN_FREE double *values = calloc((uint64_t)m * canonical->desc.k + 1, sizeof(*values));
    if (values == NULL) {
        return err_raise(-ENOMEM);
    }
    int r = fill_rows(canonical, x, x_dtype, x_stride_elems, m, values);
    if (r != 0) {
        return r;
    }
    memset(y, 0, sizeof(*y) * m * canonical->desc.n);
    for (uint32_t i_n = 0; i_n < canonical->desc.n; i_n++) {
        column(canonical, i_n, values, m, y);
    }
    return 0;
}
