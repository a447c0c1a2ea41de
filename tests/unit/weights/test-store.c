/* Names, slots, generations and references, on one thread and on many. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/weights/fake_device.h"

#include "daemon/weights/store.h"

#define REGION_BYTES 64

static const struct gk_layout layout = {.tag = "test", .device_kind = GK_DEVICE_HOST};

struct fixture {
    struct fake_device fake;
    struct store *store;
};

static struct fixture f;

static int set_up(void **state)
{
    (void)state;
    fake_device_init(&f.fake);
    return store_new(&f.store);
}

static int tear_down(void **state)
{
    (void)state;
    f.store = store_free(f.store);
    fake_device_finish(&f.fake);
    return 0;
}

static struct weight *make_weight(const char *model, const char *module, uint32_t n)
{
    struct weight *weight;
    struct device *device = &f.fake.base;
    assert_int_equal(weight_new(device, &weight), 0);
    (void)snprintf(weight->name, sizeof(weight->name), "%s/%s", model, module);
    weight->desc = (struct gk_desc){.n = n, .k = 32, .code = GK_CODE_F16};
    weight->layout = &layout;
    weight->act_dtype = DTYPE_F16;
    assert_int_equal(device->ops->region_new(device, "w", REGION_BYTES, &weight->packed, NULL), 0);
    return weight;
}

/* A model of the weights "NAME/b", with n rows, and "NAME/a", with 16. */
static struct model *make_model(const char *name, uint32_t n)
{
    struct model *model = calloc(1, sizeof(*model));
    assert_non_null(model);
    (void)snprintf(model->name, sizeof(model->name), "%s", name);
    (void)snprintf(model->path, sizeof(model->path), "/models/%s", name);
    model->device = &f.fake.base;
    model->n_weights = 2;
    model->weights = calloc(2, sizeof(struct weight *));
    assert_non_null(model->weights);
    model->weights[0] = make_weight(name, "b", n);
    model->weights[1] = make_weight(name, "a", 16);
    return model;
}

static uint64_t slot_of(const char *name)
{
    struct weight *weight = store_find(f.store, name);
    assert_non_null(weight);
    uint64_t slot_id = weight->slot_id;
    weight_unref(weight);
    return slot_id;
}

static void test_find(void **state)
{
    (void)state;
    assert_null(store_find(f.store, "m/a"));
    assert_int_equal(store_publish(f.store, make_model("m", 16)), 0);
    assert_int_equal(store_publish(f.store, make_model("mm", 16)), 0);
    struct weight *weight = store_find(f.store, "mm/a");
    assert_string_equal(weight->name, "mm/a");
    assert_ptr_equal(store_acquire(f.store, weight->slot_id), weight);
    assert_int_equal(atomic_load(&weight->n_refs), 3);
    weight_unref(weight);
    weight_unref(weight);
    assert_true(slot_of("m/a") != slot_of("mm/a"));
    assert_true(slot_of("m/a") != slot_of("m/b"));
    assert_null(store_find(f.store, "m"));
    assert_null(store_find(f.store, "m/"));
    assert_null(store_find(f.store, "m/c"));
    assert_null(store_find(f.store, "mmm/a"));
    assert_null(store_acquire(f.store, 0));
    assert_null(store_acquire(f.store, UINT64_MAX));
    assert_true(store_has_model(f.store, "m"));
    assert_false(store_has_model(f.store, "m/a"));
}

/* A reload keeps the ids of what kept its shape; the old generation lives as long as it is held. */
static void test_reload(void **state)
{
    (void)state;
    assert_int_equal(store_publish(f.store, make_model("m", 16)), 0);
    uint64_t slot_a = slot_of("m/a");
    uint64_t slot_b = slot_of("m/b");
    struct weight *old = store_acquire(f.store, slot_b);
    atomic_fetch_add(&old->n_requests, 5);
    assert_int_equal(store_replace(f.store, make_model("m", 16), NULL), 0);
    struct weight *replaced = store_acquire(f.store, slot_b);
    assert_ptr_not_equal(replaced, old);
    assert_true(replaced->generation > old->generation);
    assert_int_equal(atomic_load(&replaced->n_requests), 5);
    assert_int_equal(slot_of("m/a"), slot_a);
    assert_int_equal(atomic_load(&f.fake.n_regions), 3);
    struct store_totals totals;
    store_totals(f.store, &totals);
    assert_int_equal(totals.packed_bytes, 2 * REGION_BYTES);
    assert_int_equal(totals.retired_bytes, REGION_BYTES);
    weight_unref(old);
    weight_unref(replaced);
    store_totals(f.store, &totals);
    assert_int_equal(totals.retired_bytes, 0);
    assert_int_equal(atomic_load(&f.fake.n_regions), 2);
}

/* Another shape under the same name is another weight: nobody's old id reaches it. */
static void test_reload_with_other_shape(void **state)
{
    (void)state;
    assert_int_equal(store_publish(f.store, make_model("m", 16)), 0);
    uint64_t slot_a = slot_of("m/a");
    uint64_t slot_b = slot_of("m/b");
    assert_int_equal(store_publish(f.store, make_model("m", 32)), 0);
    assert_null(store_acquire(f.store, slot_b));
    assert_true(slot_of("m/b") != slot_b);
    assert_int_equal(slot_of("m/a"), slot_a);
    /* and the old shape's return does not bring the old id back */
    assert_int_equal(store_publish(f.store, make_model("m", 16)), 0);
    assert_null(store_acquire(f.store, slot_b));
}

static void test_unload(void **state)
{
    (void)state;
    struct reason why;
    assert_int_equal(store_unpublish(f.store, "m", &why), STATUS_NOT_FOUND);
    assert_int_equal(store_publish(f.store, make_model("l", 16)), 0);
    assert_int_equal(store_publish(f.store, make_model("m", 16)), 0);
    uint64_t slot = slot_of("l/b");
    struct weight *held = store_acquire(f.store, slot);
    assert_int_equal(store_unpublish(f.store, "l", &why), 0);
    assert_null(store_acquire(f.store, slot));
    assert_null(store_find(f.store, "l/b"));
    assert_int_equal(atomic_load(&f.fake.n_regions), 3);
    weight_unref(held);
    assert_int_equal(atomic_load(&f.fake.n_regions), 2);
    assert_int_equal(store_publish(f.store, make_model("l", 16)), 0);
    assert_true(slot_of("l/b") != slot);
    assert_null(store_acquire(f.store, slot));
    assert_true(store_has_model(f.store, "m"));
}

static void test_replace_of_unloaded(void **state)
{
    (void)state;
    struct reason why;
    struct model *model = make_model("m", 16);
    assert_int_equal(store_replace(f.store, model, &why), STATUS_NOT_FOUND);
    assert_non_null(strstr(why.text, "'m'"));
    model_free(model);
    assert_false(store_has_model(f.store, "m"));
}

static void test_weight_outlives_store(void **state)
{
    (void)state;
    assert_int_equal(store_publish(f.store, make_model("m", 16)), 0);
    struct weight *weight = store_find(f.store, "m/a");
    f.store = store_free(f.store);
    assert_int_equal(atomic_load(&f.fake.n_regions), 1);
    weight_unref(weight);
    assert_int_equal(atomic_load(&f.fake.n_regions), 0);
}

static void test_list_models(void **state)
{
    (void)state;
    struct msg_model *models;
    uint32_t n;
    assert_int_equal(store_list_models(f.store, &models, &n), 0);
    assert_int_equal(n, 0);
    free(models);
    assert_int_equal(store_publish(f.store, make_model("m", 48)), 0);
    assert_int_equal(store_publish(f.store, make_model("l", 16)), 0);
    assert_int_equal(store_list_models(f.store, &models, &n), 0);
    assert_int_equal(n, 2);
    assert_string_equal(models[0].name, "m");
    assert_string_equal(models[0].path, "/models/m");
    assert_string_equal(models[0].device, "fake");
    assert_string_equal(models[0].state, "serving");
    assert_int_equal(models[0].n_weights, 2);
    assert_int_equal(models[0].packed_bytes, 2 * REGION_BYTES);
    free(models);
}

static void test_list_weights(void **state)
{
    (void)state;
    struct reason why;
    struct msg_weight *weights;
    uint32_t n;
    assert_int_equal(store_publish(f.store, make_model("m", 48)), 0);
    assert_int_equal(store_publish(f.store, make_model("l", 16)), 0);
    assert_int_equal(store_list_weights(f.store, "", &weights, &n, &why), 0);
    assert_int_equal(n, 4);
    free(weights);
    assert_int_equal(store_list_weights(f.store, "m", &weights, &n, &why), 0);
    assert_int_equal(n, 2);
    assert_string_equal(weights[1].name, "m/b");
    assert_int_equal(weights[1].n, 48);
    assert_int_equal(weights[1].k, 32);
    assert_int_equal(weights[1].device_index, 3);
    assert_string_equal(weights[1].layout, "test");
    assert_int_equal(weights[1].weight_id, slot_of("m/b"));
    free(weights);
    assert_int_equal(store_list_weights(f.store, "x", &weights, &n, &why), STATUS_NOT_FOUND);
}

/* ---- threads ---- */

enum { N_READERS = 3, N_ROUNDS = 200 };

static _Atomic bool is_over;

/* Whatever a reader gets must be of that name, and its memory readable until it lets go. */
static void read_once(uint64_t slot_id)
{
    struct weight *weights[] = {store_acquire(f.store, slot_id), store_find(f.store, "n/a")};
    GD_ASSERT(weights[0] && strcmp(weights[0]->name, "m/a") == 0);
    for (uint32_t i = 0; i < 2; i++) {
        GD_ASSERT(!weights[i] || *(volatile char *)weights[i]->packed.base == 0);
        weight_unref(weights[i]);
    }
    struct msg_weight *list;
    uint32_t n;
    GD_ASSERT(store_list_weights(f.store, NULL, &list, &n, NULL) == 0);
    GD_ASSERT(n == 2 || n == 4); /* whole models only */
    free(list);
}

static void *read_all_the_time(void *userdata)
{
    while (!atomic_load(&is_over)) {
        read_once(*(const uint64_t *)userdata);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t readers[N_READERS];
    assert_int_equal(store_publish(f.store, make_model("m", 16)), 0);
    uint64_t slot_id = slot_of("m/a");
    atomic_store(&is_over, false);
    for (uint32_t i = 0; i < N_READERS; i++) {
        assert_int_equal(pthread_create(&readers[i], NULL, read_all_the_time, &slot_id), 0);
    }
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        assert_int_equal(store_publish(f.store, make_model("m", 16 + i % 2 * 16)), 0);
        assert_int_equal(store_publish(f.store, make_model("n", 16)), 0);
        assert_int_equal(store_unpublish(f.store, "n", NULL), 0);
    }
    atomic_store(&is_over, true);
    for (uint32_t i = 0; i < N_READERS; i++) {
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    }
    struct store_totals totals;
    store_totals(f.store, &totals);
    assert_int_equal(totals.retired_bytes, 0);
    assert_int_equal(atomic_load(&f.fake.n_regions), 2);
}

/* What a name has served is counted on over a reload, an unload and a load, also while requests on
 * an old generation end. */
static void test_figures_of_a_model(void **state)
{
    (void)state;
    struct stats_page *page = calloc(1, sizeof(*page));
    store_count_in(f.store, page);
    assert_int_equal(store_publish(f.store, make_model("m", 16)), 0);
    struct weight *old = store_find(f.store, "m/a");
    weight_count(old, 3);
    assert_int_equal(store_replace(f.store, make_model("m", 16), NULL), 0);
    struct weight *replaced = store_find(f.store, "m/a");
    weight_count(old, 5);
    weight_count(replaced, 7);
    assert_int_equal(store_unpublish(f.store, "m", NULL), 0);
    assert_int_equal(store_publish(f.store, make_model("other", 16)), 0);
    assert_int_equal(store_publish(f.store, make_model("m", 32)), 0);
    struct weight *loaded = store_find(f.store, "m/b");
    weight_count(loaded, 1);
    assert_string_equal(page->models[0].name, "m");
    assert_int_equal(stats_read(&page->models[0].n_requests), 4);
    assert_int_equal(stats_read(&page->models[0].n_rows), 16);
    assert_string_equal(page->models[1].name, "other");
    assert_int_equal(stats_read(&page->store.n_models), 2);
    assert_int_equal(stats_read(&page->store.n_weights), 4);
    assert_int_equal(stats_read(&page->store.packed_bytes), 4 * REGION_BYTES);
    assert_int_equal(stats_read(&page->models[1].n_requests), 0);
    weight_unref(old);
    weight_unref(replaced);
    weight_unref(loaded);
    free(page);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_find),
        CASE(test_reload),
        CASE(test_reload_with_other_shape),
        CASE(test_unload),
        CASE(test_replace_of_unloaded),
        CASE(test_weight_outlives_store),
        CASE(test_figures_of_a_model),
        CASE(test_list_models),
        CASE(test_list_weights),
        CASE(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
