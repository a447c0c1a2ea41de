/* test-model_fill.c - a device that packs by itself ends up with the bytes of one that does not,
 * for every family, whole, fused and cut; and what happens where it cannot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "daemon/weights/model_load.h"
#include "ipc/base/num.h"
#include "tests/harness/family_cases.h"
#include "tests/unit/weights/fake_packer.h"

struct fixture {
    struct temp_folder folder;
    struct tensor_file file;
    struct progress progress;
    struct fake_device plain;
    struct fake_device packing;
    uint64_t random;
};

static struct fixture f;
static const struct msg_shaping whole = {.tp_size = 1};
static const char *const names[] = {"l.attn.q_proj", "l.attn.k_proj", "l.attn.v_proj",
                                    "l.attn.o_proj"};

static int set_up(void **state)
{
    (void)state;
    f = (struct fixture){.random = 3};
    temp_folder_init(&f.folder);
    tensor_file_init(&f.file);
    progress_init(&f.progress);
    fake_device_init(&f.plain);
    fake_packer_init(&f.packing);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(atomic_load(&fake_packing.n_packers), 0);
    fake_device_finish(&f.plain);
    fake_device_finish(&f.packing);
    progress_finish(&f.progress);
    tensor_file_finish(&f.file);
    temp_folder_finish(&f.folder);
    return 0;
}

/* Four modules of one kind; spoil: a code of the last one becomes an fp8 NaN. */
static void write_checkpoint(const struct family_case *one, bool spoil)
{
    tensor_file_finish(&f.file);
    tensor_file_init(&f.file);
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        struct gk_canonical canonical;
        random_weight(&canonical, &one->desc, &f.random);
        if (spoil && i + 1 == ARRAY_LENGTH(names)) {
            ((uint8_t *)canonical.codes)[2 * one->desc.k + 7] = 0x7f;
        }
        tensor_file_add_weight(&f.file, names[i], one->family, &canonical);
        gk_canonical_finish(&canonical);
    }
    write_text(temp_path(&f.folder, "config.json"), one->config);
    tensor_file_write(&f.file, temp_path(&f.folder, "model.safetensors"));
}

static struct model *load(struct fake_device *device, const struct msg_shaping *shaping,
                          struct reason *why)
{
    struct model *model;
    int r = model_load("m", f.folder.path, &device->base, shaping, &f.progress, NULL, &model, why);
    return r == 0 ? model : NULL;
}

/* False where that shaping does not go with the checkpoint, on either device. */
static bool check_same(const struct msg_shaping *shaping)
{
    struct reason why[2] = {REASON_NULL, REASON_NULL};
    struct model *plain = load(&f.plain, shaping, &why[0]);
    struct model *packed = load(&f.packing, shaping, &why[1]);
    assert_int_equal(why[0].status, why[1].status);
    assert_string_equal(why[0].text, why[1].text);
    if (!plain) {
        return false;
    }
    assert_int_equal(plain->n_weights, packed->n_weights);
    for (uint32_t i = 0; i < plain->n_weights; i++) {
        const struct weight *a = plain->weights[i];
        const struct weight *b = packed->weights[i];
        assert_string_equal(a->name, b->name);
        assert_memory_equal(a->packed.base, b->packed.base, a->layout->packed_bytes(&a->desc));
    }
    model_free(plain);
    model_free(packed);
    return true;
}

static void test_same_bytes(void **state)
{
    (void)state;
    static const struct msg_shaping shapings[] = {
        {.tp_size = 1},
        {.tp_size = 1, .fuse = "usual"},
        {.tp_size = 2, .tp_rank = 1},
        {.tp_size = 2, .tp_rank = 1, .fuse = "usual"},
    };
    uint32_t n_checked[ARRAY_LENGTH(shapings)] = {0};
    for (uint32_t i = 0; i < n_family_cases; i++) {
        write_checkpoint(&family_cases[i], false);
        for (uint32_t j = 0; j < ARRAY_LENGTH(shapings); j++) {
            n_checked[j] += check_same(&shapings[j]);
        }
    }
    assert_int_equal(n_checked[0], n_family_cases);
    assert_true(n_checked[1] >= 20 && n_checked[2] >= 10 && n_checked[3] >= 8);
    assert_true(atomic_load(&fake_packing.n_packed) >= 4 * n_family_cases);
}

/* The sentence is the CPU's, which names row and element. */
static void test_damage(void **state)
{
    (void)state;
    uint32_t n_checked = 0;
    for (uint32_t i = 0; i < n_family_cases; i++) {
        if (family_cases[i].desc.code == GK_CODE_E4M3) {
            write_checkpoint(&family_cases[i], true);
            assert_false(check_same(&whole));
            n_checked++;
        }
    }
    assert_true(n_checked >= 5);
}

static void test_no_room(void **state)
{
    (void)state;
    write_checkpoint(&family_cases[0], false);
    atomic_store(&fake_packing.has_no_room, true);
    assert_true(check_same(&whole));
    assert_int_equal(atomic_load(&fake_packing.n_packed), 0);
}

/* However many threads find a packer, all is done. */
static void test_few_packers(void **state)
{
    (void)state;
    write_checkpoint(&family_cases[0], false);
    for (int32_t n = 0; n < 4; n++) {
        atomic_store(&fake_packing.n_packers_left, n);
        assert_true(check_same(&whole));
    }
}

static void test_full_device(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    write_checkpoint(&family_cases[0], false);
    atomic_store(&f.packing.n_regions_left, 2);
    assert_null(load(&f.packing, &whole, &why));
    assert_int_equal(why.status, STATUS_NO_SPACE);
    assert_int_equal(atomic_load(&f.packing.n_regions), 0);
}

static void test_cancelled(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    write_checkpoint(&family_cases[0], false);
    atomic_store(&f.progress.is_cancelled, true);
    assert_null(load(&f.packing, &whole, &why));
    assert_int_equal(why.status, STATUS_CANCELLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_few_packers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full_device, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cancelled, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
