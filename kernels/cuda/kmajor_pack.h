/* kmajor_pack.h - between pack.c and the device code that packs weights k by k. */
#pragma once

#include "kernels/cuda/pack_source.h"

/* One weight. Addresses are the device's; the target is zeroed. */
struct kmajor_pack {
    struct pack_source source;
    uint32_t code_bits;
    uint32_t n_stride; /* codes from a row to the next */
    void *rows;
};

#ifdef __cplusplus
extern "C" {
#endif

/* kmajor_pack_enqueue() - all codes, on a stream. 0 or a cudaError. kmajor_pack_load() - once a
 * device, before. */
int kmajor_pack_enqueue(const struct kmajor_pack *pack, void *stream);
int kmajor_pack_load(void);

#ifdef __cplusplus
}
#endif
