/* gemm_input.h - x of "gemmctl gemm": from files into shared buffers. */
#pragma once

#include "client/tool/tool.h"

/* What the user gave; scales_path may be NULL. */
struct gemm_source {
    const char *path;
    const char *scales_path;
    enum gemmd_dtype act; /* the type floats are sent as; 0: the weight's */
};

struct gemm_input {
    enum gemmd_dtype dtype;
    uint32_t n_rows;
    uint32_t n_scales;       /* of a row */
    gemmd_buffer_t *x;       /* (n_rows, k) of dtype */
    gemmd_buffer_t *x_scale; /* (n_rows, n_scales) float; NULL: none */
};

/* gemm_input_read() - floats are sent as source->act says, else as the weight's act_dtype; int8 as
 * I8 and uint8 as F8_E4M3, with their scales. 0, or an enum tool_exit with the reason printed.
 * _finish() also after that. */
int gemm_input_read(struct tool *tool, const gemmd_weight_t *weight,
                    const struct gemm_source *source, struct gemm_input *input) GD_MUST_CHECK;
void gemm_input_finish(struct gemm_input *input);
