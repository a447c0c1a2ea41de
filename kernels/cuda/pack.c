/* pack.c - packing on the GPU: what each layout's device code is told of a weight, and the parts
 * that are copies. */
#include <assert.h>
#include <cuda_runtime_api.h>
#include <stddef.h>

#include "gk/cuda.h"
#include "gk/gk.h"
#include "ipc/base/check.h"
#include "ipc/base/num.h"
#include "kernels/cuda/kmajor_pack.h"
#include "kernels/cuda/strip_pack.h"
#include "kernels/cuda/swizzle_pack.h"
#include "kernels/layout/cuda_kmajor.h"
#include "kernels/layout/cuda_strip.h"
#include "kernels/layout/cuda_swizzle.h"

static_assert(GK_CODE_ORDER_GPTQ == 1 && GK_CODE_ORDER_AWQ == 2 && GK_CODE_ORDER_CT_PACKED == 3 &&
                  GK_CODE_ORDER_INT8 == 4 && GK_CODE_ORDER_FP8 == 5 && GK_CODE_ORDER_FP4 == 6 &&
                  GK_CODE_ORDER_PLAIN == 7,
              "pack_source.cuh counts the orders so");
static_assert(PACK_PARTS_MAX == GK_CUDA_PARTS_MAX, "the table of parts");

int gk_cuda_pack_load(void)
{
    int r = strip_pack_load();
    r = r != cudaSuccess ? r : swizzle_pack_load();
    return r != cudaSuccess ? r : kmajor_pack_load();
}

/* From a line of the tensor to the next: in words where it has words, else in elements or bytes. */
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

static struct pack_source source_of(const struct gk_canonical *rest, const struct gk_codes *parts,
                                    uint32_t n_parts, uint32_t *n_damaged)
{
    const struct gk_desc *desc = &rest->desc;
    struct pack_source source = {
        .n = desc->n,
        .k = desc->k,
        .perm = desc->has_perm ? rest->perm : NULL,
        .n_damaged = desc->code == GK_CODE_E4M3 ? n_damaged : NULL,
        .n_parts = n_parts,
    };
    for (uint32_t i = 0; i < n_parts; i++) {
        source.parts[i] = (struct pack_part){
            .bytes = parts[i].bytes,
            .order = parts[i].order,
            .row_stride = row_stride(&parts[i], gk_code_bits(desc->code)),
            .first_n = parts[i].first_n,
            .first_k = parts[i].first_k,
            .to_n = parts[i].to_n,
        };
    }
    return source;
}

/* ---- each layout: its launches, and the list of its copies ---- */

static int pack_strips(const struct gk_canonical *rest, const struct pack_source *source,
                       uint8_t *packed, void *stream, struct part ret_list[PARTS_MAX])
{
    const struct gk_desc *desc = &rest->desc;
    struct strip_shape shape = strip_shape(desc);
    bool is_centred = gk_code_is_int(desc->code) && !desc->has_zeros;
    const struct strip_pack pack = {
        .source = *source,
        .lie = strip_records_of(&shape, packed),
        .records = packed + shape.records_offset,
        .scaling = shape.scaling,
        .n_slice_groups = shape.n_slice_groups,
        .packed_group_k = shape.packed_group_k,
        .group_n = desc->group_n,
        .group_k = desc->group_k,
        .scale_columns = gk_desc_scale_columns(desc),
        .padding_code = is_centred ? 1u << (shape.code_bits - 1) : 0,
        .is_float = !gk_code_is_int(desc->code),
        .is_one = shape.has_row_scales,
        .scale_dtype = desc->scale_dtype,
        .scales = rest->scales,
        .zeros = rest->zeros,
    };
    strip_list_parts(rest, &shape, ret_list);
    return strip_pack_enqueue(&pack, stream);
}

static int pack_swizzled(const struct gk_canonical *rest, const struct pack_source *source,
                         uint8_t *packed, void *stream, struct part ret_list[PARTS_MAX])
{
    struct swizzle_shape shape = swizzle_shape(&rest->desc);
    bool is_int = gk_code_is_int(rest->desc.code);
    const struct swizzle_pack pack = {
        .source = *source,
        .n_groups = shape.n_groups,
        .n_blocks = shape.n_blocks,
        .atoms = packed,
        .code_sums = is_int ? (int32_t *)(void *)(packed + shape.code_sums_offset) : NULL,
    };
    swizzle_parts(rest, ret_list);
    return swizzle_pack_enqueue(&pack, stream);
}

static int pack_kmajor(const struct gk_canonical *rest, const struct pack_source *source,
                       uint8_t *packed, void *stream, struct part ret_list[PARTS_MAX])
{
    const struct kmajor_pack pack = {
        .source = *source,
        .code_bits = gk_code_bits(rest->desc.code),
        .n_stride = cuda_kmajor_shape(&rest->desc).n_stride,
        .rows = packed,
    };
    cuda_kmajor_parts(rest, ret_list);
    return kmajor_pack_enqueue(&pack, stream);
}

int gk_cuda_pack(const struct gk_canonical *rest, const struct gk_codes *parts, uint32_t n_parts,
                 void *packed, uint32_t *n_damaged, void *stream)
{
    const struct gk_layout *layout = gk_layout_for(&rest->desc, GK_DEVICE_CUDA);
    struct pack_source source = source_of(rest, parts, n_parts, n_damaged);
    struct part list[PARTS_MAX];
    int r;
    if (cuda_strip_is_layout(layout)) {
        r = pack_strips(rest, &source, packed, stream, list);
    } else if (layout == &cuda_swizzle_layout) {
        r = pack_swizzled(rest, &source, packed, stream, list);
    } else {
        GD_ASSERT(layout == &cuda_kmajor_layout);
        r = pack_kmajor(rest, &source, packed, stream, list);
    }
    for (uint32_t i = 0; r == cudaSuccess && i < PARTS_MAX; i++) {
        if (list[i].n_bytes > 0) {
            r = cudaMemcpyAsync((uint8_t *)packed + list[i].offset, list[i].canonical,
                                list[i].n_bytes, cudaMemcpyDeviceToDevice, stream);
        }
    }
    return r;
}
