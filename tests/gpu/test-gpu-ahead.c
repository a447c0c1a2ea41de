/* test-gpu-ahead.c - launches that are queued before their rows are known, through the device seam:
 * the bits are those of ordinary launches; whoever is disarmed, or told too late, leaves no trace;
 * and nobody is told twice or lost, however close to the bound. x and y are page-locked, so that
 * the CPU sees what the GPU did. Argument: the test to run, else all (test_same_bits is what
 * sanitizers have time for). Skipped without a GPU of compute capability 9.0. */
#include "tests/gpu/ahead_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/clock.h"
#include "ipc/base/num.h"
#include "tests/unit/kernels/kernel_case.h"

#define N 136u
#define K 2304u

/* ---- the same bits ---- */

static uint32_t compare_kernels(struct job *job)
{
    uint32_t n_kernels, n_compared = 0;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        job->kernel = kernels[i];
        if (kernels[i]->rows_ahead_max == NULL || gk_judge(&job->problem, kernels[i], NULL) != 0) {
            continue;
        }
        for (uint32_t m = 1; m <= JOB_ROWS_MAX; m++) {
            job_poison(job);
            job_run_ordinary(job, m);
            job_run_armed(job, m, m % 3 == 0 ? JOB_ROWS_MAX : m);
            job_expect_rows(job, m);
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
    assert_true(job_is_poisoned(job->y, 2 * JOB_ROWS_MAX * job->y_row_bytes));
    assert_int_equal(*(volatile uint32_t *)&job->words[0], JOB_NOT_WRITTEN);
}

static void test_disarmed(void **state)
{
    (void)state;
    struct job job;
    struct tables tables;
    job_init_small(&job);
    for (uint32_t i = 0; i < 200; i++) {
        struct device_launch armed = job_launch(&job, JOB_ROWS_MAX);
        struct device_launch behind = job_launch(&job, JOB_ROWS_MAX);
        struct device_launch another = job_launch(&job, JOB_ROWS_MAX);
        job_poison(&job);
        assert_int_equal(job_device->ops->arm(job_device, &armed, JOB_LONG_USEC), 0);
        assert_int_equal(job_device->ops->arm(job_device, &another, JOB_LONG_USEC), -EAGAIN);
        job_device->ops->disarm(job_device, &armed);
        if (i % 2 == 0) {
            assert_int_equal(job_end_of(&armed), -ECANCELED);
            expect_nothing(&job);
            continue;
        }
        job_fill_in(&job, JOB_ROWS_MAX, false, &tables, &behind);
        assert_int_equal(job_device->ops->launch(job_device, &behind), 0);
        assert_int_equal(job_end_of(&armed), -ECANCELED);
        assert_int_equal(job_end_of(&behind), 0);
        assert_false(job_is_poisoned(job.y, JOB_ROWS_MAX * job.y_row_bytes));
    }
    job_finish(&job);
}

static void test_given_up(void **state)
{
    (void)state;
    struct job job;
    job_init_small(&job);
    for (uint32_t i = 0; i < 20; i++) {
        struct device_launch launch = job_launch(&job, JOB_ROWS_MAX);
        uint64_t start_nsec = clock_now_nsec();
        job_poison(&job);
        assert_int_equal(job_device->ops->arm(job_device, &launch, 500), 0);
        assert_int_equal(job_end_of(&launch), -ECANCELED);
        assert_true(clock_now_nsec() - start_nsec > 450000);
        expect_nothing(&job);
        job_run_ordinary(&job, 5);
        job_run_armed(&job, 5, 5);
        job_expect_rows(&job, 5);
    }
    job_finish(&job);
}

static void test_what_cannot_wait(void **state)
{
    (void)state;
    struct job job;
    job_init_small(&job);
    struct device_launch launch = job_launch(&job, GK_BATCH_ROWS_MAX + 1);
    assert_int_equal(job_device->ops->arm(job_device, &launch, JOB_LONG_USEC), -ENOTSUP);
    launch = job_launch(&job, JOB_ROWS_MAX);
    launch.kernel = gk_kernel_named("cuda_any_gemm_simple");
    assert_non_null(launch.kernel);
    assert_int_equal(job_device->ops->arm(job_device, &launch, JOB_LONG_USEC), -ENOTSUP);
    assert_null(job_device->ops->poll(job_device));
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
    job_init_small(&job);
    job_run_ordinary(&job, JOB_ROWS_MAX);
    for (uint32_t i = 0; i < N_FIRES; i++) {
        uint32_t m = 1 + i % JOB_ROWS_MAX;
        struct device_launch launch = job_launch(&job, JOB_ROWS_MAX);
        launch.holds_place = i % 4 == 0;
        memset(job.y + JOB_ROWS_MAX * job.y_row_bytes, JOB_POISON, JOB_ROWS_MAX * job.y_row_bytes);
        memset(job.words, 0xff, JOB_ROWS_MAX * sizeof(*job.words));
        assert_int_equal(job_device->ops->arm(job_device, &launch, LIMIT_USEC), 0);
        uint64_t end_nsec = clock_now_nsec() + (uint64_t)(delay_nsec > 0 ? delay_nsec : 0);
        while (clock_now_nsec() < end_nsec) {
        }
        job_fill_in(&job, m, true, &tables, &launch);
        job_device->ops->fire(job_device, &launch);
        bool is_in_time = job_end_of(&launch) == 0;
        job_expect_rows(&job, is_in_time ? m : 0);
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
    assert_int_equal(job_end_of(&traffic->launches[i]), traffic->expected[i]);
}

static uint32_t next_place(struct traffic *traffic, uint32_t m)
{
    uint32_t i = (traffic->first + traffic->n++) % 4;
    traffic->launches[i] = job_launch(&traffic->job, m);
    return i;
}

static void settle_armed(struct traffic *traffic, uint32_t choice)
{
    uint32_t i = (uint32_t)traffic->i_armed;
    traffic->i_armed = -1;
    traffic->expected[i] = choice % 3 == 0 ? -ECANCELED : 0;
    if (choice % 3 == 0) {
        job_device->ops->disarm(job_device, &traffic->launches[i]);
        return;
    }
    job_fill_in(&traffic->job, 1 + choice % JOB_ROWS_MAX, true, &traffic->tables[i],
                &traffic->launches[i]);
    job_device->ops->fire(job_device, &traffic->launches[i]);
}

static void arm_next(struct traffic *traffic)
{
    uint32_t i = next_place(traffic, JOB_ROWS_MAX);
    traffic->launches[i].holds_place = i % 2 == 0;
    int r = job_device->ops->arm(job_device, &traffic->launches[i], JOB_LONG_USEC);
    assert_true(r == 0 || r == -EAGAIN);
    traffic->n -= r != 0;
    traffic->i_armed = r == 0 ? (int)i : -1;
}

static void start_next(struct traffic *traffic, uint32_t m)
{
    uint32_t i = next_place(traffic, m);
    job_fill_in(&traffic->job, m, false, &traffic->tables[i], &traffic->launches[i]);
    traffic->expected[i] = 0;
    int r = job_device->ops->launch(job_device, &traffic->launches[i]);
    assert_true(r == 0 || r == -EAGAIN);
    traffic->n -= r != 0;
}

static void test_many_in_flight(void **state)
{
    (void)state;
    struct random random = {3};
    struct traffic traffic = {.i_armed = -1};
    job_init_small(&traffic.job);
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t choice = random_next(&random);
        if (traffic.i_armed >= 0) {
            settle_armed(&traffic, choice);
        } else if (traffic.n == 4 || (traffic.n > 0 && choice % 4 == 0)) {
            expect_first(&traffic);
        } else if (choice % 4 == 1) {
            start_next(&traffic, 1 + choice / 4 % JOB_ROWS_MAX);
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
    assert_null(job_device->ops->poll(job_device));
    job_poison(&traffic.job);
    job_run_ordinary(&traffic.job, JOB_ROWS_MAX);
    job_run_armed(&traffic.job, JOB_ROWS_MAX, JOB_ROWS_MAX);
    job_expect_rows(&traffic.job, JOB_ROWS_MAX);
    job_finish(&traffic.job);
}

/* Last: the device is lost then. */
static void test_faults(void **state)
{
    (void)state;
    struct job job;
    struct tables tables;
    job_init_small(&job);
    job_poison(&job);
    for (uint32_t i = 0; i < 2; i++) {
        int status = i == 0 ? STATUS_DEVICE_ERROR : STATUS_DEVICE_LOST;
        struct device_launch launch = job_launch(&job, JOB_ROWS_MAX);
        assert_int_equal(fault_inject(&job_device->fault, status, 1), 0);
        assert_int_equal(job_device->ops->arm(job_device, &launch, JOB_LONG_USEC), 0);
        job_fill_in(&job, JOB_ROWS_MAX, true, &tables, &launch);
        job_device->ops->fire(job_device, &launch);
        assert_int_equal(job_end_of(&launch), status);
        expect_nothing(&job);
    }
    job_finish(&job);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_disarmed),
        cmocka_unit_test(test_given_up),  cmocka_unit_test(test_what_cannot_wait),
        cmocka_unit_test(test_race),      cmocka_unit_test(test_many_in_flight),
        cmocka_unit_test(test_faults),
    };
    return job_main(tests, ARRAY_LENGTH(tests), argc, argv);
}
