/* test-gpu-ahead.c - launches that are queued before their rows are known, through the device seam:
 * the bits are those of ordinary launches; whoever is disarmed, or told too late, leaves no trace;
 * and nobody is told twice or lost, however close to the bound. x and y are page-locked, so that
 * the CPU sees what the GPU did. Argument: the test to run, else all (test_same_bits is what
 * sanitizers have time for). Skipped without a GPU of compute capability 9.0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/device/device.h"
#include "ipc/base/clock.h"
#include "ipc/base/num.h"
#include "tests/unit/kernels/kernel_case.h"

#define SKIPPED     77
#define N           136u
#define K           2304u
#define M_MAX       16u
#define LONG_USEC   1000000u /* nobody is late */
#define POISON      0xa5
#define NOT_WRITTEN 0xffffffffu

#define assert_cuda(call) assert_int_equal((call), cudaSuccess)

static struct device *device;

/* ---- a weight with its rows ---- */

struct job {
    struct gk_problem problem;
    const struct gk_kernel *kernel;
    struct region weight;
    uint8_t *x; /* (M_MAX, k) */
    uint8_t *y; /* (2, M_MAX, n): of ordinary and of armed launches */
    uint64_t x_row_bytes;
    uint64_t y_row_bytes;
    uint32_t *words; /* (M_MAX): what signals write */
};

/* Tables of one launch. */
struct tables {
    const void *x_rows[M_MAX];
    void *y_rows[M_MAX];
    struct device_signal signals[M_MAX];
};

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
    assert_int_equal(device->ops->region_new(device, "test",
                                             job->problem.layout->packed_bytes(desc), &job->weight,
                                             NULL),
                     0);
    assert_int_equal(device_view_begin(device, &job->weight, DEVICE_WRITE, &bytes, NULL), 0);
    job->problem.layout->pack(&canonical, bytes);
    assert_int_equal(device_view_end(device, &job->weight, DEVICE_WRITE, NULL), 0);
    gk_canonical_finish(&canonical);
}

static void job_init(struct job *job, const struct gk_desc *desc, enum dtype x_dtype,
                     enum dtype y_dtype)
{
    struct random random = {1};
    *job = (struct job){.problem = {.desc = *desc,
                                    .layout = gk_layout_for(desc, GK_DEVICE_CUDA),
                                    .m = M_MAX,
                                    .x_dtype = x_dtype,
                                    .y_dtype = y_dtype,
                                    .cuda_arch = device->cuda_arch}};
    write_weight(job, &random);
    job->x_row_bytes = desc->k * (uint64_t)dtype_bytes(x_dtype);
    job->y_row_bytes = desc->n * (uint64_t)dtype_bytes(y_dtype);
    job->x = pinned(M_MAX * job->x_row_bytes);
    job->y = pinned(2 * M_MAX * job->y_row_bytes);
    job->words = pinned(M_MAX * sizeof(*job->words));
    for (uint64_t i = 0; i < (uint64_t)M_MAX * desc->k; i++) {
        elem_store(job->x, x_dtype, i, random_unit(&random));
    }
    uint64_t scratch_bytes = gk_workspace_max(desc, job->problem.layout, device->cuda_arch);
    assert_int_equal(device->ops->reserve(device, scratch_bytes, 0, NULL), 0);
}

static void job_finish(struct job *job)
{
    device->ops->region_free(device, &job->weight);
    assert_cuda(cudaFreeHost(job->x));
    assert_cuda(cudaFreeHost(job->y));
    assert_cuda(cudaFreeHost(job->words));
}

/* A weight of one strip, which is done in no time. */
static void small_job_init(struct job *job)
{
    struct gk_desc desc = desc_int4(16, 256, 128, DTYPE_F16, DTYPE_NONE);
    job_init(job, &desc, DTYPE_BF16, DTYPE_BF16);
    job->kernel = gk_kernel_named("cuda_strip_gemm");
    assert_non_null(job->kernel);
}

/* Row i of x to row i of y: ordinary launches to the first half. */
static void fill_in(const struct job *job, uint32_t m, bool is_ahead, struct tables *tables,
                    struct device_launch *launch)
{
    uint8_t *y = job->y + (is_ahead ? M_MAX * job->y_row_bytes : 0);
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

static struct device_launch launch_of(const struct job *job, uint32_t m)
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
    while ((launch = device->ops->poll(device)) == NULL && time(NULL) < end) {
    }
    return launch;
}

static int end_of(struct device_launch *launch)
{
    assert_ptr_equal(wait_launch(), launch);
    return launch->result;
}

static void poison(const struct job *job)
{
    memset(job->y, POISON, 2 * M_MAX * job->y_row_bytes);
    memset(job->words, 0xff, M_MAX * sizeof(*job->words));
}

static bool is_poisoned(const uint8_t *bytes, uint64_t n)
{
    uint64_t i = 0;
    while (i < n && bytes[i] == POISON) {
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

/* Are m rows of an armed launch the ordinary ones, with their signals, and nothing else? */
static void expect_rows(const struct job *job, uint32_t m)
{
    const uint8_t *armed = job->y + M_MAX * job->y_row_bytes;
    uint64_t n_bytes = m * job->y_row_bytes;
    assert_memory_equal(armed, job->y, n_bytes);
    assert_true(is_poisoned(armed + n_bytes, M_MAX * job->y_row_bytes - n_bytes));
    for (uint32_t i = 0; i < M_MAX; i++) {
        assert_int_equal(word_at_last(&job->words[i], i < m ? i + 1 : NOT_WRITTEN),
                         i < m ? i + 1 : NOT_WRITTEN);
    }
}

/* ---- the same bits ---- */

static void run_ordinary(const struct job *job, uint32_t m)
{
    struct tables tables;
    struct device_launch launch = launch_of(job, m);
    fill_in(job, m, false, &tables, &launch);
    launch.n_signals = 0;
    assert_int_equal(device->ops->launch(device, &launch), 0);
    assert_int_equal(end_of(&launch), 0);
}

/* x is there only once it waits: nothing of it may be read before. */
static void run_armed(const struct job *job, uint32_t m, uint32_t most)
{
    struct tables tables;
    struct device_launch launch = launch_of(job, most);
    uint64_t x_bytes = M_MAX * job->x_row_bytes;
    void *kept = malloc(x_bytes);
    assert_non_null(kept);
    memcpy(kept, job->x, x_bytes);
    memset(job->x, 0, x_bytes);
    launch.holds_place = m % 2 == 0;
    assert_int_equal(device->ops->arm(device, &launch, LONG_USEC), 0);
    assert_null(device->ops->poll(device));
    memcpy(job->x, kept, x_bytes);
    free(kept);
    fill_in(job, m, true, &tables, &launch);
    device->ops->fire(device, &launch);
    memset(&tables, 0, sizeof(tables)); /* they were copied */
    assert_int_equal(end_of(&launch), 0);
}

static uint32_t compare_kernels(struct job *job)
{
    uint32_t n_kernels, n_compared = 0;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        job->kernel = kernels[i];
        if (kernels[i]->rows_ahead_max == NULL || gk_judge(&job->problem, kernels[i], NULL) != 0) {
            continue;
        }
        for (uint32_t m = 1; m <= M_MAX; m++) {
            poison(job);
            run_ordinary(job, m);
            run_armed(job, m, m % 3 == 0 ? M_MAX : m);
            expect_rows(job, m);
            n_compared++;
        }
    }
    return n_compared;
}

static void test_same_bits(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    uint32_t n_formats = 0;
    for (uint32_t i = 0; i < n_format_cases; i++) {
        struct job job;
        struct gk_desc desc =
            format_desc(&format_cases[i], N, K, i % 2 == 0 ? DTYPE_BF16 : DTYPE_NONE);
        job_init(&job, &desc, types[i % 2], types[i % 3]);
        uint32_t n = compare_kernels(&job);
        print_message("%s: %u launches\n", format_cases[i].name, n);
        const struct gk_kernel *chosen;
        assert_int_equal(gk_select(&job.problem, &chosen, NULL), 0);
        assert_true(n > 0 || strcmp(chosen->numerics, "strip") != 0);
        n_formats += n > 0;
        job_finish(&job);
    }
    assert_true(n_formats >= 10);
}

/* ---- nobody comes ---- */

static void expect_nothing(const struct job *job)
{
    assert_true(is_poisoned(job->y, 2 * M_MAX * job->y_row_bytes));
    assert_int_equal(*(volatile uint32_t *)&job->words[0], NOT_WRITTEN);
}

static void test_disarmed(void **state)
{
    (void)state;
    struct job job;
    struct tables tables;
    small_job_init(&job);
    for (uint32_t i = 0; i < 200; i++) {
        struct device_launch armed = launch_of(&job, M_MAX);
        struct device_launch behind = launch_of(&job, M_MAX);
        struct device_launch another = launch_of(&job, M_MAX);
        poison(&job);
        assert_int_equal(device->ops->arm(device, &armed, LONG_USEC), 0);
        assert_int_equal(device->ops->arm(device, &another, LONG_USEC), -EAGAIN);
        device->ops->disarm(device, &armed);
        if (i % 2 == 0) {
            assert_int_equal(end_of(&armed), -ECANCELED);
            expect_nothing(&job);
            continue;
        }
        fill_in(&job, M_MAX, false, &tables, &behind);
        assert_int_equal(device->ops->launch(device, &behind), 0);
        assert_int_equal(end_of(&armed), -ECANCELED);
        assert_int_equal(end_of(&behind), 0);
        assert_false(is_poisoned(job.y, M_MAX * job.y_row_bytes));
    }
    job_finish(&job);
}

static void test_given_up(void **state)
{
    (void)state;
    struct job job;
    small_job_init(&job);
    for (uint32_t i = 0; i < 20; i++) {
        struct device_launch launch = launch_of(&job, M_MAX);
        uint64_t start_nsec = clock_now_nsec();
        poison(&job);
        assert_int_equal(device->ops->arm(device, &launch, 500), 0);
        assert_int_equal(end_of(&launch), -ECANCELED);
        assert_true(clock_now_nsec() - start_nsec > 450000);
        expect_nothing(&job);
        run_ordinary(&job, 5);
        run_armed(&job, 5, 5);
        expect_rows(&job, 5);
    }
    job_finish(&job);
}

static void test_what_cannot_wait(void **state)
{
    (void)state;
    struct job job;
    small_job_init(&job);
    struct device_launch launch = launch_of(&job, GK_BATCH_ROWS_MAX + 1);
    assert_int_equal(device->ops->arm(device, &launch, LONG_USEC), -ENOTSUP);
    launch = launch_of(&job, M_MAX);
    launch.kernel = gk_kernel_named("cuda_any_gemm_simple");
    assert_non_null(launch.kernel);
    assert_int_equal(device->ops->arm(device, &launch, LONG_USEC), -ENOTSUP);
    assert_null(device->ops->poll(device));
    job_finish(&job);
}

/* Fired about when the gate gives up: a little later each time it was in time, a little earlier
 * each time it was not. */
static void test_race(void **state)
{
    (void)state;
    enum { N_FIRES = 10000, LIMIT_USEC = 20 };
    struct job job;
    struct tables tables;
    struct random random = {1};
    uint32_t n_in_time = 0;
    int64_t delay_nsec = LIMIT_USEC * 1000;
    small_job_init(&job);
    run_ordinary(&job, M_MAX);
    for (uint32_t i = 0; i < N_FIRES; i++) {
        uint32_t m = 1 + i % M_MAX;
        struct device_launch launch = launch_of(&job, M_MAX);
        launch.holds_place = i % 4 == 0;
        memset(job.y + M_MAX * job.y_row_bytes, POISON, M_MAX * job.y_row_bytes);
        memset(job.words, 0xff, M_MAX * sizeof(*job.words));
        assert_int_equal(device->ops->arm(device, &launch, LIMIT_USEC), 0);
        uint64_t end_nsec = clock_now_nsec() + (uint64_t)(delay_nsec > 0 ? delay_nsec : 0);
        while (clock_now_nsec() < end_nsec) {
        }
        fill_in(&job, m, true, &tables, &launch);
        device->ops->fire(device, &launch);
        bool is_in_time = end_of(&launch) == 0;
        expect_rows(&job, is_in_time ? m : 0);
        assert_true(is_in_time || launch.result == -ECANCELED);
        n_in_time += is_in_time;
        delay_nsec += (is_in_time ? 1 : -1) * (int64_t)(random_next(&random) % 400);
    }
    print_message("%u of %u came in time\n", n_in_time, (unsigned)N_FIRES);
    assert_true(n_in_time > N_FIRES / 10 && n_in_time < N_FIRES - N_FIRES / 10);
    job_finish(&job);
}

/* ---- many in flight ---- */

struct traffic {
    struct job job;
    struct device_launch launches[4];
    struct tables tables[4];
    int expected[4];
    uint32_t first, n; /* in flight, in order */
    int i_armed;       /* -1: none */
};

static void expect_first(struct traffic *traffic)
{
    uint32_t i = traffic->first++ % 4;
    traffic->n--;
    assert_int_equal(end_of(&traffic->launches[i]), traffic->expected[i]);
}

static uint32_t next_place(struct traffic *traffic, uint32_t m)
{
    uint32_t i = (traffic->first + traffic->n++) % 4;
    traffic->launches[i] = launch_of(&traffic->job, m);
    return i;
}

static void settle_armed(struct traffic *traffic, uint32_t choice)
{
    uint32_t i = (uint32_t)traffic->i_armed;
    traffic->i_armed = -1;
    traffic->expected[i] = choice % 3 == 0 ? -ECANCELED : 0;
    if (choice % 3 == 0) {
        device->ops->disarm(device, &traffic->launches[i]);
        return;
    }
    fill_in(&traffic->job, 1 + choice % M_MAX, true, &traffic->tables[i], &traffic->launches[i]);
    device->ops->fire(device, &traffic->launches[i]);
}

static void arm_next(struct traffic *traffic)
{
    uint32_t i = next_place(traffic, M_MAX);
    traffic->launches[i].holds_place = i % 2 == 0;
    int r = device->ops->arm(device, &traffic->launches[i], LONG_USEC);
    assert_true(r == 0 || r == -EAGAIN);
    traffic->n -= r != 0;
    traffic->i_armed = r == 0 ? (int)i : -1;
}

static void start_next(struct traffic *traffic, uint32_t m)
{
    uint32_t i = next_place(traffic, m);
    fill_in(&traffic->job, m, false, &traffic->tables[i], &traffic->launches[i]);
    traffic->expected[i] = 0;
    int r = device->ops->launch(device, &traffic->launches[i]);
    assert_true(r == 0 || r == -EAGAIN);
    traffic->n -= r != 0;
}

static void test_many_in_flight(void **state)
{
    (void)state;
    struct random random = {3};
    struct traffic traffic = {.i_armed = -1};
    small_job_init(&traffic.job);
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t choice = random_next(&random);
        if (traffic.i_armed >= 0) {
            settle_armed(&traffic, choice);
        } else if (traffic.n == 4 || (traffic.n > 0 && choice % 4 == 0)) {
            expect_first(&traffic);
        } else if (choice % 4 == 1) {
            start_next(&traffic, 1 + choice / 4 % M_MAX);
        } else {
            arm_next(&traffic);
        }
    }
    if (traffic.i_armed >= 0) {
        settle_armed(&traffic, 0);
    }
    while (traffic.n > 0) {
        expect_first(&traffic);
    }
    assert_null(device->ops->poll(device));
    poison(&traffic.job);
    run_ordinary(&traffic.job, M_MAX);
    run_armed(&traffic.job, M_MAX, M_MAX);
    expect_rows(&traffic.job, M_MAX);
    job_finish(&traffic.job);
}

/* Last: the device is lost then. */
static void test_faults(void **state)
{
    (void)state;
    struct job job;
    struct tables tables;
    small_job_init(&job);
    poison(&job);
    for (uint32_t i = 0; i < 2; i++) {
        int status = i == 0 ? STATUS_DEVICE_ERROR : STATUS_DEVICE_LOST;
        struct device_launch launch = launch_of(&job, M_MAX);
        assert_int_equal(fault_inject(&device->fault, status, 1), 0);
        assert_int_equal(device->ops->arm(device, &launch, LONG_USEC), 0);
        fill_in(&job, M_MAX, true, &tables, &launch);
        device->ops->fire(device, &launch);
        assert_int_equal(end_of(&launch), status);
        expect_nothing(&job);
    }
    job_finish(&job);
}

int main(int argc, char **argv)
{
    struct reason why = REASON_NULL;
    if (device_open("cuda:0", 0, 0, &device, &why) != 0 || device->cuda_arch < 90) {
        print_message("skipped: no GPU with programmatic dependent launch: %s\n", why.text);
        return SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_disarmed),
        cmocka_unit_test(test_given_up),  cmocka_unit_test(test_what_cannot_wait),
        cmocka_unit_test(test_race),      cmocka_unit_test(test_many_in_flight),
        cmocka_unit_test(test_faults),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)device_close(device);
    return n_failed;
}
