/* two.h - a daemon that owns two GPUs, with a model on each: what tests of several devices share.
 * The process that calls these never uses CUDA: it forks. */
#pragma once

#include "tests/gpu/gpu.h"
#include "tests/harness/fixture.h"
#include "tests/harness/model.h"

#define TWO_GPUS 2u

struct two {
    struct fixture fixture;
    struct test_model models[TWO_GPUS];
};

/* Of the models; that of index i lies on the machine's GPU i. */
extern const char *const two_names[TWO_GPUS];

/* two_need() - as gpu_need(), and end the program with 77 on a machine with fewer than two. */
void two_need(void);

/* two_init() - write the checkpoints. two_start() - start a daemon, which has to own cuda:0 and
 * cuda:1, and load each model to its GPU; false with a line on stderr. two_finish() - the end of
 * both. */
void two_init(struct two *two);
bool two_start(struct two *two, const struct fixture_options *options);
void two_finish(struct two *two);

/* two_product() - of 3 rows with that model's weight, in host memory. */
bool two_product(struct two *two, struct product *product, gemmd_client_t *client, uint32_t i_gpu,
                 uint64_t seed);

/* two_serve() - a right product of each model, and each on the device of that index. */
bool two_serve(struct two *two, gemmd_client_t *client, const uint32_t device_indices[TWO_GPUS]);
