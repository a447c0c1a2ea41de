/* test-gpu-launches.c - every CUDA kernel, a few launches of each format it takes, in allocations
 * of exactly the size that it may use and that nobody has written: what sanitizers are to look at
 * (tests/gpu/run sanitize), which know plain allocations best. That products are right is for the
 * other tests; here they have to be finite. Arguments: [KERNEL [K]], that one only, and k. Skipped
 * without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/num.h"
#include "tests/unit/kernels/kernel_case.h"

#define SKIPPED 77
#define N       136u  /* a tile and a part of one, of every kernel */
#define K       2304u /* unless told: every ring of stages goes round several times */

#define assert_cuda(call) assert_int_equal((call), cudaSuccess)

static const uint32_t row_counts[] = {1, 9, 24, 33, 64, 65, 130};

static uint32_t cuda_arch;
static uint32_t n_launches[GK_KERNELS_MAX];
static const char *only; /* the kernel of that name; NULL: all */
static uint32_t k = K;

/* ---- one launch ---- */

struct job {
    struct gk_problem problem;
    void *packed;
    uint8_t *x;
};

/* Exactly what it needs; 0 bytes are NULL. */
static void *device_memory(uint64_t n_bytes)
{
    void *memory = NULL;
    if (n_bytes > 0) {
        assert_cuda(cudaMalloc(&memory, n_bytes));
    }
    return memory;
}

static void expect_finite(const struct gk_kernel *kernel, const struct gk_problem *problem,
                          const uint8_t *device_y)
{
    uint64_t n_elems = (uint64_t)problem->m * problem->desc.n;
    uint64_t n_bytes = n_elems * dtype_bytes(problem->y_dtype);
    uint8_t *y = malloc(n_bytes);
    assert_non_null(y);
    assert_cuda(cudaMemcpy(y, device_y, n_bytes, cudaMemcpyDeviceToHost));
    for (uint64_t i = 0; i < n_elems; i++) {
        if (!isfinite(elem_load(y, problem->y_dtype, i))) {
            fail_msg("%s, m %u: element %u is not finite", kernel->name, problem->m, (unsigned)i);
        }
    }
    free(y);
}

static void launch(const struct gk_kernel *kernel, const struct job *job)
{
    const struct gk_problem *problem = &job->problem;
    uint64_t x_bytes = (uint64_t)problem->desc.k * dtype_bytes(problem->x_dtype);
    uint64_t y_bytes = (uint64_t)problem->desc.n * dtype_bytes(problem->y_dtype);
    uint8_t *y = device_memory(problem->m * y_bytes);
    const void *x_rows[GK_BATCH_ROWS_MAX];
    void *y_rows[GK_BATCH_ROWS_MAX];
    for (uint32_t i = 0; i < num_min(problem->m, GK_BATCH_ROWS_MAX); i++) {
        x_rows[i] = job->x + i * x_bytes;
        y_rows[i] = y + i * y_bytes;
    }
    const struct gk_launch launch = {
        .problem = *problem,
        .packed = job->packed,
        .prefill = {.x = job->x, .y = y, .x_stride_bytes = x_bytes, .y_stride_bytes = y_bytes},
        .x_rows = x_rows,
        .y_rows = y_rows,
        .workspace = device_memory(kernel->workspace_bytes(problem))};
    assert_cuda(kernel->enqueue(&launch, NULL));
    assert_cuda(cudaDeviceSynchronize());
    expect_finite(kernel, problem, y);
    assert_cuda(cudaFree(launch.workspace));
    assert_cuda(cudaFree(y));
}

/* ---- one weight ---- */

static void *upload_weight(const struct gk_layout *layout, const struct gk_desc *desc,
                           struct random *random)
{
    struct gk_canonical canonical;
    uint64_t n_bytes = layout->packed_bytes(desc);
    void *packed = aligned_alloc(64, num_align_up(n_bytes, 64));
    assert_non_null(packed);
    canonical_random(&canonical, desc, random);
    layout->pack(&canonical, packed);
    gk_canonical_finish(&canonical);
    void *memory = device_memory(n_bytes);
    assert_cuda(cudaMemcpy(memory, packed, n_bytes, cudaMemcpyHostToDevice));
    free(packed);
    return memory;
}

static uint8_t *upload_x(const struct gk_problem *problem, uint32_t m, struct random *random)
{
    uint64_t n_elems = (uint64_t)m * problem->desc.k;
    uint64_t n_bytes = n_elems * dtype_bytes(problem->x_dtype);
    void *x = malloc(n_bytes);
    assert_non_null(x);
    for (uint64_t i = 0; i < n_elems; i++) {
        elem_store(x, problem->x_dtype, i, random_unit(random));
    }
    void *memory = device_memory(n_bytes);
    assert_cuda(cudaMemcpy(memory, x, n_bytes, cudaMemcpyHostToDevice));
    free(x);
    return memory;
}

static void launch_all(struct job *job, uint32_t m, struct random *random)
{
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    job->problem.m = m;
    job->problem.is_prefill = m > GK_BATCH_ROWS_MAX;
    job->x = upload_x(&job->problem, m, random);
    for (uint32_t i = 0; i < n_kernels; i++) {
        bool is_wanted = only == NULL || strcmp(only, kernels[i]->name) == 0;
        if (is_wanted && kernels[i]->can_implement(&job->problem, NULL) == 0) {
            launch(kernels[i], job);
            n_launches[i]++;
        }
    }
    assert_cuda(cudaFree(job->x));
}

/* Types of x and y that follow from the format's place, so that all are there in the end. */
static void launch_format(uint32_t i_format)
{
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    struct random random = {i_format + 1};
    struct gk_desc desc =
        format_desc(&format_cases[i_format], N, k, i_format % 2 == 0 ? DTYPE_BF16 : DTYPE_NONE);
    struct job job = {.problem = {.desc = desc,
                                  .layout = gk_layout_for(&desc, GK_DEVICE_CUDA),
                                  .x_dtype = types[i_format % 2],
                                  .cuda_arch = cuda_arch}};
    job.packed = upload_weight(job.problem.layout, &desc, &random);
    for (uint32_t i = 0; i < ARRAY_LENGTH(row_counts); i++) {
        job.problem.y_dtype = i % 2 == 0 ? job.problem.x_dtype : types[i % 3];
        launch_all(&job, row_counts[i], &random);
    }
    assert_cuda(cudaFree(job.packed));
}

static void test_every_kernel(void **state)
{
    (void)state;
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    for (uint32_t i = 0; i < n_format_cases; i++) {
        launch_format(i);
    }
    for (uint32_t i = 0; i < n_kernels; i++) {
        bool is_there = cuda_arch == 90 && kernels[i]->plan == NULL &&
                        (only == NULL || strcmp(only, kernels[i]->name) == 0);
        print_message("note: %s: %u launches\n", kernels[i]->name, n_launches[i]);
        assert_true(n_launches[i] > 0 || !is_there);
    }
}

static bool find_gpu(void)
{
    int device, major = 0, minor = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
        return false;
    }
    cuda_arch = (uint32_t)(major * 10 + minor);
    return true;
}

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
    k = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : K;
    if (!find_gpu()) {
        (void)puts("skipped: this machine has no GPU that CUDA can use");
        return SKIPPED;
    }
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        (void)kernels[i]->load(); /* what does not run here declines by itself */
    }
    (void)cudaGetLastError();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_kernel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
