/* test-session-table.c - tokens and ids find their sessions and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "daemon/server/session_table.h"

#define N 2000u

static struct session_table table;
static struct session *sessions[N];

static struct session *by_token(const char *token)
{
    return session_table_by_token(&table, (const uint8_t *)token, SIDE_TOKEN_BYTES);
}

static int make_sessions(void **state)
{
    (void)state;
    struct config config;
    if (config_init(&config) != 0) {
        return -1;
    }
    session_table_init(&table);
    for (uint32_t i = 0; i < N; i++) {
        struct quota_charge charge = QUOTA_CHARGE_NULL;
        const struct side_peer peer = {.pid = 1, .uid = 2, .gid = 3};
        if (session_new(i + 1, -1, &peer, &charge, &config, &sessions[i]) != 0) {
            return -1;
        }
        session_table_add(&table, sessions[i]);
    }
    config_finish(&config);
    return 0;
}

static int free_sessions(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        sessions[i] = session_free(sessions[i]);
    }
    return list_is_empty(&table.all) ? 0 : -1;
}

static void test_token_works_from_publish_to_hide(void **state)
{
    (void)state;
    assert_null(by_token(sessions[7]->token));
    session_table_publish(&table, sessions[7]);
    assert_ptr_equal(by_token(sessions[7]->token), sessions[7]);
    session_table_hide(sessions[7]);
    assert_null(by_token(sessions[7]->token));
    assert_ptr_equal(session_table_by_id(&table, 8), sessions[7]);
}

static void test_every_session_is_found(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        session_table_publish(&table, sessions[i]);
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_ptr_equal(by_token(sessions[i]->token), sessions[i]);
        assert_ptr_equal(session_table_by_id(&table, i + 1), sessions[i]);
    }
    assert_null(session_table_by_id(&table, 0));
    assert_null(session_table_by_id(&table, N + 1));
}

static void test_nearly_right_tokens_are_wrong(void **state)
{
    (void)state;
    session_table_publish(&table, sessions[0]);
    for (uint32_t i = 0; i < SIDE_TOKEN_BYTES; i++) {
        char token[SIDE_TOKEN_BYTES];
        memcpy(token, sessions[0]->token, sizeof(token));
        token[i] ^= 1;
        assert_null(by_token(token));
    }
    const uint8_t *token = (const uint8_t *)sessions[0]->token;
    assert_null(session_table_by_token(&table, token, SIDE_TOKEN_BYTES - 1));
    assert_null(session_table_by_token(&table, token, 0));
}

static void test_tokens_are_hex_and_differ(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        for (uint32_t j = 0; j < SIDE_TOKEN_BYTES; j++) {
            assert_non_null(memchr("0123456789abcdef", sessions[i]->token[j], 16));
        }
        assert_true(i == 0 ||
                    memcmp(sessions[i]->token, sessions[i - 1]->token, SIDE_TOKEN_BYTES) != 0);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_sessions, free_sessions)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_token_works_from_publish_to_hide),
        TEST(test_every_session_is_found),
        TEST(test_nearly_right_tokens_are_wrong),
        TEST(test_tokens_are_hex_and_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
