/* codec_reply.c - replies: status, sentence, and which body they carry. */
#include "ipc/codec.h"

#include <string.h>

#include "ipc/codec_body.h"
#include "ipc/codec_fields.h"
#include "ipc/frame.h"

union wire_body {
    Gemmd__Wire__Pong pong;
    Gemmd__Wire__StatusDocument status_document;
    Gemmd__Wire__Models models;
    Gemmd__Wire__Weights weights;
    Gemmd__Wire__Job job;
    Gemmd__Wire__Submitted submitted;
    Gemmd__Wire__Explanation explanation;
};

#define USE_BODY(NAME, name)                                                                       \
    wire->body_case = GEMMD__WIRE__REPLY__BODY_##NAME;                                             \
    wire->name = &body->name;                                                                      \
    gemmd__wire__##name##__init(&body->name)

static void put_reply(struct arena *arena, const struct msg_reply *reply, Gemmd__Wire__Reply *wire,
                      union wire_body *body)
{
    switch (reply->body) {
    case MSG_BODY_NONE:
        return;
    case MSG_BODY_PONG:
        USE_BODY(PONG, pong);
        body->pong.version = codec_put_text(arena, reply->version);
        return;
    case MSG_BODY_STATUS:
        USE_BODY(STATUS_DOCUMENT, status_document);
        body->status_document.json = codec_put_text(arena, reply->json);
        return;
    case MSG_BODY_MODELS:
        USE_BODY(MODELS, models);
        codec_put_models(arena, reply, &body->models);
        return;
    case MSG_BODY_WEIGHTS:
        USE_BODY(WEIGHTS, weights);
        codec_put_weights(arena, reply, &body->weights);
        return;
    case MSG_BODY_JOB:
        USE_BODY(JOB, job);
        codec_put_job(arena, &reply->job, &body->job);
        return;
    case MSG_BODY_SUBMITTED:
        USE_BODY(SUBMITTED, submitted);
        codec_put_submitted(&reply->submitted, &body->submitted);
        return;
    case MSG_BODY_EXPLANATION:
        USE_BODY(EXPLANATION, explanation);
        codec_put_explanation(arena, reply, &body->explanation);
        return;
    }
    GD_ASSERT(!"a reply with an unknown body");
}

int codec_encode_reply(const struct msg_reply *reply, uint8_t **ret_bytes, size_t *ret_n_bytes)
{
    struct arena arena;
    union wire_body body;
    Gemmd__Wire__Reply wire;

    gemmd__wire__reply__init(&wire);
    arena_init(&arena, CODEC_REPLY_ARENA_BYTES);
    wire.request_id = reply->request_id;
    wire.status = (uint32_t)reply->status;
    wire.text = codec_put_text(&arena, reply->text);
    put_reply(&arena, reply, &wire, &body);
    int r = codec_pack(&arena, &wire.base, FRAME_REPLY_BYTES_MAX, ret_bytes, ret_n_bytes);
    arena_finish(&arena);
    return r;
}

static void take_body(struct codec_reader *reader, const Gemmd__Wire__Reply *wire,
                      struct msg_reply *reply)
{
    switch (wire->body_case) {
    case GEMMD__WIRE__REPLY__BODY_PONG:
        reply->body = MSG_BODY_PONG;
        CODEC_TAKE_TEXT(reader, reply->version, wire->pong->version, "pong.version");
        return;
    case GEMMD__WIRE__REPLY__BODY_STATUS_DOCUMENT:
        reply->body = MSG_BODY_STATUS;
        reply->json = codec_take_heap_text(reader, wire->status_document->json,
                                           FRAME_REPLY_BYTES_MAX, "status_document.json");
        return;
    case GEMMD__WIRE__REPLY__BODY_MODELS:
        reply->body = MSG_BODY_MODELS;
        codec_take_models(reader, wire->models, reply);
        return;
    case GEMMD__WIRE__REPLY__BODY_WEIGHTS:
        reply->body = MSG_BODY_WEIGHTS;
        codec_take_weights(reader, wire->weights, reply);
        return;
    case GEMMD__WIRE__REPLY__BODY_JOB:
        reply->body = MSG_BODY_JOB;
        codec_take_job(reader, wire->job, &reply->job);
        return;
    case GEMMD__WIRE__REPLY__BODY_SUBMITTED:
        reply->body = MSG_BODY_SUBMITTED;
        codec_take_submitted(wire->submitted, &reply->submitted);
        return;
    case GEMMD__WIRE__REPLY__BODY_EXPLANATION:
        reply->body = MSG_BODY_EXPLANATION;
        codec_take_explanation(reader, wire->explanation, reply);
        return;
    default: /* a refusal has no body */
        reply->body = MSG_BODY_NONE;
        return;
    }
}

int codec_decode_reply(const uint8_t *bytes, size_t n_bytes, struct msg_reply *ret_reply,
                       struct reason *why)
{
    struct arena arena;
    ProtobufCAllocator allocator = codec_allocator(&arena);
    struct codec_reader reader = {.why = why};
    struct msg_reply reply;

    memset(&reply, 0, sizeof(reply));
    arena_init(&arena, CODEC_REPLY_ARENA_BYTES);
    Gemmd__Wire__Reply *wire = gemmd__wire__reply__unpack(&allocator, n_bytes, bytes);
    if (wire == NULL) {
        reader.r = codec_unpack_failed(&arena, n_bytes, "reply", why);
    } else {
        reply.request_id = wire->request_id;
        reply.status = codec_take_status(&reader, wire->status, "status");
        CODEC_TAKE_TEXT(&reader, reply.text, wire->text, "text");
        take_body(&reader, wire, &reply);
    }
    arena_finish(&arena);
    if (reader.r != 0) {
        msg_reply_finish(&reply);
        return reader.r;
    }
    *ret_reply = reply;
    return 0;
}
