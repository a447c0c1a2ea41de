/* parts.c - see parts.h. */
#include "kernels/layout/parts.h"

#include <stddef.h>
#include <string.h>

#include "ipc/base/num.h"

#define PART_ALIGNMENT 256u

uint64_t parts_reserve(uint64_t *total_bytes, uint64_t n_elems, uint64_t elem_bytes)
{
    uint64_t offset = *total_bytes;
    *total_bytes = num_align_up(offset + n_elems * elem_bytes, PART_ALIGNMENT);
    return offset;
}

static struct part part_of(void *canonical, uint64_t offset, uint64_t n_bytes)
{
    return (struct part){canonical, offset, canonical != NULL ? n_bytes : 0};
}

void parts_list(const struct gk_canonical *canonical, const struct parts *parts,
                struct part ret_list[PARTS_MAX])
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    ret_list[0] =
        part_of(canonical->scales, parts->scales_offset, n_scales * dtype_bytes(desc->scale_dtype));
    ret_list[1] = part_of(canonical->zeros, parts->zeros_offset, n_scales);
    ret_list[2] = part_of(canonical->perm, parts->perm_offset, desc->k * sizeof(uint32_t));
    ret_list[3] =
        part_of(canonical->column_scales, parts->column_scales_offset, desc->n * sizeof(float));
    ret_list[4] = part_of(canonical->bias, parts->bias_offset,
                          (uint64_t)desc->n * dtype_bytes(desc->bias_dtype));
}

void parts_pack(const struct part list[PARTS_MAX], void *packed)
{
    for (uint32_t i = 0; i < PARTS_MAX; i++) {
        if (list[i].n_bytes > 0) {
            memcpy((char *)packed + list[i].offset, list[i].canonical, list[i].n_bytes);
        }
    }
}

void parts_unpack(const void *packed, const struct part list[PARTS_MAX])
{
    for (uint32_t i = 0; i < PARTS_MAX; i++) {
        if (list[i].n_bytes > 0) {
            memcpy(list[i].canonical, (const char *)packed + list[i].offset, list[i].n_bytes);
        }
    }
}
