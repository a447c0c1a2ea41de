/* reference_case.c - see reference_case.h. */
#include "reference_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/f8.h"
#include "ipc/base/num.h"
#include "kernels/canonical.h"
#include "kernels/quant/quant.h"

#define BLOCK_K         128u
#define OTHER_ROUNDINGS 8.0 /* of scales, of converted sums, of the bias */

/* Half a unit in the last place of the output type, relative. */
static double rounding(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 0x1p-24 : dtype == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
}

double frobenius_tolerance(enum dtype y_dtype)
{
    return y_dtype == DTYPE_F32 ? 1e-5 : 2 * rounding(y_dtype);
}

/* What fp32 sums may be off by, relative to the sum of magnitudes: a rounding for each k of a block
 * and one for each block. */
static double sum_bound(const struct gk_desc *desc)
{
    uint32_t group_k = gk_code_is_plain(desc->code) ? desc->k : desc->group_k;
    uint32_t block_k = (uint32_t)num_min(group_k, BLOCK_K);
    double n_blocks = ceil((double)desc->k / group_k) * ceil((double)group_k / block_k);
    return (block_k + n_blocks + OTHER_ROUNDINGS) * 0x1p-24;
}

/* |x| (k) of one row as it is multiplied, in the order of the codes. */
static void fill_magnitudes(const struct gk_canonical *canonical, const float *values,
                            double *magnitudes)
{
    const struct gk_desc *desc = &canonical->desc;
    uint8_t *codes = calloc(desc->k, 1);
    float *scales = calloc(quant_scales(desc) + 1, sizeof(*scales));
    int32_t zero = 0;
    if (desc->act != GK_ACT_FLOAT) {
        zero = quant_row(&quant_portable, desc, values, codes, scales);
    }
    for (uint32_t i = 0; i < desc->k; i++) {
        uint32_t i_k = desc->has_perm ? canonical->perm[i] : i;
        double value = (double)values[i_k];
        if (gk_act_is_int8(desc->act)) {
            value = (double)scales[0] * ((int8_t)codes[i_k] - zero);
        } else if (gk_act_is_fp8(desc->act)) {
            double scale = (double)scales[desc->act == GK_ACT_FP8_GROUP ? i_k / BLOCK_K : 0];
            value = scale * (double)e4m3_to_f32(codes[i_k]);
        }
        magnitudes[i] = fabs(value);
    }
    free(codes);
    free(scales);
}

/* What a comparison works on: rows of x as f32 (m, k), their magnitudes, what y should be and the
 * sum_k |x w| + |bias| by which the bound of an element is measured (m, n). */
struct comparison {
    float *x;
    double *x_magnitudes;
    double *expected;
    double *y_magnitudes;
};

static void fill_y_magnitudes(const struct gk_canonical *canonical, uint32_t m,
                              struct comparison *comparison)
{
    const struct gk_desc *desc = &canonical->desc;
    double *w = calloc(desc->k, sizeof(*w));
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
            w[i_k] = fabs(canonical_value_at(canonical, i_n, i_k));
        }
        for (uint64_t i_m = 0; i_m < m; i_m++) {
            double sum = fabs(gk_canonical_bias(canonical, i_n));
            for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
                sum += comparison->x_magnitudes[i_m * desc->k + i_k] * w[i_k];
            }
            comparison->y_magnitudes[i_m * desc->n + i_n] = sum;
        }
    }
    free(w);
}

static void comparison_init(struct comparison *comparison, const struct gk_canonical *canonical,
                            const struct rows_case *x)
{
    const struct gk_desc *desc = &canonical->desc;
    comparison->x = calloc((uint64_t)x->m * desc->k, sizeof(float));
    comparison->x_magnitudes = calloc((uint64_t)x->m * desc->k, sizeof(double));
    comparison->expected = calloc((uint64_t)x->m * desc->n, sizeof(double));
    comparison->y_magnitudes = calloc((uint64_t)x->m * desc->n, sizeof(double));
    for (uint64_t i_m = 0; i_m < x->m; i_m++) {
        float *row = comparison->x + i_m * desc->k;
        for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
            row[i_k] = (float)elem_load(x->rows[i_m], x->dtype, i_k);
        }
        fill_magnitudes(canonical, row, comparison->x_magnitudes + i_m * desc->k);
    }
    assert_int_equal(
        gk_reference_gemm(canonical, comparison->x, DTYPE_F32, desc->k, x->m, comparison->expected),
        0);
    fill_y_magnitudes(canonical, x->m, comparison);
}

static void comparison_finish(struct comparison *comparison)
{
    free(comparison->x);
    free(comparison->x_magnitudes);
    free(comparison->expected);
    free(comparison->y_magnitudes);
}

struct errors reference_errors(const struct gk_canonical *canonical, const struct rows_case *x,
                               const struct rows_case *y)
{
    const struct gk_desc *desc = &canonical->desc;
    struct comparison comparison;
    double error = 0, norm = 0, worst_share = 0;
    comparison_init(&comparison, canonical, x);
    for (uint64_t i = 0; i < (uint64_t)x->m * desc->n; i++) {
        double value = elem_load(y->rows[i / desc->n], y->dtype, i % desc->n);
        double expected = comparison.expected[i];
        if (!isfinite(expected)) {
            assert_false(isfinite(value));
            continue;
        }
        double bound = sum_bound(desc) * comparison.y_magnitudes[i] +
                       rounding(y->dtype) * (1 + 0x1p-10) * fabs(expected) + 0x1p-25;
        worst_share = fmax(worst_share, fabs(value - expected) / bound);
        error += (value - expected) * (value - expected);
        norm += expected * expected;
    }
    comparison_finish(&comparison);
    return (struct errors){error == 0 ? 0 : sqrt(error / norm), worst_share};
}

void assert_near_reference(const struct gk_canonical *canonical, const struct rows_case *x,
                           const struct rows_case *y)
{
    struct errors errors = reference_errors(canonical, x, y);
    if (!(errors.worst_share <= 1) || !(errors.frobenius <= frobenius_tolerance(y->dtype))) {
        char text[64];
        gk_desc_format(&canonical->desc, text, sizeof(text));
        fail_msg("%s, %u x %u, m %u, y %s: relative error %.3g, worst element at %.2f of the bound",
                 text, canonical->desc.n, canonical->desc.k, x->m, dtype_name(y->dtype),
                 errors.frobenius, errors.worst_share);
    }
}
