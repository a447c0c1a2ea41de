/* test-threads.c - many threads on one client, on both paths, with control calls in between. Run
 * under ThreadSanitizer it proves the thread rules of gemmd.h. */
#include <pthread.h>
#include <stdlib.h>

#include "tests/unit/client/fixture.h"

#define N_THREADS 8u
#define N_ROUNDS  40u

static struct fixture fixture;

struct job {
    pthread_t thread;
    uint32_t row;
    uint32_t n_bad;
};

/* cmocka's assertions are for its own thread, so a thread counts what went wrong. */
static void *multiply_often(void *argument)
{
    struct job *job = argument;
    struct gemmd_gemm gemms[2] = {fixture_gemm(&fixture, 2 * job->row),
                                  fixture_gemm(&fixture, 2 * job->row + 1)};
    const float *x = gemmd_buffer_data(fixture.x);
    const float *y = gemmd_buffer_data(fixture.y);
    uint32_t last = (2 * job->row + 2) * FAKE_N - 1;
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        gemmd_ticket_t tickets[2];
        job->n_bad += gemmd_submit(fixture.client, gemms, 2, tickets) != GEMMD_OK;
        job->n_bad += gemmd_wait(fixture.client, tickets[1], GEMMD_WAIT_FOREVER, NULL) != GEMMD_OK;
        job->n_bad += gemmd_wait(fixture.client, tickets[0], GEMMD_WAIT_FOREVER, NULL) != GEMMD_OK;
        job->n_bad += y[last] != 2 * x[last];
    }
    return NULL;
}

static void *look_up_often(void *argument)
{
    struct job *job = argument;
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
        gemmd_buffer_t *buffer = NULL;
        job->n_bad += gemmd_find_weight(fixture.client, "m/w", &weight) != GEMMD_OK;
        job->n_bad += gemmd_find_weight(fixture.client, "m/missing", &weight) != GEMMD_NOT_FOUND;
        job->n_bad += strcmp(gemmd_last_error(), "no weight is called 'm/missing'") != 0;
        job->n_bad += gemmd_buffer_alloc(fixture.client, 0, 64, &buffer) != GEMMD_OK;
        gemmd_buffer_free(buffer);
    }
    return NULL;
}

static void run_all(enum gemmd_path path)
{
    struct job jobs[N_THREADS] = {0};
    fixture_open(&fixture, path);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        jobs[i].row = i;
        assert_int_equal(pthread_create(&jobs[i].thread, NULL,
                                        i == 0 ? look_up_often : multiply_often, &jobs[i]),
                         0);
    }
    for (uint32_t i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(jobs[i].thread, NULL), 0);
        assert_int_equal(jobs[i].n_bad, 0);
    }
    fixture_close(&fixture);
}

static void test_ring(void **state)
{
    (void)state;
    run_all(GEMMD_PATH_RING);
}

static void test_zeromq(void **state)
{
    (void)state;
    run_all(GEMMD_PATH_ZEROMQ);
}

static void *wait_forever(void *argument)
{
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    struct job *job = argument;
    job->n_bad = gemmd_gemm(fixture.client, &gemm) != GEMMD_DISCONNECTED;
    return NULL;
}

/* All who wait learn of the daemon's death, not only the one who listens for the others. */
static void everybody_learns(enum gemmd_path path)
{
    struct job jobs[N_THREADS] = {0};
    fixture_open(&fixture, path);
    fake_set(fixture.fake, FAKE_HOLD);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_create(&jobs[i].thread, NULL, wait_forever, &jobs[i]), 0);
    }
    (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    fake_die(fixture.fake);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(jobs[i].thread, NULL), 0);
        assert_int_equal(jobs[i].n_bad, 0);
    }
    fixture_close(&fixture);
}

static void test_death(void **state)
{
    (void)state;
    everybody_learns(GEMMD_PATH_RING);
    everybody_learns(GEMMD_PATH_ZEROMQ);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_zeromq),
        cmocka_unit_test(test_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
