/* reference.c - the slow exact GEMM that everything else is measured against.
 *
 * Double all the way: a product of a dequantised weight (28 significant bits at most) and an f32
 * activation (24) is exact in double, so only the additions round. */
#include <string.h>

#include "gk/gk.h"
#include "ipc/base/num.h"
#include "kernels/scalar.h"

#define K_STEP 64u

static void add_step(const double *w, const void *x, enum dtype x_dtype, uint64_t i_x, uint32_t n_k,
                     double *sum)
{
    for (uint32_t i = 0; i < n_k; i++) {
        *sum += (double)scalar_load(x, x_dtype, i_x + i) * w[i];
    }
}

/* One column of y. The weights of a step of k are dequantised once for all rows. */
static void column(const struct gk_canonical *canonical, uint32_t i_n, const void *x,
                   enum dtype x_dtype, uint64_t x_stride_elems, uint32_t m, double *y)
{
    uint32_t n = canonical->desc.n;
    uint32_t k = canonical->desc.k;
    for (uint32_t i_k = 0; i_k < k; i_k += K_STEP) {
        double w[K_STEP];
        uint32_t n_k = (uint32_t)num_min(K_STEP, k - i_k);
        for (uint32_t i = 0; i < n_k; i++) {
            w[i] = gk_canonical_value(canonical, i_n, i_k + i);
        }
        for (uint32_t i_m = 0; i_m < m; i_m++) {
            add_step(w, x, x_dtype, i_m * x_stride_elems + i_k, n_k, &y[(uint64_t)i_m * n + i_n]);
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
