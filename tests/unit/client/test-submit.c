/* test-submit.c - submitting, waiting and cancelling: every test runs on both paths, which have to
 * give the same results and the same sentences. */
#include "tests/unit/client/fixture.h"

static struct fixture fixture;

static int set_up_ring(void **state)
{
    (void)state;
    fixture_open(&fixture, GEMMD_PATH_RING);
    return 0;
}

static int set_up_zeromq(void **state)
{
    (void)state;
    fixture_open(&fixture, GEMMD_PATH_ZEROMQ);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_close(&fixture);
    return 0;
}

static void test_one(void **state)
{
    (void)state;
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 3);
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_OK);
    fixture_check_row(&fixture, 3);
}

static void test_many_at_once(void **state)
{
    (void)state;
    struct gemmd_gemm gemms[FAKE_LANE_ENTRIES];
    gemmd_ticket_t tickets[FAKE_LANE_ENTRIES];
    for (uint32_t i = 0; i < FAKE_LANE_ENTRIES; i++) {
        gemms[i] = fixture_gemm(&fixture, i);
    }
    for (int round = 0; round < 3; round++) {
        assert_int_equal(gemmd_submit(fixture.client, gemms, FAKE_LANE_ENTRIES, tickets), GEMMD_OK);
        for (uint32_t i = FAKE_LANE_ENTRIES; i-- > 0;) { /* not in the order they end */
            struct gemmd_result result = GEMMD_RESULT_INIT;
            assert_int_equal(gemmd_wait(fixture.client, tickets[i], GEMMD_WAIT_FOREVER, &result),
                             GEMMD_OK);
            assert_int_equal(result.batch_rows, 1);
            assert_int_equal(result.run_nsec, 1000);
            fixture_check_row(&fixture, i);
        }
    }
    assert_int_equal(gemmd_submit(fixture.client, NULL, 0, NULL), GEMMD_OK);
}

/* Rows of int8 with their scales, packed and with a stride of their own. */
static void test_quantised_rows(void **state)
{
    (void)state;
    gemmd_buffer_t *scales;
    assert_int_equal(gemmd_buffer_alloc(fixture.client, 0, 64, &scales), GEMMD_OK);
    memcpy(gemmd_buffer_data(fixture.x), (const int8_t[]){1, -2, 3, -128, 5, 6, -7, 127}, 8);
    memcpy(gemmd_buffer_data(scales), (const float[]){0.5f, 4, -1, 0.25f}, 16);
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    gemm.m = 2;
    gemm.x_dtype = GEMMD_I8;
    gemm.x_scale = scales;
    for (uint64_t stride = 0; stride <= 2; stride += 2) {
        gemm.x_scale_offset_bytes = stride == 2 ? 4 : 0;
        gemm.x_scale_stride = stride;
        assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_OK);
        static const float dense[] = {1, -2, 3, -128, 40, 48, -56, 1016};
        static const float spread[] = {8, -16, 24, -1024, 2.5f, 3, -3.5f, 63.5f};
        assert_memory_equal(gemmd_buffer_data(fixture.y), stride == 2 ? spread : dense,
                            sizeof(dense));
    }
    gemmd_buffer_free(scales);
}

static void test_busy_is_all_or_none(void **state)
{
    (void)state;
    struct gemmd_gemm gemms[FAKE_LANE_ENTRIES + 1];
    gemmd_ticket_t tickets[FAKE_LANE_ENTRIES + 1];
    for (uint32_t i = 0; i <= FAKE_LANE_ENTRIES; i++) {
        gemms[i] = fixture_gemm(&fixture, i);
    }
    assert_int_equal(gemmd_submit(fixture.client, gemms, FAKE_LANE_ENTRIES + 1, tickets),
                     GEMMD_BUSY);
    assert_says("17 requests do not fit in flight: 0 of at most 16");
    fake_set(fixture.fake, FAKE_HOLD);
    assert_int_equal(gemmd_submit(fixture.client, gemms, 10, tickets), GEMMD_OK);
    assert_int_equal(gemmd_submit(fixture.client, gemms, 7, tickets + 10), GEMMD_BUSY);
    assert_int_equal(gemmd_submit(fixture.client, gemms, 6, tickets + 10), GEMMD_OK);
    fake_set(fixture.fake, 0);
    for (uint32_t i = 0; i < FAKE_LANE_ENTRIES; i++) {
        assert_int_equal(gemmd_wait(fixture.client, tickets[i], GEMMD_WAIT_FOREVER, NULL),
                         GEMMD_OK);
    }
}

static void test_time_runs_out_and_the_ticket_stays(void **state)
{
    (void)state;
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    gemmd_ticket_t ticket;
    struct gemmd_result result = GEMMD_RESULT_INIT;
    fake_set(fixture.fake, FAKE_HOLD);
    assert_int_equal(gemmd_submit(fixture.client, &gemm, 1, &ticket), GEMMD_OK);
    assert_int_equal(gemmd_wait(fixture.client, ticket, 0, &result), GEMMD_TIMEOUT);
    assert_int_equal(result.status, GEMMD_BUSY);
    struct gemmd_result unset = {0};
    assert_int_equal(gemmd_wait(fixture.client, ticket, 0, &unset), GEMMD_INVALID_ARGUMENT);
    assert_says("gemmd_result.struct_bytes is 0, below the 40 of its first version");
    assert_int_equal(gemmd_wait(fixture.client, ticket, 20000, &result), GEMMD_TIMEOUT);
    assert_says("after 20000 us");
    fake_set(fixture.fake, 0);
    assert_int_equal(gemmd_wait(fixture.client, ticket, GEMMD_WAIT_FOREVER, &result), GEMMD_OK);
    assert_int_equal(result.status, GEMMD_OK);
    assert_int_equal(gemmd_wait(fixture.client, ticket, 0, NULL), GEMMD_NOT_FOUND);
    assert_says("is not in flight");
}

/* What the daemon did is told on both paths, and asked for only by who asks. */
static void test_accumulation(void **state)
{
    (void)state;
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    for (int i = GEMMD_ACCUMULATION_PROMOTED; i <= GEMMD_ACCUMULATION_FAST; i++) {
        struct gemmd_result result = GEMMD_RESULT_INIT;
        gemmd_ticket_t ticket;
        gemm.accumulation = (enum gemmd_accumulation)i;
        assert_int_equal(gemmd_submit(fixture.client, &gemm, 1, &ticket), GEMMD_OK);
        assert_int_equal(gemmd_wait(fixture.client, ticket, GEMMD_WAIT_FOREVER, &result), GEMMD_OK);
        assert_int_equal(result.accumulation, i);
    }
    gemm.accumulation = (enum gemmd_accumulation)2;
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_INVALID_ARGUMENT);
    assert_says("gemmd_gemm.accumulation 2 is not a gemmd_accumulation");
}

static void test_cancel(void **state)
{
    (void)state;
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    gemmd_ticket_t ticket;
    fake_set(fixture.fake, FAKE_HOLD);
    assert_int_equal(gemmd_submit(fixture.client, &gemm, 1, &ticket), GEMMD_OK);
    assert_int_equal(gemmd_cancel(fixture.client, ticket), GEMMD_OK);
    assert_int_equal(gemmd_wait(fixture.client, ticket, GEMMD_WAIT_FOREVER, NULL), GEMMD_CANCELLED);
    assert_string_equal(gemmd_last_error(), gemmd_status_text(GEMMD_CANCELLED));
    assert_int_equal(gemmd_cancel(fixture.client, ticket), GEMMD_NOT_FOUND);
    assert_int_equal(gemmd_cancel(fixture.client, 0), GEMMD_NOT_FOUND);
}

static void test_refusal_reaches_the_user(void **state)
{
    (void)state;
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    fake_set(fixture.fake, FAKE_REFUSE_REQUEST);
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_INVALID_ARGUMENT);
    assert_string_equal(gemmd_last_error(), FAKE_SENTENCE);
}

static void test_death_while_waiting(void **state)
{
    (void)state;
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    gemmd_ticket_t ticket;
    fake_set(fixture.fake, FAKE_HOLD);
    assert_int_equal(gemmd_submit(fixture.client, &gemm, 1, &ticket), GEMMD_OK);
    fake_die(fixture.fake);
    uint64_t start = fixture_now_msec();
    struct gemmd_result result = GEMMD_RESULT_INIT;
    assert_int_equal(gemmd_wait(fixture.client, ticket, GEMMD_WAIT_FOREVER, &result),
                     GEMMD_DISCONNECTED);
    assert_int_equal(result.status, GEMMD_DISCONNECTED);
    assert_true(fixture_now_msec() - start < 1000);
    assert_int_equal(gemmd_wait(fixture.client, ticket, 0, NULL), GEMMD_NOT_FOUND);
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_DISCONNECTED);
}

static void test_wrong_use(void **state)
{
    (void)state;
    struct fixture other;
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    gemm.struct_bytes--;
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_INVALID_ARGUMENT);
    assert_says("struct_bytes");
    gemm = fixture_gemm(&fixture, 0);
    gemm.weight = NULL;
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_INVALID_ARGUMENT);
    gemm = fixture_gemm(&fixture, 0);
    gemm.y = NULL;
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_INVALID_ARGUMENT);
    assert_says("gemmd_gemm.y is NULL and m is 1");
    fixture_open(&other, GEMMD_PATH_RING);
    gemm.y = other.y;
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_INVALID_ARGUMENT);
    assert_says("gemmd_gemm.y belongs to another client");
    gemm.y = fixture.y;
    gemm.x_scale = other.x;
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_INVALID_ARGUMENT);
    assert_says("gemmd_gemm.x_scale belongs to another client");
    gemm.x_scale = NULL;
    gemm.x_scale_stride = 1;
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_INVALID_ARGUMENT);
    assert_says("gemmd_gemm.x_scale is NULL and has an offset or a stride");
    fixture_close(&other);
    assert_int_equal(gemmd_gemm(NULL, &gemm), GEMMD_INVALID_ARGUMENT);
    assert_int_equal(gemmd_gemm(fixture.client, NULL), GEMMD_INVALID_ARGUMENT);
    assert_int_equal(gemmd_wait(NULL, 1, 0, NULL), GEMMD_INVALID_ARGUMENT);
}

/* ---- lanes only ---- */

static void test_overwritten_ring(void **state)
{
    (void)state;
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    fake_set(fixture.fake, FAKE_CORRUPT_RING);
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_BAD_MESSAGE);
    assert_says("overwritten");
}

/* A ring full of requests has no room for cancellations: they go in as soon as there is some. */
static void test_cancel_on_a_full_ring(void **state)
{
    (void)state;
    struct gemmd_gemm gemms[FAKE_LANE_ENTRIES];
    gemmd_ticket_t tickets[FAKE_LANE_ENTRIES];
    for (uint32_t i = 0; i < FAKE_LANE_ENTRIES; i++) {
        gemms[i] = fixture_gemm(&fixture, i);
    }
    fake_set(fixture.fake, FAKE_NO_READING);
    assert_int_equal(gemmd_submit(fixture.client, gemms, FAKE_LANE_ENTRIES, tickets), GEMMD_OK);
    for (int i = 0; i < 2; i++) { /* twice is once */
        assert_int_equal(gemmd_cancel(fixture.client, tickets[3]), GEMMD_OK);
        assert_int_equal(gemmd_cancel(fixture.client, tickets[9]), GEMMD_OK);
    }
    assert_int_equal(gemmd_wait(fixture.client, tickets[3], 0, NULL), GEMMD_TIMEOUT);
    fake_set(fixture.fake, FAKE_HOLD); /* it reads again, and serves nothing */
    assert_int_equal(gemmd_wait(fixture.client, tickets[9], 5000000, NULL), GEMMD_CANCELLED);
    assert_int_equal(gemmd_wait(fixture.client, tickets[3], 5000000, NULL), GEMMD_CANCELLED);
    fake_set(fixture.fake, 0);
    for (uint32_t i = 0; i < FAKE_LANE_ENTRIES; i++) {
        if (i != 3 && i != 9) {
            assert_int_equal(gemmd_wait(fixture.client, tickets[i], 5000000, NULL), GEMMD_OK);
        }
    }
}

static void test_foreign_result_is_dropped(void **state)
{
    (void)state;
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 5);
    fake_set(fixture.fake, FAKE_FOREIGN_RESULT);
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_OK);
    fixture_check_row(&fixture, 5);
}

static void test_lane_without_fds(void **state)
{
    (void)state;
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    fake_set(fixture.fake, FAKE_NO_FDS);
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_BAD_MESSAGE);
    assert_says("0 fds");
    fake_set(fixture.fake, 0);
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_OK);
}

/* ---- messages only ---- */

/* Nobody can tell whose reply it was: it must end the wait, which would have no end otherwise. */
static void test_garbage_ends_the_wait(void **state)
{
    (void)state;
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    fake_set(fixture.fake, FAKE_GARBAGE_REPLY);
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_BAD_MESSAGE);
    fake_set(fixture.fake, 0);
    assert_int_equal(gemmd_gemm(fixture.client, &gemm), GEMMD_OK);
}

#define ON_RING(test) cmocka_unit_test_setup_teardown(test, set_up_ring, tear_down)
#define ON_BOTH(test)                                                                              \
    ON_RING(test),                                                                                 \
    {                                                                                              \
#test " by message", test, set_up_zeromq, tear_down, NULL                                  \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_BOTH(test_one),
        ON_BOTH(test_many_at_once),
        ON_BOTH(test_quantised_rows),
        ON_BOTH(test_busy_is_all_or_none),
        ON_BOTH(test_time_runs_out_and_the_ticket_stays),
        ON_BOTH(test_accumulation),
        ON_BOTH(test_cancel),
        ON_BOTH(test_refusal_reaches_the_user),
        ON_BOTH(test_death_while_waiting),
        ON_BOTH(test_wrong_use),
        cmocka_unit_test_setup_teardown(test_garbage_ends_the_wait, set_up_zeromq, tear_down),
        ON_RING(test_overwritten_ring),
        ON_RING(test_cancel_on_a_full_ring),
        ON_RING(test_foreign_result_is_dropped),
        ON_RING(test_lane_without_fds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
