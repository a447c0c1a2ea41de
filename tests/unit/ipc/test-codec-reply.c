/* test-codec-reply.c - every body there and back, what an encoder refuses or mends, malformed
 * replies. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec_cases.h"
#include "ipc/codec.h"
#include "ipc/frame.h"
#include "t.h"

#define N_FILLS 50

/* Compares two owned arrays and makes their pointers equal, so that the structs around them can be
 * compared as bytes. */
#define CHECK_ARRAY(ours, theirs, n_bytes)                                                         \
    do {                                                                                           \
        size_t n_ = (n_bytes);                                                                     \
        if (n_ > 0) {                                                                              \
            assert_memory_equal((ours), (theirs), n_);                                             \
        }                                                                                          \
        free(theirs);                                                                              \
        (theirs) = (ours);                                                                         \
    } while (0)

static void check_choices(struct msg_reply *ours, struct msg_reply *theirs)
{
    assert_int_equal(ours->explanation.n_choices, theirs->explanation.n_choices);
    for (uint32_t i = 0; i < ours->explanation.n_choices; i++) {
        struct msg_choice *our = &ours->explanation.choices[i];
        struct msg_choice *their = &theirs->explanation.choices[i];
        assert_int_equal(our->n_declined, their->n_declined);
        CHECK_ARRAY(our->declined, their->declined, our->n_declined * sizeof(*our->declined));
    }
    CHECK_ARRAY(ours->explanation.choices, theirs->explanation.choices,
                ours->explanation.n_choices * sizeof(struct msg_choice));
}

static void check_job(struct msg_job *ours, struct msg_job *theirs)
{
    assert_int_equal(ours->n_warnings, theirs->n_warnings);
    for (uint32_t i = 0; i < ours->n_warnings; i++) {
        assert_string_equal(ours->warnings[i], theirs->warnings[i]);
        free(theirs->warnings[i]);
    }
    CHECK_ARRAY(ours->warnings, theirs->warnings, 0);
    assert_true((ours->bench == NULL) == (theirs->bench == NULL));
    if (ours->bench != NULL) {
        CHECK_ARRAY(ours->bench->rows, theirs->bench->rows,
                    ours->bench->n_rows * sizeof(*ours->bench->rows));
        CHECK_ARRAY(ours->bench, theirs->bench, sizeof(*ours->bench));
    }
}

/* Frees what `theirs` owns. */
static void check_replies_equal(struct msg_reply *ours, struct msg_reply *theirs)
{
    assert_int_equal(ours->body, theirs->body);
    switch (ours->body) {
    case MSG_BODY_STATUS:
        CHECK_ARRAY(ours->json, theirs->json, strlen(ours->json) + 1);
        break;
    case MSG_BODY_MODELS:
        CHECK_ARRAY(ours->models.items, theirs->models.items,
                    ours->models.n * sizeof(struct msg_model));
        break;
    case MSG_BODY_WEIGHTS:
        CHECK_ARRAY(ours->weights.items, theirs->weights.items,
                    ours->weights.n * sizeof(struct msg_weight));
        break;
    case MSG_BODY_JOB:
        check_job(&ours->job, &theirs->job);
        break;
    case MSG_BODY_EXPLANATION:
        check_choices(ours, theirs);
        break;
    default:
        break;
    }
    assert_memory_equal(ours, theirs, sizeof(*ours));
}

static void test_every_body_round_trips(void **state)
{
    (void)state;
    for (int body = MSG_BODY_NONE; body <= MSG_BODY_EXPLANATION; body++) {
        for (int i = 0; i < N_FILLS; i++) {
            struct msg_reply reply, decoded;
            uint8_t *bytes = NULL;
            size_t n_bytes = 0;
            fill_reply(&reply, (enum msg_body)body);
            assert_int_equal(codec_encode_reply(&reply, &bytes, &n_bytes), 0);
            assert_int_equal(codec_decode_reply(bytes, n_bytes, &decoded, NULL), 0);
            check_replies_equal(&reply, &decoded);
            msg_reply_finish(&reply);
            assert_int_equal(reply.body, MSG_BODY_NONE);
            free(bytes);
        }
    }
}

static void test_what_is_not_text_is_replaced(void **state)
{
    (void)state;
    struct msg_reply reply = MSG_REPLY_NULL;
    struct msg_reply decoded = MSG_REPLY_NULL;
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    reply.status = STATUS_NOT_FOUND;
    (void)snprintf(reply.text, sizeof(reply.text), "%s", "no '\xff\xc3\xa9\xed\xa0\x80' \xe2\x82");
    assert_int_equal(codec_encode_reply(&reply, &bytes, &n_bytes), 0);
    assert_int_equal(codec_decode_reply(bytes, n_bytes, &decoded, NULL), 0);
    assert_string_equal(decoded.text, "no '?\xc3\xa9\?\?\?' \?\?");
    free(bytes);
}

static void test_too_large_to_send(void **state)
{
    (void)state;
    struct msg_reply reply = MSG_REPLY_NULL;
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    reply.body = MSG_BODY_STATUS;
    reply.json = malloc(FRAME_REPLY_BYTES_MAX + 1);
    memset(reply.json, ' ', FRAME_REPLY_BYTES_MAX);
    reply.json[FRAME_REPLY_BYTES_MAX] = '\0';
    assert_int_equal(codec_encode_reply(&reply, &bytes, &n_bytes), -EMSGSIZE);
    assert_null(bytes);
    msg_reply_finish(&reply);
    reply.body = MSG_BODY_MODELS;
    reply.models.n = MSG_MODELS_MAX + 1;
    assert_int_equal(codec_encode_reply(&reply, &bytes, &n_bytes), -EMSGSIZE);
}

static void test_malformed_replies(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    struct msg_reply reply = MSG_REPLY_NULL;
    const uint8_t status[] = {0x10, 0xe7, 0x07};                      /* 999 */
    const uint8_t no_weight[] = {0x82, 0x01, 0};                      /* an empty explanation */
    const uint8_t dtype[] = {0x62, 4, 0x0a, 2, 0x50, 77};             /* models.models.act_dtype */
    const uint8_t warning[] = {0x72, 6, 0x4a, 1, 'w', 0x4a, 1, 0xff}; /* the second is no text */
    assert_int_equal(codec_decode_reply(status, sizeof(status), &reply, &why), 0);
    assert_int_equal(codec_decode_reply((const uint8_t *)"\x10\x64", 2, &reply, &why),
                     STATUS_BAD_MESSAGE);
    assert_string_equal(why.text, "status is 100, which is no status");
    assert_int_equal(codec_decode_reply(no_weight, sizeof(no_weight), &reply, &why),
                     STATUS_BAD_MESSAGE);
    assert_string_equal(why.text, "explanation.weight is missing");
    assert_int_equal(codec_decode_reply(dtype, sizeof(dtype), &reply, &why), STATUS_BAD_MESSAGE);
    assert_string_equal(why.text, "model.act_dtype is 77, which is no element type");
    assert_int_equal(codec_decode_reply(warning, sizeof(warning), &reply, &why),
                     STATUS_BAD_MESSAGE);
    assert_string_equal(why.text, "job.warnings is not UTF-8 at byte 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_body_round_trips),
        cmocka_unit_test(test_what_is_not_text_is_replaced),
        cmocka_unit_test(test_too_large_to_send),
        cmocka_unit_test(test_malformed_replies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
