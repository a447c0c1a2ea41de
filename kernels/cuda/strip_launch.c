/* strip_launch.c - see strip_launch.h. */
#include "kernels/cuda/strip_launch.h"

#include <stddef.h>
#include <string.h>

#include "kernels/layout/cuda_strip.h"

#define PARTS_M_MIN 17u /* up to 16 rows, strip_gemm keeps all of x in registers and is faster */

static bool is_x_known(enum dtype dtype)
{
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static bool is_y_known(enum dtype dtype)
{
    return dtype == DTYPE_F32 || is_x_known(dtype);
}

int strip_check(const struct gk_problem *problem, uint32_t n_rows_max, struct reason *why)
{
    if (problem->desc.act != GK_ACT_FLOAT) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "it takes x as it comes, and this weight wants it quantised");
    }
    if (!cuda_strip_is_layout(problem->layout)) {
        return reason_set(why, STATUS_UNSUPPORTED, "it reads the layouts cuda-strip16, not %s",
                          problem->layout != NULL ? problem->layout->tag : "none");
    }
    if (problem->cuda_arch < 80) {
        return reason_set(why, STATUS_UNSUPPORTED, "it needs compute capability 8.0, not %u.%u",
                          problem->cuda_arch / 10, problem->cuda_arch % 10);
    }
    if (problem->m == 0 || problem->m > n_rows_max) {
        return reason_set(why, STATUS_UNSUPPORTED, "a launch has 1 to %u rows, not %u", n_rows_max,
                          problem->m);
    }
    if (!is_x_known(problem->x_dtype) || !is_y_known(problem->y_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "x of type %s and y of type %s; only f16 and bf16, and y f32",
                          dtype_name(problem->x_dtype), dtype_name(problem->y_dtype));
    }
    return gk_desc_check(&problem->desc, why);
}

static int check_hopper(const struct gk_problem *problem, struct reason *why)
{
    if (problem->cuda_arch != 90) {
        return reason_set(why, STATUS_UNSUPPORTED, "it needs compute capability 9.0, not %u.%u",
                          problem->cuda_arch / 10, problem->cuda_arch % 10);
    }
    return 0;
}

int strip_check_prefill(const struct gk_problem *problem, struct reason *why)
{
    if (!problem->is_prefill) {
        return reason_set(why, STATUS_UNSUPPORTED, "it is for requests of more than %u rows",
                          GK_BATCH_ROWS_MAX);
    }
    if (problem->m == 0 || problem->m > GK_PREFILL_ROWS_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "a launch has 1 to %u rows, not %u",
                          GK_PREFILL_ROWS_MAX, problem->m);
    }
    return check_hopper(problem, why);
}

int strip_parts_check(const struct gk_problem *problem, struct reason *why)
{
    int r = strip_check(problem, GK_BATCH_ROWS_MAX, why);
    r = r != 0 ? r : check_hopper(problem, why);
    if (r != 0) {
        return r;
    }
    if (problem->m < PARTS_M_MIN) {
        return reason_set(why, STATUS_UNSUPPORTED, "it is for %u rows or more, not %u", PARTS_M_MIN,
                          problem->m);
    }
    return 0;
}

struct strip_args strip_args_of(const struct gk_launch *launch)
{
    const struct gk_problem *problem = &launch->problem;
    const struct gk_desc *desc = &problem->desc;
    struct strip_shape shape = strip_shape(desc);
    const uint8_t *packed = launch->packed;
    bool has_columns = desc->column_scale != GK_COLUMN_SCALE_NONE;
    return (struct strip_args){
        .records = packed + shape.records_offset,
        .perm = desc->has_perm ? (const uint32_t *)(const void *)packed : NULL,
        .row_scales = shape.has_row_scales ? packed + shape.row_scales_offset : NULL,
        .column_scales =
            has_columns ? (const float *)(const void *)(packed + shape.column_scales_offset) : NULL,
        .bias = desc->bias_dtype != DTYPE_NONE ? packed + shape.bias_offset : NULL,
        .x_scales = launch->x_scale_rows != NULL ? launch->x_scale_rows[0] : NULL,
        .n = desc->n,
        .k = desc->k,
        .n_strips = shape.n_strips,
        .n_slices = shape.n_slices,
        .n_slice_groups = shape.n_slice_groups,
        .row_scale_group_n = desc->group_n,
        .code_bits = (uint8_t)shape.code_bits,
        .scaling = (uint8_t)shape.scaling,
        .has_zeros = desc->has_zeros,
        .x_dtype = (uint8_t)problem->x_dtype,
        .y_dtype = (uint8_t)problem->y_dtype,
        .scale_dtype = (uint8_t)desc->scale_dtype,
        .bias_dtype = (uint8_t)desc->bias_dtype,
        .is_column_divisor = desc->column_scale == GK_COLUMN_SCALE_DIVIDES,
    };
}

struct strip_parts_args strip_parts_args_of(const struct gk_launch *launch)
{
    struct strip_parts_args args = {
        .base = strip_args_of(launch), .m = launch->problem.m, .x_tiles = launch->workspace};
    memcpy(args.rows.x, launch->x_rows, args.m * sizeof(args.rows.x[0]));
    memcpy(args.rows.y, launch->y_rows, args.m * sizeof(args.rows.y[0]));
    return args;
}
