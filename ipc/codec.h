/* codec.h - protobuf bytes <-> the plain structs of msg.h. Requests are
 * in codec_request.c, replies in codec_reply.c; no file but codec*.[ch] sees generated types.
 *
 * Decoding runs in a bounded arena (CODEC_*_ARENA_BYTES): empty sub-messages and unknown fields
 * amplify 76-fold in protobuf-c, so size on the wire alone is no bound. Enums and lengths are
 * checked here; what a verb means by its fields is checked by its handler. Any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"
#include "ipc/msg.h"

#define CODEC_REQUEST_ARENA_BYTES (512u * 1024u)
#define CODEC_REPLY_ARENA_BYTES   (64u * 1024u * 1024u)

/* Encoders give a malloc'd buffer. Return: 0 or -ENOMEM, -EMSGSIZE when over the frame limit. */
int codec_encode_request(const struct msg_request *request, uint8_t **ret_bytes,
                         size_t *ret_n_bytes) GD_MUST_CHECK;
int codec_encode_reply(const struct msg_reply *reply, uint8_t **ret_bytes,
                       size_t *ret_n_bytes) GD_MUST_CHECK;

/* Decoders. Return: 0, -ENOMEM, or STATUS_BAD_MESSAGE naming the field. On STATUS_BAD_MESSAGE
 * ret_request->request_id is set if it could be read, else 0. */
int codec_decode_request(const uint8_t *bytes, size_t n_bytes, struct msg_request *ret_request,
                         struct reason *why) GD_MUST_CHECK;
int codec_decode_reply(const uint8_t *bytes, size_t n_bytes, struct msg_reply *ret_reply,
                       struct reason *why) GD_MUST_CHECK;
