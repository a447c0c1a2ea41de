/* codec_cases.h - messages of every kind with random fields, for the tests of the codec. */
#pragma once

#include <stdint.h>

#include "ipc/msg.h"

/* random_bits() - the next of one fixed sequence (xorshift64). random_below() - 0 .. limit - 1. */
uint64_t random_bits(void);
uint64_t random_below(uint64_t limit);

/* Fill a message from nothing, texts and lists up to their limits. The caller finishes replies with
 * msg_reply_finish(). */
void fill_request(struct msg_request *request, enum msg_verb verb);
void fill_reply(struct msg_reply *reply, enum msg_body body);
