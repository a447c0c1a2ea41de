/* test-model-reload.c - reloading in vain, and under load: what is served is always one whole
 * checkpoint.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/harness/control_job.h"
#include "tests/integ/life_case.h"

static void replace_checkpoint(const struct life *life, const char *from)
{
    char source[600];
    char target[600];
    (void)snprintf(source, sizeof(source), "%s/model.safetensors", from);
    (void)snprintf(target, sizeof(target), "%s/model.safetensors", life->model.path);
    assert_int_equal(rename(source, target), 0);
}

static void test_failed_reload(void **state)
{
    struct life *life = *state;
    char text[MSG_TEXT_BYTES];
    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    write_text(temp_path(&life->fixture.folder, "tiny/model.safetensors"), "nonsense");
    assert_int_equal(control_job(client, MSG_VERB_RELOAD, "tiny", NULL, text),
                     GEMMD_BAD_CHECKPOINT);
    assert_non_null(strstr(text, "model.safetensors"));
    assert_true(life_serves_through(client, &life->model));

    struct test_model other;
    test_model_write(&other, &life->fixture.folder, "other", 12);
    replace_checkpoint(life, other.path);
    assert_int_equal(control_job(client, MSG_VERB_RELOAD, "tiny", NULL, text), 0);
    assert_true(life_serves_through(client, &other));
    test_model_finish(&other);
    gemmd_close(client);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

/* What the child of test_reload_under_load() and its parent share. */
struct reloading {
    _Atomic uint64_t n_products;
    atomic_bool is_over;
};

/* Every product is the old weight's or the new one's, whole. */
static bool multiply_through_reloads(struct life *life, const struct test_model *other,
                                     struct reloading *shared)
{
    struct product old;
    struct product now;
    struct product fresh;
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    const struct test_weight *weight = &life->model.weights[TEST_INT4];
    if (!product_init(&old, client, "tiny", weight, &life_shape) ||
        !product_init(&now, client, "tiny", weight, &life_shape) ||
        !product_init(&fresh, client, "other", &other->weights[TEST_INT4], &life_shape) ||
        !product_run(&old, client) || !product_is_right(&old) || !product_run(&fresh, client) ||
        !product_is_right(&fresh)) {
        return false;
    }
    uint64_t n[2] = {0, 0};
    while (!atomic_load(&shared->is_over)) {
        product_clear(&now);
        if (!product_run(&now, client)) {
            return false;
        }
        bool is_old = product_same_bytes(&now, &old);
        if (!is_old && !product_same_bytes(&now, &fresh)) {
            (void)fprintf(stderr, "a product is of neither weight\n");
            return false;
        }
        n[is_old]++;
        atomic_fetch_add(&shared->n_products, 1);
    }
    gemmd_close(client);
    return n[0] > 0 && n[1] > 0;
}

/* Two more: the first of them may have been under way, the second has begun since. */
static void await_products(struct reloading *shared)
{
    double deadline = fixture_now() + FIXTURE_READY_SECONDS;
    uint64_t n = atomic_load(&shared->n_products) + 2;
    while (atomic_load(&shared->n_products) < n && fixture_now() < deadline) {
        fixture_sleep(0.0005);
    }
    assert_true(atomic_load(&shared->n_products) >= n);
}

static void test_reload_under_load(void **state)
{
    struct life *life = *state;
    struct test_model other;
    struct test_model copy;
    int child;
    struct reloading *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    test_model_write(&other, &life->fixture.folder, "other", 12);
    assert_int_equal(control_job(client, MSG_VERB_LOAD, "other", other.path, NULL), 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(multiply_through_reloads(life, &other, shared) ? 0 : 1);
    }
    await_products(shared);
    for (uint32_t i = 0; i < 20; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "copy%u", i);
        test_model_write(&copy, &life->fixture.folder, name, 11 + (i + 1) % 2);
        replace_checkpoint(life, copy.path);
        test_model_finish(&copy);
        assert_int_equal(control_job(client, MSG_VERB_RELOAD, "tiny", NULL, NULL), 0);
        await_products(shared);
    }
    atomic_store(&shared->is_over, true);
    assert_int_equal(waitpid(pid, &child, 0), pid);
    assert_int_equal(child, 0);
    (void)munmap(shared, sizeof(*shared));
    gemmd_close(client);
    test_model_finish(&other);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, life_set_up, life_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_failed_reload),
        CASE(test_reload_under_load),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
