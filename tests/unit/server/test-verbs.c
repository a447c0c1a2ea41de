/* test-verbs.c - the verb table is whole, and says who may do what and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "daemon/server/verbs.h"

static void test_every_verb_has_a_row(void **state)
{
    (void)state;
    for (int verb = MSG_VERB_NONE + 1; verb < MSG_VERB_END; verb++) {
        const struct verb *row = verb_find((enum msg_verb)verb);
        assert_non_null(row);
        assert_int_equal(row->verb, verb);
        assert_non_null(row->handle);
    }
    assert_null(verb_find(MSG_VERB_NONE));
    assert_null(verb_find(MSG_VERB_END));
}

static int call_as(const struct msg_request *request, uid_t uid, enum core_phase phase,
                   struct msg_reply *reply)
{
    struct config config;
    assert_int_equal(config_init(&config), 0);
    struct core core = {.config = &config, .phase = phase};
    struct session session = {.peer = {.uid = uid}};
    *reply = (struct msg_reply){.request_id = request->request_id};
    struct call call = {.core = &core, .session = &session, .request = request, .reply = reply};
    verb_call(verb_find(request->verb), &call);
    config_finish(&config);
    return reply->status;
}

static int call_verb(enum msg_verb verb, uid_t uid, enum core_phase phase, struct msg_reply *reply)
{
    const struct msg_request request = {.request_id = 5, .verb = verb};
    return call_as(&request, uid, phase, reply);
}

static void test_strangers_may_not_administrate(void **state)
{
    (void)state;
    static const enum msg_verb admin[] = {MSG_VERB_LOAD,       MSG_VERB_UNLOAD, MSG_VERB_RELOAD,
                                          MSG_VERB_JOB_CANCEL, MSG_VERB_VERIFY, MSG_VERB_DRAIN,
                                          MSG_VERB_BENCH};
    struct msg_reply reply;
    for (size_t i = 0; i < sizeof(admin) / sizeof(admin[0]); i++) {
        assert_int_equal(call_verb(admin[i], 54321, CORE_SERVING, &reply), STATUS_PERMISSION);
        assert_non_null(strstr(reply.text, "54321"));
        assert_non_null(strstr(reply.text, msg_verb_name(admin[i])));
        assert_int_equal(reply.request_id, 5);
        assert_int_equal(reply.body, MSG_BODY_NONE);
    }
    assert_int_equal(call_verb(MSG_VERB_PING, 54321, CORE_SERVING, &reply), STATUS_OK);
    assert_int_equal(reply.body, MSG_BODY_PONG);
}

static void test_work_is_refused_while_draining(void **state)
{
    (void)state;
    struct msg_reply reply;
    assert_int_equal(call_verb(MSG_VERB_SUBMIT, 1, CORE_DRAINING, &reply), STATUS_SHUTTING_DOWN);
    assert_int_equal(call_verb(MSG_VERB_LOAD, 0, CORE_DRAINING, &reply), STATUS_SHUTTING_DOWN);
    assert_int_equal(call_verb(MSG_VERB_JOB_STATUS, 0, CORE_STOPPING, &reply),
                     STATUS_SHUTTING_DOWN);
    assert_int_equal(call_verb(MSG_VERB_PING, 1, CORE_STOPPING, &reply), STATUS_OK);
}

static void test_load_wants_a_name_and_an_absolute_path(void **state)
{
    (void)state;
    struct msg_reply reply;
    struct msg_request request = {.verb = MSG_VERB_LOAD, .load = {.name = "m", .path = "here"}};
    assert_int_equal(call_as(&request, 0, CORE_SERVING, &reply), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(reply.text, "'here' is not absolute"));
    request.load.name[0] = '\0';
    assert_int_equal(call_as(&request, 0, CORE_SERVING, &reply), STATUS_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_verb_has_a_row),
        cmocka_unit_test(test_strangers_may_not_administrate),
        cmocka_unit_test(test_work_is_refused_while_draining),
        cmocka_unit_test(test_load_wants_a_name_and_an_absolute_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
