/* ahead_job.c - see ahead_job.h. */
#include "tests/gpu/ahead_job.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ipc/base/clock.h"
#include "tests/unit/kernels/kernel_case.h"

#define SKIPPED 77

#define assert_cuda(call) assert_int_equal((call), cudaSuccess)

struct device *job_device;

static void *pinned(uint64_t n_bytes)
{
    void *memory;
    assert_cuda(cudaHostAlloc(&memory, n_bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    return memory;
}

static void write_weight(struct job *job, struct random *random)
{
    struct gk_canonical canonical;
    void *bytes;
    const struct gk_desc *desc = &job->problem.desc;
    canonical_random(&canonical, desc, random);
    assert_int_equal(job_device->ops->region_new(job_device, "test",
                                                 job->problem.layout->packed_bytes(desc),
                                                 &job->weight, NULL),
                     0);
    assert_int_equal(device_view_begin(job_device, &job->weight, DEVICE_WRITE, &bytes, NULL), 0);
    job->problem.layout->pack(&canonical, bytes);
    assert_int_equal(device_view_end(job_device, &job->weight, DEVICE_WRITE, NULL), 0);
    gk_canonical_finish(&canonical);
}

void job_init(struct job *job, const struct gk_desc *desc, enum dtype x_dtype, enum dtype y_dtype)
{
    struct random random = {1};
    *job = (struct job){.problem = {.desc = *desc,
                                    .layout = gk_layout_for(desc, GK_DEVICE_CUDA),
                                    .m = JOB_ROWS_MAX,
                                    .x_dtype = x_dtype,
                                    .y_dtype = y_dtype,
                                    .cuda_arch = job_device->cuda_arch}};
    write_weight(job, &random);
    job->x_row_bytes = desc->k * (uint64_t)dtype_bytes(x_dtype);
    job->y_row_bytes = desc->n * (uint64_t)dtype_bytes(y_dtype);
    job->x = pinned(JOB_ROWS_MAX * job->x_row_bytes);
    job->y = pinned(2 * JOB_ROWS_MAX * job->y_row_bytes);
    job->words = pinned(JOB_ROWS_MAX * sizeof(*job->words));
    job->ready = pinned(JOB_ROWS_MAX * sizeof(*job->ready));
    for (uint64_t i = 0; i < (uint64_t)JOB_ROWS_MAX * desc->k; i++) {
        elem_store(job->x, x_dtype, i, random_unit(&random));
    }
    uint64_t scratch_bytes = gk_workspace_max(&job->problem);
    assert_int_equal(job_device->ops->reserve(job_device, scratch_bytes, 0, NULL), 0);
}

void job_finish(struct job *job)
{
    /* A lost device answers for kernels that are still there, and may read the weight ahead. */
    assert_cuda(cudaDeviceSynchronize());
    job_device->ops->region_free(job_device, &job->weight);
    assert_cuda(cudaFreeHost(job->x));
    assert_cuda(cudaFreeHost(job->y));
    assert_cuda(cudaFreeHost(job->words));
    assert_cuda(cudaFreeHost(job->ready));
}

void job_init_small(struct job *job)
{
    struct gk_desc desc = desc_int4(16, 256, 128, DTYPE_F16, DTYPE_NONE);
    job_init(job, &desc, DTYPE_BF16, DTYPE_BF16);
    job->kernel = gk_kernel_named("cuda_strip_gemm");
    assert_non_null(job->kernel);
}

void job_fill_in(const struct job *job, uint32_t m, bool is_ahead, struct tables *tables,
                 struct device_launch *launch)
{
    uint8_t *y = job->y + (is_ahead ? JOB_ROWS_MAX * job->y_row_bytes : 0);
    for (uint32_t i = 0; i < m; i++) {
        tables->x_rows[i] = job->x + i * job->x_row_bytes;
        tables->y_rows[i] = y + i * job->y_row_bytes;
        tables->signals[i] = (struct device_signal){(uintptr_t)&job->words[i], i + 1};
    }
    launch->gk.problem.m = m;
    launch->gk.x_rows = tables->x_rows;
    launch->gk.y_rows = tables->y_rows;
    launch->signals = tables->signals;
    launch->n_signals = m;
}

struct device_launch job_launch(const struct job *job, uint32_t m)
{
    struct device_launch launch = {.kernel = job->kernel,
                                   .gk = {.problem = job->problem, .packed = job->weight.base},
                                   .result = -1};
    launch.gk.problem.m = m;
    return launch;
}

static struct device_launch *wait_launch(void)
{
    struct device_launch *launch;
    time_t end = time(NULL) + 10;
    while ((launch = job_device->ops->poll(job_device)) == NULL && time(NULL) < end) {
    }
    return launch;
}

int job_end_of(struct device_launch *launch)
{
    assert_ptr_equal(wait_launch(), launch);
    return launch->result;
}

void job_poison(const struct job *job)
{
    memset(job->y, JOB_POISON, 2 * JOB_ROWS_MAX * job->y_row_bytes);
    memset(job->words, 0xff, JOB_ROWS_MAX * sizeof(*job->words));
}

bool job_is_poisoned(const uint8_t *bytes, uint64_t n)
{
    uint64_t i = 0;
    while (i < n && bytes[i] == JOB_POISON) {
        i++;
    }
    return i == n;
}

/* The signals and the news of the end are on their way together. */
static uint32_t word_at_last(const uint32_t *word, uint32_t expected)
{
    uint64_t end_nsec = clock_now_nsec() + 1000000000u;
    while (*(const volatile uint32_t *)word != expected && clock_now_nsec() < end_nsec) {
    }
    return *(const volatile uint32_t *)word;
}

void job_expect_rows(const struct job *job, uint32_t m)
{
    const uint8_t *armed = job->y + JOB_ROWS_MAX * job->y_row_bytes;
    uint64_t n_bytes = m * job->y_row_bytes;
    assert_memory_equal(armed, job->y, n_bytes);
    assert_true(job_is_poisoned(armed + n_bytes, JOB_ROWS_MAX * job->y_row_bytes - n_bytes));
    for (uint32_t i = 0; i < JOB_ROWS_MAX; i++) {
        assert_int_equal(word_at_last(&job->words[i], i < m ? i + 1 : JOB_NOT_WRITTEN),
                         i < m ? i + 1 : JOB_NOT_WRITTEN);
    }
}

/* ---- runs ---- */

void job_run_ordinary(const struct job *job, uint32_t m)
{
    struct tables tables;
    struct device_launch launch = job_launch(job, m);
    job_fill_in(job, m, false, &tables, &launch);
    launch.n_signals = 0;
    assert_int_equal(job_device->ops->launch(job_device, &launch), 0);
    assert_int_equal(job_end_of(&launch), 0);
}

/* x is there only once it waits: nothing of it may be read before. */
void job_run_armed(const struct job *job, uint32_t m, uint32_t most)
{
    struct tables tables;
    struct device_launch launch = job_launch(job, most);
    uint64_t x_bytes = JOB_ROWS_MAX * job->x_row_bytes;
    void *kept = malloc(x_bytes);
    assert_non_null(kept);
    memcpy(kept, job->x, x_bytes);
    memset(job->x, 0, x_bytes);
    launch.holds_place = m % 2 == 0;
    assert_int_equal(job_device->ops->arm(job_device, &launch, JOB_LONG_USEC), 0);
    assert_null(job_device->ops->poll(job_device));
    memcpy(job->x, kept, x_bytes);
    free(kept);
    job_fill_in(job, m, true, &tables, &launch);
    job_device->ops->fire(job_device, &launch);
    memset(&tables, 0, sizeof(tables)); /* they were copied */
    assert_int_equal(job_end_of(&launch), 0);
}

int job_main(const struct CMUnitTest *tests, size_t n_tests, int argc, char **argv)
{
    struct reason why = REASON_NULL;
    if (device_open("cuda:0", 0, 0, &job_device, &why) != 0 || job_device->cuda_arch < 90) {
        print_message("skipped: no GPU with programmatic dependent launch: %s\n", why.text);
        return SKIPPED;
    }
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    int n_failed = _cmocka_run_group_tests("tests", tests, n_tests, NULL, NULL);
    (void)device_close(job_device);
    return n_failed;
}
