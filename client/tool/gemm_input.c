/* gemm_input.c - see gemm_input.h. */
#include "client/tool/gemm_input.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"

#include "client/tool/npy.h"

static int fail_read(int r, const char *path, const struct reason *why)
{
    return tool_fail(r < 0 ? client_fail_errno(r, path) : client_fail(why));
}

static int choose_dtype(const gemmd_weight_t *weight, const struct gemm_source *source,
                        enum dtype file_dtype, enum gemmd_dtype *ret_dtype)
{
    bool is_quantised = file_dtype == DTYPE_I8 || file_dtype == DTYPE_U8;
    if (is_quantised && source->act) {
        return tool_usage("--act is for floats; %s is quantised", source->path);
    }
    if (is_quantised) {
        *ret_dtype = file_dtype == DTYPE_I8 ? GEMMD_I8 : GEMMD_F8_E4M3;
        return 0;
    }
    enum gemmd_dtype dtype = source->act ? source->act : weight->act_dtype;
    if (dtype < GEMMD_F32 || dtype > GEMMD_BF16) {
        return tool_fail(client_refuse(STATUS_BAD_MESSAGE,
                                       "the daemon gives %s activations of type %d", weight->name,
                                       (int)dtype));
    }
    *ret_dtype = dtype;
    return 0;
}

static int check_shape(const gemmd_weight_t *weight, const char *path,
                       const struct npy_header *header)
{
    if (header->n_columns == weight->k && header->n_rows <= UINT32_MAX) {
        return 0;
    }
    return tool_fail(client_refuse(STATUS_INVALID_ARGUMENT, "%s is (%llu, %llu), %s wants (m, %u)",
                                   path, (unsigned long long)header->n_rows,
                                   (unsigned long long)header->n_columns, weight->name, weight->k));
}

/* Values as f16 or bf16. Returns how many finite ones became infinite. */
static uint64_t narrow(const float *values, uint64_t n, enum gemmd_dtype dtype, uint16_t *elems)
{
    bool is_bf16 = dtype == GEMMD_BF16;
    uint16_t infinity = is_bf16 ? 0x7f80 : 0x7c00;
    uint64_t n_beyond = 0;
    for (uint64_t i = 0; i < n; i++) {
        elems[i] = is_bf16 ? bf16_from_f32(values[i]) : half_from_f32(values[i]);
        n_beyond += (elems[i] & 0x7fff) == infinity && isfinite(values[i]);
    }
    return n_beyond;
}

/* An array of a file as elements of dtype; *ret_n_beyond of them were finite and are no more. */
static int convert(const void *data, enum dtype file_dtype, uint64_t n, enum gemmd_dtype dtype,
                   void *elems, uint64_t *ret_n_beyond)
{
    *ret_n_beyond = 0;
    if (dtype == GEMMD_I8 || dtype == GEMMD_F8_E4M3) {
        memcpy(elems, data, n);
        return 0;
    }
    if (dtype == GEMMD_F32) {
        npy_widen(data, file_dtype, n, elems);
        return 0;
    }
    CLEAN_FREE float *values = malloc(n * sizeof(*values) + 1);
    if (!values) {
        return -ENOMEM;
    }
    npy_widen(data, file_dtype, n, values);
    *ret_n_beyond = narrow(values, n, dtype, elems);
    return 0;
}

static int read_x(struct tool *tool, const gemmd_weight_t *weight, const struct gemm_source *source,
                  struct gemm_input *input)
{
    struct reason why = REASON_NULL;
    struct npy_header header;
    CLEAN_FREE void *data = NULL;
    int r = npy_read_data(source->path, &header, &data, &why);
    if (r != 0) {
        return fail_read(r, source->path, &why);
    }
    r = choose_dtype(weight, source, header.dtype, &input->dtype);
    r = r ? r : check_shape(weight, source->path, &header);
    if (r != 0) {
        return r;
    }
    input->n_rows = (uint32_t)header.n_rows;
    uint64_t n = header.n_rows * header.n_columns; /* it is in memory, so this fits */
    uint64_t n_bytes = num_max(n, 1) * dtype_bytes((enum dtype)input->dtype);
    r = gemmd_buffer_alloc_host(tool->client, weight->device_index, n_bytes, &input->x);
    if (r != GEMMD_OK) {
        return tool_fail(r);
    }
    uint64_t n_beyond = 0;
    r = convert(data, header.dtype, n, input->dtype, gemmd_buffer_data(input->x), &n_beyond);
    if (n_beyond > 0) {
        (void)fprintf(stderr,
                      "warning: %llu of %llu values of %s are beyond %s: sent as infinity\n",
                      (unsigned long long)n_beyond, (unsigned long long)n, source->path,
                      dtype_name((enum dtype)input->dtype));
    }
    return r < 0 ? tool_fail(client_fail_errno(r, source->path)) : 0;
}

/* (m, s), or (m) where a row has one: numpy's own shape of one number a row. */
static int read_scales(struct tool *tool, const gemmd_weight_t *weight, const char *path,
                       struct gemm_input *input)
{
    struct reason why = REASON_NULL;
    struct npy_header header;
    CLEAN_FREE float *scales = NULL;
    int r = npy_read(path, &header, &scales, &why);
    if (r != 0) {
        return fail_read(r, path, &why);
    }
    uint64_t n = header.n_rows * header.n_columns;
    bool is_per_row = weight->act != GEMMD_ACT_FP8_GROUP;
    uint64_t n_scales = is_per_row ? 1 : num_div_up(weight->k, GEMMD_ACT_GROUP_K);
    if (n != input->n_rows * n_scales || (!is_per_row && header.n_columns != n_scales)) {
        return tool_fail(client_refuse(
            STATUS_INVALID_ARGUMENT, "%s is (%llu, %llu), the rows of x want (%u, %llu)", path,
            (unsigned long long)header.n_rows, (unsigned long long)header.n_columns, input->n_rows,
            (unsigned long long)n_scales));
    }
    input->n_scales = (uint32_t)n_scales;
    r = gemmd_buffer_alloc_host(tool->client, weight->device_index, num_max(n, 1) * sizeof(float),
                                &input->x_scale);
    if (r != GEMMD_OK) {
        return tool_fail(r);
    }
    memcpy(gemmd_buffer_data(input->x_scale), scales, n * sizeof(float));
    return 0;
}

int gemm_input_read(struct tool *tool, const gemmd_weight_t *weight,
                    const struct gemm_source *source, struct gemm_input *input)
{
    int r = read_x(tool, weight, source, input);
    if (r == 0 && source->scales_path) {
        r = read_scales(tool, weight, source->scales_path, input);
    }
    return r;
}

void gemm_input_finish(struct gemm_input *input)
{
    gemmd_buffer_free(input->x);
    gemmd_buffer_free(input->x_scale);
    *input = (struct gemm_input){0};
}
