/* test-revive.c - a client between two daemons, the second of which is slow to answer: what is
 * freed meanwhile, and that nobody waits for longer than he wants to. */
#include <pthread.h>
#include <sched.h>

#include "tests/unit/client/fixture.h"

#define LIMIT_USEC  100000u /* of a call */
#define LIMIT_MSEC  2000u   /* within which it has returned: a busy machine's, far below patience */
#define N_IN_CLIENT 4u

/* Patient with daemons, and with what they are slow to say. */
static void reopen(struct fixture *fixture, enum gemmd_path path)
{
    fixture_open(fixture, path);
    gemmd_buffer_free(fixture->x);
    gemmd_buffer_free(fixture->y);
    gemmd_close(fixture->client);
    struct gemmd_options options = fixture_options(fixture, path);
    options.reconnect_msec = FIXTURE_PATIENCE_MSEC;
    assert_int_equal(gemmd_open(&options, &fixture->client), GEMMD_OK);
    assert_int_equal(gemmd_find_weight(fixture->client, "m/w", &fixture->weight), GEMMD_OK);
    const uint64_t n_bytes = 64 * FAKE_K * sizeof(float);
    assert_int_equal(gemmd_buffer_alloc(fixture->client, 0, n_bytes, &fixture->x), GEMMD_OK);
    assert_int_equal(gemmd_buffer_alloc(fixture->client, 0, n_bytes, &fixture->y), GEMMD_OK);
    for (uint32_t i = 0; i < 64 * FAKE_K; i++) {
        ((float *)gemmd_buffer_data(fixture->x))[i] = (float)i;
    }
}

static void set_up(struct fixture *fixture, enum gemmd_path path)
{
    struct gemmd_gemm gemm;
    reopen(fixture, path);
    gemm = fixture_gemm(fixture, 0);
    assert_int_equal(gemmd_gemm(fixture->client, &gemm), GEMMD_OK); /* its path is open */
}

/* The daemon is gone, and the next one says nothing. */
static void replace(struct fixture *fixture, uint32_t quirks)
{
    fake_die(fixture->fake);
    fake_set(fixture->fake, quirks);
    fake_rise(fixture->fake);
}

static void check_product(struct fixture *fixture, uint32_t row)
{
    struct gemmd_gemm gemm = fixture_gemm(fixture, row);
    memset(gemmd_buffer_data(fixture->y), 0xff, gemmd_buffer_bytes(fixture->y));
    assert_int_equal(gemmd_gemm(fixture->client, &gemm), GEMMD_OK);
    fixture_check_row(fixture, row);
}

/* ---- buffers ---- */

static uint32_t n_shared(gemmd_client_t *client)
{
    uint32_t n = 0;
    pthread_mutex_lock(&client->buffers_lock);
    list_for_each (node, &client->buffers) {
        n++;
    }
    pthread_mutex_unlock(&client->buffers_lock);
    return n;
}

static bool is_shared_again(gemmd_client_t *client, const gemmd_buffer_t *buffer)
{
    pthread_mutex_lock(&client->buffers_lock);
    bool is_shared = buffer->id_next.session > buffer->id.session;
    pthread_mutex_unlock(&client->buffers_lock);
    return is_shared;
}

static void *free_buffer(void *buffer)
{
    gemmd_buffer_free(buffer);
    return NULL;
}

static void *multiply(void *argument)
{
    struct fixture *fixture = argument;
    struct gemmd_gemm gemm = fixture_gemm(fixture, 0);
    return (void *)(intptr_t)gemmd_gemm(fixture->client, &gemm);
}

/* The next daemon has shared the buffers already, under other numbers: what the first one called
 * the freed buffer is what the next one calls y. Then it has let go of the one that was freed. */
static void test_free_lets_go_of_the_right_one(void **state)
{
    (void)state;
    struct fixture fixture;
    gemmd_buffer_t *spare[2];
    pthread_t freeing;
    pthread_t multiplying;
    void *status;
    set_up(&fixture, GEMMD_PATH_RING);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(gemmd_buffer_alloc(fixture.client, 0, 64, &spare[i]), GEMMD_OK);
    }
    gemmd_buffer_free(fixture.x); /* 1, and then last in the list */
    gemmd_buffer_free(fixture.y); /* 2 */
    const uint64_t n_bytes = 64 * FAKE_K * sizeof(float);
    assert_int_equal(gemmd_buffer_alloc(fixture.client, 0, n_bytes, &fixture.y), GEMMD_OK);
    assert_int_equal(gemmd_buffer_alloc(fixture.client, 0, n_bytes, &fixture.x), GEMMD_OK);
    uint64_t freed = spare[0]->id.number;
    replace(&fixture, FAKE_LATE_LANE);
    assert_int_equal(pthread_create(&multiplying, NULL, multiply, &fixture), 0);
    while (!is_shared_again(fixture.client, fixture.x)) {
        sched_yield();
    }
    assert_int_equal(fixture.y->id_next.number, freed);
    assert_int_equal(pthread_create(&freeing, NULL, free_buffer, spare[0]), 0);
    while (n_shared(fixture.client) == N_IN_CLIENT) {
        sched_yield();
    }
    fake_set(fixture.fake, 0);
    assert_int_equal(pthread_join(freeing, NULL), 0);
    assert_int_equal(pthread_join(multiplying, &status), 0);
    assert_int_equal((intptr_t)status, GEMMD_OK);
    for (uint32_t row = 0; row < 3; row++) {
        check_product(&fixture, row);
    }
    gemmd_buffer_t *again;
    assert_int_equal(gemmd_buffer_alloc(fixture.client, 0, 64, &again), GEMMD_OK);
    assert_int_equal(again->id.number, 1); /* of the one that was freed, as the next one had it */
    gemmd_buffer_free(again);
    gemmd_buffer_free(spare[1]);
    fixture_close(&fixture);
}

/* ---- time ---- */

#define assert_returned_in_time(start) assert_true(fixture_now_msec() - (start) < LIMIT_MSEC)

/* Waits and products with limits of their own, again and again, while nobody says HELLO; then the
 * ticket is as good as it was. */
static void run_limits(enum gemmd_path path)
{
    struct fixture fixture;
    gemmd_ticket_t ticket;
    set_up(&fixture, path);
    fake_set(fixture.fake, FAKE_HOLD);
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 1);
    assert_int_equal(gemmd_submit(fixture.client, &gemm, 1, &ticket), GEMMD_OK);
    replace(&fixture, FAKE_LATE_ANSWER);
    struct gemmd_gemm limited = fixture_gemm(&fixture, 2);
    limited.timeout_usec = LIMIT_USEC;
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t start = fixture_now_msec();
        assert_int_equal(gemmd_wait(fixture.client, ticket, i * LIMIT_USEC, NULL), GEMMD_TIMEOUT);
        assert_returned_in_time(start);
        start = fixture_now_msec();
        assert_int_equal(gemmd_gemm(fixture.client, &limited), GEMMD_TIMEOUT);
        assert_true(fixture_now_msec() - start >= LIMIT_USEC / 1000 - 1);
        assert_returned_in_time(start);
    }
    fake_set(fixture.fake, 0);
    assert_int_equal(gemmd_wait(fixture.client, ticket, GEMMD_WAIT_FOREVER, NULL), GEMMD_OK);
    fixture_check_row(&fixture, 1);
    check_product(&fixture, 2);
    fixture_close(&fixture);
}

static void test_limits_on_the_ring(void **state)
{
    (void)state;
    run_limits(GEMMD_PATH_RING);
}

static void test_limits_over_zeromq(void **state)
{
    (void)state;
    run_limits(GEMMD_PATH_ZEROMQ);
}

/* One thread waits for ever; the others' limits are their own. */
static void test_limits_beside_a_patient_thread(void **state)
{
    (void)state;
    struct fixture fixture;
    pthread_t patient;
    void *status;
    set_up(&fixture, GEMMD_PATH_RING);
    replace(&fixture, FAKE_LATE_ANSWER);
    assert_int_equal(pthread_create(&patient, NULL, multiply, &fixture), 0);
    while (!atomic_load(&fixture.client->is_reviving)) {
        sched_yield();
    }
    struct gemmd_gemm limited = fixture_gemm(&fixture, 2);
    limited.timeout_usec = LIMIT_USEC;
    uint64_t start = fixture_now_msec();
    assert_int_equal(gemmd_gemm(fixture.client, &limited), GEMMD_TIMEOUT);
    assert_says("is away");
    assert_returned_in_time(start);
    fake_set(fixture.fake, 0);
    assert_int_equal(pthread_join(patient, &status), 0);
    assert_int_equal((intptr_t)status, GEMMD_OK);
    check_product(&fixture, 2);
    fixture_close(&fixture);
}

/* reconnect_msec is a limit too, of calls that have no other. */
static void test_reconnect_is_a_limit(void **state)
{
    (void)state;
    struct fixture fixture;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    gemmd_buffer_t *buffer = NULL;
    set_up(&fixture, GEMMD_PATH_RING);
    fixture.client->options.reconnect_msec = FIXTURE_SHORT_MSEC;
    replace(&fixture, FAKE_LATE_ANSWER);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t start = fixture_now_msec();
        assert_int_equal(gemmd_find_weight(fixture.client, "m/w", &weight), GEMMD_DISCONNECTED);
        assert_says("none was there within 100 ms");
        assert_returned_in_time(start);
        start = fixture_now_msec();
        assert_int_equal(gemmd_buffer_alloc(fixture.client, 0, 64, &buffer), GEMMD_DISCONNECTED);
        assert_returned_in_time(start);
    }
    fake_set(fixture.fake, 0);
    while (gemmd_find_weight(fixture.client, "m/w", &weight) != GEMMD_OK) {
        assert_says("none was there within 100 ms");
    }
    check_product(&fixture, 3);
    fixture_close(&fixture);
}

/* Closing does not wait for the answer that does not come. */
static void test_close_meanwhile(void **state)
{
    (void)state;
    struct fixture fixture;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    set_up(&fixture, GEMMD_PATH_RING);
    fixture.client->options.reconnect_msec = FIXTURE_SHORT_MSEC;
    replace(&fixture, FAKE_LATE_ANSWER);
    assert_int_equal(gemmd_find_weight(fixture.client, "m/w", &weight), GEMMD_DISCONNECTED);
    assert_true(atomic_load(&fixture.client->is_reviving));
    uint64_t start = fixture_now_msec();
    fixture_close(&fixture);
    assert_returned_in_time(start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_lets_go_of_the_right_one),
        cmocka_unit_test(test_limits_on_the_ring),
        cmocka_unit_test(test_limits_over_zeromq),
        cmocka_unit_test(test_limits_beside_a_patient_thread),
        cmocka_unit_test(test_reconnect_is_a_limit),
        cmocka_unit_test(test_close_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
