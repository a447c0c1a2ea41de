/* checkpoint.h - the demo's own reader of a GPTQ checkpoint, so that what the daemon serves is
 * judged by something that shares no code with it. Single-file safetensors, 4 bit, v1, no
 * act-order. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct layer {
    char name[200]; /* module path */
    uint32_t n;
    uint32_t k;
    double *weight; /* (n, k), dequantised */
    double *bias;   /* (n); zeros without one */
};

struct checkpoint {
    struct layer *layers;
    size_t n_layers;
};

/* checkpoint_read() - every module of DIR/model.safetensors that has a qweight. On failure prints
 * one line to standard error and returns -1. */
int checkpoint_read(const char *dir, struct checkpoint *ret_checkpoint);
void checkpoint_finish(struct checkpoint *checkpoint);

/* layer_product() - y = x W^T + bias in double; x (k), y (n). */
void layer_product(const struct layer *layer, const float *x, double *y);
