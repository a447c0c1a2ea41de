/* loader_fixture.h - what the tests of loading share: checkpoints in a folder, jobs run to their
 * end, products by the kernels that would serve them. Assertions are cmocka's. */
#pragma once

#include <stdint.h>

#include "tests/harness/safetensors_writer.h"
#include "tests/unit/weights/fake_device.h"

#include "daemon/weights/loader.h"

#define ONE 0x3c00 /* 1.0 in binary16 */
#define TWO 0x4000

struct loader_fixture {
    struct temp_folder folder;
    struct fake_device fake;
    struct store *store;
    struct loader *loader;
    struct reason why; /* of the last call that had one */
};

extern struct loader_fixture f;

/* For cmocka_unit_test_setup_teardown(). The end checks that no region is left. */
int loader_set_up(void **state);
int loader_tear_down(void **state);

/* config.json of a GPTQ model of 4 bits, with the rest of its keys; model.safetensors of one layer
 * "p" (n, k) with one code and one scale throughout; of two plain layers "p" (16, 32) and "q.r" (8,
 * 24) with one value; of 2 GiB of nothing. */
void write_config(const char *rest);
void write_flat(uint32_t n, uint32_t k, uint32_t n_scale_rows, uint8_t code, uint16_t scale,
                uint8_t zero);
void write_plain(float value);
void write_sparse(void);

/* request_of() - a LOAD is of the fixture's folder. start() - must be admitted; the job's id. run()
 * - start and wait; its status, with f.why. start_fails() - the status of the refusal, with f.why.
 */
struct loader_request request_of(enum loader_job_kind kind, const char *name);
uint64_t start(enum loader_job_kind kind, const char *name);
int run(enum loader_job_kind kind, const char *name);
int start_fails(enum loader_job_kind kind, const char *name);

/* expect_warning() - of a loaded model: its only warning has `text` in it; NULL: it has none. */
void expect_warning(const char *model, const char *text);

/* expect_job() - state, status and part of the text. expect_refusal() - loading "m" fails so, and
 * leaves nothing. */
void expect_job(uint64_t job_id, const char *job_state, int status, const char *text);
void expect_refusal(int status, const char *text);

/* run_ones() - y (n) for a row x of ones. expect_product() - every element of it, exactly. */
void run_ones(const struct weight *weight, float *y);
void expect_product(const char *name, float value);
