/* test-gpu-device.c - the CUDA back end through the device seam: names, regions, views, scratch,
 * launches in flight, faults. Skipped without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/device/device.h"
#include "ipc/base/num.h"
#include "tests/unit/kernels/kernel_case.h"

#define SKIPPED 77
#define N       256u
#define K       512u

static struct device *device;

static void test_names(void **state)
{
    (void)state;
    struct device *other;
    struct reason why = REASON_NULL;
    assert_string_equal(device->name, "cuda:0");
    assert_int_equal(strlen(device->uuid), strlen("GPU-00000000-0000-0000-0000-000000000000"));
    assert_true(device_is_named(device, device->uuid));
    assert_true(device->cuda_arch >= 80);
    assert_non_null(strstr(device->description, "GiB"));
    assert_int_equal(device_open("cuda:99", 0, 0, &other, &why), STATUS_NOT_FOUND);
    assert_non_null(strstr(why.text, "cuda:99"));
    assert_int_equal(device_open("GPU-nonsense", 0, 0, &other, &why), STATUS_NOT_FOUND);
    assert_int_equal(device_open(device->uuid, 4, 0, &other, &why), 0);
    assert_string_equal(other->name, "cuda:0");
    assert_null(device_close(other));
    char name[64];
    assert_true(device_auto_name(0, name, sizeof(name)));
    assert_string_equal(name, "cuda:0");
}

static void test_regions(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    for (uint32_t i = 0; i < 20; i++) {
        struct region region = REGION_NULL;
        uint8_t *bytes;
        uint64_t sum = 0;
        assert_int_equal(device->ops->region_new(device, "test", 1000 + i, &region, &why), 0);
        assert_true(region.fd >= 0);
        assert_true((fcntl(region.fd, F_GETFD) & FD_CLOEXEC) != 0);
        assert_int_equal(region.size_bytes % device->region_align, 0);
        assert_int_equal(device_view_begin(device, &region, DEVICE_READ, (void **)&bytes, &why), 0);
        for (uint64_t j = 0; j < region.size_bytes; j++) {
            sum += bytes[j]; /* what the round before left in the memory must not be seen */
        }
        assert_int_equal(device_view_end(device, &region, DEVICE_READ, &why), 0);
        assert_int_equal(sum, 0);
        assert_int_equal(device_view_begin(device, &region, DEVICE_WRITE, (void **)&bytes, &why),
                         0);
        memset(bytes, 0xa0 + (int)i, region.size_bytes);
        assert_int_equal(device_view_end(device, &region, DEVICE_WRITE, &why), 0);
        assert_int_equal(device_view_begin(device, &region, DEVICE_READ, (void **)&bytes, &why), 0);
        assert_int_equal(bytes[region.size_bytes - 1], 0xa0 + i);
        assert_int_equal(device_view_end(device, &region, DEVICE_READ, &why), 0);
        device->ops->region_free(device, &region);
        assert_int_equal(region.fd, -1);
    }
}

/* Of regions of odd sizes, all at once: the CPU's value, and another one after a flipped bit. */
static void test_digests(void **state)
{
    (void)state;
    enum { N_REGIONS = 5 };
    struct reason why = REASON_NULL;
    struct region regions[N_REGIONS];
    const struct region *all[N_REGIONS];
    struct gk_digest found[N_REGIONS];
    for (uint32_t i = 0; i < N_REGIONS; i++) {
        uint64_t *words;
        struct gk_digest expected = {0, 0};
        all[i] = &regions[i];
        assert_int_equal(
            device->ops->region_new(device, "test", 1 + (i * 7ull << 20), &regions[i], &why), 0);
        assert_int_equal(
            device_view_begin(device, &regions[i], DEVICE_WRITE, (void **)&words, &why), 0);
        for (uint64_t j = 0; j < regions[i].size_bytes / 8; j++) {
            words[j] = (j + i) * 0x9e3779b97f4a7c15u;
        }
        gk_digest_add(&expected, words, 0, regions[i].size_bytes / 8);
        assert_int_equal(device_view_end(device, &regions[i], DEVICE_WRITE, &why), 0);
        assert_int_equal(device_digest(device, all, i + 1, found, &why), 0);
        assert_true(gk_digest_is_same(&found[i], &expected));
    }
    uint8_t *bytes;
    struct gk_digest flipped[N_REGIONS];
    assert_int_equal(device_view_begin(device, &regions[3], DEVICE_READ, (void **)&bytes, &why), 0);
    bytes[regions[3].size_bytes - 1] ^= 1;
    assert_int_equal(device_view_end(device, &regions[3], DEVICE_WRITE, &why), 0);
    assert_int_equal(device_digest(device, all, N_REGIONS, flipped, &why), 0);
    for (uint32_t i = 0; i < N_REGIONS; i++) {
        assert_int_equal(gk_digest_is_same(&found[i], &flipped[i]), i != 3);
        device->ops->region_free(device, &regions[i]);
    }
}

static void test_too_much_memory(void **state)
{
    (void)state;
    struct region region = REGION_NULL;
    struct reason why = REASON_NULL;
    assert_int_equal(device->ops->region_new(device, "test", 1ull << 45, &region, &why),
                     STATUS_NO_SPACE);
    assert_non_null(strstr(why.text, "left"));
    assert_int_equal(device->ops->reserve(device, 1ull << 45, 0, &why), STATUS_NO_SPACE);
    assert_int_equal(device->ops->reserve(device, 5u << 20, 0, &why), 0);
    assert_int_equal(device->ops->reserve(device, 3u << 20, 0, &why), 0);
    assert_int_equal(device->ops->reserve(device, 9u << 20, 0, &why), 0);
}

/* ---- launches ---- */

struct job {
    struct region weight;
    struct region x;
    struct region y;
    const void *x_rows[GK_BATCH_ROWS_MAX];
    void *y_rows[GK_BATCH_ROWS_MAX];
    struct gk_problem problem;
    const struct gk_kernel *kernel;
};

static void write_region(struct region *region, uint64_t size_bytes, const void *source)
{
    struct reason why = REASON_NULL;
    void *bytes;
    assert_int_equal(device->ops->region_new(device, "test", size_bytes, region, &why), 0);
    assert_int_equal(device_view_begin(device, region, DEVICE_WRITE, &bytes, &why), 0);
    memcpy(bytes, source, size_bytes);
    assert_int_equal(device_view_end(device, region, DEVICE_WRITE, &why), 0);
}

/* Codes of 9 and scales of 1: every element of y is the sum of its row of x. */
static void job_init(struct job *job)
{
    struct gk_canonical canonical;
    struct gk_desc desc = desc_int4(N, K, 128, DTYPE_F16, DTYPE_NONE);
    canonical_fill(&canonical, &desc, 9, 1.0);
    job->problem = (struct gk_problem){.desc = desc,
                                       .layout = gk_layout_for(&desc, GK_DEVICE_CUDA),
                                       .m = GK_BATCH_ROWS_MAX,
                                       .x_dtype = DTYPE_F32,
                                       .y_dtype = DTYPE_F32,
                                       .cuda_arch = device->cuda_arch};
    uint64_t packed_bytes = job->problem.layout->packed_bytes(&desc);
    void *packed = calloc(1, packed_bytes);
    float *x = calloc(GK_BATCH_ROWS_MAX * K, sizeof(*x));
    float *y = calloc(GK_BATCH_ROWS_MAX * N, sizeof(*y));
    assert_true(packed != NULL && x != NULL && y != NULL);
    job->problem.layout->pack(&canonical, packed);
    for (uint32_t i = 0; i < GK_BATCH_ROWS_MAX * K; i++) {
        x[i] = (float)(i / K + 1);
    }
    write_region(&job->weight, packed_bytes, packed);
    write_region(&job->x, sizeof(*x) * GK_BATCH_ROWS_MAX * K, x);
    write_region(&job->y, sizeof(*y) * GK_BATCH_ROWS_MAX * N, y);
    for (uint32_t i = 0; i < GK_BATCH_ROWS_MAX; i++) {
        job->x_rows[i] = (float *)job->x.base + i * K;
        job->y_rows[i] = (float *)job->y.base + i * N;
    }
    uint64_t scratch_bytes = gk_workspace_max(&job->problem);
    assert_int_equal(device->ops->reserve(device, scratch_bytes, 0, NULL), 0);
    assert_int_equal(gk_select(&job->problem, &job->kernel, NULL), 0);
    gk_canonical_finish(&canonical);
    free(packed);
    free(x);
    free(y);
}

static void job_finish(struct job *job)
{
    device->ops->region_free(device, &job->weight);
    device->ops->region_free(device, &job->x);
    device->ops->region_free(device, &job->y);
}

static struct device_launch launch_of(const struct job *job, uint32_t m)
{
    struct device_launch launch = {
        .kernel = job->kernel,
        .gk = {.problem = job->problem,
               .packed = job->weight.base,
               .x_rows = job->x_rows,
               .y_rows = (void *const *)job->y_rows},
        .result = -1,
    };
    launch.gk.problem.m = m;
    return launch;
}

static struct device_launch *wait_launch(void)
{
    struct device_launch *launch;
    time_t end = time(NULL) + 10;
    while ((launch = device->ops->poll(device)) == NULL && time(NULL) < end) {
    }
    return launch;
}

static void test_two_in_flight(void **state)
{
    (void)state;
    struct job job;
    float *y;
    job_init(&job);
    assert_int_equal(device->launches_max, 2);
    for (uint32_t i = 0; i < 300; i++) {
        struct device_launch first = launch_of(&job, GK_BATCH_ROWS_MAX);
        struct device_launch second = launch_of(&job, 1);
        struct device_launch third = launch_of(&job, 1);
        assert_int_equal(device->ops->launch(device, &first), 0);
        assert_int_equal(device->ops->launch(device, &second), 0);
        assert_int_equal(device->ops->launch(device, &third), -EAGAIN);
        assert_ptr_equal(wait_launch(), &first);
        assert_ptr_equal(wait_launch(), &second);
        assert_int_equal(first.result, 0);
        assert_int_equal(second.result, 0);
        assert_true(first.end_nsec > first.start_nsec);
        assert_true(second.start_nsec >= first.end_nsec);
    }
    assert_null(device->ops->poll(device));
    assert_int_equal(device_view_begin(device, &job.y, DEVICE_READ, (void **)&y, NULL), 0);
    for (uint32_t i = 0; i < GK_BATCH_ROWS_MAX * N; i++) {
        assert_true(y[i] == (float)(K * (i / N + 1)));
    }
    assert_int_equal(device_view_end(device, &job.y, DEVICE_READ, NULL), 0);
    job_finish(&job);
}

static void run_to(const struct job *job, int result)
{
    struct device_launch launch = launch_of(job, 3);
    assert_int_equal(device->ops->launch(device, &launch), 0);
    assert_ptr_equal(wait_launch(), &launch);
    assert_int_equal(launch.result, result);
}

/* A real fault, last of all: the context does not survive it. */
static void test_faults(void **state)
{
    (void)state;
    struct job job;
    job_init(&job);
    assert_int_equal(fault_inject(&device->fault, STATUS_DEVICE_ERROR, 2), 0);
    run_to(&job, 0);
    run_to(&job, STATUS_DEVICE_ERROR);
    run_to(&job, 0);
    job.x_rows[1] = (const void *)(uintptr_t)64; /* nobody's address */
    struct device_launch bad = launch_of(&job, 3);
    struct device_launch behind = launch_of(&job, 1);
    assert_int_equal(device->ops->launch(device, &bad), 0);
    assert_int_equal(device->ops->launch(device, &behind), 0);
    assert_ptr_equal(wait_launch(), &bad);
    assert_int_equal(bad.result, STATUS_DEVICE_LOST);
    assert_ptr_equal(wait_launch(), &behind);
    assert_int_equal(behind.result, STATUS_DEVICE_LOST);
    run_to(&job, STATUS_DEVICE_LOST);
    job_finish(&job);
}

static void test_kernels_are_timed(void **state)
{
    (void)state;
    struct job job;
    struct reason why = REASON_NULL;
    job_init(&job);
    const void *const packed[] = {job.weight.base, job.weight.base};
    struct device_trial trial = {.kernel = job.kernel,
                                 .problem = job.problem,
                                 .packed = packed,
                                 .n_packed = 2,
                                 .budget_usec = 2000};
    double usec = 0;
    assert_int_equal(device_time(device, &trial, &usec, &why), 0);
    assert_true(usec > 0.5 && usec < 1e6);
    print_message("%s: %.1f us; memory is read at %.0f GB/s\n", job.kernel->name, usec,
                  device->read_gbps);
    assert_true(device->read_gbps > 50);
    job_finish(&job);
}

int main(void)
{
    struct reason why = REASON_NULL;
    if (device_open("cuda:0", 0, 0, &device, &why) != 0) {
        print_message("skipped: %s\n", why.text);
        return SKIPPED;
    }
    print_message("%s %s: %s\n", device->name, device->uuid, device->description);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),         cmocka_unit_test(test_regions),
        cmocka_unit_test(test_digests),       cmocka_unit_test(test_too_much_memory),
        cmocka_unit_test(test_two_in_flight), cmocka_unit_test(test_kernels_are_timed),
        cmocka_unit_test(test_faults),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)device_close(device);
    return n_failed;
}
