/* strip_pack.c - packing on the GPU: what strip_pack.cu is told of a weight, and the parts outside
 * the records, which are copies. */
#include <assert.h>
#include <cuda_runtime_api.h>
#include <stddef.h>

#include "gk/cuda.h"
#include "gk/gk.h"
#include "ipc/base/num.h"
#include "kernels/cuda/strip_pack.h"
#include "kernels/layout/cuda_strip.h"

static_assert(GK_CODE_ORDER_GPTQ == 1 && GK_CODE_ORDER_AWQ == 2 && GK_CODE_ORDER_CT_PACKED == 3 &&
                  GK_CODE_ORDER_INT8 == 4 && GK_CODE_ORDER_FP8 == 5 && GK_CODE_ORDER_FP4 == 6,
              "strip_pack.cu counts the orders so");
static_assert(STRIP_PACK_PARTS_MAX == GK_CUDA_PARTS_MAX, "the table of parts");

bool gk_cuda_can_pack(const struct gk_layout *layout)
{
    return cuda_strip_is_layout(layout);
}

int gk_cuda_pack_load(void)
{
    return strip_pack_load();
}

/* From a line of the tensor to the next: in words where it has words, else in bytes. */
static uint32_t row_stride(const struct gk_codes *codes, uint32_t code_bits)
{
    switch (codes->order) {
    case GK_CODE_ORDER_GPTQ:
        return codes->tensor_n;
    case GK_CODE_ORDER_AWQ:
        return codes->tensor_n / 8;
    case GK_CODE_ORDER_CT_PACKED:
        return (uint32_t)num_div_up(codes->tensor_k, 32 / code_bits);
    case GK_CODE_ORDER_FP4:
        return codes->tensor_k / 2;
    default:
        return codes->tensor_k;
    }
}

static struct strip_pack pack_of(const struct gk_canonical *rest, const struct strip_shape *shape,
                                 uint8_t *packed, uint32_t *n_damaged)
{
    const struct gk_desc *desc = &rest->desc;
    bool is_centred = gk_code_is_int(desc->code) && !desc->has_zeros;
    return (struct strip_pack){
        .lie = strip_records_of(shape, packed),
        .records = packed + shape->records_offset,
        .scaling = shape->scaling,
        .n_slice_groups = shape->n_slice_groups,
        .packed_group_k = shape->packed_group_k,
        .n = desc->n,
        .k = desc->k,
        .group_n = desc->group_n,
        .group_k = desc->group_k,
        .scale_columns = gk_desc_scale_columns(desc),
        .padding_code = is_centred ? 1u << (shape->code_bits - 1) : 0,
        .is_float = !gk_code_is_int(desc->code),
        .is_one = shape->has_row_scales,
        .scale_dtype = desc->scale_dtype,
        .scales = rest->scales,
        .zeros = rest->zeros,
        .perm = desc->has_perm ? rest->perm : NULL,
        .n_damaged = n_damaged,
    };
}

int gk_cuda_pack(const struct gk_canonical *rest, const struct gk_codes *parts, uint32_t n_parts,
                 void *packed, uint32_t *n_damaged, void *stream)
{
    struct strip_shape shape = strip_shape(&rest->desc);
    struct strip_pack pack = pack_of(rest, &shape, packed, n_damaged);
    for (uint32_t i = 0; i < n_parts; i++) {
        pack.parts[i] = (struct strip_pack_part){
            .bytes = parts[i].bytes,
            .order = parts[i].order,
            .row_stride = row_stride(&parts[i], shape.code_bits),
            .first_n = parts[i].first_n,
            .first_k = parts[i].first_k,
            .to_n = parts[i].to_n,
        };
    }
    pack.n_parts = n_parts;
    struct strip_part copies[STRIP_PARTS];
    strip_list_parts(rest, &shape, copies);
    int r = strip_pack_enqueue(&pack, stream);
    for (uint32_t i = 0; r == cudaSuccess && i < STRIP_PARTS; i++) {
        if (copies[i].n_bytes > 0) {
            r = cudaMemcpyAsync((uint8_t *)packed + copies[i].offset, copies[i].canonical,
                                copies[i].n_bytes, cudaMemcpyDeviceToDevice, stream);
        }
    }
    return r;
}
