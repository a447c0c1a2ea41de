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
        bool is_of_batch = i < TUNING_BATCH_BUCKETS; /* the host has no larger launches */
        n += tuning->buckets[i].n_times;
        assert_true((tuning->buckets[i].chosen != NULL) == is_of_batch);
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

/* Where prefill goes in larger launches, these are measured, chosen and kept as well. */
static void test_prefill_is_measured(void **state)
{
    (void)state;
    const struct gk_kernel *kernel = gk_kernel_named("cuda_strip_prefill_rounded");
    struct model *model;
    struct weight *weight;
    struct tuner *tuner;
    struct progress progress;
    if (!kernel) {
        return; /* a build without CUDA */
    }
    f.fake.base.cuda_arch = 90;
    assert_int_equal(model_new("m", "/m", &f.fake.base, 1, &model), 0);
    assert_int_equal(weight_new(&f.fake.base, &weight), 0);
    weight->desc = (struct gk_desc){.n = 256,
                                    .k = 512,
                                    .code = GK_CODE_U4,
                                    .group_n = 1,
                                    .group_k = 128,
                                    .scale_dtype = DTYPE_BF16};
    weight->layout = gk_layout_for(&weight->desc, GK_DEVICE_CUDA);
    weight->act_dtype = DTYPE_BF16;
    model->weights[model->n_weights++] = weight;
    assert_int_equal(tuner_new("", true, &tuner), 0);
    progress_init(&progress);
    assert_int_equal(tuner_run(tuner, model, &progress, NULL), 0);
    struct tuning *tuning = atomic_load(&weight->tuning);
    assert_non_null(tuning);
    for (uint32_t i = TUNING_BATCH_BUCKETS; i < TUNING_BUCKETS; i++) {
        assert_ptr_equal(tuning->buckets[i].chosen, kernel);
        assert_true(tuning_usec(tuning, kernel, tuning_rows(i)) > 0);
    }
    assert_ptr_not_equal(tuning->buckets[TUNING_BATCH_BUCKETS - 1].chosen, kernel);
    progress_finish(&progress);
    (void)tuner_free(tuner);
    (void)model_free(model);
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
        cmocka_unit_test_setup_teardown(test_prefill_is_measured, loader_set_up, loader_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
