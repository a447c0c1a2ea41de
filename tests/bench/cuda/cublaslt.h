/* cublaslt.h - cuBLASLt, beside which a bench measures, found at run time: no program of ours is
 * linked to it. */
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

constexpr size_t cublaslt_workspace_bytes = 64 << 20;

class cublaslt {
  public:
    /* open() - false, with a line on stderr, where it is not installed. Never closed. */
    bool open()
    {
        for (const char *name : {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"}) {
            library = library != nullptr ? library : dlopen(name, RTLD_NOW);
        }
        if (library == nullptr) {
            fprintf(stderr, "no cuBLASLt to compare with: %s\n", dlerror());
            return false;
        }
        cublasOperation_t transposed = CUBLAS_OP_T;
        size_t workspace_bytes = cublaslt_workspace_bytes;
        return find(multiply, "cublasLtMatmul") && find(new_layout, "cublasLtMatrixLayoutCreate") &&
               find(free_layout, "cublasLtMatrixLayoutDestroy") &&
               find(choose, "cublasLtMatmulAlgoGetHeuristic") &&
               ok(call<decltype(&cublasLtCreate)>("cublasLtCreate")(&handle)) &&
               ok(call<decltype(&cublasLtMatmulDescCreate)>("cublasLtMatmulDescCreate")(
                   &operation, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
               ok(call<decltype(&cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute")(
                   operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed))) &&
               ok(call<decltype(&cublasLtMatmulPreferenceCreate)>("cublasLtMatmulPreferenceCreate")(
                   &preference)) &&
               ok(call<decltype(&cublasLtMatmulPreferenceSetAttribute)>(
                   "cublasLtMatmulPreferenceSetAttribute")(
                   preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                   sizeof(workspace_bytes))) &&
               cudaMalloc(&workspace, workspace_bytes) == cudaSuccess;
    }

    /* prepare() - for y (m, n) = x (m, k) w (n, k)^T, all dense and of one type, the algorithm that
     * cuBLASLt's heuristic puts first. */
    bool prepare(uint32_t m, uint32_t n, uint32_t k, bool is_bf16)
    {
        cudaDataType_t type = is_bf16 ? CUDA_R_16BF : CUDA_R_16F;
        cublasLtMatmulHeuristicResult_t result;
        int n_results = 0;
        return renew(w, type, k, n) && renew(x, type, k, m) && renew(y, type, n, m) &&
               ok(choose(handle, operation, w, x, y, y, preference, 1, &result, &n_results)) &&
               n_results > 0 && (algo = result.algo, true);
    }

    void enqueue(const void *x_data, const void *w_data, void *y_data, cudaStream_t stream)
    {
        float one = 1;
        float zero = 0;
        (void)ok(multiply(handle, operation, &one, w_data, w, x_data, x, &zero, y_data, y, y_data,
                          y, &algo, workspace, cublaslt_workspace_bytes, stream));
    }

  protected:
    static bool ok(cublasStatus_t status)
    {
        if (status != CUBLAS_STATUS_SUCCESS) {
            fprintf(stderr, "cuBLASLt: error %d\n", (int)status);
        }
        return status == CUBLAS_STATUS_SUCCESS;
    }

    template <typename function> function call(const char *name)
    {
        return reinterpret_cast<function>(dlsym(library, name));
    }

    template <typename function> bool find(function &target, const char *name)
    {
        target = call<function>(name);
        return target != nullptr;
    }

    bool renew(cublasLtMatrixLayout_t &layout, cudaDataType_t type, uint64_t n_rows,
               uint64_t n_columns)
    {
        if (layout != nullptr) {
            (void)free_layout(layout);
        }
        return ok(new_layout(&layout, type, n_rows, n_columns, (int64_t)n_rows));
    }

    void *library = nullptr;
    decltype(&cublasLtMatmul) multiply;
    decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
    decltype(&cublasLtMatrixLayoutCreate) new_layout;
    decltype(&cublasLtMatrixLayoutDestroy) free_layout;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatmulPreference_t preference;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
    cublasLtMatmulAlgo_t algo;
    void *workspace;
};
