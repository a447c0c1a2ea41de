/* test-replies.c - what a session is owed: in flight, remembered, held back; all bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "daemon/server/replies.h"

#define IN_FLIGHT_MAX 10u

static const struct frame_route route = {.n_routes = 1, .n_bytes = {3}, .bytes = {"abc"}};

static void test_pending_by_either_id(void **state)
{
    (void)state;
    struct replies replies;
    replies_init(&replies, IN_FLIGHT_MAX);
    assert_int_equal(replies_add_pending(&replies, 10, 20, &route), 0);
    assert_true(replies_is_pending(&replies, 10, 99));
    assert_true(replies_is_pending(&replies, 99, 20));
    assert_false(replies_is_pending(&replies, 20, 10));
    assert_true(replies_has_request(&replies, 20));
    assert_false(replies_has_request(&replies, 10));
    assert_false(replies_cancel(&replies, 10));
    assert_true(replies_cancel(&replies, 20));
    assert_false(replies_cancel(&replies, 20)); /* the worker knows */
    assert_null(replies_take_pending(&replies, 10));
    struct pending *pending = replies_take_pending(&replies, 20);
    assert_non_null(pending);
    assert_int_equal(pending->message_id, 10);
    assert_int_equal(replies.n_pending, 0);
    assert_memory_equal(&pending->route, &route, sizeof(route));
    free(pending);
    replies_finish(&replies);
}

static void test_history_keeps_the_last(void **state)
{
    (void)state;
    struct replies replies;
    replies_init(&replies, IN_FLIGHT_MAX);
    for (uint64_t id = 0; id < REPLIES_HISTORY_MAX + 10; id++) {
        replies_remember(&replies, MSG_VERB_LOAD, id, (const uint8_t *)&id, sizeof(id));
    }
    assert_null(replies_recall(&replies, MSG_VERB_LOAD, 9));
    for (uint64_t id = 10; id < REPLIES_HISTORY_MAX + 10; id++) {
        const struct remembered *told = replies_recall(&replies, MSG_VERB_LOAD, id);
        assert_non_null(told);
        assert_int_equal(told->n_bytes, sizeof(id));
        assert_memory_equal(told->bytes, &id, sizeof(id));
    }
    assert_null(replies_recall(&replies, MSG_VERB_UNLOAD, 20));
    assert_null(replies_recall(&replies, MSG_VERB_NONE, 0));
    replies_finish(&replies);
}

static void test_outbox_is_bounded_and_in_order(void **state)
{
    (void)state;
    struct replies replies;
    replies_init(&replies, IN_FLIGHT_MAX);
    for (uint8_t i = 0; i < IN_FLIGHT_MAX + REPLIES_OUTBOX_VERBS; i++) {
        assert_int_equal(replies_hold(&replies, &route, &i, 1), 0);
    }
    assert_int_equal(replies_hold(&replies, &route, (const uint8_t *)"x", 1), -ENOBUFS);
    for (uint8_t i = 0; i < IN_FLIGHT_MAX + REPLIES_OUTBOX_VERBS; i++) {
        struct unsent *unsent = replies_first_unsent(&replies);
        assert_int_equal(unsent->bytes[0], i);
        replies_drop_unsent(&replies, unsent);
    }
    assert_null(replies_first_unsent(&replies));
    assert_int_equal(replies.unsent_bytes, 0);
    replies_finish(&replies);
}

static void test_outbox_is_bounded_in_bytes(void **state)
{
    (void)state;
    struct replies replies;
    size_t half = REPLIES_OUTBOX_BYTES_MAX / 2;
    uint8_t *bytes = calloc(1, half + 1);
    assert_non_null(bytes);
    replies_init(&replies, IN_FLIGHT_MAX);
    assert_int_equal(replies_hold(&replies, &route, bytes, half), 0);
    assert_int_equal(replies_hold(&replies, &route, bytes, half + 1), -ENOBUFS);
    assert_int_equal(replies_hold(&replies, &route, bytes, half), 0);
    replies_finish(&replies);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pending_by_either_id),
        cmocka_unit_test(test_history_keeps_the_last),
        cmocka_unit_test(test_outbox_is_bounded_and_in_order),
        cmocka_unit_test(test_outbox_is_bounded_in_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
