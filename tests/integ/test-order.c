/* test-order.c - words of stream order through the real daemon on the host device, where the CPU
 * writes what a GPU's stream would: opened once, charged and given back, held until ready, ended
 * with the session; and who is refused them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/client.h"
#include "tests/harness/fixture.h"
#include "tests/harness/model.h"
#include "tests/harness/product.h"
#include "tests/harness/status_document.h"
#include "tests/harness/tiny.h"

#define WAIT_SECONDS 20.0
#define ENTRY        3u

static struct fixture fixture;
static struct test_model model;

static int set_up(void **state)
{
    (void)state;
    return tiny_start(&fixture, &model, 1, "devices = host\n");
}

static int tear_down(void **state)
{
    (void)state;
    return tiny_stop(&fixture, &model);
}

/* A client with an open lane, and a product that was right once. */
static void begin(gemmd_client_t **ret_client, struct product *product)
{
    const struct product_shape shape = {
        .m = 2, .x_dtype = GEMMD_F32, .y_dtype = GEMMD_F32, .seed = 3};
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    assert_true(product_init(product, client, "tiny", &model.weights[TEST_INT4], &shape));
    assert_true(product_run(product, client) && product_is_right(product));
    product_clear(product);
    *ret_client = client;
}

static int open_order(gemmd_client_t *client, uint32_t device_index, struct region *ret_region)
{
    union side_message question;
    struct side_packet packet;
    side_init(&question, SIDE_OPEN_ORDER, 0);
    question.open_lane.device_index = device_index;
    int r = session_ask(client, &question, -1, SIDE_ORDER, &packet);
    if (r != 0) {
        return r;
    }
    const struct side_order *answer = &packet.message.order;
    assert_int_equal(packet.n_fds, 1);
    assert_int_equal(answer->done_bytes, 0);
    assert_int_equal(answer->has_mps, 0);
    assert_int_equal(answer->n_entries, client->lanes[0].n_tickets);
    *ret_region = REGION_NULL;
    assert_int_equal(region_attach(ret_region, packet.fds[0], order_bytes(answer->n_entries)), 0);
    packet.fds[0] = -1;
    side_packet_finish(&packet);
    return 0;
}

static struct order_words words_of(const gemmd_client_t *client, const struct region *region)
{
    return order_words_at(region->base, client->lanes[0].n_tickets);
}

static void submit(gemmd_client_t *client, const struct product *product, uint32_t value)
{
    struct request_desc desc = gemm_describe(client, &product->gemm, UINT64_MAX);
    desc.flags = REQUEST_FLAG_ORDERED;
    desc.order_entry = ENTRY;
    desc.order_value = value;
    assert_int_equal(lane_submit(&client->lanes[0].lane, &desc), RING_OK);
}

static void wait_ended(const struct order_words *words, uint32_t value)
{
    double end = fixture_now() + WAIT_SECONDS;
    while (!order_is_reached(atomic_load(&words->ended[ENTRY]), value)) {
        assert_true(fixture_now() < end);
    }
}

static void test_held_until_ready(void **state)
{
    (void)state;
    struct product product;
    struct region region, again;
    gemmd_client_t *client;
    begin(&client, &product);
    assert_int_equal(open_order(client, 0, &region), 0);
    assert_int_equal(open_order(client, 0, &again), 0);
    struct order_words words = words_of(client, &region);
    submit(client, &product, 1);
    fixture_sleep(0.05);
    assert_int_equal(atomic_load(&words.ended[ENTRY]), 0);
    atomic_store(&words.ready[ENTRY], 1);
    wait_ended(&words, 1);
    assert_true(product_is_right(&product));
    struct order_words same = words_of(client, &again);
    assert_int_equal(atomic_load(&same.ended[ENTRY]), 1);
    region_finish(&region);
    region_finish(&again);
    product_finish(&product);
    gemmd_close(client);
}

/* With a request that waits: the daemon holds nothing of it afterwards. */
static void test_given_back(void **state)
{
    (void)state;
    struct product product;
    struct region region;
    struct status_counts before, during, after;
    gemmd_client_t *client;
    status_counts_settle(&fixture, 1, WAIT_SECONDS, &before);
    begin(&client, &product);
    assert_int_equal(open_order(client, 0, &region), 0);
    submit(client, &product, 1);
    assert_true(status_counts_reach(&fixture, offsetof(struct status_counts, n_in_flight), 1,
                                    WAIT_SECONDS, &during));
    assert_true(during.n_fds > before.n_fds);
    product_finish(&product);
    gemmd_close(client);
    status_counts_settle(&fixture, 1, WAIT_SECONDS, &after);
    assert_int_equal(after.n_in_flight, 0);
    assert_int_equal(after.n_fds, before.n_fds);
    assert_int_equal(after.buffer_bytes, before.buffer_bytes);
    region_finish(&region);
}

static void expect_refusal(int r, int status, const char *words)
{
    if (r != status || strstr(gemmd_last_error(), words) == NULL) {
        fail_msg("0x%x '%s', not 0x%x with '%s'", (unsigned)r, gemmd_last_error(), (unsigned)status,
                 words);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct product product;
    struct region region;
    gemmd_stream_t *stream;
    gemmd_client_t *fresh = fixture_open(&fixture, GEMMD_PATH_RING);
    expect_refusal(open_order(fresh, 0, &region), GEMMD_INVALID_ARGUMENT, "is not open");
    expect_refusal(open_order(fresh, 9, &region), GEMMD_NOT_FOUND, "owns 1");
    gemmd_close(fresh);
    gemmd_client_t *client;
    begin(&client, &product);
    expect_refusal(gemmd_stream_open(client, 0, NULL, GEMMD_ORDER_AUTO, &stream), GEMMD_UNSUPPORTED,
                   "no GPU");
    expect_refusal(gemmd_stream_open(client, 0, NULL, GEMMD_ORDER_AUTO, NULL),
                   GEMMD_INVALID_ARGUMENT, "ret_stream is NULL");
    expect_refusal(gemmd_gemm_on_stream(NULL, &product.gemm), GEMMD_INVALID_ARGUMENT,
                   "stream is NULL");
    assert_true(product_run(&product, client) && product_is_right(&product));
    product_finish(&product);
    gemmd_close(client);
    client = fixture_open(&fixture, GEMMD_PATH_ZEROMQ);
    expect_refusal(gemmd_stream_open(client, 0, NULL, GEMMD_ORDER_AUTO, &stream), GEMMD_UNSUPPORTED,
                   "GEMMD_PATH_RING");
    gemmd_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held_until_ready),
        cmocka_unit_test(test_given_back),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
