/* strip_pack.h - between pack.c and the device code that packs weights into strips. */
#pragma once

#include <stdint.h>

#include "ipc/base/dtype.h"
#include "kernels/cuda/pack_source.h"
#include "kernels/layout/strip.h"

/* One weight. Addresses are the device's; the target is zeroed. */
struct strip_pack {
    struct pack_source source;
    struct strip_records lie;
    uint8_t *records;
    enum strip_scaling scaling;
    uint32_t n_slice_groups;
    uint32_t packed_group_k; /* of scales */
    uint32_t group_n;
    uint32_t group_k;
    uint32_t scale_columns;
    uint32_t padding_code;
    uint32_t is_float;
    uint32_t is_one; /* scales lie behind the records, which have 1 */
    enum dtype scale_dtype;
    const void *scales;   /* canonical */
    const uint8_t *zeros; /* NULL: none */
};

#ifdef __cplusplus
extern "C" {
#endif

/* strip_pack_enqueue() - codes, scales and zero points into the records, on a stream. 0 or a
 * cudaError. strip_pack_load() - once a device, before. */
int strip_pack_enqueue(const struct strip_pack *pack, void *stream);
int strip_pack_load(void);

#ifdef __cplusplus
}
#endif
