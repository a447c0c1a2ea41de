/* weight.c - see weight.h. */
#include "tests/gpu/weight.h"

#include <math.h>
#include <stdlib.h>

#include "ipc/base/num.h"

/* ---- the GPU ---- */

const char *gpu_find(uint32_t *ret_cuda_arch)
{
    int n = 0;
    struct cudaDeviceProp properties;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0 ||
        cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
        return "no GPU that CUDA can use is here";
    }
    *ret_cuda_arch = (uint32_t)(properties.major * 10 + properties.minor);
    return NULL;
}

int gpu_load_kernels(void **state)
{
    (void)state;
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (kernels[i]->load() != cudaSuccess) {
            print_error("%s does not load\n", kernels[i]->name);
            return -1;
        }
    }
    return 0;
}

/* ---- weights ---- */

/* Act-order not where k is large: the reference takes k steps an element. */
struct gk_desc gpu_int_desc(uint32_t i, enum gk_code code, const uint32_t shape[2],
                            uint32_t group_k)
{
    group_k = (uint32_t)num_min(group_k, shape[1]);
    struct gk_desc desc =
        desc_int4(shape[0], shape[1], group_k, i % 2 == 0 ? DTYPE_F16 : DTYPE_BF16, DTYPE_NONE);
    desc.code = code;
    desc.has_zeros = i % 3 == 1;
    desc.has_perm = i % 4 == 3 && desc.k <= 1000;
    desc.bias_dtype = i % 5 == 0 ? DTYPE_F32 : i % 5 == 1 ? DTYPE_BF16 : DTYPE_NONE;
    desc.column_scale = i % 7 == 2 ? GK_COLUMN_SCALE_MULTIPLIES : GK_COLUMN_SCALE_NONE;
    return desc;
}

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

/* ---- judging ---- */

double *sample_exact(const struct sample *sample, const struct gk_canonical *canonical,
                     const char *x, enum dtype x_dtype)
{
    const struct gk_desc *desc = &canonical->desc;
    double *exact = malloc((uint64_t)sample->n_rows * desc->n * sizeof(*exact));
    assert_non_null(exact);
    assert_int_equal(gk_reference_gemm(canonical, x, x_dtype, (uint64_t)sample->step * desc->k,
                                       sample->n_rows, exact),
                     0);
    return exact;
}

double sample_error(const struct sample *sample, const struct gk_desc *desc, const double *exact,
                    const char *y, enum dtype y_dtype)
{
    double error = 0, norm = 0;
    for (uint64_t i = 0; i < (uint64_t)sample->n_rows * desc->n; i++) {
        uint64_t i_y = i / desc->n * sample->step * desc->n + i % desc->n;
        double difference = elem_load(y, y_dtype, i_y) - exact[i];
        error += difference * difference;
        norm += exact[i] * exact[i];
    }
    return isnan(error) ? HUGE_VAL : sqrt(error / norm);
}

double rounding_error(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 0x1p-24 : dtype == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
}
