/* registry.h - the CUDA rows of the registry. */
#pragma once

#include "gk/gk.h"

extern const struct gk_kernel cuda_strip_prefill_rounded;
extern const struct gk_kernel cuda_strip_prefill;
extern const struct gk_kernel cuda_strip_wide;
extern const struct gk_kernel cuda_strip_batch;
extern const struct gk_kernel cuda_strip_gemm;
extern const struct gk_kernel cuda_w4a8_prefill;
extern const struct gk_kernel cuda_w4a8_strip_wide;
extern const struct gk_kernel cuda_w4a8_strip_gemm;
extern const struct gk_kernel cuda_fp8_gemm;
extern const struct gk_kernel cuda_int8_gemm;
extern const struct gk_kernel cuda_plain_cublaslt_prefill;
extern const struct gk_kernel cuda_plain_cublaslt;
extern const struct gk_kernel cuda_any_gemm_simple;
