/* product.c - see product.h.
 *
 * Two bounds are held against the float64 reference: each element may be off by what k additions in
 * binary32 can do to terms of that size, and the whole product by its relative Frobenius error,
 * which a lost or doubled term would blow up by orders of magnitude. */
#include "tests/harness/product.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/half.h"

#define GAP_BYTE 0x5a

static uint32_t element_bytes(enum gemmd_dtype dtype)
{
    return dtype == GEMMD_F32 ? 4 : 2;
}

static void element_put(void *data, enum gemmd_dtype dtype, uint64_t i, float value)
{
    if (dtype == GEMMD_F32) {
        ((float *)data)[i] = value;
        return;
    }
    ((uint16_t *)data)[i] = dtype == GEMMD_F16 ? half_from_f32(value) : bf16_from_f32(value);
}

static double element_get(const void *data, enum gemmd_dtype dtype, uint64_t i)
{
    if (dtype == GEMMD_F32) {
        return (double)((const float *)data)[i];
    }
    uint16_t bits = ((const uint16_t *)data)[i];
    return (double)(dtype == GEMMD_F16 ? half_to_f32(bits) : bf16_to_f32(bits));
}

/* ---- making ---- */

static void fill_x(struct product *product, uint64_t seed)
{
    void *x = gemmd_buffer_data(product->x);
    memset(x, 0xff, gemmd_buffer_bytes(product->x)); /* a NaN in every element type */
    for (uint32_t i_m = 0; i_m < product->gemm.m; i_m++) {
        uint64_t random = (seed + i_m) * 0x9e3779b97f4a7c15ull + 1;
        for (uint32_t i_k = 0; i_k < product->handle.k; i_k++) {
            element_put(x, product->gemm.x_dtype, i_m * product->x_stride + i_k,
                        (float)test_random_unit(&random));
        }
    }
}

/* The daemon's memory where the CPU reaches it, else host memory of this process. On a GPU not even
 * asked for, as tests that fork after their first product may not use CUDA. */
static bool make_buffer(gemmd_client_t *client, uint32_t device, uint64_t n_bytes,
                        gemmd_buffer_t **ret_buffer)
{
    bool has_gpu = getenv("GEMMD_TEST_GPU") != NULL; /* set by tests/gpu/run */
    int r = has_gpu ? gemmd_buffer_alloc_host(client, device, n_bytes, ret_buffer)
                    : gemmd_buffer_alloc(client, device, n_bytes, ret_buffer);
    return r == GEMMD_OK;
}

static bool make_buffers(struct product *product, gemmd_client_t *client)
{
    uint64_t n_rows = product->gemm.m > 0 ? product->gemm.m : 1;
    uint64_t x_bytes = n_rows * product->x_stride * element_bytes(product->gemm.x_dtype);
    uint64_t y_bytes = n_rows * product->y_stride * element_bytes(product->gemm.y_dtype);
    uint32_t device = product->handle.device_index;
    return make_buffer(client, device, x_bytes, &product->x) &&
           make_buffer(client, device, y_bytes, &product->y);
}

bool product_init(struct product *product, gemmd_client_t *client, const char *model,
                  const struct test_weight *weight, const struct product_shape *shape)
{
    char name[256];
    memset(product, 0, sizeof(*product));
    product->weight = weight;
    product->handle = (gemmd_weight_t)GEMMD_WEIGHT_INIT;
    (void)snprintf(name, sizeof(name), "%s/%s", model, weight->module);
    if (gemmd_find_weight(client, name, &product->handle) != GEMMD_OK) {
        (void)fprintf(stderr, "%s: %s\n", name, gemmd_last_error());
        return false;
    }
    product->x_stride = (uint64_t)product->handle.k + shape->x_gap;
    product->y_stride = (uint64_t)product->handle.n + shape->y_gap;
    product->gemm = (struct gemmd_gemm)GEMMD_GEMM_INIT;
    product->gemm.m = shape->m;
    product->gemm.x_dtype = shape->x_dtype;
    product->gemm.y_dtype = shape->y_dtype;
    if (!make_buffers(product, client)) {
        (void)fprintf(stderr, "buffers for m %u: %s\n", shape->m, gemmd_last_error());
        product_finish(product);
        return false;
    }
    product->gemm.weight = &product->handle;
    product->gemm.x = product->x;
    product->gemm.x_stride = product->x_stride;
    product->gemm.y = product->y;
    product->gemm.y_stride = product->y_stride;
    fill_x(product, shape->seed);
    product_clear(product);
    return true;
}

void product_finish(struct product *product)
{
    gemmd_buffer_free(product->x);
    gemmd_buffer_free(product->y);
    product->x = product->y = NULL;
}

void product_clear(struct product *product)
{
    memset(gemmd_buffer_data(product->y), GAP_BYTE, gemmd_buffer_bytes(product->y));
}

bool product_run(struct product *product, gemmd_client_t *client)
{
    if (gemmd_gemm(client, &product->gemm) != GEMMD_OK) {
        (void)fprintf(stderr, "m %u of '%s': %s\n", product->gemm.m, product->handle.name,
                      gemmd_last_error());
        return false;
    }
    return true;
}

/* y as the buffer has it, in memory of the caller's; NULL where anything is refused. */
static float *multiply(gemmd_client_t *client, struct gemmd_gemm *gemm, const float *x,
                       uint64_t x_bytes, uint64_t y_bytes)
{
    memcpy(gemmd_buffer_data(gemm->x), x, x_bytes);
    float *y = gemmd_gemm(client, gemm) == GEMMD_OK ? malloc(y_bytes) : NULL;
    if (y != NULL) {
        memcpy(y, gemmd_buffer_data(gemm->y), y_bytes);
    }
    return y;
}

float *product_of_rows(gemmd_client_t *client, const gemmd_weight_t *weight, const float *x,
                       uint32_t m)
{
    uint64_t x_bytes = (uint64_t)m * weight->k * sizeof(*x);
    uint64_t y_bytes = (uint64_t)m * weight->n * sizeof(*x);
    struct gemmd_gemm gemm = GEMMD_GEMM_INIT;
    gemm.weight = weight;
    gemm.m = m;
    bool has_buffers = make_buffer(client, weight->device_index, x_bytes, &gemm.x) &&
                       make_buffer(client, weight->device_index, y_bytes, &gemm.y);
    float *y = has_buffers ? multiply(client, &gemm, x, x_bytes, y_bytes) : NULL;
    if (y == NULL) {
        (void)fprintf(stderr, "m %u of '%s': %s\n", m, weight->name, gemmd_last_error());
    }
    gemmd_buffer_free(gemm.x);
    gemmd_buffer_free(gemm.y);
    return y;
}

/* ---- judging ---- */

/* Rounding of the result to the type of y. */
static double unit_roundoff(enum gemmd_dtype dtype)
{
    return dtype == GEMMD_F32 ? 0x1p-24 : dtype == GEMMD_F16 ? 0x1p-11 : 0x1p-8;
}

/* The largest sum of |x| |w| that any order of adding could see: codes count with their zero point
 * taken off or not. */
static double term_sum(const struct product *product, uint32_t i_m, uint32_t i_n)
{
    const struct gk_canonical *canonical = &product->weight->canonical;
    const void *x = gemmd_buffer_data(product->x);
    double sum = fabs(gk_canonical_bias(canonical, i_n));
    double largest = 0;
    for (uint32_t i_k = 0; i_k < product->handle.k; i_k++) {
        largest = fmax(largest, fabs(gk_canonical_value(canonical, i_n, i_k)));
        sum += fabs(element_get(x, product->gemm.x_dtype, i_m * product->x_stride + i_k)) * largest;
    }
    return 2 * sum;
}

/* A GPU may round the weights of a prefill to the type that x and y have. */
static double weight_roundoff(const struct product *product)
{
    const struct gemmd_gemm *gemm = &product->gemm;
    bool may_round = getenv("GEMMD_TEST_GPU") != NULL && gemm->m > GK_BATCH_ROWS_MAX &&
                     gemm->x_dtype == gemm->y_dtype;
    return may_round ? unit_roundoff(gemm->x_dtype) / 2 : 0;
}

static bool values_are_right(const struct product *product, const double *reference)
{
    double roundoff = unit_roundoff(product->gemm.y_dtype);
    double term_roundoff = product->handle.k * 0x1p-24 + weight_roundoff(product);
    double error_squares = 0;
    double squares = 0;
    const void *y = gemmd_buffer_data(product->y);
    for (uint32_t i_m = 0; i_m < product->gemm.m; i_m++) {
        for (uint32_t i_n = 0; i_n < product->handle.n; i_n++) {
            double expected = reference[(uint64_t)i_m * product->handle.n + i_n];
            double got = element_get(y, product->gemm.y_dtype, i_m * product->y_stride + i_n);
            double error = fabs(got - expected);
            double bound =
                roundoff * fabs(expected) + 0x1p-24 + term_roundoff * term_sum(product, i_m, i_n);
            if (!(error <= bound)) {
                (void)fprintf(stderr, "m %u: y[%u][%u] is %.9g, not %.9g (bound %.3g)\n",
                              product->gemm.m, i_m, i_n, got, expected, bound);
                return false;
            }
            error_squares += error * error;
            squares += expected * expected;
        }
    }
    double limit = 2 * roundoff + 4e-6;
    double relative = squares > 0 ? sqrt(error_squares / squares) : 0;
    if (relative > limit) {
        (void)fprintf(stderr, "m %u: relative error %.3g over %.3g\n", product->gemm.m, relative,
                      limit);
    }
    return relative <= limit;
}

static bool gaps_are_untouched(const struct product *product)
{
    uint32_t bytes = element_bytes(product->gemm.y_dtype);
    const uint8_t *y = gemmd_buffer_data(product->y);
    for (uint64_t i = 0; i < gemmd_buffer_bytes(product->y); i++) {
        bool is_gap = i / bytes % product->y_stride >= product->handle.n ||
                      i / bytes / product->y_stride >= product->gemm.m;
        if (is_gap && y[i] != GAP_BYTE) {
            (void)fprintf(stderr, "m %u: byte %ju of y, between rows, was written\n",
                          product->gemm.m, (uintmax_t)i);
            return false;
        }
    }
    return true;
}

bool product_is_right(const struct product *product)
{
    double *reference =
        malloc(((size_t)product->gemm.m * product->handle.n + 1) * sizeof(*reference));
    if (reference == NULL) {
        return false;
    }
    int r = gk_reference_gemm(&product->weight->canonical, gemmd_buffer_data(product->x),
                              (enum dtype)product->gemm.x_dtype, product->x_stride, product->gemm.m,
                              reference);
    bool is_right = r == 0 && values_are_right(product, reference) && gaps_are_untouched(product);
    free(reference);
    return is_right;
}

bool product_same_bytes(const struct product *a, const struct product *b)
{
    return gemmd_buffer_bytes(a->y) == gemmd_buffer_bytes(b->y) &&
           memcmp(gemmd_buffer_data(a->y), gemmd_buffer_data(b->y), gemmd_buffer_bytes(a->y)) == 0;
}

bool product_same_row(const struct product *a, uint32_t i_a, const struct product *b, uint32_t i_b)
{
    size_t bytes = element_bytes(a->gemm.y_dtype);
    const char *y_a = gemmd_buffer_data(a->y);
    const char *y_b = gemmd_buffer_data(b->y);
    return a->gemm.y_dtype == b->gemm.y_dtype &&
           memcmp(y_a + i_a * a->y_stride * bytes, y_b + i_b * b->y_stride * bytes,
                  a->handle.n * bytes) == 0;
}
