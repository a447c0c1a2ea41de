/* One loader on one store and one fake device, in a folder of its own. */
#include "tests/unit/weights/loader_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/safetensors_writer.h"

struct loader_fixture f;

int loader_set_up(void **state)
{
    (void)state;
    f = (struct loader_fixture){.why = REASON_NULL};
    temp_folder_init(&f.folder);
    fake_device_init(&f.fake);
    return store_new(&f.store) || loader_new(f.store, NULL, &f.loader);
}

int loader_tear_down(void **state)
{
    (void)state;
    fake_device_set_gate(&f.fake, false);
    f.loader = loader_free(f.loader);
    f.store = store_free(f.store);
    fake_device_finish(&f.fake);
    temp_folder_finish(&f.folder);
    return 0;
}

/* ---- checkpoints ---- */

void write_config(const char *rest)
{
    char text[512];
    (void)snprintf(
        text, sizeof(text),
        "{\"torch_dtype\":\"float16\",\"quantization_config\":{\"quant_method\":\"gptq\","
        "\"bits\":4,%s}}",
        rest);
    write_text(temp_path(&f.folder, "config.json"), text);
}

void write_flat(uint32_t n, uint32_t k, uint32_t n_scale_rows, uint8_t code, uint16_t scale,
                uint8_t zero)
{
    struct tensor_file file;
    tensor_file_init(&file);
    tensor_file_add_flat_gptq(&file, "p", n, k, n_scale_rows, code, scale, zero);
    tensor_file_write(&file, temp_path(&f.folder, "model.safetensors"));
    tensor_file_finish(&file);
}

void write_plain(float value)
{
    struct tensor_file file;
    tensor_file_init(&file);
    tensor_file_add_flat_plain(&file, "p", 16, 32, value);
    tensor_file_add_flat_plain(&file, "q.r", 8, 24, value);
    tensor_file_write(&file, temp_path(&f.folder, "model.safetensors"));
    tensor_file_finish(&file);
}

/* A layer of nothing but a hole on disk, too large to be read in a moment. */
void write_sparse(void)
{
    write_safetensors(temp_path(&f.folder, "model.safetensors"),
                      "{\"p.weight\":{\"dtype\":\"F32\",\"shape\":[32768,16384],"
                      "\"data_offsets\":[0,2147483648]}}",
                      UINT64_C(2147483648));
}

/* ---- jobs ---- */

struct loader_request request_of(enum loader_job_kind kind, const char *name)
{
    struct loader_request request = {.kind = kind, .device = &f.fake.base};
    (void)snprintf(request.name, sizeof(request.name), "%s", name);
    if (kind == LOADER_JOB_LOAD) {
        (void)snprintf(request.path, sizeof(request.path), "%s", f.folder.path);
    }
    return request;
}

uint64_t start(enum loader_job_kind kind, const char *name)
{
    const struct loader_request request = request_of(kind, name);
    uint64_t job_id = 0;
    assert_int_equal(loader_start(f.loader, &request, &job_id, &f.why), 0);
    return job_id;
}

int run(enum loader_job_kind kind, const char *name)
{
    f.why = REASON_NULL;
    return loader_wait(f.loader, start(kind, name), &f.why);
}

int start_fails(enum loader_job_kind kind, const char *name)
{
    const struct loader_request request = request_of(kind, name);
    uint64_t job_id;
    return loader_start(f.loader, &request, &job_id, &f.why);
}

void expect_warning(const char *model, const char *text)
{
    struct store_model *held = store_hold(f.store, model);
    assert_non_null(held);
    assert_int_equal(store_held(held)->n_warnings, text != NULL);
    if (text) {
        assert_non_null(strstr(store_held(held)->warnings[0], text));
    }
    store_release(held);
}

void expect_job(uint64_t job_id, const char *job_state, int status, const char *text)
{
    struct msg_reply reply = {.body = MSG_BODY_JOB};
    assert_int_equal(loader_status(f.loader, job_id, &reply.job, NULL), 0);
    assert_string_equal(reply.job.state, job_state);
    assert_int_equal(reply.job.status, status);
    assert_non_null(strstr(reply.job.text, text));
    msg_reply_finish(&reply);
}

void expect_refusal(int status, const char *text)
{
    int r = run(LOADER_JOB_LOAD, "m");
    if (r != status || !strstr(f.why.text, text)) {
        fail_msg("%d '%s', expected %d '%s'", r, f.why.text, status, text);
    }
    assert_false(store_has_model(f.store, "m"));
    assert_int_equal(atomic_load(&f.fake.n_regions), 0);
}

/* ---- products ---- */

/* Row 0 of x is all ones: y[i] by the kernel that would serve it. */
void run_ones(const struct weight *weight, float *y)
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
    const struct gk_launch launch = {.problem = problem,
                                     .packed = weight->packed.base,
                                     .x_rows = &x_row,
                                     .y_rows = &y_row,
                                     .workspace = workspace};
    kernel->prepare(&launch, 0, 1);
    kernel->run(&launch, 0, 1);
    free(workspace);
    free(x);
}

void expect_product(const char *name, float value)
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
