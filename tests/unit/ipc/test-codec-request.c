/* test-codec-request.c - every verb there and back, malformed requests, and bounds on what one
 * makes us hold. */
#include <stdlib.h>
#include <string.h>

#include "codec_cases.h"
#include "gemmd.pb-c.h"
#include "ipc/codec.h"
#include "ipc/frame.h"
#include "t.h"

#define N_FILLS 50

static void test_every_verb_round_trips(void **state)
{
    (void)state;
    for (int verb = MSG_VERB_NONE + 1; verb < MSG_VERB_END; verb++) {
        assert_string_not_equal(msg_verb_name((enum msg_verb)verb), "?");
        for (int i = 0; i < N_FILLS; i++) {
            struct msg_request request, decoded;
            uint8_t *bytes = NULL;
            size_t n_bytes = 0;
            fill_request(&request, (enum msg_verb)verb);
            assert_int_equal(codec_encode_request(&request, &bytes, &n_bytes), 0);
            assert_true(n_bytes <= FRAME_REQUEST_BYTES_MAX);
            assert_int_equal(codec_decode_request(bytes, n_bytes, &decoded, NULL), 0);
            assert_memory_equal(&decoded, &request, sizeof(request));
            free(bytes);
        }
    }
    assert_string_equal(msg_verb_name(MSG_VERB_WEIGHT_FIND), "weight_find");
    assert_string_equal(msg_verb_name(MSG_VERB_END), "?");
}

static void test_every_verb_is_in_the_schema(void **state)
{
    (void)state;
    for (int verb = MSG_VERB_NONE + 1; verb < MSG_VERB_END; verb++) {
        assert_non_null(protobuf_c_message_descriptor_get_field_by_name(
            &gemmd__wire__request__descriptor, msg_verb_name((enum msg_verb)verb)));
    }
    assert_int_equal(gemmd__wire__request__descriptor.n_fields, MSG_VERB_END); /* and request_id */
}

static void check_bad_request(const void *bytes, size_t n_bytes, uint64_t request_id,
                              const char *needle)
{
    struct msg_request request;
    struct reason why = REASON_NULL;
    memset(&request, 0x55, sizeof(request));
    int r = codec_decode_request(bytes, n_bytes, &request, &why);
    if (r != STATUS_BAD_MESSAGE || strstr(why.text, needle) == NULL) {
        fail_msg("%d '%s', expected '%s'", r, why.text, needle);
    }
    assert_int_equal(request.request_id, request_id);
    assert_int_equal(request.verb, 0x55555555); /* written on success only */
}

#define CHECK_BAD(literal, request_id, needle)                                                     \
    check_bad_request((literal), sizeof(literal) - 1, (request_id), (needle))

static void test_malformed_requests(void **state)
{
    (void)state;
    CHECK_BAD("", 0, "verb");
    CHECK_BAD("\x08", 0, "protobuf");
    CHECK_BAD("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 0, "protobuf");
    CHECK_BAD("\x08\x07\x52\x05", 7, "protobuf");                 /* ping, 5 bytes, none there */
    CHECK_BAD("\x08\x07\x52\x81\x80\x80\x80\x10", 7, "protobuf"); /* length 2^32 + 1 */
    CHECK_BAD("\x08\x07\x53", 7, "protobuf");                     /* group start */
    CHECK_BAD("\x08\x07\x54", 7, "protobuf");                     /* group end */
    CHECK_BAD("\x00\x01", 0, "protobuf");                         /* field 0 */
    CHECK_BAD("\x08\x07\x50\x01", 7, "protobuf");                 /* ping as a number */
    CHECK_BAD("\x08\x07\x9a\x3f\x00", 7, "verb");                 /* a verb of the future */
    CHECK_BAD("\x08\x07", 7, "verb");
    CHECK_BAD("\x08\xac\x02\x72\x03\x0a\x01\xff", 300, "weight_find.name is not UTF-8");
    CHECK_BAD("\x08\x07\x72\x05\x0a\x03"
              "a\0b",
              7, "weight_find.name has a NUL");
    CHECK_BAD("\x08\x07\xa2\x01\x03\x68\xe7\x07", 7, "submit.x_dtype is 999");
}

static void test_last_scalar_wins_and_unknown_fields_pass(void **state)
{
    (void)state;
    struct msg_request request;
    const uint8_t twice[] = {0x08, 1, 0x08, 2, 0x52, 0};
    const uint8_t unknown[] = {0xa0, 0x06, 1, 0x08, 2, 0x52, 0};
    assert_int_equal(codec_decode_request(twice, sizeof(twice), &request, NULL), 0);
    assert_int_equal(request.request_id, 2);
    assert_int_equal(request.verb, MSG_VERB_PING);
    assert_int_equal(codec_decode_request(unknown, sizeof(unknown), &request, NULL), 0);
    assert_int_equal(request.verb, MSG_VERB_PING);
    /* An element type that nobody knows is judged with the rest of the request, not here. */
    const uint8_t dtype[] = {0xa2, 0x01, 2, 0x70, 0x12};
    assert_int_equal(codec_decode_request(dtype, sizeof(dtype), &request, NULL), 0);
    assert_int_equal(request.submit.y_dtype, 18);
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

/* [explain [field 2, packed: n ones]] or [weight_find [name: n letters]]. */
static void check_long_field(const uint8_t tags[3], size_t n, const char *needle)
{
    uint8_t *bytes = malloc(n + 32);
    uint8_t inner[16];
    size_t n_inner = 0;
    size_t at = 0;
    assert_non_null(bytes);
    inner[n_inner++] = tags[2];
    n_inner += put_varint(inner + n_inner, n);
    bytes[at++] = tags[0];
    if (tags[1] != 0) {
        bytes[at++] = tags[1];
    }
    at += put_varint(bytes + at, n_inner + n);
    memcpy(bytes + at, inner, n_inner);
    memset(bytes + at + n_inner, 'a', n);
    check_bad_request(bytes, at + n_inner + n, 0, needle);
    free(bytes);
}

static void test_long_fields(void **state)
{
    (void)state;
    static const uint8_t packed[] = {0xb2, 0x01, 0x12}; /* explain.m */
    static const uint8_t name[] = {0x72, 0, 0x0a};      /* weight_find.name */
    check_long_field(packed, MSG_EXPLAIN_M_MAX + 1, "explain.m has 33 entries");
    check_long_field(packed, 10000000, "needs more than 524288 bytes");
    check_long_field(name, MSG_NAME_BYTES, "weight_find.name has 256 bytes");
    check_long_field(name, 60000, "weight_find.name has 60000 bytes");
}

/* 64 KiB that protobuf-c would make megabytes of: bounded, and refused in words. */
static void test_amplification_is_bounded(void **state)
{
    (void)state;
    uint8_t *bytes = malloc(FRAME_REQUEST_BYTES_MAX);
    assert_non_null(bytes);
    for (size_t i = 0; i < FRAME_REQUEST_BYTES_MAX; i += 2) {
        bytes[i] = 0x52; /* an empty ping */
        bytes[i + 1] = 0;
    }
    check_bad_request(bytes, FRAME_REQUEST_BYTES_MAX, 0, "needs more than");
    for (size_t i = 0; i < FRAME_REQUEST_BYTES_MAX; i += 2) {
        bytes[i] = 0x18; /* unknown field 3 */
    }
    check_bad_request(bytes, FRAME_REQUEST_BYTES_MAX, 0, "needs more than");
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_verb_round_trips),
        cmocka_unit_test(test_every_verb_is_in_the_schema),
        cmocka_unit_test(test_malformed_requests),
        cmocka_unit_test(test_last_scalar_wins_and_unknown_fields_pass),
        cmocka_unit_test(test_long_fields),
        cmocka_unit_test(test_amplification_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
