/* reference.c - the slow exact GEMM that everything else is measured against.
 *
 * Double all the way: a product of a dequantised weight (28 significant bits at most) and an f32
 * activation (24) is exact in double, so only the additions round. */
#include <string.h>

#include "gk/gk.h"
#include "ipc/base/num.h"
#include "kernels/canonical.h"
#include "kernels/scalar.h"

#define K_STEP 64u

/* A step of k: the weights of one column and the elements of x that they multiply. */
struct step {
    uint32_t n_k;
    double w[K_STEP];
    uint32_t i_x[K_STEP];
};

static void fill_step(const struct gk_canonical *canonical, uint32_t i_n, uint32_t i_k,
                      struct step *step)
{
    step->n_k = (uint32_t)num_min(K_STEP, canonical->desc.k - i_k);
    for (uint32_t i = 0; i < step->n_k; i++) {
        step->w[i] = canonical_value_at(canonical, i_n, i_k + i);
        step->i_x[i] = canonical->desc.has_perm ? canonical->perm[i_k + i] : i_k + i;
    }
}

static void add_step(const struct step *step, const void *x, enum dtype x_dtype, uint64_t i_row,
                     double *sum)
{
    for (uint32_t i = 0; i < step->n_k; i++) {
        *sum += (double)scalar_load(x, x_dtype, i_row + step->i_x[i]) * step->w[i];
    }
}

/* One column of y. The weights of a step of k are dequantised once for all rows. */
static void column(const struct gk_canonical *canonical, uint32_t i_n, const void *x,
                   enum dtype x_dtype, uint64_t x_stride_elems, uint32_t m, double *y)
{
    uint32_t n = canonical->desc.n;
    uint32_t k = canonical->desc.k;
    for (uint32_t i_k = 0; i_k < k; i_k += K_STEP) {
        struct step step;
        fill_step(canonical, i_n, i_k, &step);
        for (uint32_t i_m = 0; i_m < m; i_m++) {
            add_step(&step, x, x_dtype, i_m * x_stride_elems, &y[(uint64_t)i_m * n + i_n]);
        }
    }
    if (canonical->bias != NULL) {
        for (uint32_t i_m = 0; i_m < m; i_m++) {
            y[(uint64_t)i_m * n + i_n] += gk_canonical_bias(canonical, i_n);
        }
    }
}

void gk_reference_gemm(const struct gk_canonical *canonical, const void *x, enum dtype x_dtype,
                       uint64_t x_stride_elems, uint32_t m, double *y)
{
    memset(y, 0, sizeof(*y) * m * canonical->desc.n);
    for (uint32_t i_n = 0; i_n < canonical->desc.n; i_n++) {
        column(canonical, i_n, x, x_dtype, x_stride_elems, m, y);
    }
}
