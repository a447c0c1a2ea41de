/* test-hostile-messages.c - control messages that are no protobuf, or too deep, too long, cut and
 * mutated (T41). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "ipc/codec.h"
#include "ipc/frame.h"
#include "tests/harness/status_document.h"
#include "tests/harness/wire.h"
#include "tests/integ/hostile_case.h"

#define N_MUTATIONS 20000u /* a million more in the codec's own test */
#define WINDOW      16u    /* messages on the way at once: fewer than a queue of ZeroMQ holds */
#define GROWTH_KIB  (16u * 1024u)
#define LAST_PING   1000001u

static int set_up(void **state)
{
    return hostile_set_up(state, NULL);
}

static uint64_t n_bad_messages(const struct hostile *hostile)
{
    struct status_counts counts;
    status_counts_read(&hostile->fixture, &counts);
    return counts.n_bad_messages;
}

/* Each is answered and counted, and the session goes on. */
static void test_malformed_messages(void **state)
{
    struct hostile *hostile = *state;
    static const struct {
        uint8_t bytes[16];
        size_t n_bytes;
    } cases[] = {
        {{0}, 0},                                                            /* empty */
        {{0x08}, 1},                                                         /* a key, no value */
        {{0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}, 12}, /* endless varint */
        {{0x7a, 0x40, 1}, 3},                         /* longer than there is */
        {{0x7a, 0x81, 0x80, 0x80, 0x80, 0x10, 1}, 7}, /* 2^32 + 1 bytes */
        {{0x0b, 0x0c}, 2},                            /* groups */
        {{0x0c}, 1},                                  /* the end of one */
        {{0x00, 0x01}, 2},                            /* field number 0 */
        {{0xa2, 0x01, 3, 0x68, 0xe7, 0x07}, 6},       /* element type 999 */
    };
    struct peer peer;
    int fd = hostile_open_peer(hostile, &peer);
    uint64_t n_before = n_bad_messages(hostile);
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        peer_send(&peer, cases[i].bytes, cases[i].n_bytes);
        assert_int_equal(peer_receive(&peer, NULL), GEMMD_BAD_MESSAGE);
    }
    assert_int_equal(n_bad_messages(hostile), n_before + ARRAY_LENGTH(cases));
    hostile_close_peer(&peer, fd);
}

static size_t put_varint(uint8_t *bytes, uint64_t value)
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) {
        bytes[n++] = (uint8_t)(value | 0x80);
    }
    bytes[n++] = (uint8_t)value;
    return n;
}

/* As many sub-messages one in the other as fit in a message, written from the innermost out: field
 * `tag` of each is the next. */
static size_t put_nested(uint8_t *bytes, size_t size_bytes, uint8_t tag, uint32_t n_levels)
{
    size_t at = size_bytes;
    for (uint32_t i = 0; i < n_levels; i++) {
        uint8_t length[10];
        size_t n_length = put_varint(length, size_bytes - at);
        assert_true(at > n_length);
        at -= n_length;
        memcpy(bytes + at, length, n_length);
        bytes[--at] = tag;
    }
    memmove(bytes, bytes + at, size_bytes - at);
    return size_bytes - at;
}

/* 10,000 levels of a known field, an unknown one and groups; a packed array as long as a message.
 */
static void test_deep_and_long_messages(void **state)
{
    struct hostile *hostile = *state;
    struct peer peer;
    static uint8_t bytes[FRAME_REQUEST_BYTES_MAX];
    int fd = hostile_open_peer(hostile, &peer);
    uint64_t kib_before = hostile_resident_kib(hostile);
    for (uint32_t i = 0; i < 20; i++) {
        size_t n = put_nested(bytes, sizeof(bytes), i % 2 == 0 ? 0x72 : 0x1a, 10000);
        peer_send(&peer, bytes, n);
        int status = peer_receive(&peer, NULL); /* a name that is missing, or a verb */
        assert_true(status == GEMMD_INVALID_ARGUMENT || status == GEMMD_BAD_MESSAGE);
        memset(bytes, 0x0b, 20000);
        peer_send(&peer, bytes, 20000);
        assert_int_equal(peer_receive(&peer, NULL), GEMMD_BAD_MESSAGE);
        memset(bytes, 1, sizeof(bytes));
        memcpy(bytes, "\xb2\x01", 2); /* explain */
        put_varint(bytes + 2, sizeof(bytes) - 5);
        bytes[5] = 0x12; /* m, packed */
        put_varint(bytes + 6, sizeof(bytes) - 9);
        peer_send(&peer, bytes, sizeof(bytes));
        assert_int_equal(peer_receive(&peer, NULL), GEMMD_BAD_MESSAGE);
    }
    assert_false(hostile_has_grown(hostile, kib_before, GROWTH_KIB));
    hostile_close_peer(&peer, fd);
}

/* What changes the daemon for others is not for a lottery: our user may do it. */
static bool is_harmless(const uint8_t *bytes, size_t n_bytes)
{
    struct msg_request request;
    if (codec_decode_request(bytes, n_bytes, &request, NULL) != 0) {
        return true;
    }
    switch (request.verb) {
    case MSG_VERB_LOAD:
    case MSG_VERB_UNLOAD:
    case MSG_VERB_RELOAD:
    case MSG_VERB_VERIFY:
    case MSG_VERB_DRAIN:
        return false;
    default:
        return true;
    }
}

static void fill_request(struct msg_request *request, enum msg_verb verb)
{
    *request = (struct msg_request){.verb = verb, .request_id = 77777};
    if (verb == MSG_VERB_EXPLAIN) {
        (void)snprintf(request->explain.weight, MSG_NAME_BYTES, "tiny/layer.int4");
        request->explain.n_m = 3;
    } else if (verb == MSG_VERB_SUBMIT) {
        request->submit = (struct request_desc){.request_id = 9, .weight_id = 1, .m = 1, .k = 256};
    } else if (verb == MSG_VERB_LOAD) {
        (void)snprintf(request->load.name, MSG_NAME_BYTES, "other");
        (void)snprintf(request->load.path, MSG_PATH_BYTES, "/nonexistent");
    } else if (verb != MSG_VERB_JOB_STATUS && verb != MSG_VERB_JOB_CANCEL &&
               verb != MSG_VERB_CANCEL) {
        (void)snprintf(request->name, MSG_NAME_BYTES, "tiny/layer.int4");
    }
}

/* Every verb's message cut at every byte: each cut is answered. */
static void test_cut_messages(void **state)
{
    struct hostile *hostile = *state;
    struct peer peer;
    int fd = hostile_open_peer(hostile, &peer);
    for (int verb = MSG_VERB_NONE + 1; verb < MSG_VERB_END; verb++) {
        struct msg_request request;
        uint8_t *bytes;
        size_t n_bytes;
        fill_request(&request, (enum msg_verb)verb);
        assert_int_equal(codec_encode_request(&request, &bytes, &n_bytes), 0);
        for (size_t i = 0; i < n_bytes; i++) {
            if (is_harmless(bytes, i)) {
                peer_send(&peer, bytes, i);
                assert_true(peer_receive(&peer, NULL) >= 0);
            }
        }
        free(bytes);
    }
    hostile_close_peer(&peer, fd);
}

static size_t mutate(struct hostile *hostile, const uint8_t *bytes, size_t n_bytes, uint8_t *ret)
{
    memcpy(ret, bytes, n_bytes);
    for (uint64_t n = 1 + test_random(&hostile->random) % 3; n > 0; n--) {
        ret[test_random(&hostile->random) % n_bytes] = (uint8_t)test_random(&hostile->random);
    }
    return test_random(&hostile->random) % 8 == 0 ? test_random(&hostile->random) % n_bytes
                                                  : n_bytes;
}

static void receive_all(struct peer *peer, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_true(peer_receive(peer, NULL) >= 0);
    }
}

/* Messages with random bytes changed: any answer but silence, and nothing is kept of them. */
static void test_mutated_messages(void **state)
{
    struct hostile *hostile = *state;
    struct msg_request request;
    struct peer peer;
    uint8_t *seeds[MSG_VERB_END] = {NULL};
    size_t n_seeds[MSG_VERB_END];
    uint8_t bytes[512];
    uint64_t kib_before = 0;
    uint32_t n_sent = 0;
    for (int verb = MSG_VERB_NONE + 1; verb < MSG_VERB_END; verb++) {
        fill_request(&request, (enum msg_verb)verb);
        assert_int_equal(codec_encode_request(&request, &seeds[verb], &n_seeds[verb]), 0);
        assert_true(n_seeds[verb] <= sizeof(bytes));
    }
    int fd = hostile_open_peer(hostile, &peer);
    for (uint32_t i = 0; i < N_MUTATIONS; i++) {
        uint32_t verb = MSG_VERB_NONE + 1 + i % (MSG_VERB_END - 1);
        size_t n_bytes = mutate(hostile, seeds[verb], n_seeds[verb], bytes);
        if (is_harmless(bytes, n_bytes)) {
            peer_send(&peer, bytes, n_bytes);
            n_sent++;
        }
        if (n_sent == WINDOW) {
            receive_all(&peer, n_sent);
            n_sent = 0;
        }
        if (i == N_MUTATIONS / 10) {
            kib_before = hostile_resident_kib(hostile);
        }
    }
    receive_all(&peer, n_sent);
    assert_int_equal(peer_ping(&peer, LAST_PING), GEMMD_OK);
    assert_false(hostile_has_grown(hostile, kib_before, GROWTH_KIB));
    for (int verb = MSG_VERB_NONE + 1; verb < MSG_VERB_END; verb++) {
        free(seeds[verb]);
    }
    hostile_close_peer(&peer, fd);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, NULL, hostile_still_serves)
    const struct CMUnitTest tests[] = {
        CASE(test_malformed_messages),
        CASE(test_deep_and_long_messages),
        CASE(test_cut_messages),
        CASE(test_mutated_messages),
    };
#undef CASE
    return cmocka_run_group_tests(tests, set_up, hostile_tear_down);
}
