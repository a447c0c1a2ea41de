/* A model in writing: what comes back is what was written, and what was not written by us, or has
 * been changed since, does not come back. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/weights/manifest.h"
#include "daemon/weights/warnings.h"

#define N_WEIGHTS 2u

static struct device *device;
static struct model *model;
static int fd;

static void add_weight(const char *name, const struct gk_desc *desc)
{
    struct weight *weight;
    assert_int_equal(weight_new(device, &weight), 0);
    (void)snprintf(weight->name, sizeof(weight->name), "%s", name);
    weight->desc = *desc;
    weight->layout = gk_layout_for(desc, GK_DEVICE_HOST);
    weight->act_dtype = DTYPE_BF16;
    weight->packed.size_bytes = weight->layout->packed_bytes(desc);
    weight->digest = (struct gk_digest){UINT64_MAX - model->n_weights, 0x0123};
    model->weights[model->n_weights++] = weight;
}

static int set_up(void **state)
{
    (void)state;
    static const struct gk_desc int4 = {.n = 64,
                                        .k = 256,
                                        .code = GK_CODE_U4,
                                        .group_n = 1,
                                        .group_k = 128,
                                        .scale_dtype = DTYPE_F16,
                                        .has_zeros = true};
    static const struct gk_desc int8 = {.n = 24,
                                        .k = 128,
                                        .code = GK_CODE_U8,
                                        .group_n = 1,
                                        .group_k = 128,
                                        .scale_dtype = DTYPE_F32,
                                        .act = GK_ACT_INT8_TENSOR,
                                        .act_scale = 0.1f,
                                        .act_zero = -3,
                                        .bias_dtype = DTYPE_F32};
    assert_int_equal(device_host_open(0, 1, &device, NULL), 0);
    assert_int_equal(model_new("m \"x\"", "/models/ä", device, N_WEIGHTS, &model), 0);
    model->shaping =
        (struct msg_shaping){.tp_rank = 1, .tp_size = 2, .fuse = "usual", .act = "fp8"};
    model->generation = 7;
    model->act_dtype = DTYPE_BF16;
    add_weight("m \"x\"/a", &int4);
    add_weight("m \"x\"/b", &int8);
    assert_int_equal(sources_add(&model->sources, "/models/ä/s", UINT32_MAX + 5ull, -17), 0);
    char *warning = (char *)(uintptr_t) "a warning";
    assert_int_equal(warnings_copy(&warning, 1, &model->warnings), 0);
    model->n_warnings = 1;
    return manifest_write(model, &fd);
}

static int tear_down(void **state)
{
    (void)state;
    model = model_free(model);
    device = device_close(device);
    (void)close(fd);
    return 0;
}

static void expect_weight(const struct weight *a, const struct weight *b)
{
    assert_string_equal(a->name, b->name);
    assert_memory_equal(&a->desc, &b->desc, sizeof(a->desc));
    assert_ptr_equal(a->layout, b->layout);
    assert_int_equal(a->act_dtype, b->act_dtype);
    assert_int_equal(a->packed.size_bytes, b->packed.size_bytes);
    assert_true(gk_digest_is_same(&a->digest, &b->digest));
}

static void test_round_trip(void **state)
{
    (void)state;
    struct manifest manifest;
    struct model *found;
    assert_int_equal(manifest_open(fd, &manifest, NULL), 0);
    assert_string_equal(manifest.name, model->name);
    assert_string_equal(manifest.path, model->path);
    assert_string_equal(manifest.device, "host");
    assert_memory_equal(&manifest.shaping, &model->shaping, sizeof(manifest.shaping));
    assert_int_equal(manifest.generation, 7);
    assert_int_equal(manifest_model(&manifest, device, &found, NULL), 0);
    assert_int_equal(found->n_weights, N_WEIGHTS);
    for (uint32_t i = 0; i < N_WEIGHTS; i++) {
        expect_weight(found->weights[i], model->weights[i]);
    }
    assert_int_equal(found->act_dtype, DTYPE_BF16);
    assert_int_equal(found->sources.items[0].size_bytes, UINT32_MAX + 5ull);
    assert_int_equal(found->sources.items[0].mtime_nsec, -17);
    assert_string_equal(found->warnings[0], "a warning");
    model_free(found);
    manifest_finish(&manifest);
}

/* A copy with one byte exchanged, cut to n_bytes; -1: whole. */
static int copy_with(off_t offset, uint8_t flip, off_t n_bytes, bool is_sealed)
{
    uint8_t bytes[16384];
    ssize_t n = pread(fd, bytes, sizeof(bytes), 0);
    assert_true(n > 0 && n < (ssize_t)sizeof(bytes));
    bytes[offset] ^= flip;
    int copy = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    n = n_bytes >= 0 ? n_bytes : n;
    assert_int_equal(write(copy, bytes, (size_t)n), n);
    if (is_sealed) {
        int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
        assert_int_equal(fcntl(copy, F_ADD_SEALS, seals), 0);
    }
    return copy;
}

static int open_copy(off_t offset, uint8_t flip, off_t n_bytes, bool is_sealed)
{
    struct manifest manifest;
    int copy = copy_with(offset, flip, n_bytes, is_sealed);
    int r = manifest_open(copy, &manifest, NULL);
    manifest_finish(&manifest);
    (void)close(copy);
    return r;
}

static void test_damage(void **state)
{
    (void)state;
    off_t n_bytes = lseek(fd, 0, SEEK_END);
    assert_int_equal(open_copy(0, 0, -1, true), 0);
    assert_int_equal(open_copy(0, 0, -1, false), STATUS_BAD_MESSAGE);
    for (off_t i = 0; i < n_bytes; i++) {
        bool is_format = i >= 8 && i < 12;
        bool is_reserved = i >= 12 && i < 16;
        int expected = is_format ? STATUS_VERSION : is_reserved ? 0 : STATUS_BAD_MESSAGE;
        assert_int_equal(open_copy(i, 0x04, -1, true), expected);
        assert_int_equal(open_copy(0, 0, i, true), STATUS_BAD_MESSAGE);
    }
}

/* Another build may still load what it cannot adopt. */
static void test_other_format(void **state)
{
    (void)state;
    struct manifest manifest;
    int copy = copy_with(8, 0x04, -1, true);
    assert_int_equal(manifest_open(copy, &manifest, NULL), STATUS_VERSION);
    assert_string_equal(manifest.name, model->name);
    assert_string_equal(manifest.path, model->path);
    manifest_finish(&manifest);
    (void)close(copy);
}

static void test_lock(void **state)
{
    (void)state;
    int status;
    assert_int_equal(manifest_lock(fd, NULL), 0); /* our own is no obstacle */
    pid_t pid = fork();
    if (pid == 0) {
        struct reason why = REASON_NULL;
        char expected[64];
        (void)snprintf(expected, sizeof(expected), "process %d still", (int)getppid());
        bool is_right = manifest_lock(fd, &why) == STATUS_EXISTS && strstr(why.text, expected);
        _exit(is_right ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Paths need not be UTF-8, and JSON must: such a model cannot be kept, and memory is not why. */
static void test_paths_that_are_no_text(void **state)
{
    (void)state;
    int none = -1;
    (void)snprintf(model->path, sizeof(model->path), "/models/\xe4");
    assert_int_equal(manifest_write(model, &none), -EILSEQ);
    (void)snprintf(model->path, sizeof(model->path), "/models");
    assert_int_equal(sources_add(&model->sources, "/models/\xe4", 1, 1), 0);
    assert_int_equal(manifest_write(model, &none), -EILSEQ);
    assert_int_equal(none, -1);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_round_trip),
        CASE(test_damage),
        CASE(test_other_format),
        CASE(test_lock),
        CASE(test_paths_that_are_no_text),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
