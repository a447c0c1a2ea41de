/* reference.c - see reference.h. */
#include "deploy/demo/reference.h"

#include <math.h>
#include <stdlib.h>

#include "deploy/demo/values.h"

enum { ACCUMULATION_SPAN = 128, OTHER_ROUNDINGS = 4 };

/* The smallest step of f16, twice what rounding can lose where it has no exponent left. */
static const double smallest_step = 0x1p-24;

/* splitmix64: a bijection of a counter, good enough to fill rows. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* One output column of every row: the weights of a column are dequantised once. */
static void multiply_column(struct reference *reference, const struct layer *layer, uint32_t i_n,
                            double *column)
{
    double bias = layer->bias ? value_of_f16(layer->bias[i_n]) : 0.0;

    for (uint32_t i_k = 0; i_k < layer->k; i_k++) {
        column[i_k] = layer_weight(layer, i_n, i_k);
    }
    for (uint32_t row = 0; row < REFERENCE_ROWS; row++) {
        const float *x = reference->x + (size_t)row * layer->k;
        double sum = bias, absolute = fabs(bias);

        for (uint32_t i_k = 0; i_k < layer->k; i_k++) {
            double product = (double)x[i_k] * column[i_k];

            sum += product;
            absolute += fabs(product);
        }
        reference->y[(size_t)row * layer->n + i_n] = sum;
        reference->absolute[(size_t)row * layer->n + i_n] = absolute;
    }
}

bool reference_init(struct reference *reference, const struct layer *layer, uint64_t seed)
{
    size_t n_x = (size_t)REFERENCE_ROWS * layer->k, n_y = (size_t)REFERENCE_ROWS * layer->n;
    double *column = malloc(layer->k * sizeof(*column));

    reference->x = malloc(n_x * sizeof(*reference->x));
    reference->y = malloc(n_y * sizeof(*reference->y));
    reference->absolute = malloc(n_y * sizeof(*reference->absolute));
    if (!column || !reference->x || !reference->y || !reference->absolute) {
        free(column);
        return false;
    }
    for (size_t i = 0; i < n_x; i++) {
        reference->x[i] = (float)((int)(next_random(&seed) >> 56) - 128) / 64.0f;
    }
    for (uint32_t i_n = 0; i_n < layer->n; i_n++) {
        multiply_column(reference, layer, i_n, column);
    }
    free(column);
    return true;
}

void reference_finish(struct reference *reference)
{
    free(reference->x);
    free(reference->y);
    free(reference->absolute);
    *reference = (struct reference){0};
}

void reference_check(const struct reference *reference, const struct layer *layer, uint32_t i_row,
                     uint32_t m, const void *y, enum gemmd_dtype dtype, struct error_sum *sum)
{
    double n_roundings = ACCUMULATION_SPAN + layer->k / ACCUMULATION_SPAN + OTHER_ROUNDINGS;
    size_t first = (size_t)i_row * layer->n;

    for (size_t i = 0; i < (size_t)m * layer->n; i++) {
        double expected = reference->y[first + i];
        double accumulation = n_roundings * 0x1p-24 * reference->absolute[first + i];
        double rounding = value_roundoff(dtype) * (fabs(expected) + accumulation) + smallest_step;
        double error = fabs(value_load(y, dtype, i) - expected);
        double share = error / (accumulation + rounding);

        sum->n_elements++;
        sum->n_wrong += !(share <= 1.0);
        sum->worst_share = share <= sum->worst_share ? sum->worst_share : share;
        sum->squared_error += error * error;
        sum->squared_product += expected * expected;
    }
}
