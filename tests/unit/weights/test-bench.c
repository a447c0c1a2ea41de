/* test-bench.c - jobs that time kernels: which, at which m, what comes of them, what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/weights/bench.h"
#include "tests/unit/weights/loader_fixture.h"

#define assert_near(a, b, error) assert_true(fabs((a) - (b)) <= (error))

static struct loader_request request_of_bench(const char *format)
{
    struct loader_request request = {.kind = LOADER_JOB_BENCH,
                                     .device = &f.fake.base,
                                     .bench = {.n = 64, .k = 256, .m = {200, 1, 16, 1}, .n_m = 4}};
    (void)snprintf(request.name, sizeof(request.name), "bench");
    (void)snprintf(request.bench.format, sizeof(request.bench.format), "%s", format);
    return request;
}

static uint64_t start_bench(const struct loader_request *request)
{
    uint64_t job_id;
    if (loader_start(f.loader, request, &job_id, &f.why) != 0) {
        fail_msg("%s", f.why.text);
    }
    return job_id;
}

/* The ended job, whose result is the caller's. */
static struct msg_job run_bench(const struct loader_request *request, int status)
{
    struct msg_job job;
    uint64_t job_id = start_bench(request);
    assert_int_equal(loader_wait(f.loader, job_id, &f.why), status);
    assert_int_equal(loader_status(f.loader, job_id, &job, &f.why), 0);
    assert_string_equal(job.kind, "bench");
    return job;
}

static void finish_job(struct msg_job *job)
{
    struct msg_reply holder = {.body = MSG_BODY_JOB, .job = *job};
    msg_reply_finish(&holder);
}

static const struct msg_bench_row *find_row(const struct msg_bench_result *result,
                                            const char *kernel, uint32_t m)
{
    for (uint32_t i = 0; i < result->n_rows; i++) {
        if (result->rows[i].m == m && strcmp(result->rows[i].kernel, kernel) == 0) {
            return &result->rows[i];
        }
    }
    return NULL;
}

static double rows_as_usec(const struct device_trial *trial)
{
    return trial->problem.m;
}

static bool is_portable(const struct device_trial *trial)
{
    return strncmp(trial->kernel->name, "portable", strlen("portable")) == 0;
}

static double portable_is_hopeless(const struct device_trial *trial)
{
    return is_portable(trial) ? 1000 : 10;
}

/* Every m once, ascending; every able kernel; launches of at most 64 rows added up. */
static void test_every_kernel_at_every_m(void **state)
{
    (void)state;
    f.fake.usec_of = rows_as_usec;
    f.fake.base.read_gbps = 10;
    struct loader_request request = request_of_bench("int4-g128");
    struct msg_job job = run_bench(&request, 0);
    const struct msg_bench_result *result = job.bench;
    assert_non_null(result);
    assert_string_equal(job.state, "done");
    assert_int_equal(job.done_bytes, job.total_bytes);
    assert_int_equal(result->n_copies, 64);
    assert_int_equal(result->flops, 2 * 64 * 256);
    assert_true(result->packed_bytes >= 64 * 128);
    assert_near(result->floor_usec, (double)result->packed_bytes / 10e3, 1e-9);
    assert_string_equal(result->format, "int4 sym g128 bf16");
    const struct msg_bench_row *row = find_row(result, "portable_int4_gemm_group", 200);
    assert_non_null(row);
    assert_int_equal(row->n_launches, 4);
    assert_near(row->usec, 200, 1e-9); /* 3 of 64, one of 8 */
    assert_true(row->is_eligible);
    assert_non_null(find_row(result, "portable_int4_gemm_group", 1));
    for (uint32_t i = 1; i < result->n_rows; i++) {
        assert_true(result->rows[i - 1].m <= result->rows[i].m);
    }
    assert_int_equal(result->n_rows % 3, 0);
    finish_job(&job);
}

/* One kernel at each m is what a weight would get. */
static void test_the_choice_is_marked(void **state)
{
    (void)state;
    struct loader_request request = request_of_bench("bf16");
    struct msg_job job = run_bench(&request, 0);
    uint32_t n_chosen = 0;
    for (uint32_t i = 0; i < job.bench->n_rows; i++) {
        n_chosen += job.bench->rows[i].is_chosen;
    }
    assert_int_equal(n_chosen, 3);
    finish_job(&job);
}

static void test_kernels_can_be_left_out(void **state)
{
    (void)state;
    struct loader_request request = request_of_bench("int4-g128");
    request.bench.n_off = 1;
    (void)snprintf(request.bench.off[0], sizeof(request.bench.off[0]), "portable_int4_gemm_group");
    struct msg_job job = run_bench(&request, 0);
    assert_null(find_row(job.bench, "portable_int4_gemm_group", 1));
    finish_job(&job);
}

static void test_hopeless_kernels_are_measured_once(void **state)
{
    (void)state;
    uint32_t n_host_kernels = 0;
    f.fake.usec_of = portable_is_hopeless;
    struct loader_request request = request_of_bench("int4-g128");
    struct msg_job job = run_bench(&request, 0);
    for (uint32_t i = 0; i < job.bench->n_rows; i++) {
        n_host_kernels += job.bench->rows[i].m == 1;
    }
    assert_non_null(find_row(job.bench, "portable_int4_gemm_group", 1));
    bool is_alone = n_host_kernels == 1; /* a machine with nothing better */
    assert_true(is_alone == (find_row(job.bench, "portable_int4_gemm_group", 16) != NULL));
    finish_job(&job);
}

/* A kernel that finds no room for its rows is a warning, and the job goes on. */
static void test_kernels_without_room(void **state)
{
    (void)state;
    atomic_store(&f.fake.is_untimeable, true);
    struct loader_request request = request_of_bench("int4-g128");
    struct msg_job job = run_bench(&request, 0);
    assert_int_equal(job.bench->n_rows, 0);
    assert_true(job.n_warnings > 0);
    assert_non_null(strstr(job.warnings[0], "no room for a trial"));
    finish_job(&job);
}

static void test_a_device_without_memory(void **state)
{
    (void)state;
    atomic_store(&f.fake.n_regions_left, 5);
    struct loader_request request = request_of_bench("int4-g128");
    struct msg_job job = run_bench(&request, STATUS_NO_SPACE);
    assert_null(job.bench);
    assert_string_equal(job.state, "failed");
    finish_job(&job);
    assert_int_equal(atomic_load(&f.fake.n_regions), 0);
}

static void test_cancelling_gives_the_memory_back(void **state)
{
    (void)state;
    struct loader_request request = request_of_bench("int4-g128");
    fake_device_set_gate(&f.fake, true);
    uint64_t job_id = start_bench(&request);
    fake_device_await_waiter(&f.fake);
    assert_int_equal(loader_cancel(f.loader, job_id, &f.why), 0);
    fake_device_set_gate(&f.fake, false);
    assert_int_equal(loader_wait(f.loader, job_id, &f.why), STATUS_CANCELLED);
    assert_int_equal(atomic_load(&f.fake.n_regions), 0);
    assert_int_equal(atomic_load(&f.fake.n_timed), 0);
    expect_job(job_id, "cancelled", STATUS_CANCELLED, "cancelled");
}

/* Two benches of the same are two jobs; neither is a model. */
static void test_the_store_sees_nothing(void **state)
{
    (void)state;
    struct loader_request request = request_of_bench("int4-g128");
    uint64_t first = start_bench(&request), second = start_bench(&request);
    assert_int_not_equal(first, second);
    assert_int_equal(loader_wait(f.loader, second, &f.why), 0);
    assert_null(store_hold(f.store, "bench"));
}

static void refused(const struct loader_request *request, int status, const char *text)
{
    uint64_t job_id;
    assert_int_equal(loader_start(f.loader, request, &job_id, &f.why), status);
    if (strstr(f.why.text, text) == NULL) {
        fail_msg("'%s', expected '%s'", f.why.text, text);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct loader_request request = request_of_bench("int5");
    refused(&request, STATUS_UNSUPPORTED, "no format 'int5'; there are bf16,");
    request = request_of_bench("bf16");
    request.bench.m[1] = 0;
    refused(&request, STATUS_INVALID_ARGUMENT, "m 0 is not between 1 and 8192");
    request.bench.m[1] = BENCH_ROWS_MAX + 1;
    refused(&request, STATUS_INVALID_ARGUMENT, "m 8193 is not between");
    request.bench.n_m = 0;
    refused(&request, STATUS_INVALID_ARGUMENT, "no m to measure at");
    request = request_of_bench("bf16");
    request.bench.n = 1u << 17;
    request.bench.k = 1u << 15;
    refused(&request, STATUS_INVALID_ARGUMENT, "over the limit of 2147483648 elements");
    request = request_of_bench("bf16");
    request.bench.budget_usec = BENCH_BUDGET_USEC_MAX + 1;
    refused(&request, STATUS_INVALID_ARGUMENT, "budget of 1000001 us");
    request = request_of_bench("bf16");
    request.bench.act_dtype = DTYPE_F32;
    refused(&request, STATUS_UNSUPPORTED, "bf16 or f16 here, not f32");
    request = request_of_bench("bf16");
    request.bench.n_off = 1;
    (void)snprintf(request.bench.off[0], sizeof(request.bench.off[0]), "nobody");
    refused(&request, STATUS_INVALID_ARGUMENT, "no kernel of this build is named 'nobody'");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, loader_set_up, loader_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_kernel_at_every_m),
        TEST(the_choice_is_marked),
        TEST(kernels_can_be_left_out),
        TEST(hopeless_kernels_are_measured_once),
        TEST(kernels_without_room),
        TEST(a_device_without_memory),
        TEST(cancelling_gives_the_memory_back),
        TEST(the_store_sees_nothing),
        TEST(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
