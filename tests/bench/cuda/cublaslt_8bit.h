/* cublaslt_8bit.h - cuBLASLt's products of 8-bit operands, beside which a bench measures. */
#pragma once

#include <vector>

#include "tests/bench/cuda/cublaslt.h"

enum cublaslt_way {
    CUBLASLT_TENSOR_FAST, /* e4m3, a scale each for x and W; sums stay in the tensor core */
    CUBLASLT_TENSOR,      /* the same, sums promoted on their way */
    CUBLASLT_ROW_FAST,    /* a scale a row of x and of W */
    CUBLASLT_BLOCK,       /* 1 x 128 of x, 128 x 128 of W */
    CUBLASLT_INT8,        /* to int32 */
};

class cublaslt_8bit : public cublaslt {
  public:
    /* prepare() - for y (m, n) = x (m, k) w (n, k)^T, y in bf16 unless it is int32: how many
     * algorithms there are, the heuristic's first one first. All scales are 1. */
    uint32_t prepare(uint32_t m, uint32_t n, uint32_t k, enum cublaslt_way way)
    {
        bool is_int8 = way == CUBLASLT_INT8;
        cudaDataType_t type = is_int8 ? CUDA_R_8I : CUDA_R_8F_E4M3;
        cudaDataType_t y_type = is_int8 ? CUDA_R_32I : CUDA_R_16BF;
        int n_results = 0;
        if (!renew_operation(is_int8) || !set_scales(m, n, k, way) || !renew(w, type, k, n) ||
            !renew(x, type, k, m) || !renew(y, y_type, n, m) ||
            choose(handle, operation, w, x, y, y, preference, n_results_max, results, &n_results) !=
                CUBLAS_STATUS_SUCCESS) {
            return 0;
        }
        is_whole = is_int8;
        return (uint32_t)n_results;
    }

    void choose_algorithm(uint32_t i)
    {
        algo = results[i].algo;
    }

    void enqueue(const void *x_data, const void *w_data, void *y_data, cudaStream_t stream)
    {
        const float one = 1, zero = 0;
        const int32_t whole_one = 1, whole_zero = 0;
        const void *alpha = is_whole ? (const void *)&whole_one : &one;
        const void *beta = is_whole ? (const void *)&whole_zero : &zero;
        (void)ok(multiply(handle, operation, alpha, w_data, w, x_data, x, beta, y_data, y, y_data,
                          y, &algo, workspace, cublaslt_workspace_bytes, stream));
    }

  private:
    static constexpr int n_results_max = 8;

    template <typename type> bool set(cublasLtMatmulDescAttributes_t attribute, type value)
    {
        return ok(call<decltype(&cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute")(
            operation, attribute, &value, sizeof(value)));
    }

    bool renew_operation(bool is_int8)
    {
        (void)call<decltype(&cublasLtMatmulDescDestroy)>("cublasLtMatmulDescDestroy")(operation);
        return ok(call<decltype(&cublasLtMatmulDescCreate)>("cublasLtMatmulDescCreate")(
                   &operation, is_int8 ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                   is_int8 ? CUDA_R_32I : CUDA_R_32F)) &&
               set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    }

    /* Enough ones for every way of scaling: cuBLASLt's A is W, its B is x. */
    bool set_scales(uint32_t m, uint32_t n, uint32_t k, enum cublaslt_way way)
    {
        if (way == CUBLASLT_INT8) {
            return true;
        }
        uint64_t n_scales = ((uint64_t)m + n + 256) * (k / 128 + 2);
        (void)cudaFree(scales);
        std::vector<float> ones(n_scales, 1.0f);
        if (cudaMalloc(&scales, n_scales * 4) != cudaSuccess ||
            cudaMemcpy(scales, ones.data(), n_scales * 4, cudaMemcpyHostToDevice) != cudaSuccess) {
            return false;
        }
        cublasLtMatmulMatrixScale_t w_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
        cublasLtMatmulMatrixScale_t x_mode = w_mode;
        if (way == CUBLASLT_ROW_FAST) {
            w_mode = x_mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
        } else if (way == CUBLASLT_BLOCK) {
            w_mode = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
            x_mode = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
        }
        bool is_fast = way == CUBLASLT_TENSOR_FAST || way == CUBLASLT_ROW_FAST;
        return set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, (int8_t)is_fast) &&
               set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, w_mode) &&
               set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, x_mode) &&
               set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, (const void *)scales) &&
               set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, (const void *)scales);
    }

    cublasLtMatmulHeuristicResult_t results[n_results_max];
    bool is_whole = false;
    float *scales = nullptr;
};
