/* test-gpu-pack.c - what the GPU packs from a checkpoint's own bytes is what the CPU packs from
 * canonical form, byte for byte: every family, fused and cut, and damage that only codes show.
 * Skipped without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/device/device.h"
#include "daemon/weights/model_load.h"
#include "daemon/weights/plan_read.h"
#include "ipc/base/num.h"
#include "tests/harness/family_cases.h"

#define SKIPPED 77

static struct device *device;
static const struct packer_ops *own_packing;
static _Atomic uint32_t n_packed_by_device;
static const char *const names[] = {"l.attn.q_proj", "l.attn.k_proj", "l.attn.v_proj",
                                    "l.attn.o_proj"};

/* ---- counting what the device packs: where it does not, the CPU does, with the same bytes ---- */

static int pack_and_count(struct packer *packer, const struct gk_canonical *rest,
                          const struct gk_codes *codes, uint32_t n_codes,
                          const struct region *region, struct reason *why)
{
    int r = own_packing->pack(packer, rest, codes, n_codes, region, why);
    atomic_fetch_add(&n_packed_by_device, r == 0);
    return r;
}

static void count_packing(void)
{
    static struct packer_ops packing;
    static struct device_ops ops;
    own_packing = device->ops->packing;
    packing = *own_packing;
    packing.pack = pack_and_count;
    ops = *device->ops;
    ops.packing = &packing;
    device->ops = &ops;
}

/* ---- checkpoints ---- */

/* A checkpoint and where it lies. */
struct fixture {
    struct temp_folder folder;
    struct tensor_file file;
    struct progress progress;
    uint64_t random;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){.random = 7};
    temp_folder_init(&fixture.folder);
    tensor_file_init(&fixture.file);
    progress_init(&fixture.progress);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    tensor_file_finish(&f->file);
    progress_finish(&f->progress);
    temp_folder_finish(&f->folder);
    return 0;
}

static struct gk_desc enlarged(const struct gk_desc *small, uint32_t times_n, uint32_t times_k)
{
    struct gk_desc desc = *small;
    desc.n *= times_n;
    desc.k *= times_k;
    desc.group_n = small->group_n == small->n ? desc.n : small->group_n;
    bool is_block = small->group_n > 1 && small->group_n != small->n;
    desc.group_k = small->group_k == small->k && !is_block ? desc.k : small->group_k;
    return desc;
}

static void write_checkpoint(struct fixture *f, const struct family_case *one, uint32_t times_n,
                             uint32_t times_k)
{
    struct gk_desc desc = enlarged(&one->desc, times_n, times_k);
    tensor_file_finish(&f->file);
    tensor_file_init(&f->file);
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        struct gk_canonical canonical;
        random_weight(&canonical, &desc, &f->random);
        tensor_file_add_weight(&f->file, names[i], one->family, &canonical);
        gk_canonical_finish(&canonical);
    }
    write_text(temp_path(&f->folder, "config.json"), one->config);
    tensor_file_write(&f->file, temp_path(&f->folder, "model.safetensors"));
}

/* One weight of the model on the device against the CPU's bytes. */
static void expect_same(struct fixture *f, const struct weight *weight,
                        const struct plan_item *item)
{
    struct reason why = REASON_NULL;
    struct gk_canonical canonical;
    void *found;
    assert_int_equal(plan_read(item, &f->progress, NULL, &canonical, &why), 0);
    uint64_t size_bytes = weight->layout->packed_bytes(&weight->desc);
    uint8_t *expected = aligned_alloc(64, size_bytes);
    assert_non_null(expected);
    weight->layout->pack(&canonical, expected);
    assert_int_equal(device_view_begin(device, &weight->packed, DEVICE_READ, &found, &why), 0);
    const uint8_t *bytes = found;
    for (uint64_t i = 0; i < size_bytes; i++) {
        if (bytes[i] != expected[i]) {
            fail_msg("%s, %s, %u x %u: byte %llu of %llu is %02x, expected %02x", weight->name,
                     weight->layout->tag, weight->desc.n, weight->desc.k, (unsigned long long)i,
                     (unsigned long long)size_bytes, bytes[i], expected[i]);
        }
    }
    assert_int_equal(device_view_end(device, &weight->packed, DEVICE_READ, &why), 0);
    free(expected);
    gk_canonical_finish(&canonical);
}

/* How many weights were loaded, all of them packed by the device; 0 where that shaping does not go
 * with the checkpoint. */
static uint32_t check_shaped(struct fixture *f, const struct msg_shaping *shaping)
{
    struct reason why = REASON_NULL;
    struct model_source source;
    struct model *model;
    uint32_t n_weights = 0;
    if (model_source_open(f->folder.path, shaping, NULL, &source, &why) != 0) {
        if (shaping->tp_size == 1 && shaping->fuse[0] == '\0') {
            fail_msg("%s", why.text);
        }
        return 0;
    }
    atomic_store(&n_packed_by_device, 0);
    int r = model_load("m", f->folder.path, device, shaping, &f->progress, NULL, &model, &why);
    if (r != 0 && strstr(why.text, "act-order") == NULL) { /* parts have orders of their own */
        fail_msg("%s", why.text);
    }
    if (r == 0) {
        n_weights = source.plan.n;
        assert_int_equal(atomic_load(&n_packed_by_device), n_weights);
        for (uint32_t i = 0; i < n_weights; i++) {
            expect_same(f, model->weights[i], &source.plan.items[i]);
        }
        model_free(model);
    }
    model_source_finish(&source);
    return n_weights;
}

static void test_every_family(void **state)
{
    static const struct msg_shaping shapings[] = {
        {.tp_size = 1},
        {.tp_size = 1, .fuse = "usual"},
        {.tp_size = 2, .tp_rank = 1},
        {.tp_size = 2, .tp_rank = 1, .fuse = "usual"},
    };
    static const uint32_t times[][2] = {{1, 1}, {3, 5}, {8, 44}};
    struct fixture *f = *state;
    uint32_t n_packed[ARRAY_LENGTH(shapings)] = {0};
    for (uint32_t i = 0; i < n_family_cases * ARRAY_LENGTH(times); i++) {
        const uint32_t *by = times[i % ARRAY_LENGTH(times)];
        write_checkpoint(f, &family_cases[i / ARRAY_LENGTH(times)], by[0], by[1]);
        for (uint32_t j = 0; j < ARRAY_LENGTH(shapings); j++) {
            n_packed[j] += check_shaped(f, &shapings[j]);
        }
    }
    print_message("packed by the GPU: %u whole, %u fused, %u cut, %u both\n", n_packed[0],
                  n_packed[1], n_packed[2], n_packed[3]);
    assert_int_equal(n_packed[0], 4 * n_family_cases * ARRAY_LENGTH(times));
    assert_true(n_packed[1] >= 2 * 20 * ARRAY_LENGTH(times));
    assert_true(n_packed[2] >= 100 && n_packed[3] >= 50);
}

/* A NaN among fp8 codes is refused by row and element, as on the host. */
static void test_nan(void **state)
{
    struct fixture *f = *state;
    const struct msg_shaping whole = {.tp_size = 1};
    struct reason why = REASON_NULL;
    struct model *model;
    for (uint32_t i = 0; i < n_family_cases; i++) {
        const struct family_case *one = &family_cases[i];
        if (one->desc.code != GK_CODE_E4M3 || one->desc.act != GK_ACT_FLOAT) {
            continue;
        }
        struct gk_canonical canonical;
        random_weight(&canonical, &one->desc, &f->random);
        ((uint8_t *)canonical.codes)[5 * one->desc.k + 3] = 0xff;
        tensor_file_finish(&f->file);
        tensor_file_init(&f->file);
        tensor_file_add_weight(&f->file, names[0], one->family, &canonical);
        gk_canonical_finish(&canonical);
        write_text(temp_path(&f->folder, "config.json"), one->config);
        tensor_file_write(&f->file, temp_path(&f->folder, "model.safetensors"));
        int r = model_load("m", f->folder.path, device, &whole, &f->progress, NULL, &model, &why);
        assert_int_equal(r, STATUS_BAD_CHECKPOINT);
        assert_non_null(strstr(why.text, "row 5, element 3 is NaN"));
    }
    assert_int_equal(why.status, STATUS_BAD_CHECKPOINT);
}

int main(void)
{
    struct reason why = REASON_NULL;
    char name[64];
    if (!device_auto_name(0, name, sizeof(name)) || strncmp(name, "cuda", 4) != 0 ||
        device_open(name, 0, 0, &device, &why) != 0) {
        puts("no usable GPU: skipped");
        return SKIPPED;
    }
    count_packing();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_family, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nan, set_up, tear_down),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(device);
    return n_failed;
}
