/* codec_body.h - the lists and records that replies carry, field by field: codec_put_x() fills a
 * generated message, all of its memory in the arena; codec_take_x() fills a plain struct, whose
 * arrays are on the heap and counted entry by entry, so that msg_reply_finish() frees what there is
 * after an error too. Errors go to the arena's flags or the reader. Only for the codec's own files.
 */
#pragma once

#include "gemmd.pb-c.h"
#include "ipc/arena.h"
#include "ipc/codec_fields.h"
#include "ipc/msg.h"

/* Models and weights, a list each. */
void codec_put_models(struct arena *arena, const struct msg_reply *reply,
                      Gemmd__Wire__Models *wire);
void codec_take_models(struct codec_reader *reader, const Gemmd__Wire__Models *wire,
                       struct msg_reply *reply);
void codec_put_weights(struct arena *arena, const struct msg_reply *reply,
                       Gemmd__Wire__Weights *wire);
void codec_take_weights(struct codec_reader *reader, const Gemmd__Wire__Weights *wire,
                        struct msg_reply *reply);

/* A job with its warnings and the result of a bench. */
void codec_put_job(struct arena *arena, const struct msg_job *job, Gemmd__Wire__Job *wire);
void codec_take_job(struct codec_reader *reader, const Gemmd__Wire__Job *wire, struct msg_job *job);

/* The result of a request; numbers only, cannot fail. */
void codec_put_submitted(const struct request_result *result, Gemmd__Wire__Submitted *wire);
void codec_take_submitted(const Gemmd__Wire__Submitted *wire, struct request_result *result);

/* A weight and the choices for it, each with what was declined. */
void codec_put_explanation(struct arena *arena, const struct msg_reply *reply,
                           Gemmd__Wire__Explanation *wire);
void codec_take_explanation(struct codec_reader *reader, const Gemmd__Wire__Explanation *wire,
                            struct msg_reply *reply);
