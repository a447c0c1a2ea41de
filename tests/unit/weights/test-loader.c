/* Jobs from beginning to end: what is served after them, and what is not. The loading half of cases
 * T36 and T47. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/unit/weights/loader_fixture.h"

/* ---- loading ---- */

/* What the only model says of its load: all of the time was spent on something. */
static void expect_load_shares(uint64_t load_bytes)
{
    struct msg_model *models;
    uint32_t n;
    double sum = 0;
    assert_int_equal(store_list_models(f.store, &models, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(models[0].load_bytes, load_bytes);
    for (uint32_t i = 0; i < MSG_LOAD_PHASES; i++) {
        assert_true(models[0].load_shares[i] >= 0);
        sum += models[0].load_shares[i];
    }
    assert_float_equal(sum, 1.0, 1e-9);
    assert_true(models[0].load_shares[MSG_LOAD_READ] > 0);
    assert_true(models[0].load_shares[MSG_LOAD_PACK] > 0);
    free(models);
}

static void test_load_and_status(void **state)
{
    (void)state;
    write_plain(0.5f);
    uint64_t job_id = start(LOADER_JOB_LOAD, "m");
    assert_int_equal(loader_wait(f.loader, job_id, NULL), 0);
    expect_product("m/p", 16.0f);
    expect_product("m/q.r", 12.0f);
    struct msg_job job;
    assert_int_equal(loader_status(f.loader, job_id, &job, NULL), 0);
    assert_string_equal(job.kind, "load");
    assert_string_equal(job.state, "done");
    assert_int_equal(job.done_bytes, (16 * 32 + 8 * 24) * 4);
    assert_int_equal(job.total_bytes, job.done_bytes);
    assert_non_null(strstr(job.text, "2 weights"));
    assert_non_null(strstr(job.text, "GB/s (reading "));
    free(job.warnings);
    expect_load_shares(job.done_bytes);
    assert_int_equal(loader_status(f.loader, 999, &job, &f.why), STATUS_NOT_FOUND);
    assert_int_equal(loader_cancel(f.loader, 999, &f.why), STATUS_NOT_FOUND);
    assert_int_equal(loader_wait(f.loader, 999, &f.why), STATUS_NOT_FOUND);
    assert_int_equal(loader_cancel(f.loader, job_id, &f.why), 0);
    assert_true(store_has_model(f.store, "m"));
}

static void test_workspace_is_reserved(void **state)
{
    (void)state;
    write_config("\"group_size\":128");
    write_flat(64, 256, 2, 9, ONE, 7);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    struct weight *weight = store_find(f.store, "m/p");
    const struct gk_problem problem = weight_problem(weight);
    uint64_t needed_bytes = gk_workspace_max(&problem);
    weight_unref(weight);
    assert_int_equal(atomic_load(&f.fake.reserved_bytes), needed_bytes);
}

static void test_load_is_idempotent(void **state)
{
    (void)state;
    write_plain(1.0f);
    fake_device_set_gate(&f.fake, true);
    uint64_t first = start(LOADER_JOB_LOAD, "m");
    assert_int_equal(start(LOADER_JOB_LOAD, "m"), first);
    struct loader_request other = request_of(LOADER_JOB_LOAD, "m");
    (void)snprintf(other.path, sizeof(other.path), "/elsewhere");
    uint64_t job_id;
    assert_int_equal(loader_start(f.loader, &other, &job_id, &f.why), STATUS_EXISTS);
    assert_non_null(strstr(f.why.text, "is being loaded from"));
    fake_device_set_gate(&f.fake, false);
    assert_int_equal(loader_wait(f.loader, first, NULL), 0);
    /* served now: the same path, with a slash more, is done already; another is taken */
    struct loader_request same = request_of(LOADER_JOB_LOAD, "m");
    (void)snprintf(same.path, sizeof(same.path), "%s/", f.folder.path);
    assert_int_equal(loader_start(f.loader, &same, &job_id, &f.why), 0);
    expect_job(job_id, "done", 0, "is served already");
    assert_int_equal(loader_start(f.loader, &other, &job_id, &f.why), STATUS_EXISTS);
    assert_non_null(strstr(f.why.text, "is loaded from another path"));
}

static void test_bad_requests(void **state)
{
    (void)state;
    assert_int_equal(start_fails(LOADER_JOB_LOAD, ""), STATUS_INVALID_ARGUMENT);
    assert_int_equal(start_fails(LOADER_JOB_LOAD, "a/b"), STATUS_INVALID_ARGUMENT);
    assert_int_equal(start_fails(LOADER_JOB_LOAD, "a\nb"), STATUS_INVALID_ARGUMENT);
    assert_int_equal(start_fails(LOADER_JOB_LOAD, "\xff"), STATUS_INVALID_ARGUMENT);
    assert_int_equal(start_fails(LOADER_JOB_RELOAD, "m"), STATUS_NOT_FOUND);
    assert_int_equal(start_fails(LOADER_JOB_VERIFY, "m"), STATUS_NOT_FOUND);
    assert_int_equal(start_fails(LOADER_JOB_VERIFY, "m/p"), STATUS_NOT_FOUND);
    uint64_t job_id;
    struct loader_request request = request_of(LOADER_JOB_LOAD, "m");
    request.path[0] = '\0';
    assert_int_equal(loader_start(f.loader, &request, &job_id, &f.why), STATUS_INVALID_ARGUMENT);
    request = request_of(LOADER_JOB_LOAD, "m");
    request.shaping.tp_size = 2;
    request.shaping.tp_rank = 2;
    assert_int_equal(loader_start(f.loader, &request, &job_id, &f.why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(f.why.text, "rank 2 is out of range for a size of 2");
}

static void test_names_that_do_not_fit(void **state)
{
    (void)state;
    char module[246];
    memset(module, 'x', sizeof(module));
    module[245] = '\0';
    struct tensor_file file;
    tensor_file_init(&file);
    tensor_file_add_flat_plain(&file, module, 8, 8, 1.0f);
    tensor_file_write(&file, temp_path(&f.folder, "model.safetensors"));
    tensor_file_finish(&file);
    struct loader_request request = request_of(LOADER_JOB_LOAD, "abcdefghijkl");
    uint64_t job_id;
    assert_int_equal(loader_start(f.loader, &request, &job_id, &f.why), 0);
    assert_int_equal(loader_wait(f.loader, job_id, &f.why), STATUS_UNSUPPORTED);
    assert_non_null(strstr(f.why.text, "too long"));
}

static void test_missing_path(void **state)
{
    (void)state;
    expect_refusal(STATUS_BAD_CHECKPOINT, "no .safetensors file");
    struct loader_request request = request_of(LOADER_JOB_LOAD, "m");
    (void)snprintf(request.path, sizeof(request.path), "%s/nowhere", f.folder.path);
    uint64_t job_id;
    assert_int_equal(loader_start(f.loader, &request, &job_id, &f.why), 0);
    assert_int_equal(loader_wait(f.loader, job_id, &f.why), STATUS_NOT_FOUND);
    expect_job(job_id, "failed", STATUS_NOT_FOUND, "nowhere");
}

/* All or nothing: the second weight finds no room, so the first goes too. */
static void test_device_full(void **state)
{
    (void)state;
    write_plain(1.0f);
    atomic_store(&f.fake.n_regions_left, 1);
    expect_refusal(STATUS_NO_SPACE, "no room");
    atomic_store(&f.fake.n_regions_left, 100);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
}

static void test_queue_is_bounded(void **state)
{
    (void)state;
    write_plain(1.0f);
    fake_device_set_gate(&f.fake, true);
    uint64_t running = start(LOADER_JOB_LOAD, "running");
    fake_device_await_waiter(&f.fake);
    uint64_t last = 0;
    for (uint32_t i = 0; i < LOADER_QUEUED_MAX; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "m%u", i);
        last = start(LOADER_JOB_LOAD, name);
    }
    assert_int_equal(start_fails(LOADER_JOB_LOAD, "one-too-many"), STATUS_BUSY);
    expect_job(running, "running", 0, "");
    expect_job(last, "queued", 0, "");
    assert_int_equal(loader_cancel(f.loader, last, NULL), 0);
    expect_job(last, "cancelled", STATUS_CANCELLED, "model 'm15': cancelled");
    assert_int_equal(loader_wait(f.loader, last, NULL), STATUS_CANCELLED);
    start(LOADER_JOB_LOAD, "fits-now");
    fake_device_set_gate(&f.fake, false);
    assert_int_equal(loader_wait(f.loader, running, NULL), 0);
}

static void test_ended_jobs_are_forgotten(void **state)
{
    (void)state;
    write_plain(1.0f);
    uint64_t first = start(LOADER_JOB_LOAD, "m");
    assert_int_equal(loader_wait(f.loader, first, NULL), 0);
    for (uint32_t i = 0; i < LOADER_ENDED_MAX - 1; i++) {
        start(LOADER_JOB_LOAD, "m");
    }
    expect_job(first, "done", 0, "");
    start(LOADER_JOB_LOAD, "m");
    struct msg_job job;
    assert_int_equal(loader_status(f.loader, first, &job, NULL), STATUS_NOT_FOUND);
}

/* ---- cancelling ---- */

static void await_first_bytes(uint64_t job_id)
{
    struct msg_job job = {.done_bytes = 0};
    while (job.done_bytes == 0) {
        assert_int_equal(loader_status(f.loader, job_id, &job, NULL), 0);
        free(job.warnings);
        assert_string_not_equal(job.state, "failed");
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/* What ends while a long job runs does not make its end forgotten: somebody waits for that. */
static void test_the_end_of_a_long_job_is_remembered(void **state)
{
    (void)state;
    write_plain(1);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    write_sparse();
    uint64_t running = start(LOADER_JOB_LOAD, "running");
    uint64_t waiting = start(LOADER_JOB_LOAD, "waiting");
    for (uint32_t i = 0; i < LOADER_ENDED_MAX; i++) {
        start(LOADER_JOB_LOAD, "m"); /* is served already */
    }
    uint64_t ids[LOADER_ENDED_MAX];
    assert_int_equal(loader_list(f.loader, 1, ids), 1);
    assert_int_equal(ids[0], waiting);
    assert_int_equal(loader_list(f.loader, 4, ids), 4);
    const uint64_t latest[] = {waiting, running, waiting + LOADER_ENDED_MAX,
                               waiting + LOADER_ENDED_MAX - 1};
    assert_memory_equal(ids, latest, sizeof(latest));
    assert_int_equal(loader_cancel(f.loader, waiting, &f.why), 0);
    assert_int_equal(loader_list(f.loader, 2, ids), 2);
    assert_int_equal(ids[0], running);
    assert_int_equal(ids[1], waiting); /* ended last, though it came before the others */
    expect_job(waiting, "cancelled", STATUS_CANCELLED, "model 'waiting': cancelled");
    assert_int_equal(loader_cancel(f.loader, running, &f.why), 0);
    assert_int_equal(loader_wait(f.loader, running, &f.why), STATUS_CANCELLED);
}

/* In the middle of one huge tensor. */
static void test_cancel_while_reading(void **state)
{
    (void)state;
    write_sparse();
    uint64_t job_id = start(LOADER_JOB_LOAD, "m");
    await_first_bytes(job_id);
    assert_int_equal(loader_cancel(f.loader, job_id, NULL), 0);
    assert_int_equal(loader_wait(f.loader, job_id, &f.why), STATUS_CANCELLED);
    struct msg_job job;
    assert_int_equal(loader_status(f.loader, job_id, &job, NULL), 0);
    assert_string_equal(job.state, "cancelled");
    assert_true(job.done_bytes < job.total_bytes);
    free(job.warnings);
    assert_false(store_has_model(f.store, "m"));
    /* the name is free again */
    write_plain(1.0f);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
}

static void test_free_while_reading(void **state)
{
    (void)state;
    write_sparse();
    await_first_bytes(start(LOADER_JOB_LOAD, "m"));
    start(LOADER_JOB_LOAD, "waits");
    f.loader = loader_free(f.loader);
    assert_false(store_has_model(f.store, "m"));
    assert_false(store_has_model(f.store, "waits"));
}

/* ---- reloading ---- */

static void test_reload_swaps(void **state)
{
    (void)state;
    write_plain(1.0f);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    struct weight *in_flight = store_find(f.store, "m/p");
    write_plain(2.0f);
    assert_int_equal(run(LOADER_JOB_RELOAD, "m"), 0);
    expect_product("m/p", 64.0f);
    float y[16];
    run_ones(in_flight, y);
    assert_true(y[0] == 32.0f); /* the old generation, whole, as long as somebody holds it */
    assert_int_equal(atomic_load(&f.fake.n_regions), 3);
    weight_unref(in_flight);
    assert_int_equal(atomic_load(&f.fake.n_regions), 2);
}

static void test_failed_reload_keeps_serving(void **state)
{
    (void)state;
    write_plain(1.0f);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    write_text(temp_path(&f.folder, "model.safetensors"), "rubbish, and far too long for a length");
    assert_int_equal(run(LOADER_JOB_RELOAD, "m"), STATUS_BAD_CHECKPOINT);
    expect_product("m/p", 32.0f);
    write_plain(3.0f);
    atomic_store(&f.fake.n_regions_left, 1);
    assert_int_equal(run(LOADER_JOB_RELOAD, "m"), STATUS_NO_SPACE);
    expect_product("m/p", 32.0f);
    assert_int_equal(atomic_load(&f.fake.n_regions), 2);
}

/* Unloaded while it reloads: it stays unloaded. */
static void test_unload_while_reloading(void **state)
{
    (void)state;
    write_plain(1.0f);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    fake_device_set_gate(&f.fake, true);
    uint64_t job_id = start(LOADER_JOB_RELOAD, "m");
    fake_device_await_waiter(&f.fake);
    uint64_t queued = start(LOADER_JOB_RELOAD, "m");
    assert_int_not_equal(queued, job_id); /* what runs may have read the old files already */
    assert_int_equal(start(LOADER_JOB_RELOAD, "m"), queued);
    assert_int_equal(store_unpublish(f.store, "m", NULL), 0);
    fake_device_set_gate(&f.fake, false);
    assert_int_equal(loader_wait(f.loader, job_id, &f.why), STATUS_NOT_FOUND);
    assert_non_null(strstr(f.why.text, "unloaded meanwhile"));
    assert_int_equal(loader_wait(f.loader, queued, NULL), STATUS_NOT_FOUND);
    assert_false(store_has_model(f.store, "m"));
    assert_int_equal(atomic_load(&f.fake.n_regions), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, loader_set_up, loader_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_load_and_status),
        CASE(test_workspace_is_reserved),
        CASE(test_load_is_idempotent),
        CASE(test_bad_requests),
        CASE(test_names_that_do_not_fit),
        CASE(test_missing_path),
        CASE(test_device_full),
        CASE(test_queue_is_bounded),
        CASE(test_ended_jobs_are_forgotten),
        CASE(test_the_end_of_a_long_job_is_remembered),
        CASE(test_cancel_while_reading),
        CASE(test_free_while_reading),
        CASE(test_reload_swaps),
        CASE(test_failed_reload_keeps_serving),
        CASE(test_unload_while_reloading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
