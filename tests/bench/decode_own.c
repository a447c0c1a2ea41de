/* decode_own.c - see decode_own.h. */
#include "tests/bench/decode_own.h"

#include <stdio.h>

#include "ipc/base/num.h"

#define ALIGNMENT 256u

static bool is_good(int error, const char *what)
{
    if (error != 0) {
        (void)fprintf(stderr, "%s: %s\n", what, cudaGetErrorString((cudaError_t)error));
    }
    return error == 0;
}

/* As the daemon has them: see decode_model.h. */
static struct gk_problem problem_of(const struct decode_shape *shape, uint32_t i_linear, uint32_t m)
{
    struct gk_desc desc = {.code = GK_CODE_U4,
                           .group_n = 1,
                           .group_k = 128,
                           .scale_dtype = DTYPE_F16,
                           .bias_dtype = DTYPE_NONE};
    decode_linear_shape(shape, i_linear, &desc.n, &desc.k);
    return (struct gk_problem){.desc = desc,
                               .layout = gk_layout_for(&desc, GK_DEVICE_CUDA),
                               .m = m,
                               .x_dtype = DTYPE_BF16,
                               .y_dtype = DTYPE_BF16,
                               .cuda_arch = 90};
}

static bool choose_kernels(struct decode_own *own, const struct decode_shape *shape, uint32_t m)
{
    for (uint32_t i = 0; i < DECODE_LINEARS; i++) {
        struct gk_problem problem = problem_of(shape, i, m);
        struct reason why;
        if (gk_select(&problem, &own->kernels[i], &why) != 0) {
            (void)fprintf(stderr, "%s\n", why.text);
            return false;
        }
        if (!is_good(own->kernels[i]->load(), own->kernels[i]->name)) {
            return false;
        }
    }
    return true;
}

/* Where each weight lies; the sum. */
static uint64_t place_weights(const struct decode_own *own, const struct decode_shape *shape,
                              uint64_t *ret_offsets)
{
    uint64_t total_bytes = 0;
    for (uint32_t i = 0; i < own->n_weights; i++) {
        struct gk_problem problem = problem_of(shape, i % DECODE_LINEARS, 1);
        ret_offsets[i] = total_bytes;
        total_bytes += num_align_up(problem.layout->packed_bytes(&problem.desc), ALIGNMENT);
    }
    return total_bytes;
}

static bool get_weights(struct decode_own *own, uint64_t packed_bytes,
                        const cudaIpcMemHandle_t *handle)
{
    if (handle != NULL) {
        own->is_opened = true;
        return is_good(cudaIpcOpenMemHandle(&own->packed, *handle, cudaIpcMemLazyEnablePeerAccess),
                       "opening the weights");
    }
    return is_good(cudaMalloc(&own->packed, packed_bytes), "weights") &&
           is_good(cudaMemset(own->packed, 0, packed_bytes), "weights");
}

/* Rows of x and y, each as long as the longest, then the workspace. */
static bool get_rows(struct decode_own *own, const struct decode_shape *shape, uint32_t m)
{
    uint64_t row_bytes = 0;
    uint64_t workspace_bytes = 0;
    for (uint32_t i = 0; i < DECODE_LINEARS; i++) {
        struct gk_problem problem = problem_of(shape, i, m);
        row_bytes = num_max(row_bytes, 2ull * num_max(problem.desc.n, problem.desc.k));
        workspace_bytes = num_max(workspace_bytes, own->kernels[i]->workspace_bytes(&problem));
    }
    row_bytes = num_align_up(row_bytes, ALIGNMENT);
    uint64_t total_bytes = 2 * m * row_bytes + workspace_bytes;
    if (!is_good(cudaMalloc(&own->memory, total_bytes), "rows") ||
        !is_good(cudaMemset(own->memory, 0, total_bytes), "rows")) {
        return false;
    }
    for (uint32_t i = 0; i < m; i++) {
        own->x_rows[i] = (char *)own->memory + i * row_bytes;
        own->y_rows[i] = (char *)own->memory + (m + i) * row_bytes;
    }
    for (uint32_t i = 0; i < own->n_weights; i++) {
        own->launches[i].workspace = (char *)own->memory + 2 * m * row_bytes;
    }
    return true;
}

bool decode_own_init(struct decode_own *own, const struct decode_shape *shape, uint32_t m,
                     const cudaIpcMemHandle_t *handle)
{
    uint64_t offsets[DECODE_WEIGHTS_MAX];
    *own = (struct decode_own){.n_weights = shape->n_blocks * DECODE_LINEARS};
    if (!choose_kernels(own, shape, m) ||
        !get_weights(own, place_weights(own, shape, offsets), handle) || !get_rows(own, shape, m)) {
        return false;
    }
    for (uint32_t i = 0; i < own->n_weights; i++) {
        struct gk_launch *launch = &own->launches[i];
        launch->problem = problem_of(shape, i % DECODE_LINEARS, m);
        launch->packed = (char *)own->packed + offsets[i];
        launch->x_rows = own->x_rows;
        launch->y_rows = own->y_rows;
    }
    return true;
}

bool decode_own_share(const struct decode_own *own, cudaIpcMemHandle_t *ret_handle)
{
    return is_good(cudaIpcGetMemHandle(ret_handle, own->packed), "sharing the weights");
}

void decode_own_finish(struct decode_own *own)
{
    (void)cudaFree(own->memory);
    (void)(own->is_opened ? cudaIpcCloseMemHandle(own->packed) : cudaFree(own->packed));
}

bool decode_own_enqueue(struct decode_own *own, uint32_t i_weight, cudaStream_t stream)
{
    const struct gk_kernel *kernel = own->kernels[i_weight % DECODE_LINEARS];
    return is_good(kernel->enqueue(&own->launches[i_weight], stream), kernel->name);
}
