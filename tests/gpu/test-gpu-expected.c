/* test-gpu-expected.c - armed launches that know the rows that should come, through the device
 * seam: they begin by themselves when all are ready, whoever is quicker, the device or the CPU, and
 * being disarmed at that very moment leaves all or nothing. Argument: the test to run, else all.
 * Skipped without a GPU of compute capability 9.0. */
#include "tests/gpu/ahead_job.h"

#include <errno.h>
#include <string.h>

#include "ipc/base/clock.h"
#include "ipc/base/num.h"

static void expect(const struct job *job, uint32_t m, struct device_expected *ret_expected)
{
    memset(job->ready, 0, JOB_ROWS_MAX * sizeof(*job->ready));
    for (uint32_t i = 0; i < m; i++) {
        ret_expected[i] = (struct device_expected){
            .x = job->x + i * job->x_row_bytes,
            .y = job->y + (JOB_ROWS_MAX + i) * job->y_row_bytes,
            .done = {(uintptr_t)&job->words[i], i + 1},
            .ready = {(uintptr_t)&job->ready[i], 7 + i},
        };
    }
}

static void arm_expecting(struct job *job, uint32_t m, bool holds_place,
                          struct device_launch *ret_launch)
{
    struct device_expected expected[JOB_ROWS_MAX];
    job_poison(job);
    job_run_ordinary(job, m);
    *ret_launch = job_launch(job, m);
    expect(job, m, expected);
    ret_launch->holds_place = holds_place;
    ret_launch->expected = expected;
    ret_launch->n_expected = m;
    assert_int_equal(job_device->ops->arm(job_device, ret_launch, JOB_LONG_USEC), 0);
    ret_launch->expected = NULL; /* it was copied */
}

static void say_ready(const struct job *job, uint32_t m)
{
    for (uint32_t i = 0; i < m; i++) {
        *(volatile uint32_t *)&job->ready[i] = 7 + i;
    }
}

static void fire(struct job *job, uint32_t m, struct device_launch *launch)
{
    struct tables tables;
    job_fill_in(job, m, true, &tables, launch);
    job_device->ops->fire(job_device, launch);
}

static void expect_no_trace(const struct job *job)
{
    assert_true(job_is_poisoned(job->y + JOB_ROWS_MAX * job->y_row_bytes,
                                (uint64_t)JOB_ROWS_MAX * job->y_row_bytes));
    assert_int_equal(*(volatile uint32_t *)&job->words[0], JOB_NOT_WRITTEN);
}

/* The device alone, the CPU alone, both: always the same rows, once. */
static void test_begins_by_itself(void **state)
{
    (void)state;
    struct job job;
    job_init_small(&job);
    for (uint32_t i = 0; i < 600; i++) {
        struct device_launch launch;
        uint32_t m = 1 + i % JOB_ROWS_MAX;
        arm_expecting(&job, m, i / 16 % 2 != 0, &launch);
        if (i % 3 != 1) {
            say_ready(&job, m);
        }
        if (i % 3 != 0) {
            fire(&job, m, &launch);
        }
        assert_int_equal(job_end_of(&launch), 0);
        job_expect_rows(&job, m);
        assert_true(i % 3 != 0 || launch.start_nsec == launch.end_nsec);
    }
    job_finish(&job);
}

static void test_waits_for_the_last(void **state)
{
    (void)state;
    struct job job;
    job_init_small(&job);
    for (uint32_t i = 0; i < 40; i++) {
        struct device_launch launch;
        uint32_t m = 2 + i % (JOB_ROWS_MAX - 1);
        uint64_t start_nsec = clock_now_nsec();
        arm_expecting(&job, m, i % 2 != 0, &launch);
        for (uint32_t j = 0; j < m; j++) {
            *(volatile uint32_t *)&job.ready[j] = (j == i % m ? 6 : 7) + j; /* the time before */
        }
        while (clock_now_nsec() - start_nsec < 300000) {
            assert_null(job_device->ops->poll(job_device));
        }
        job_device->ops->disarm(job_device, &launch);
        assert_int_equal(job_end_of(&launch), -ECANCELED);
        expect_no_trace(&job);
    }
    job_finish(&job);
}

/* However close: it has begun, and all is there, or nothing ever happens. */
static void test_disarmed_as_it_begins(void **state)
{
    (void)state;
    struct job job;
    uint32_t n_begun = 0, n = 2000;
    job_init_small(&job);
    for (uint32_t i = 0; i < n; i++) {
        struct device_launch launch;
        arm_expecting(&job, 5, i % 2 != 0, &launch);
        uint64_t start_nsec = clock_now_nsec();
        bool is_sooner = i % 4 < 2; /* the look at the table takes longer */
        if (!is_sooner) {
            job_device->ops->disarm(job_device, &launch);
        }
        while (clock_now_nsec() - start_nsec < i % 97 * 60) {
        }
        say_ready(&job, 5);
        if (is_sooner) {
            job_device->ops->disarm(job_device, &launch);
        }
        int result = job_end_of(&launch);
        assert_true(result == 0 || result == -ECANCELED);
        n_begun += result == 0;
        if (result == 0) {
            job_expect_rows(&job, 5);
        } else {
            expect_no_trace(&job);
        }
    }
    print_message("%u of %u had begun\n", n_begun, n);
    assert_true(n_begun > 0 && n_begun < n);
    job_finish(&job);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begins_by_itself),
        cmocka_unit_test(test_waits_for_the_last),
        cmocka_unit_test(test_disarmed_as_it_begins),
    };
    return job_main(tests, ARRAY_LENGTH(tests), argc, argv);
}
