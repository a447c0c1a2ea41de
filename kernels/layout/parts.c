/* parts.c - see parts.h. */
#include "kernels/layout/parts.h"

#include <stddef.h>
#include <string.h>

#include "ipc/base/num.h"

#define PART_ALIGNMENT 256u
#define N_PARTS        5u

struct part {
    void *canonical; /* NULL: absent */
    uint64_t offset;
    uint64_t n_bytes;
};

uint64_t parts_reserve(uint64_t *total_bytes, uint64_t n_elems, uint64_t elem_bytes)
{
    uint64_t offset = *total_bytes;
    *total_bytes = num_align_up(offset + n_elems * elem_bytes, PART_ALIGNMENT);
    return offset;
}

static void list(const struct gk_canonical *canonical, const struct parts *parts,
                 struct part ret_parts[N_PARTS])
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    ret_parts[0] = (struct part){canonical->scales, parts->scales_offset,
                                 n_scales * dtype_bytes(desc->scale_dtype)};
    ret_parts[1] = (struct part){canonical->zeros, parts->zeros_offset, n_scales};
    ret_parts[2] = (struct part){canonical->perm, parts->perm_offset, desc->k * sizeof(uint32_t)};
    ret_parts[3] = (struct part){canonical->column_scales, parts->column_scales_offset,
                                 desc->n * sizeof(float)};
    ret_parts[4] = (struct part){canonical->bias, parts->bias_offset,
                                 (uint64_t)desc->n * dtype_bytes(desc->bias_dtype)};
}

void parts_pack(const struct gk_canonical *canonical, const struct parts *parts, void *packed)
{
    struct part all[N_PARTS];
    list(canonical, parts, all);
    for (uint32_t i = 0; i < N_PARTS; i++) {
        if (all[i].canonical != NULL) {
            memcpy((char *)packed + all[i].offset, all[i].canonical, all[i].n_bytes);
        }
    }
}

void parts_unpack(const void *packed, const struct parts *parts, struct gk_canonical *canonical)
{
    struct part all[N_PARTS];
    list(canonical, parts, all);
    for (uint32_t i = 0; i < N_PARTS; i++) {
        if (all[i].canonical != NULL) {
            memcpy(all[i].canonical, (const char *)packed + all[i].offset, all[i].n_bytes);
        }
    }
}
