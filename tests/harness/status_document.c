/* status_document.c - see status_document.h. */
#include "tests/harness/status_document.h"

#include "client/client.h"

#define SETTLE_POLL_SECONDS 0.02

json_t *status_document_ask(const struct fixture *fixture, gemmd_client_t *client)
{
    struct msg_request request = {.verb = MSG_VERB_STATUS};
    struct msg_reply reply = MSG_REPLY_NULL;
    if (control_call(client, &request, &reply) != 0) {
        fixture_fail(fixture, "STATUS: %s", gemmd_last_error());
    }
    json_t *document = json_loads(reply.json, 0, NULL);
    if (document == NULL) {
        fixture_fail(fixture, "STATUS is not JSON: %s", reply.json);
    }
    msg_reply_finish(&reply);
    return document;
}

json_t *status_document_read(const struct fixture *fixture)
{
    gemmd_client_t *client = fixture_open(fixture, GEMMD_PATH_RING);
    json_t *document = status_document_ask(fixture, client);
    gemmd_close(client);
    return document;
}

static uint64_t number(const struct fixture *fixture, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) {
        fixture_fail(fixture, "STATUS has no number '%s'", key);
    }
    return (uint64_t)json_integer_value(value);
}

static uint64_t held(const struct fixture *fixture, const json_t *document, const char *kind)
{
    return number(fixture, json_object_get(json_object_get(document, "quotas"), kind), "held");
}

void status_counts_read(const struct fixture *fixture, struct status_counts *ret_counts)
{
    json_t *document = status_document_read(fixture);
    const json_t *counters = json_object_get(document, "counters");
    const json_t *worker =
        json_object_get(json_array_get(json_object_get(document, "devices"), 0), "worker");
    *ret_counts = (struct status_counts){
        .n_sessions = held(fixture, document, "sessions"),
        .n_buffers = held(fixture, document, "buffers"),
        .buffer_bytes = held(fixture, document, "buffer_bytes"),
        .n_fds = held(fixture, document, "fds"),
        .n_in_flight = number(fixture, worker, "in_flight"),
        .n_lanes = number(fixture, worker, "lanes"),
        .n_ok = number(fixture, worker, "ok"),
        .n_launches = number(fixture, worker, "launches"),
        .n_shared_launches = number(fixture, worker, "shared_launches"),
        .n_bad_messages = number(fixture, counters, "bad_messages"),
        .n_bad_framing = number(fixture, counters, "bad_framing"),
        .n_endless = number(fixture, counters, "endless_messages"),
        .n_corrupt_lanes = number(fixture, worker, "corrupt_lanes"),
    };
    json_decref(document);
}

void status_counts_settle(const struct fixture *fixture, uint64_t n_sessions,
                          double timeout_seconds, struct status_counts *ret_counts)
{
    double deadline = fixture_now() + timeout_seconds;
    status_counts_read(fixture, ret_counts);
    while ((ret_counts->n_sessions > n_sessions || ret_counts->n_in_flight > 0 ||
            ret_counts->n_lanes >= n_sessions) &&
           fixture_now() < deadline) {
        fixture_sleep(SETTLE_POLL_SECONDS);
        status_counts_read(fixture, ret_counts);
    }
}

bool status_counts_reach(const struct fixture *fixture, size_t counter, uint64_t n,
                         double timeout_seconds, struct status_counts *ret_counts)
{
    const uint64_t *place = (const uint64_t *)((const uint8_t *)ret_counts + counter);
    double deadline = fixture_now() + timeout_seconds;
    status_counts_read(fixture, ret_counts);
    while (*place < n && fixture_now() < deadline) {
        fixture_sleep(SETTLE_POLL_SECONDS);
        status_counts_read(fixture, ret_counts);
    }
    return *place >= n;
}
