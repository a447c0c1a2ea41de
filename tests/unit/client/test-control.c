/* test-control.c - verbs, and daemons that misbehave on the control socket. */
#include <stdlib.h>

#include "client/client.h"
#include "tests/unit/client/fixture.h"

static int set_up(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){.fake = fake_new()};
    struct gemmd_options options = fixture_options(&fixture, GEMMD_PATH_RING);
    *state = &fixture;
    return gemmd_open(&options, &fixture.client);
}

static int tear_down(void **state)
{
    fixture_close(*state);
    return 0;
}

static void test_find_and_list(void **state)
{
    struct fixture *fixture = *state;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    gemmd_weight_t *weights = NULL;
    size_t n = 0;
    assert_int_equal(gemmd_find_weight(fixture->client, "m/w", &weight), GEMMD_OK);
    assert_int_equal(weight.struct_bytes, sizeof(weight));
    assert_int_equal(weight.n, FAKE_N);
    assert_int_equal(weight.act_dtype, GEMMD_F32);
    assert_int_equal(weight.act, GEMMD_ACT_INT8_TOKEN);
    assert_string_equal(weight.name, "m/w");
    assert_int_equal(gemmd_list_weights(fixture->client, NULL, sizeof(*weights), &weights, &n),
                     GEMMD_OK);
    assert_int_equal(n, 2);
    assert_string_equal(weights[0].name, "m/a"); /* sorted, though the daemon did not */
    assert_string_equal(weights[1].name, "m/b");
    free(weights);
}

/* As a reviver leaves it that found no descriptors for the next one: nothing is polled in its place
 * until the time is over. */
static void test_without_a_socket(void **state)
{
    struct fixture *fixture = *state;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    sock_finish(&fixture->client->exchange.sock);
    fixture->client->exchange.socket_fd = -1;
    assert_int_equal(gemmd_find_weight(fixture->client, "m/w", &weight), GEMMD_DISCONNECTED);
}

struct grown {
    size_t struct_bytes;
    uint64_t values[2];
    uint64_t last; /* not there when the program was compiled */
};

/* Nothing behind the end that the program knows is touched. */
static void test_filled_structs_of_older_programs(void **state)
{
    (void)state;
    const struct grown ours = {.values = {5, 6}, .last = 8};
    struct grown old = {.struct_bytes = offsetof(struct grown, last), .last = 77};
    filled_write(&old, old.struct_bytes, &ours, sizeof(ours));
    assert_int_equal(old.struct_bytes, offsetof(struct grown, last));
    assert_int_equal(old.values[0], 5);
    assert_int_equal(old.values[1], 6);
    assert_int_equal(old.last, 77);
}

/* A program whose struct has a field that this library does not know. */
struct newer_weight {
    gemmd_weight_t known;
    uint64_t field;
};

static void test_weights_of_other_versions(void **state)
{
    struct fixture *fixture = *state;
    struct newer_weight newer = {.known.struct_bytes = sizeof(newer), .field = 77};
    struct newer_weight *list = NULL;
    gemmd_weight_t **ret_list = (gemmd_weight_t **)(void *)&list;
    size_t n = 0;
    assert_int_equal(gemmd_find_weight(fixture->client, "m/w", &newer.known), GEMMD_OK);
    assert_int_equal(newer.known.struct_bytes, sizeof(newer.known));
    assert_string_equal(newer.known.name, "m/w");
    assert_int_equal(newer.field, 77);
    assert_int_equal(gemmd_list_weights(fixture->client, NULL, sizeof(newer), ret_list, &n), 0);
    assert_int_equal(n, 2);
    assert_string_equal(list[0].known.name, "m/a");
    assert_string_equal(list[1].known.name, "m/b");
    assert_int_equal(list[1].known.struct_bytes, sizeof(newer.known));
    assert_int_equal(list[1].field, 0);
    free(list);
    gemmd_weight_t unset = {.n = 7};
    assert_int_equal(gemmd_find_weight(fixture->client, "m/w", &unset), GEMMD_INVALID_ARGUMENT);
    assert_says("gemmd_weight_t.struct_bytes is 0, below the 380 of its first version");
    assert_int_equal(unset.n, 7);
    assert_int_equal(gemmd_list_weights(fixture->client, NULL, 0, ret_list, &n),
                     GEMMD_INVALID_ARGUMENT);
}

static void test_refusal_reaches_the_user(void **state)
{
    struct fixture *fixture = *state;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    assert_int_equal(gemmd_find_weight(fixture->client, "m/missing", &weight), GEMMD_NOT_FOUND);
    assert_string_equal(gemmd_last_error(), "no weight is called 'm/missing'");
    char name[300];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(gemmd_find_weight(fixture->client, name, &weight), GEMMD_INVALID_ARGUMENT);
    assert_says("299 bytes");
    assert_int_equal(gemmd_find_weight(fixture->client, NULL, &weight), GEMMD_INVALID_ARGUMENT);
}

/* The second call gets its own answer, not the first one's. */
static void test_late_reply_is_skipped(void **state)
{
    struct fixture *fixture = *state;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    fake_set(fixture->fake, FAKE_LATE_REPLY);
    fixture_set_timeout(fixture->client, FIXTURE_SHORT_MSEC);
    assert_int_equal(gemmd_find_weight(fixture->client, "m/first", &weight), GEMMD_TIMEOUT);
    assert_says("within 100 ms");
    fake_set(fixture->fake, 0);
    fixture_set_timeout(fixture->client, FIXTURE_PATIENCE_MSEC);
    assert_int_equal(gemmd_find_weight(fixture->client, "m/second", &weight), GEMMD_OK);
    assert_string_equal(weight.name, "m/second");
}

static void test_nonsense_replies(void **state)
{
    static const struct {
        uint32_t quirk;
        int status;
    } cases[] = {
        {FAKE_GARBAGE_REPLY, GEMMD_BAD_MESSAGE},
        {FAKE_WRONG_BODY, GEMMD_BAD_MESSAGE},
        {FAKE_WRONG_STATUS, GEMMD_BAD_MESSAGE},
        {FAKE_NO_REPLY, GEMMD_TIMEOUT},
    };
    struct fixture *fixture = *state;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool is_silent = cases[i].status == GEMMD_TIMEOUT;
        fake_set(fixture->fake, cases[i].quirk);
        fixture_set_timeout(fixture->client,
                            is_silent ? FIXTURE_SHORT_MSEC : FIXTURE_PATIENCE_MSEC);
        assert_int_equal(gemmd_find_weight(fixture->client, "m/w", &weight), cases[i].status);
    }
    fixture_set_timeout(fixture->client, FIXTURE_PATIENCE_MSEC);
    fake_set(fixture->fake, 0); /* and the connection is as good as before */
    assert_int_equal(gemmd_find_weight(fixture->client, "m/w", &weight), GEMMD_OK);
}

/* It is there: looking for the next one would find it at once, for ever. */
static void test_a_daemon_that_says_it_is_gone(void **state)
{
    struct fixture *fixture = *state;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    fixture->client->options.reconnect_msec = FIXTURE_PATIENCE_MSEC;
    fake_set(fixture->fake, FAKE_SAYS_GONE);
    assert_int_equal(gemmd_find_weight(fixture->client, "m/w", &weight), GEMMD_BAD_MESSAGE);
    assert_says("DISCONNECTED, which is not its to say");
    fake_set(fixture->fake, 0);
}

static void test_dead_daemon_is_noticed(void **state)
{
    struct fixture *fixture = *state;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    assert_int_equal(gemmd_find_weight(fixture->client, "m/w", &weight), GEMMD_OK);
    fake_die(fixture->fake);
    assert_int_equal(gemmd_find_weight(fixture->client, "m/w", &weight), GEMMD_DISCONNECTED);
    assert_says("hung up");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_daemon_that_says_it_is_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_find_and_list, set_up, tear_down),
        cmocka_unit_test(test_filled_structs_of_older_programs),
        cmocka_unit_test_setup_teardown(test_weights_of_other_versions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_a_socket, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusal_reaches_the_user, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_late_reply_is_skipped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nonsense_replies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dead_daemon_is_noticed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
