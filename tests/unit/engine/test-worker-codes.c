/* test-worker-codes.c - requests whose x comes quantised, through the worker: the bits of the same
 * rows sent as floats, and never in one launch with these. */
#include "tests/unit/engine/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/quant/quant.h"
#include "tests/unit/engine/worker_bench.h"

#define M      70u /* more than one launch takes */
#define GAP    5u
#define STRIDE 3u /* between rows of scales */

static struct worker_bench wb;

static int set_up(void **state)
{
    (void)state;
    worker_bench_init(&wb, &worker_bench_limits);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    worker_bench_finish(&wb);
    return 0;
}

/* Rows of f32 in the client's x become codes in place, row by row, and scales in a buffer of their
 * own. */
static struct request_desc quantise(struct client *client, const struct weight *weight, uint32_t m)
{
    uint32_t k = weight->desc.k;
    uint32_t n_scales = gk_desc_x_scales(&weight->desc);
    struct place scales = {.stride_elems = STRIDE};
    scales.buffer_id = bench_add(&wb.bench, client->identity.buffers, 4096, &scales.base);
    for (uint32_t i = 0; i < m; i++) {
        float values[512];
        uint8_t codes[512];
        float row_scales[STRIDE];
        memcpy(values, client->x.base + i * client->x.stride_elems * sizeof(float),
               k * sizeof(float));
        (void)quant_row(&quant_portable, &weight->desc, values, codes, row_scales);
        memcpy(client->x.base + (uint64_t)i * (k + GAP), codes, k); /* never overtakes the reader */
        memcpy(scales.base + (uint64_t)i * STRIDE * sizeof(float), row_scales,
               n_scales * sizeof(float));
    }
    client->x.dtype = gk_act_dtype(weight->desc.act);
    client->x.stride_elems = k + GAP;
    struct request_desc desc = bench_desc(weight, 88, m, &client->x, &client->y);
    if (n_scales != 0) {
        desc.x_scale_buffer_id = scales.buffer_id;
        desc.x_scale_stride_elems = STRIDE;
    }
    return desc;
}

static void codes_give_the_bits_of_floats(void **state)
{
    (void)state;
    static const uint32_t weights[] = {WEIGHT_FP8_GROUP, WEIGHT_FP8_TENSOR, WEIGHT_INT8_TOKEN};
    struct client client;
    client_init(&client, &wb, 1, 16, M + 1);
    for (uint32_t i = 0; i < 3; i++) {
        const struct weight *weight = wb.bench.weights[weights[i]];
        uint64_t y_bytes = (uint64_t)M * (weight->desc.n + GAP) * sizeof(float);
        client_use(&client, weight, M, GAP, DTYPE_F32, DTYPE_F32, i);
        assert_int_equal(client_gemm(&client, weight, M).status, STATUS_OK);
        assert_true(bench_is_right(weight, &client.x, &client.y, M));
        uint8_t *y = malloc(y_bytes);
        assert_non_null(y);
        memcpy(y, client.y.base, y_bytes);
        memset(client.y.base, 0xff, y_bytes);
        struct request_desc desc = quantise(&client, weight, M);
        client_submit(&client, &desc);
        assert_int_equal(client_wait(&client).status, STATUS_OK);
        assert_memory_equal(client.y.base, y, y_bytes);
        free(y);
    }
    client_finish(&client);
}

/* Three clients wait for one weight: two with codes, one with floats between them. */
static void only_codes_share_with_codes(void **state)
{
    (void)state;
    const struct weight *weight = wb.bench.weights[WEIGHT_INT8_TOKEN];
    struct client clients[3];
    struct request_desc descs[3];
    for (uint32_t i = 0; i < 3; i++) {
        client_init(&clients[i], &wb, 10 + i, 16, 8);
        client_use(&clients[i], weight, i + 1, GAP, DTYPE_F32, DTYPE_F32, i);
        descs[i] = i == 1 ? bench_desc(weight, 88, i + 1, &clients[i].x, &clients[i].y)
                          : quantise(&clients[i], weight, i + 1);
    }
    gate_close(&wb);
    for (uint32_t i = 0; i < 3; i++) {
        client_submit(&clients[i], &descs[i]);
    }
    gate_open(&wb);
    for (uint32_t i = 0; i < 3; i++) {
        struct request_result result = client_wait(&clients[i]);
        assert_int_equal(result.status, STATUS_OK);
        assert_int_equal(result.batch_requests, i == 1 ? 1 : 2);
        assert_int_equal(result.batch_rows, i == 1 ? 2 : 4);
    }
    assert_true(bench_is_right(weight, &clients[1].x, &clients[1].y, 2));
    for (uint32_t i = 0; i < 3; i++) {
        client_finish(&clients[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_give_the_bits_of_floats),
        cmocka_unit_test(only_codes_share_with_codes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
