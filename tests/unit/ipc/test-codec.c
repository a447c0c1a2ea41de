/* test-codec.c - long because it follows codec.c field by field: every verb and every body there
 * and back, T41's malformed messages, cuts at every byte, mutations, and the promise that the
 * schema has no cycles. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gemmd.pb-c.h"
#include "ipc/codec.h"
#include "ipc/frame.h"
#include "t.h"

#define N_FILLS     50
#define N_MUTATIONS 100000

static uint64_t random_state = 0x853c49e6748fea9bull;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint64_t random_below(uint64_t limit)
{
    return (random_bits() >> 11) % limit;
}

/* ASCII and two-byte characters, of any length that fits; often empty or full. */
static void fill_text(char *text, size_t size_bytes)
{
    size_t n_bytes = random_below(size_bytes);
    n_bytes = random_below(4) == 0 ? size_bytes - 1 : n_bytes;
    n_bytes = random_below(8) == 0 ? 0 : n_bytes;
    for (size_t i = 0; i < n_bytes; i++) {
        text[i] = (char)('!' + random_below(94));
        if (i + 1 < n_bytes && random_below(8) == 0) {
            memcpy(&text[i++], "\xc3\xa9", 2);
        }
    }
    text[n_bytes] = '\0';
}

#define FILL_TEXT(array) fill_text((array), sizeof(array))

static char *make_text(size_t size_bytes)
{
    char *text = calloc(1, size_bytes);
    assert_non_null(text);
    fill_text(text, size_bytes);
    return text;
}

static void fill_submit(struct request_desc *desc)
{
    *desc = (struct request_desc){
        .request_id = random_bits(),
        .weight_id = random_bits(),
        .x_buffer_id = random_bits(),
        .x_offset_bytes = random_bits(),
        .x_stride_elems = random_bits(),
        .y_buffer_id = random_bits(),
        .y_offset_bytes = random_bits(),
        .y_stride_elems = random_bits(),
        .timeout_usec = random_bits(),
        .m = (uint32_t)random_bits(),
        .n = (uint32_t)random_bits(),
        .k = (uint32_t)random_bits(),
        .op = REQUEST_OP_GEMM,
        .x_dtype = (uint8_t)random_below(DTYPE_F4 + 1),
        .y_dtype = (uint8_t)random_below(DTYPE_F4 + 1),
        .flags = (uint32_t)random_bits(),
    };
}

static void fill_request(struct msg_request *request, enum msg_verb verb)
{
    memset(request, 0, sizeof(*request));
    request->request_id = random_bits();
    request->verb = verb;
    switch (verb) {
    case MSG_VERB_WEIGHT_LIST:
    case MSG_VERB_WEIGHT_FIND:
    case MSG_VERB_UNLOAD:
    case MSG_VERB_RELOAD:
    case MSG_VERB_VERIFY:
        FILL_TEXT(request->name);
        return;
    case MSG_VERB_LOAD:
        FILL_TEXT(request->load.name);
        FILL_TEXT(request->load.path);
        FILL_TEXT(request->load.device);
        request->load.tp_rank = (uint32_t)random_bits();
        request->load.tp_size = (uint32_t)random_bits();
        return;
    case MSG_VERB_JOB_STATUS:
    case MSG_VERB_JOB_CANCEL:
        request->job_id = random_bits();
        return;
    case MSG_VERB_SUBMIT:
        fill_submit(&request->submit);
        return;
    case MSG_VERB_CANCEL:
        request->cancel_request_id = random_bits();
        return;
    case MSG_VERB_EXPLAIN:
        FILL_TEXT(request->explain.weight);
        request->explain.n_m = (uint32_t)random_below(MSG_EXPLAIN_M_MAX + 1);
        for (uint32_t i = 0; i < request->explain.n_m; i++) {
            request->explain.m[i] = (uint32_t)random_bits();
        }
        return;
    default:
        return;
    }
}

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

static void fill_model(struct msg_model *model)
{
    FILL_TEXT(model->name);
    FILL_TEXT(model->path);
    FILL_TEXT(model->device);
    FILL_TEXT(model->state);
    model->generation = random_bits();
    model->n_weights = (uint32_t)random_bits();
    model->packed_bytes = random_bits();
    model->load_seconds = (double)random_bits() / 1000;
    model->n_warnings = (uint32_t)random_bits();
    model->act_dtype = (enum dtype)random_below(DTYPE_F4 + 1);
}

static void fill_weight(struct msg_weight *weight)
{
    weight->weight_id = random_bits();
    FILL_TEXT(weight->name);
    weight->generation = random_bits();
    weight->n = (uint32_t)random_bits();
    weight->k = (uint32_t)random_bits();
    weight->device_index = (uint32_t)random_bits();
    FILL_TEXT(weight->format);
    FILL_TEXT(weight->layout);
    weight->packed_bytes = random_bits();
    weight->has_bias = (uint32_t)random_bits();
    weight->act_dtype = (enum dtype)random_below(DTYPE_F4 + 1);
}

static void fill_job(struct msg_job *job)
{
    job->job_id = random_bits();
    FILL_TEXT(job->kind);
    FILL_TEXT(job->state);
    job->done_bytes = random_bits();
    job->total_bytes = random_bits();
    FILL_TEXT(job->step);
    job->status = STATUS_BAD_CHECKPOINT;
    FILL_TEXT(job->text);
    job->n_warnings = (uint32_t)random_below(MSG_WARNINGS_MAX + 1);
    job->warnings = calloc(MSG_WARNINGS_MAX, sizeof(char *));
    for (uint32_t i = 0; i < job->n_warnings; i++) {
        job->warnings[i] = make_text(i == 0 ? MSG_TEXT_BYTES : 64);
    }
}

static void fill_choice(struct msg_choice *choice)
{
    choice->m = (uint32_t)random_bits();
    FILL_TEXT(choice->kernel);
    FILL_TEXT(choice->tile);
    choice->predicted_usec = (double)random_below(1000) / 8;
    choice->measured_usec = (double)random_below(1000) / 16;
    choice->floor_usec = (double)random_below(1000) / 32;
    choice->n_declined = (uint32_t)random_below(4);
    choice->declined = calloc(4, sizeof(*choice->declined));
    for (uint32_t i = 0; i < choice->n_declined; i++) {
        FILL_TEXT(choice->declined[i].kernel);
        FILL_TEXT(choice->declined[i].reason);
    }
}

static void fill_explanation(struct msg_reply *reply)
{
    uint32_t n = (uint32_t)random_below(MSG_EXPLAIN_M_MAX + 1);
    fill_weight(&reply->explanation.weight);
    reply->explanation.n_choices = n;
    reply->explanation.choices = calloc(MSG_EXPLAIN_M_MAX, sizeof(struct msg_choice));
    for (uint32_t i = 0; i < n; i++) {
        fill_choice(&reply->explanation.choices[i]);
    }
}

static void fill_submitted(struct request_result *result)
{
    result->request_id = random_bits();
    result->batch_rows = (uint32_t)random_bits();
    result->batch_requests = (uint32_t)random_bits();
    result->batch_sessions = (uint32_t)random_bits();
    result->queue_nsec = random_bits();
    result->run_nsec = random_bits();
}

static void fill_lists(struct msg_reply *reply)
{
    uint32_t n = (uint32_t)random_below(20);
    if (reply->body == MSG_BODY_MODELS) {
        reply->models.n = n;
        reply->models.items = calloc(20, sizeof(*reply->models.items));
    } else {
        reply->weights.n = n;
        reply->weights.items = calloc(20, sizeof(*reply->weights.items));
    }
    for (uint32_t i = 0; i < n; i++) {
        if (reply->body == MSG_BODY_MODELS) {
            fill_model(&reply->models.items[i]);
        } else {
            fill_weight(&reply->weights.items[i]);
        }
    }
}

static void fill_reply(struct msg_reply *reply, enum msg_body body)
{
    memset(reply, 0, sizeof(*reply));
    reply->request_id = random_bits();
    reply->status = random_below(2) == 0 ? STATUS_OK : STATUS_NOT_FOUND;
    FILL_TEXT(reply->text);
    reply->body = body;
    switch (body) {
    case MSG_BODY_NONE:
        return;
    case MSG_BODY_PONG:
        FILL_TEXT(reply->version);
        return;
    case MSG_BODY_STATUS:
        reply->json = make_text(5000);
        return;
    case MSG_BODY_MODELS:
    case MSG_BODY_WEIGHTS:
        fill_lists(reply);
        return;
    case MSG_BODY_JOB:
        fill_job(&reply->job);
        return;
    case MSG_BODY_SUBMITTED:
        fill_submitted(&reply->submitted);
        return;
    case MSG_BODY_EXPLANATION:
        fill_explanation(reply);
        return;
    }
}

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

static bool is_answered(const uint8_t *bytes, size_t n_bytes, bool is_request)
{
    struct msg_request request;
    struct msg_reply reply = MSG_REPLY_NULL;
    struct reason why = REASON_NULL;
    int r = is_request ? codec_decode_request(bytes, n_bytes, &request, &why)
                       : codec_decode_reply(bytes, n_bytes, &reply, &why);
    msg_reply_finish(&reply);
    return r == 0 ? why.text[0] == '\0' : r == STATUS_BAD_MESSAGE && why.text[0] != '\0';
}

/* The message with a byte changed, removed or added, or cut. Returns its new length. */
static size_t mutate(uint8_t *bytes, size_t n_bytes)
{
    for (uint64_t n = 1 + random_below(4); n > 0 && n_bytes > 0; n--) {
        size_t at = random_below(n_bytes);
        switch (random_below(4)) {
        case 0:
            memmove(bytes + at, bytes + at + 1, n_bytes - at - 1);
            n_bytes--;
            break;
        case 1:
            memmove(bytes + at + 1, bytes + at, n_bytes - at - 1); /* the last one goes */
            bytes[at] = (uint8_t)random_bits();
            break;
        case 2:
            n_bytes = random_below(16) == 0 ? at : n_bytes;
            break;
        default:
            bytes[at] ^= (uint8_t)(1u << random_below(8));
            break;
        }
    }
    return n_bytes;
}

static void encode_some(uint64_t i, bool is_request, uint8_t **ret_bytes, size_t *ret_n_bytes)
{
    struct msg_request request;
    struct msg_reply reply;
    if (is_request) {
        fill_request(&request, (enum msg_verb)(1 + i % (MSG_VERB_END - 1)));
        assert_int_equal(codec_encode_request(&request, ret_bytes, ret_n_bytes), 0);
        return;
    }
    fill_reply(&reply, (enum msg_body)(i % (MSG_BODY_EXPLANATION + 1)));
    assert_int_equal(codec_encode_reply(&reply, ret_bytes, ret_n_bytes), 0);
    msg_reply_finish(&reply);
}

/* Each cut goes into a block of its own size, so that AddressSanitizer sees a read past it. */
static void test_cut_at_every_byte(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2 * (MSG_VERB_END + MSG_BODY_EXPLANATION); i++) {
        uint8_t *bytes = NULL;
        size_t n_bytes = 0;
        encode_some(i / 2, i % 2 == 0, &bytes, &n_bytes);
        size_t step = n_bytes > 4096 ? n_bytes / 1024 : 1; /* long texts have long dull stretches */
        for (size_t n_cut = 0; n_cut < n_bytes; n_cut += n_cut < 512 ? 1 : step) {
            uint8_t *cut = malloc(n_cut > 0 ? n_cut : 1);
            memcpy(cut, bytes, n_cut);
            assert_true(is_answered(cut, n_cut, i % 2 == 0));
            free(cut);
        }
        free(bytes);
    }
}

#define N_SEEDS 64

struct seed {
    uint8_t *bytes;
    size_t n_bytes;
};

struct mutations {
    struct seed seeds[N_SEEDS];
    uint64_t n_wrong;
};

static void *run_mutations(void *argument)
{
    struct mutations *mutations = argument;
    for (uint64_t i = 0; i < N_MUTATIONS; i++) {
        const struct seed *seed = &mutations->seeds[i % N_SEEDS];
        uint8_t *bytes = malloc(seed->n_bytes + 1);
        memcpy(bytes, seed->bytes, seed->n_bytes);
        size_t n_bytes = mutate(bytes, seed->n_bytes);
        mutations->n_wrong += !is_answered(bytes, n_bytes, i % 2 == 0);
        free(bytes);
    }
    return NULL;
}

/* On a stack of 1 MiB, as T41 asks. */
static void test_mutations(void **state)
{
    (void)state;
    struct mutations mutations = {.n_wrong = 0};
    pthread_attr_t attributes;
    pthread_t thread;
    for (uint64_t i = 0; i < N_SEEDS; i++) {
        encode_some(i / 2, i % 2 == 0, &mutations.seeds[i].bytes, &mutations.seeds[i].n_bytes);
    }
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 1 << 20), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run_mutations, &mutations), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_attr_destroy(&attributes), 0);
    assert_int_equal(mutations.n_wrong, 0);
    for (int i = 0; i < N_SEEDS; i++) {
        free(mutations.seeds[i].bytes);
    }
}

#define DEPTH_MAX 8

/* protobuf-c recurses without a limit: only a schema without cycles bounds its stack. */
static int depth_of(const ProtobufCMessageDescriptor *descriptor, int depth)
{
    int deepest = depth;
    if (depth > DEPTH_MAX) {
        return depth;
    }
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            int below = depth_of(field->descriptor, depth + 1);
            deepest = below > deepest ? below : deepest;
        }
    }
    return deepest;
}

static void test_schema_has_no_cycles(void **state)
{
    (void)state;
    assert_int_equal(depth_of(&gemmd__wire__request__descriptor, 1), 2);
    assert_int_equal(depth_of(&gemmd__wire__reply__descriptor, 1), 4);
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

static void test_names(void **state)
{
    (void)state;
    char longest[MSG_NAME_BYTES + 1];
    struct reason why = REASON_NULL;
    memset(longest, 'n', sizeof(longest));
    longest[MSG_NAME_BYTES - 1] = '\0';
    assert_int_equal(msg_name_check(longest, "name", &why), 0);
    assert_int_equal(msg_name_check("mod\xc3\xa9l/a.b", "name", &why), 0);
    longest[MSG_NAME_BYTES - 1] = 'n';
    longest[MSG_NAME_BYTES] = '\0';
    assert_int_equal(msg_name_check(longest, "name", &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "name is longer than 255 bytes");
    assert_int_equal(msg_name_check("", "model name", &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "model name is empty");
    assert_int_equal(msg_name_check("a\nb", "name", &why), STATUS_INVALID_ARGUMENT);
    assert_int_equal(msg_name_check("a\x7f", "name", &why), STATUS_INVALID_ARGUMENT);
    assert_int_equal(msg_name_check("ab\xc0\x80", "name", &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "name is not UTF-8 at byte 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_verb_round_trips),
        cmocka_unit_test(test_every_body_round_trips),
        cmocka_unit_test(test_what_is_not_text_is_replaced),
        cmocka_unit_test(test_too_large_to_send),
        cmocka_unit_test(test_malformed_requests),
        cmocka_unit_test(test_last_scalar_wins_and_unknown_fields_pass),
        cmocka_unit_test(test_long_fields),
        cmocka_unit_test(test_amplification_is_bounded),
        cmocka_unit_test(test_malformed_replies),
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_schema_has_no_cycles),
        cmocka_unit_test(test_every_verb_is_in_the_schema),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
