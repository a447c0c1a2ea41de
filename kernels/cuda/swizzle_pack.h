/* swizzle_pack.h - between pack.c and the device code that packs weights of 8-bit activations. */
#pragma once

#include <stdint.h>

#include "kernels/cuda/pack_source.h"

/* One weight. Addresses are the device's; the target is zeroed. */
struct swizzle_pack {
    struct pack_source source;
    uint32_t n_groups; /* of rows */
    uint32_t n_blocks; /* of k */
    uint8_t *atoms;
    int32_t *code_sums; /* NULL: codes are no integers */
};

#ifdef __cplusplus
extern "C" {
#endif

/* swizzle_pack_enqueue() - all codes, and what they sum to, on a stream. 0 or a cudaError.
 * swizzle_pack_load() - once a device, before. */
int swizzle_pack_enqueue(const struct swizzle_pack *pack, void *stream);
int swizzle_pack_load(void);

#ifdef __cplusplus
}
#endif
