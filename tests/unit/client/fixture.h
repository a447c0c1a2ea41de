/* fixture.h - what the client's tests share: cmocka, a fake daemon with a client, one product. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include <cmocka.h>

#include "client/client.h"
#include "tests/unit/client/fake_daemon.h"

#define FIXTURE_PATIENCE_MSEC 10000u /* for what must come, on a busy machine too */
#define FIXTURE_SHORT_MSEC    100u   /* for what will not come: FAKE_LATE_*, FAKE_NO_REPLY */

struct fixture {
    struct fake_daemon *fake;
    gemmd_client_t *client;
    gemmd_weight_t weight;
    gemmd_buffer_t *x;
    gemmd_buffer_t *y;
};

/* fixture_options() - for the fake daemon, with FIXTURE_PATIENCE_MSEC. */
static inline struct gemmd_options fixture_options(const struct fixture *fixture,
                                                   enum gemmd_path path)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    options.reconnect_msec = 0;
    options.socket_dir = fake_dir(fixture->fake);
    options.timeout_msec = FIXTURE_PATIENCE_MSEC;
    options.path = path;
    return options;
}

/* fixture_set_timeout() - what the client was opened with, changed. */
static inline void fixture_set_timeout(gemmd_client_t *client, uint32_t msec)
{
    client->options.timeout_msec = msec;
}

/* fixture_open() - a client with buffers for 64 rows; x counts from 0. */
static inline void fixture_open(struct fixture *fixture, enum gemmd_path path)
{
    fixture->fake = fake_new();
    struct gemmd_options options = fixture_options(fixture, path);
    assert_int_equal(gemmd_open(&options, &fixture->client), GEMMD_OK);
    fixture->weight = (gemmd_weight_t)GEMMD_WEIGHT_INIT;
    assert_int_equal(gemmd_find_weight(fixture->client, "m/w", &fixture->weight), GEMMD_OK);
    const uint64_t n_bytes = 64 * FAKE_K * sizeof(float);
    assert_int_equal(gemmd_buffer_alloc(fixture->client, 0, n_bytes, &fixture->x), GEMMD_OK);
    assert_int_equal(gemmd_buffer_alloc(fixture->client, 0, n_bytes, &fixture->y), GEMMD_OK);
    float *x = gemmd_buffer_data(fixture->x);
    for (uint32_t i = 0; i < 64 * FAKE_K; i++) {
        x[i] = (float)i;
    }
}

/* fixture_close() - all of it, in the order a program would. */
static inline void fixture_close(struct fixture *fixture)
{
    gemmd_buffer_free(fixture->x);
    gemmd_buffer_free(fixture->y);
    gemmd_close(fixture->client);
    fake_free(fixture->fake);
    *fixture = (struct fixture){0};
}

/* fixture_gemm() - the product of row `row` alone, into row `row` of y. */
static inline struct gemmd_gemm fixture_gemm(const struct fixture *fixture, uint32_t row)
{
    struct gemmd_gemm gemm = GEMMD_GEMM_INIT;
    gemm.weight = &fixture->weight;
    gemm.x = fixture->x;
    gemm.y = fixture->y;
    gemm.x_offset_bytes = row * FAKE_K * sizeof(float);
    gemm.y_offset_bytes = row * FAKE_N * sizeof(float);
    gemm.m = 1;
    return gemm;
}

/* fixture_check_row() - that row of y is what the fake daemon makes of x. */
static inline void fixture_check_row(const struct fixture *fixture, uint32_t row)
{
    const float *x = gemmd_buffer_data(fixture->x);
    const float *y = gemmd_buffer_data(fixture->y);
    for (uint32_t i = row * FAKE_N; i < (row + 1) * FAKE_N; i++) {
        assert_true(y[i] == 2 * x[i]);
    }
}

/* fixture_now_msec() - CLOCK_MONOTONIC. */
static inline uint64_t fixture_now_msec(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

#define assert_says(part) assert_non_null(strstr(gemmd_last_error(), part))
