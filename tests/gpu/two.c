/* two.c - see two.h. */
#include "tests/gpu/two.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/control_job.h"

#define SKIPPED 77

const char *const two_names[TWO_GPUS] = {"first", "second"};

static bool sees_two(uint32_t i_child)
{
    (void)i_child;
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess && n >= (int)TWO_GPUS;
}

void two_need(void)
{
    gpu_need();
    if (!gpu_children(1, sees_two)) {
        (void)puts("skipped: this machine has one GPU");
        exit(SKIPPED);
    }
}

void two_init(struct two *two)
{
    fixture_init(&two->fixture);
    for (uint32_t i = 0; i < TWO_GPUS; i++) {
        test_model_write(&two->models[i], &two->fixture.folder, two_names[i], i + 1);
    }
}

bool two_start(struct two *two, const struct fixture_options *options)
{
    static const char *const devices[TWO_GPUS] = {"cuda:0", "cuda:1"};
    fixture_start(&two->fixture, options);
    gemmd_client_t *client = fixture_open(&two->fixture, GEMMD_PATH_RING);
    bool is_loaded = true;
    for (uint32_t i = 0; is_loaded && i < TWO_GPUS; i++) {
        char text[MSG_TEXT_BYTES];
        int r = control_load_on(client, two_names[i], two->models[i].path, devices[i], text);
        is_loaded = r == GEMMD_OK;
        if (!is_loaded) {
            (void)fprintf(stderr, "load to %s: 0x%x %s\n", devices[i], (unsigned)r, text);
        }
    }
    gemmd_close(client);
    return is_loaded;
}

void two_finish(struct two *two)
{
    fixture_finish(&two->fixture);
    for (uint32_t i = 0; i < TWO_GPUS; i++) {
        test_model_finish(&two->models[i]);
    }
}

bool two_product(struct two *two, struct product *product, gemmd_client_t *client, uint32_t i_gpu,
                 uint64_t seed)
{
    return product_init(
        product, client, two_names[i_gpu], &two->models[i_gpu].weights[TEST_INT4],
        &(struct product_shape){.m = 3, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = seed});
}

static bool serves(struct two *two, gemmd_client_t *client, uint32_t i_gpu, uint32_t device_index)
{
    struct product product;
    if (!two_product(two, &product, client, i_gpu, i_gpu)) {
        return false;
    }
    bool is_there = product.handle.device_index == device_index;
    if (!is_there) {
        (void)fprintf(stderr, "'%s' is on device %u, not %u\n", two_names[i_gpu],
                      product.handle.device_index, device_index);
    }
    is_there = is_there && product_run(&product, client) && product_is_right(&product);
    product_finish(&product);
    return is_there;
}

bool two_serve(struct two *two, gemmd_client_t *client, const uint32_t device_indices[TWO_GPUS])
{
    bool is_right = true;
    for (uint32_t i = 0; i < TWO_GPUS; i++) {
        is_right &= serves(two, client, i, device_indices[i]);
    }
    return is_right;
}
