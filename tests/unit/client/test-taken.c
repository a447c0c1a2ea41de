/* test-taken.c - structs of older and newer programs, made by hand. */
#include <stddef.h>
#include <stdlib.h>

#include "tests/unit/client/fixture.h"

#define NEWER_BYTES 32u
#define GEMM_BYTES  sizeof(struct gemmd_gemm)

/* The sizes that the structs have had. */
static const size_t options_sizes[] = {40, 48, sizeof(struct gemmd_options)};
static const size_t gemm_sizes[] = {88, 112, GEMM_BYTES};

#define N_GEMM_SIZES (sizeof(gemm_sizes) / sizeof(gemm_sizes[0]))

/* Behind what the size covers lies what must not be read as fields. */
static void *make(const void *from, size_t from_bytes, size_t struct_bytes)
{
    size_t n_bytes = struct_bytes > from_bytes ? struct_bytes : from_bytes;
    char *made = malloc(n_bytes);
    assert_non_null(made);
    memset(made, struct_bytes > from_bytes ? 0 : 0x77, n_bytes);
    memcpy(made, from, struct_bytes < from_bytes ? struct_bytes : from_bytes);
    memcpy(made, &struct_bytes, sizeof(struct_bytes));
    return made;
}

static int open_of_size(const struct gemmd_options *options, size_t struct_bytes,
                        gemmd_client_t **ret_client)
{
    struct gemmd_options *made = make(options, sizeof(*options), struct_bytes);
    int r = gemmd_open(made, ret_client);
    free(made);
    return r;
}

static struct gemmd_options unusual_options(const struct fixture *fixture)
{
    struct gemmd_options options = fixture_options(fixture, GEMMD_PATH_ZEROMQ);
    options.timeout_msec = 7777;
    options.reconnect_msec = 1234;
    options.has_no_repeat = 1;
    options.priority = GEMMD_PRIORITY_LOW;
    options.hold_usec = 99;
    return options;
}

/* What is not in the older struct is the default, also where its padding is a field now. */
static void test_options_of_older_programs(void **state)
{
    (void)state;
    struct fixture fixture = {.fake = fake_new()};
    const struct gemmd_options options = unusual_options(&fixture);
    const struct gemmd_options defaults = GEMMD_OPTIONS_INIT;
    for (size_t i = 0; i < sizeof(options_sizes) / sizeof(options_sizes[0]); i++) {
        gemmd_client_t *client = NULL;
        assert_int_equal(open_of_size(&options, options_sizes[i], &client), GEMMD_OK);
        const struct gemmd_options *known = &client->options;
        assert_int_equal(known->struct_bytes, sizeof(options));
        assert_int_equal(known->path, GEMMD_PATH_ZEROMQ);
        assert_int_equal(known->timeout_msec, 7777);
        assert_int_equal(known->reconnect_msec, i > 0 ? 1234 : defaults.reconnect_msec);
        assert_int_equal(known->has_no_repeat, i > 0 ? 1 : 0);
        assert_int_equal(known->priority, i > 1 ? GEMMD_PRIORITY_LOW : GEMMD_PRIORITY_NORMAL);
        assert_int_equal(known->hold_usec, i > 1 ? 99 : GEMMD_HOLD_AUTO);
        gemmd_close(client);
    }
    fake_free(fixture.fake);
}

static void test_options_of_newer_programs(void **state)
{
    (void)state;
    struct fixture fixture = {.fake = fake_new()};
    const struct gemmd_options options = unusual_options(&fixture);
    const size_t newer_bytes = sizeof(options) + NEWER_BYTES;
    gemmd_client_t *client = NULL;
    assert_int_equal(open_of_size(&options, newer_bytes, &client), GEMMD_OK);
    assert_int_equal(client->options.hold_usec, 99);
    gemmd_close(client);
    char *newer = make(&options, sizeof(options), newer_bytes);
    newer[newer_bytes - 1] = 1;
    assert_int_equal(gemmd_open((const struct gemmd_options *)(void *)newer, &client),
                     GEMMD_INVALID_ARGUMENT);
    assert_says("byte 87 is not 0");
    free(newer);
    fake_free(fixture.fake);
}

static void test_sizes_of_no_version(void **state)
{
    (void)state;
    struct fixture fixture = {.fake = fake_new()};
    const struct gemmd_options options = unusual_options(&fixture);
    static const size_t sizes[] = {0, 1, 8, 32, 36, 39, 41, 44, 52, 55, 1 << 20, SIZE_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        gemmd_client_t *client = NULL;
        struct gemmd_options wrong = options;
        wrong.struct_bytes = sizes[i];
        assert_int_equal(gemmd_open(&wrong, &client), GEMMD_INVALID_ARGUMENT);
        assert_null(client);
        assert_says("gemmd_options.struct_bytes is");
    }
    fake_free(fixture.fake);
}

/* An array of n requests in steps of struct_bytes. */
static char *make_gemms(const struct fixture *fixture, size_t struct_bytes, uint32_t n)
{
    char *made = calloc(n, struct_bytes);
    assert_non_null(made);
    for (uint32_t i = 0; i < n; i++) {
        struct gemmd_gemm gemm = fixture_gemm(fixture, i);
        size_t n_bytes = struct_bytes < sizeof(gemm) ? struct_bytes : sizeof(gemm);
        gemm.struct_bytes = struct_bytes;
        memcpy(made + i * struct_bytes, &gemm, n_bytes);
    }
    return made;
}

static int submit_bytes(struct fixture *fixture, const char *gemms, uint32_t n,
                        gemmd_ticket_t *ret_tickets)
{
    return gemmd_submit(fixture->client, (const struct gemmd_gemm *)(const void *)gemms, n,
                        ret_tickets);
}

/* Their distance in the caller's array is their size there. */
static void test_requests_of_other_programs(void **state)
{
    (void)state;
    struct fixture fixture;
    const size_t sizes[] = {gemm_sizes[0], gemm_sizes[1], GEMM_BYTES, GEMM_BYTES + NEWER_BYTES};
    fixture_open(&fixture, GEMMD_PATH_RING);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        gemmd_ticket_t tickets[3];
        char *gemms = make_gemms(&fixture, sizes[i], 3);
        memset(gemmd_buffer_data(fixture.y), 0xff, gemmd_buffer_bytes(fixture.y));
        assert_int_equal(submit_bytes(&fixture, gemms, 3, tickets), GEMMD_OK);
        for (uint32_t j = 0; j < 3; j++) {
            assert_int_equal(gemmd_wait(fixture.client, tickets[j], GEMMD_WAIT_FOREVER, NULL),
                             GEMMD_OK);
            fixture_check_row(&fixture, j);
        }
        free(gemms);
    }
    fixture_close(&fixture);
}

static void test_refused_requests(void **state)
{
    (void)state;
    struct fixture fixture;
    gemmd_ticket_t tickets[3];
    fixture_open(&fixture, GEMMD_PATH_RING);
    char *gemms = make_gemms(&fixture, GEMM_BYTES + NEWER_BYTES, 3);
    gemms[2 * (GEMM_BYTES + NEWER_BYTES) + GEMM_BYTES] = 1; /* of the last one */
    assert_int_equal(submit_bytes(&fixture, gemms, 3, tickets), GEMMD_INVALID_ARGUMENT);
    assert_says("byte 120 is not 0");
    free(gemms);
    for (size_t i = 0; i < N_GEMM_SIZES; i++) { /* one among others that is of another size */
        gemms = make_gemms(&fixture, gemm_sizes[i], 3);
        memcpy(gemms + gemm_sizes[i], &gemm_sizes[(i + 1) % N_GEMM_SIZES], sizeof(size_t));
        assert_int_equal(submit_bytes(&fixture, gemms, 3, tickets), GEMMD_INVALID_ARGUMENT);
        assert_says("request 1 of one call");
        free(gemms);
    }
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_of_older_programs),
        cmocka_unit_test(test_options_of_newer_programs),
        cmocka_unit_test(test_sizes_of_no_version),
        cmocka_unit_test(test_requests_of_other_programs),
        cmocka_unit_test(test_refused_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
