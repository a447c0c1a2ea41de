/* Verification says yes to what is right, and no to one bit that is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/weights/loader_fixture.h"

/* ---- verifying ---- */

static void test_verify(void **state)
{
    (void)state;
    write_plain(0.25f);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    uint64_t job_id = start(LOADER_JOB_VERIFY, "m");
    assert_int_equal(loader_wait(f.loader, job_id, &f.why), 0);
    expect_job(job_id, "done", 0, "2 of 2 weights are bit for bit");
    job_id = start(LOADER_JOB_VERIFY, "m/q.r");
    assert_int_equal(loader_wait(f.loader, job_id, &f.why), 0);
    expect_job(job_id, "done", 0, "1 of 2 weights are bit for bit");
    assert_int_equal(start_fails(LOADER_JOB_VERIFY, "m/x"), STATUS_NOT_FOUND);
}

static void test_verify_quantised(void **state)
{
    (void)state;
    write_config("\"group_size\":64");
    write_flat(64, 256, 4, 13, ONE, 7);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    assert_int_equal(run(LOADER_JOB_VERIFY, "m"), 0);
}

static void test_verify_finds_a_difference(void **state)
{
    (void)state;
    write_plain(0.25f);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    struct weight *weight = store_find(f.store, "m/p");
    ((uint8_t *)weight->packed.base)[0] ^= 1;
    weight_unref(weight);
    assert_int_equal(run(LOADER_JOB_VERIFY, "m"), STATUS_INTERNAL);
    assert_non_null(strstr(f.why.text, "'m/p': value [0, 0] differs from the checkpoint"));
    write_plain(0.5f);
    assert_int_equal(run(LOADER_JOB_VERIFY, "m/q.r"), STATUS_INTERNAL);
}

/* ---- the real thing ---- */

/* A real checkpoint on the real host device, verified weight by weight. */
static void test_real_checkpoint(void **state)
{
    (void)state;
    const char *source = getenv("GEMMD_SOURCE_DIR");
    if (!source) {
        skip();
    }
    struct device *device;
    assert_int_equal(device_open("host", 0, 1, &device, &f.why), 0);
    struct loader_request request = request_of(LOADER_JOB_LOAD, "minilm");
    request.device = device;
    (void)snprintf(request.path, sizeof(request.path), "%s/tests/data/minilm-gptq-4bit", source);
    uint64_t job_id;
    assert_int_equal(loader_start(f.loader, &request, &job_id, &f.why), 0);
    assert_int_equal(loader_wait(f.loader, job_id, &f.why), 0);
    struct msg_weight *weights;
    uint32_t n;
    assert_int_equal(store_list_weights(f.store, "minilm", &weights, &n, &f.why), 0);
    free(weights);
    assert_true(n >= 36); /* six layers of six */
    job_id = start(LOADER_JOB_VERIFY, "minilm");
    assert_int_equal(loader_wait(f.loader, job_id, &f.why), 0);
    expect_job(job_id, "done", 0, "weights are bit for bit those of the checkpoint");
    struct msg_job job;
    assert_int_equal(loader_status(f.loader, job_id, &job, NULL), 0);
    print_message("%s\n", job.text);
    free(job.warnings);
    f.loader = loader_free(f.loader);
    f.store = store_free(f.store);
    device_close(device);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, loader_set_up, loader_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_verify),
        CASE(test_verify_quantised),
        CASE(test_verify_finds_a_difference),
        CASE(test_real_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
