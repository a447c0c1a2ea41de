/* weight.c - see weight.h. */
#include "tests/gpu/weight.h"

#include <stdlib.h>

static void permute(struct gk_canonical *canonical, struct random *random)
{
    for (uint32_t i = 0; i < canonical->desc.k; i++) {
        canonical->perm[i] = i;
    }
    for (uint32_t i = canonical->desc.k - 1; i > 0; i--) {
        uint32_t other = random_next(random) % (i + 1);
        uint32_t kept = canonical->perm[i];
        canonical->perm[i] = canonical->perm[other];
        canonical->perm[other] = kept;
    }
}

void gpu_weight_fill(struct gk_canonical *canonical, struct random *random)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    for (uint64_t i = 0; desc->has_zeros && i < n_scales; i++) {
        canonical->zeros[i] = random_next(random) & ((1u << gk_code_bits(desc->code)) - 1);
    }
    if (desc->has_perm) {
        permute(canonical, random);
    }
    for (uint32_t i = 0; canonical->column_scales != NULL && i < desc->n; i++) {
        canonical->column_scales[i] = (float)(1.5 + random_unit(random));
    }
}

void *gpu_weight_upload(const struct gk_canonical *canonical, const struct gk_layout *layout)
{
    uint64_t size_bytes = layout->packed_bytes(&canonical->desc);
    void *packed = aligned_alloc(64, size_bytes);
    void *on_gpu;
    assert_non_null(packed);
    layout->pack(canonical, packed);
    assert_cuda(cudaMalloc(&on_gpu, size_bytes));
    assert_cuda(cudaMemcpy(on_gpu, packed, size_bytes, cudaMemcpyHostToDevice));
    free(packed);
    return on_gpu;
}

char *random_elems(uint64_t n, enum dtype dtype, struct random *random)
{
    char *elems = malloc(n * dtype_bytes(dtype));
    assert_non_null(elems);
    for (uint64_t i = 0; i < n; i++) {
        elem_store(elems, dtype, i, random_unit(random));
    }
    return elems;
}
