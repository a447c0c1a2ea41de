/* test-queue.c - the ticket table, and the names of statuses. */
#include "tests/unit/client/fixture.h"

static void test_tickets_come_and_go(void **state)
{
    (void)state;
    struct queue queue;
    struct ticket *tickets[4];
    queue_init(&queue);
    assert_int_equal(queue_open(&queue, NULL, 4, 3), 0);
    for (uint32_t i = 0; i < 4; i++) {
        tickets[i] = queue_take(&queue);
        assert_non_null(tickets[i]);
        assert_int_not_equal(tickets[i]->id, 0);
        assert_int_equal(ticket_path(tickets[i]->id), 3);
        assert_ptr_equal(queue_find(&queue, tickets[i]->id), tickets[i]);
    }
    assert_null(queue_take(&queue));
    uint64_t spent = tickets[2]->id;
    queue_give(&queue, tickets[2]);
    assert_null(queue_find(&queue, spent));
    struct ticket *again = queue_take(&queue);
    assert_ptr_equal(again, tickets[2]); /* the same place under another name */
    assert_int_not_equal(again->id, spent);
    assert_null(queue_find(&queue, spent));
    queue_finish(&queue);
}

/* Serial numbers begin anew after some months, and 0 is never a ticket. */
static void test_serial_numbers_begin_anew(void **state)
{
    (void)state;
    struct queue queue;
    queue_init(&queue);
    pthread_mutex_lock(&queue.lock);
    assert_int_equal(queue_open(&queue, NULL, 2, 0), 0);
    queue.n_serial = (UINT64_C(1) << 40) - 1;
    struct ticket *ticket = queue_take(&queue);
    assert_int_not_equal(ticket->id, 0);
    assert_ptr_equal(queue_find(&queue, ticket->id), ticket);
    queue_give(&queue, ticket);
    pthread_mutex_unlock(&queue.lock);
    queue_finish(&queue);
}

static void test_results_find_their_ticket_once(void **state)
{
    (void)state;
    struct queue queue;
    queue_init(&queue);
    assert_int_equal(queue_open(&queue, NULL, 2, 0), 0);
    struct ticket *ticket = queue_take(&queue);
    struct request_result result = {.request_id = ticket->id, .batch_rows = 5};
    memset(result.text, 'x', sizeof(result.text)); /* no end to it */
    queue_result(&queue, &result);
    assert_int_equal(ticket->state, TICKET_DONE);
    assert_int_equal(strlen(ticket->result.text), sizeof(result.text) - 1);
    result.batch_rows = 6;
    queue_result(&queue, &result);
    assert_int_equal(ticket->result.batch_rows, 5);
    result.request_id = ~0ull;
    queue_result(&queue, &result);
    assert_null(queue_find(&queue, 0));
    queue_finish(&queue);
}

static void test_failing_all_spares_what_is_done(void **state)
{
    (void)state;
    struct queue queue;
    queue_init(&queue);
    assert_int_equal(queue_open(&queue, NULL, 3, 0), 0);
    struct ticket *done = queue_take(&queue);
    struct ticket *waiting = queue_take(&queue);
    queue_result(&queue, &(struct request_result){.request_id = done->id});
    queue_fail_all(&queue, &(struct reason){.status = STATUS_DISCONNECTED, .text = "gone"});
    assert_int_equal(done->result.status, STATUS_OK);
    assert_int_equal(waiting->result.status, STATUS_DISCONNECTED);
    assert_string_equal(waiting->result.text, "gone");
    queue_finish(&queue);
}

static void test_statuses(void **state)
{
    (void)state;
#define STATUS_X(name, value, sentence)                                                            \
    assert_string_equal(gemmd_status_name(value), #name);                                          \
    assert_string_equal(gemmd_status_text(value), sentence);                                       \
    assert_int_equal(gemmd_status_category(value), (value) >> 8);
    STATUS_LIST(STATUS_X)
#undef STATUS_X
    assert_string_equal(gemmd_status_name(12345), "UNKNOWN");
    assert_string_equal(gemmd_version(), "0.1.0");
}

static void test_daemon_statuses_are_judged(void **state)
{
    (void)state;
    assert_int_equal(client_fail_wire(STATUS_QUOTA, "3 of 3"), GEMMD_QUOTA);
    assert_string_equal(gemmd_last_error(), "3 of 3");
    assert_int_equal(client_fail_wire(STATUS_BUSY, ""), GEMMD_BUSY);
    assert_string_equal(gemmd_last_error(), gemmd_status_text(GEMMD_BUSY));
    assert_int_equal(client_fail_wire(0, "fine"), GEMMD_BAD_MESSAGE);
    assert_int_equal(client_fail_wire(0x80000000u, ""), GEMMD_BAD_MESSAGE);
    assert_int_equal(client_fail_wire(STATUS_DISCONNECTED, "I am gone"), GEMMD_BAD_MESSAGE);
    assert_int_equal(client_fail_result(STATUS_DISCONNECTED, "it is gone"), GEMMD_DISCONNECTED);
    assert_int_equal(client_fail_result(0x80000000u, ""), GEMMD_BAD_MESSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tickets_come_and_go),
        cmocka_unit_test(test_serial_numbers_begin_anew),
        cmocka_unit_test(test_results_find_their_ticket_once),
        cmocka_unit_test(test_failing_all_spares_what_is_done),
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_daemon_statuses_are_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
