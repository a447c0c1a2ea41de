/* codec_fields.h - what requests and replies share: memory for generated types, and one helper for
 * each type of field. Only for the codec's own files.
 *
 * protobuf-c checks the wire format and nothing else, so here: memory is bounded by an arena that
 * is its allocator; a string's length, NULs and UTF-8 are checked when it is copied out; numbers
 * that name something (dtypes, status codes) are checked against their lists. Since the arena goes
 * as a whole, protobuf_c_message_free_unpacked() is never called; when an unpack fails half way,
 * protobuf-c walks the half-built message itself, which is safe because the arena's memory starts
 * as zeros.
 *
 * A reader and a writer (the arena) each carry the first error along, so that lists of fields read
 * as lists. For one message, one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gemmd.pb-c.h"
#include "ipc/arena.h"
#include "ipc/base/check.h"
#include "ipc/base/dtype.h"
#include "ipc/base/reason.h"

/* codec_allocator() - makes protobuf-c allocate in arena, and free nothing. */
ProtobufCAllocator codec_allocator(struct arena *arena);

/* codec_put_text() - a copy of text for the wire, "" for NULL; NULL, and a flag in the arena, when
 * there is no room. What is not UTF-8 is replaced by '?': a sentence that was cut in the middle of
 * a character must not make the peer refuse the whole reply. */
char *codec_put_text(struct arena *arena, const char *text);

/* codec_put_array() - n pointers to n zeroed structs of size_bytes, as protobuf-c wants its
 * repeated messages; NULL as above. */
void **codec_put_array(struct arena *arena, uint32_t n, size_t size_bytes);

/* codec_is_countable() - n <= n_max. A list longer than its limit would be refused by the peer, so
 * that otherwise the arena's flag makes codec_pack() fail with -EMSGSIZE. */
bool codec_is_countable(struct arena *arena, uint32_t n, uint32_t n_max);

/* codec_pack() - the message on the wire, in a malloc'd buffer. Return: 0; -ENOMEM; -EMSGSIZE when
 * it or its parts in the arena are too large. */
int codec_pack(const struct arena *arena, const ProtobufCMessage *message, size_t n_bytes_max,
               uint8_t **ret_bytes, size_t *ret_n_bytes) GD_MUST_CHECK;

struct codec_reader {
    int r; /* the first error, as of codec_decode_request(); later takes do nothing */
    struct reason *why;
};

#define CODEC_REFUSE(reader, ...)                                                                  \
    ((reader)->r = reason_set((reader)->why, STATUS_BAD_MESSAGE, __VA_ARGS__))

/* codec_take_text() - copies a string of an unpacked message, at most size_bytes with its NUL.
 * CODEC_TAKE_TEXT() - into an array. codec_take_heap_text() - to the heap, the caller frees; NULL
 * on errors. `field` is the string's name in sentences. */
void codec_take_text(struct codec_reader *reader, char *ret_text, size_t size_bytes,
                     const char *text, const char *field);
char *codec_take_heap_text(struct codec_reader *reader, const char *text, size_t n_bytes_max,
                           const char *field);
#define CODEC_TAKE_TEXT(reader, destination, text, field)                                          \
    codec_take_text((reader), (destination), sizeof(destination), (text), (field))

/* codec_take_dtype() - an element type or DTYPE_NONE. */
enum dtype codec_take_dtype(struct codec_reader *reader, uint32_t number, const char *field);

/* codec_take_byte() - only what the request's descriptor cannot hold is refused: which types a
 * product may have is judged with the rest of the request, in the same words as on the ring path.
 */
uint8_t codec_take_byte(struct codec_reader *reader, uint32_t number, const char *field);

/* codec_take_status() - any number of a known category will do: a daemon younger than this library
 * may have more codes, and callers switch on the category. */
int codec_take_status(struct codec_reader *reader, uint32_t number, const char *field);

/* codec_take_array() - n zeroed structs on the heap, which the caller owns; NULL when n is 0, over
 * its limit, or memory is short. */
void *codec_take_array(struct codec_reader *reader, size_t n, size_t n_max, size_t size_bytes,
                       const char *field);

/* codec_unpack_failed() - why protobuf-c unpacked nothing: it only says that it failed, the arena
 * knows whether for want of memory. Return: -ENOMEM or STATUS_BAD_MESSAGE. */
int codec_unpack_failed(const struct arena *arena, size_t n_bytes, const char *what,
                        struct reason *why) GD_MUST_CHECK;
