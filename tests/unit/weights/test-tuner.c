/* test-tuner.c - kernels are measured once for weights that are alike, by whatever loads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/weights/loader_fixture.h"

#define DEADLINE_MSEC 20000

static char file[256];

static void use_tuner(void)
{
    struct tuner *tuner;
    (void)loader_free(f.loader);
    (void)snprintf(file, sizeof(file), "%s", temp_path(&f.folder, "tuning"));
    assert_int_equal(tuner_new(file, true, &tuner), 0);
    assert_int_equal(loader_new(f.store, tuner, &f.loader), 0);
}

static struct tuning *await_tuning(const char *name)
{
    struct weight *weight = store_find(f.store, name);
    assert_non_null(weight);
    for (uint32_t i = 0; i < DEADLINE_MSEC && !atomic_load(&weight->tuning); i++) {
        const struct timespec msec = {.tv_nsec = 1000000};
        (void)nanosleep(&msec, NULL);
    }
    struct tuning *tuning = atomic_load(&weight->tuning);
    weight_unref(weight); /* the store's reference keeps both */
    assert_non_null(tuning);
    return tuning;
}

/* As many trials as there are measurements in what the weights were given. */
static uint32_t measured(const struct tuning *tuning)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < TUNING_BUCKETS; i++) {
        n += tuning->buckets[i].n_times;
        assert_non_null(tuning->buckets[i].chosen);
    }
    return n;
}

static void test_weights_are_measured_after_a_load(void **state)
{
    (void)state;
    use_tuner();
    write_plain(1.0f);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    struct tuning *p = await_tuning("m/p"), *q = await_tuning("m/q.r");
    assert_ptr_not_equal(p, q); /* two shapes */
    assert_int_equal(atomic_load(&f.fake.n_timed), measured(p) + measured(q));
    expect_product("m/p", 32.0f);
}

static void test_what_is_known_is_not_measured_again(void **state)
{
    (void)state;
    use_tuner();
    write_plain(1.0f);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    (void)await_tuning("m/p");
    (void)await_tuning("m/q.r");
    uint32_t n_timed = atomic_load(&f.fake.n_timed);
    assert_true(n_timed > 0);
    assert_int_equal(run(LOADER_JOB_RELOAD, "m"), 0);
    (void)await_tuning("m/p");
    (void)await_tuning("m/q.r");
    assert_int_equal(atomic_load(&f.fake.n_timed), n_timed);
    use_tuner(); /* another process, which finds the file */
    assert_int_equal(run(LOADER_JOB_RELOAD, "m"), 0);
    assert_true(measured(await_tuning("m/p")) > 0);
    (void)await_tuning("m/q.r");
    assert_int_equal(atomic_load(&f.fake.n_timed), n_timed);
}

static void test_weights_serve_unmeasured(void **state)
{
    (void)state;
    use_tuner();
    write_plain(1.0f);
    atomic_store(&f.fake.is_untimeable, true);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    struct tuning *tuning = await_tuning("m/p");
    assert_null(tuning->buckets[0].chosen);
    expect_product("m/p", 32.0f);
    assert_int_not_equal(access(file, F_OK), 0); /* there is nothing to keep */
}

static void test_cancelled_run_goes_on_later(void **state)
{
    (void)state;
    struct tuner *tuner;
    struct progress progress;
    write_plain(1.0f);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    assert_int_equal(tuner_new("", true, &tuner), 0);
    struct store_model *held = store_hold(f.store, "m");
    progress_init(&progress);
    atomic_store(&progress.is_cancelled, true);
    assert_int_equal(tuner_run(tuner, store_held(held), &progress, NULL), STATUS_CANCELLED);
    assert_int_equal(atomic_load(&f.fake.n_timed), 0);
    atomic_store(&progress.is_cancelled, false);
    assert_int_equal(tuner_run(tuner, store_held(held), &progress, NULL), 0);
    assert_true(atomic_load(&f.fake.n_timed) > 0);
    progress_finish(&progress);
    store_release(held);
    (void)tuner_free(tuner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_weights_are_measured_after_a_load, loader_set_up,
                                        loader_tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_known_is_not_measured_again, loader_set_up,
                                        loader_tear_down),
        cmocka_unit_test_setup_teardown(test_weights_serve_unmeasured, loader_set_up,
                                        loader_tear_down),
        cmocka_unit_test_setup_teardown(test_cancelled_run_goes_on_later, loader_set_up,
                                        loader_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
