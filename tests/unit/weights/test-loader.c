/* Jobs from beginning to end: what is served after them, and what is not. Cases T08, T11, T10 as
 * far as it applies, and the loading half of T36 and T47. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "tests/harness/safetensors_writer.h"
#include "tests/unit/weights/fake_device.h"

#include "daemon/weights/loader.h"

#define ONE 0x3c00 /* 1.0 in binary16 */
#define TWO 0x4000

struct fixture {
    struct temp_folder folder;
    struct fake_device fake;
    struct store *store;
    struct loader *loader;
    struct reason why;
};

static struct fixture f;

static int set_up(void **state)
{
    (void)state;
    f = (struct fixture){.why = REASON_NULL};
    temp_folder_init(&f.folder);
    fake_device_init(&f.fake);
    return store_new(&f.store) || loader_new(f.store, &f.loader);
}

static int tear_down(void **state)
{
    (void)state;
    fake_device_set_gate(&f.fake, false);
    f.loader = loader_free(f.loader);
    f.store = store_free(f.store);
    fake_device_finish(&f.fake);
    temp_folder_finish(&f.folder);
    return 0;
}

/* ---- checkpoints -------------------------------------------------------------------------------
 */

static void write_config(const char *rest)
{
    char text[512];
    (void)snprintf(
        text, sizeof(text),
        "{\"torch_dtype\":\"float16\",\"quantization_config\":{\"quant_method\":\"gptq\","
        "\"bits\":4,%s}}",
        rest);
    write_text(temp_path(&f.folder, "config.json"), text);
}

static void write_flat(uint32_t n, uint32_t k, uint32_t n_scale_rows, uint8_t code, uint16_t scale,
                       uint8_t zero)
{
    struct tensor_file file;
    tensor_file_init(&file);
    tensor_file_add_flat_gptq(&file, "p", n, k, n_scale_rows, code, scale, zero);
    tensor_file_write(&file, temp_path(&f.folder, "model.safetensors"));
    tensor_file_finish(&file);
}

static void write_plain(float value)
{
    struct tensor_file file;
    tensor_file_init(&file);
    tensor_file_add_flat_plain(&file, "p", 16, 32, value);
    tensor_file_add_flat_plain(&file, "q.r", 8, 24, value);
    tensor_file_write(&file, temp_path(&f.folder, "model.safetensors"));
    tensor_file_finish(&file);
}

/* A layer of nothing but a hole on disk, too large to be read in a moment. */
static void write_sparse(void)
{
    write_safetensors(temp_path(&f.folder, "model.safetensors"),
                      "{\"p.weight\":{\"dtype\":\"F32\",\"shape\":[32768,16384],"
                      "\"data_offsets\":[0,2147483648]}}",
                      UINT64_C(2147483648));
}

/* ---- jobs --------------------------------------------------------------------------------------
 */

static struct loader_request request_of(enum loader_job_kind kind, const char *name)
{
    struct loader_request request = {.kind = kind, .device = &f.fake.base};
    (void)snprintf(request.name, sizeof(request.name), "%s", name);
    if (kind == LOADER_JOB_LOAD) {
        (void)snprintf(request.path, sizeof(request.path), "%s", f.folder.path);
    }
    return request;
}

static uint64_t start(enum loader_job_kind kind, const char *name)
{
    const struct loader_request request = request_of(kind, name);
    uint64_t job_id = 0;
    assert_int_equal(loader_start(f.loader, &request, &job_id, &f.why), 0);
    return job_id;
}

static int run(enum loader_job_kind kind, const char *name)
{
    f.why = REASON_NULL;
    return loader_wait(f.loader, start(kind, name), &f.why);
}

static int start_fails(enum loader_job_kind kind, const char *name)
{
    const struct loader_request request = request_of(kind, name);
    uint64_t job_id;
    return loader_start(f.loader, &request, &job_id, &f.why);
}

static void expect_job(uint64_t job_id, const char *job_state, int status, const char *text)
{
    struct msg_reply reply = {.body = MSG_BODY_JOB};
    assert_int_equal(loader_status(f.loader, job_id, &reply.job, NULL), 0);
    assert_string_equal(reply.job.state, job_state);
    assert_int_equal(reply.job.status, status);
    assert_non_null(strstr(reply.job.text, text));
    msg_reply_finish(&reply);
}

static void expect_refusal(int status, const char *text)
{
    int r = run(LOADER_JOB_LOAD, "m");
    if (r != status || !strstr(f.why.text, text)) {
        fail_msg("%d '%s', expected %d '%s'", r, f.why.text, status, text);
    }
    assert_false(store_has_model(f.store, "m"));
    assert_int_equal(atomic_load(&f.fake.n_regions), 0);
}

/* ---- products ----------------------------------------------------------------------------------
 */

/* Row 0 of x is all ones: y[i] by the kernel that would serve it. */
static void run_ones(const struct weight *weight, float *y)
{
    struct gk_problem problem = {weight->desc, weight->layout, 1, DTYPE_F16, DTYPE_F32};
    const struct gk_kernel *kernel;
    assert_int_equal(gk_select(&problem, &kernel, &f.why), 0);
    uint16_t *x = malloc(weight->desc.k * sizeof(*x));
    void *workspace = aligned_alloc(64, num_align_up(kernel->workspace_bytes(&problem) + 1, 64));
    assert_non_null(x);
    assert_non_null(workspace);
    for (uint32_t i = 0; i < weight->desc.k; i++) {
        x[i] = ONE;
    }
    const void *x_row = x;
    void *y_row = y;
    const struct gk_launch launch = {problem, weight->packed.base, &x_row, &y_row, workspace};
    kernel->prepare(&launch, 0, 1);
    kernel->run(&launch, 0, 1);
    free(workspace);
    free(x);
}

static void expect_product(const char *name, float value)
{
    struct weight *weight = store_find(f.store, name);
    assert_non_null(weight);
    float *y = calloc(weight->desc.n, sizeof(*y));
    assert_non_null(y);
    run_ones(weight, y);
    for (uint32_t i = 0; i < weight->desc.n; i++) {
        if (y[i] != value) {
            fail_msg("%s: y[%u] is %g, expected %g", name, i, (double)y[i], (double)value);
        }
    }
    free(y);
    weight_unref(weight);
}

/* ---- T08: zero points --------------------------------------------------------------------------
 */

static void test_zero_point_conventions(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint8_t zero;
    } cases[] = {
        {"\"group_size\":128,\"checkpoint_format\":\"gptq\"", 7},
        {"\"group_size\":128,\"checkpoint_format\":\"gptq_v2\"", 8},
        {"\"group_size\":128", 7},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "m%zu", i);
        write_config(cases[i].config);
        write_flat(128, 128, 1, 9, ONE, cases[i].zero);
        assert_int_equal(run(LOADER_JOB_LOAD, name), 0);
        (void)snprintf(name, sizeof(name), "m%zu/p", i);
        expect_product(name, 128.0f);
    }
}

static void test_zero_point_contradiction(void **state)
{
    (void)state;
    write_config("\"group_size\":128,\"sym\":true");
    write_flat(128, 128, 1, 9, ONE, 8);
    int r = run(LOADER_JOB_LOAD, "m");
    assert_true(r == STATUS_BAD_CHECKPOINT || r == STATUS_UNSUPPORTED);
    assert_non_null(strstr(f.why.text, "'p'"));
    assert_false(store_has_model(f.store, "m"));
}

static void test_asymmetric_is_refused(void **state)
{
    (void)state;
    write_config("\"group_size\":128,\"sym\":false,\"checkpoint_format\":\"gptq_v2\"");
    write_flat(128, 128, 1, 9, ONE, 3);
    expect_refusal(STATUS_UNSUPPORTED, "sym false");
}

/* ---- T11: groups -------------------------------------------------------------------------------
 */

static void test_too_many_scale_rows(void **state)
{
    (void)state;
    write_config("\"group_size\":32");
    write_flat(64, 384, 24, 9, ONE, 7);
    expect_refusal(STATUS_BAD_CHECKPOINT, "expected [12, 64]");
    write_config("\"group_size\":128");
    write_flat(64, 192, 3, 9, ONE, 7);
    expect_refusal(STATUS_BAD_CHECKPOINT, "expected [2, 64]");
}

static void test_ragged_last_group(void **state)
{
    (void)state;
    enum { N = 64, K = 192 };
    static uint8_t codes[K * N];
    static uint16_t scales[2 * N];
    memset(codes, 9, sizeof(codes));
    for (uint32_t i = 0; i < N; i++) {
        scales[i] = ONE;
        scales[N + i] = TWO;
    }
    struct tensor_file file;
    tensor_file_init(&file);
    tensor_file_add_gptq(&file,
                         &(struct gptq_layer){"p", N, K, 2, codes, scales, 7, .g_idx = NULL});
    tensor_file_write(&file, temp_path(&f.folder, "model.safetensors"));
    tensor_file_finish(&file);
    write_config("\"group_size\":128");
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    expect_product("m/p", 256.0f);
}

static void test_one_group_over_k(void **state)
{
    (void)state;
    write_config("\"group_size\":-1");
    write_flat(32, 4096, 1, 9, 0x3800 /* 0.5 */, 7);
    assert_int_equal(run(LOADER_JOB_LOAD, "m"), 0);
    expect_product("m/p", 2048.0f);
}

/* ---- T10: g_idx --------------------------------------------------------------------------------
 */

enum { G_IDX_N = 32, G_IDX_K = 256, G_IDX_GROUP = 64 };

static void write_g_idx(const int32_t *g_idx)
{
    static uint8_t codes[G_IDX_K * G_IDX_N];
    uint16_t scales[4 * G_IDX_N];
    memset(codes, 9, sizeof(codes));
    for (uint32_t i = 0; i < ARRAY_LENGTH(scales); i++) {
        scales[i] = half_from_f32((float)(1 << (i / G_IDX_N)));
    }
    const struct gptq_layer layer = {"p", G_IDX_N, G_IDX_K, 4, codes, scales, 7, g_idx};
    struct tensor_file file;
    tensor_file_init(&file);
    tensor_file_add_gptq(&file, &layer);
    tensor_file_write(&file, temp_path(&f.folder, "model.safetensors"));
    tensor_file_finish(&file);
    write_config("\"group_size\":64,\"desc_act\":true");
}

static void test_g_idx_in_order(void **state)
{
    (void)state;
    int32_t in_order[G_IDX_K];
    int32_t unset[G_IDX_K];
    for (int32_t i = 0; i < G_IDX_K; i++) {
        in_order[i] = i / G_IDX_GROUP;
        unset[i] = -1;
    }
    const int32_t *const maps[] = {in_order, unset, NULL};
    const char *const names[] = {"a", "b", "c"};
    const char *const weights[] = {"a/p", "b/p", "c/p"};
    for (uint32_t i = 0; i < ARRAY_LENGTH(maps); i++) {
        write_g_idx(maps[i]);
        assert_int_equal(run(LOADER_JOB_LOAD, names[i]), 0);
        expect_product(weights[i], 64.0f * (1 + 2 + 4 + 8));
    }
}

static void test_g_idx_refusals(void **state)
{
    (void)state;
    static const struct {
        uint32_t i;
        int32_t value;
        int status;
        const char *text;
    } cases[] = {
        {7, 4, STATUS_BAD_CHECKPOINT, "'p.g_idx': entry 7 is 4, outside the 4 groups"},
        {8, -7, STATUS_BAD_CHECKPOINT, "'p.g_idx': entry 8 is -7"},
        {9, INT32_MAX, STATUS_BAD_CHECKPOINT, "'p.g_idx': entry 9 is 2147483647"},
        {10, 3, STATUS_UNSUPPORTED, "'p.g_idx': entry 10 is group 3, not 0: act-order"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        int32_t g_idx[G_IDX_K];
        for (int32_t j = 0; j < G_IDX_K; j++) {
            g_idx[j] = j / G_IDX_GROUP;
        }
        g_idx[cases[i].i] = cases[i].value;
        write_g_idx(g_idx);
        expect_refusal(cases[i].status, cases[i].text);
    }
    write_g_idx((int32_t[G_IDX_K]){0});
    expect_refusal(STATUS_UNSUPPORTED, "entry 64 is group 0, not 1");
}

/* ---- loading -----------------------------------------------------------------------------------
 */

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
    free(job.warnings);
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
    uint64_t needed_bytes = gk_workspace_max(&weight->desc, weight->layout);
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
    strcat(same.path, "/");
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
    request.tp_size = 2;
    assert_int_equal(loader_start(f.loader, &request, &job_id, &f.why), STATUS_UNSUPPORTED);
    request.tp_size = 1;
    request.tp_rank = 1;
    assert_int_equal(loader_start(f.loader, &request, &job_id, &f.why), STATUS_INVALID_ARGUMENT);
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
    strcat(request.path, "/nowhere");
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
    expect_job(last, "cancelled", STATUS_CANCELLED, "cancelled");
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

/* ---- cancelling --------------------------------------------------------------------------------
 */

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

/* ---- reloading ---------------------------------------------------------------------------------
 */

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

/* ---- verifying ---------------------------------------------------------------------------------
 */

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

/* ---- the real thing ----------------------------------------------------------------------------
 */

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

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_zero_point_conventions),
        CASE(test_zero_point_contradiction),
        CASE(test_asymmetric_is_refused),
        CASE(test_too_many_scale_rows),
        CASE(test_ragged_last_group),
        CASE(test_one_group_over_k),
        CASE(test_g_idx_in_order),
        CASE(test_g_idx_refusals),
        CASE(test_load_and_status),
        CASE(test_workspace_is_reserved),
        CASE(test_load_is_idempotent),
        CASE(test_bad_requests),
        CASE(test_names_that_do_not_fit),
        CASE(test_missing_path),
        CASE(test_device_full),
        CASE(test_queue_is_bounded),
        CASE(test_ended_jobs_are_forgotten),
        CASE(test_cancel_while_reading),
        CASE(test_free_while_reading),
        CASE(test_reload_swaps),
        CASE(test_failed_reload_keeps_serving),
        CASE(test_unload_while_reloading),
        CASE(test_verify),
        CASE(test_verify_quantised),
        CASE(test_verify_finds_a_difference),
        CASE(test_real_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
