/* codec_fields.c - see codec_fields.h. */
#include "ipc/codec_fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/error.h"
#include "ipc/utf8.h"

static void *allocate(void *arena, size_t n_bytes)
{
    return arena_get(arena, n_bytes);
}

static void release(void *arena, void *block)
{
    (void)arena;
    (void)block; /* the arena goes as a whole */
}

ProtobufCAllocator codec_allocator(struct arena *arena)
{
    return (ProtobufCAllocator){.alloc = allocate, .free = release, .allocator_data = arena};
}

char *codec_put_text(struct arena *arena, const char *text)
{
    size_t n_bytes = text != NULL ? strlen(text) : 0;
    char *copy = arena_get(arena, n_bytes + 1);
    if (copy == NULL || n_bytes == 0) {
        return copy;
    }
    memcpy(copy, text, n_bytes);
    utf8_mend(copy, n_bytes);
    return copy;
}

void **codec_put_array(struct arena *arena, uint32_t n, size_t size_bytes)
{
    void **pointers = arena_get(arena, (size_t)n * sizeof(void *));
    uint8_t *structs = arena_get(arena, (size_t)n * size_bytes);
    if (pointers == NULL || structs == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        pointers[i] = structs + i * size_bytes;
    }
    return pointers;
}

bool codec_is_countable(struct arena *arena, uint32_t n, uint32_t n_max)
{
    arena->is_over_limit |= n > n_max;
    return n <= n_max;
}

static bool has_failed(const struct arena *arena)
{
    return arena->is_over_limit || arena->is_out_of_heap;
}

int codec_pack(const struct arena *arena, const ProtobufCMessage *message, size_t n_bytes_max,
               uint8_t **ret_bytes, size_t *ret_n_bytes)
{
    if (has_failed(arena)) {
        return err_raise(arena->is_out_of_heap ? -ENOMEM : -EMSGSIZE);
    }
    size_t n_bytes = protobuf_c_message_get_packed_size(message);
    if (n_bytes > n_bytes_max) {
        return err_raise(-EMSGSIZE);
    }
    uint8_t *bytes = malloc(n_bytes > 0 ? n_bytes : 1);
    if (bytes == NULL) {
        return err_raise(-ENOMEM);
    }
    *ret_n_bytes = protobuf_c_message_pack(message, bytes);
    *ret_bytes = bytes;
    return 0;
}

/* How long the string was on the wire: protobuf-c forgets it, the arena does not. An absent string
 * is protobuf-c's own static one. */
static size_t wire_bytes(const char *text)
{
    return text == protobuf_c_empty_string ? 0 : arena_block_bytes(text) - 1;
}

static bool check_text(struct codec_reader *reader, const char *text, size_t n_bytes_max,
                       const char *field)
{
    if (reader->r != 0) {
        return false;
    }
    size_t n_bytes = wire_bytes(text);
    if (n_bytes > n_bytes_max) {
        CODEC_REFUSE(reader, "%s has %zu bytes, over the limit of %zu", field, n_bytes,
                     n_bytes_max);
        return false;
    }
    if (memchr(text, '\0', n_bytes) != NULL) {
        CODEC_REFUSE(reader, "%s has a NUL inside, at byte %zu", field, strlen(text));
        return false;
    }
    if (utf8_valid_bytes(text, n_bytes) != n_bytes) {
        CODEC_REFUSE(reader, "%s is not UTF-8 at byte %zu", field, utf8_valid_bytes(text, n_bytes));
        return false;
    }
    return true;
}

void codec_take_text(struct codec_reader *reader, char *ret_text, size_t size_bytes,
                     const char *text, const char *field)
{
    if (check_text(reader, text, size_bytes - 1, field)) {
        memcpy(ret_text, text, wire_bytes(text) + 1);
    }
}

char *codec_take_heap_text(struct codec_reader *reader, const char *text, size_t n_bytes_max,
                           const char *field)
{
    if (!check_text(reader, text, n_bytes_max, field)) {
        return NULL;
    }
    char *copy = strdup(text);
    if (copy == NULL) {
        reader->r = err_raise(-ENOMEM);
    }
    return copy;
}

enum dtype codec_take_dtype(struct codec_reader *reader, uint32_t number, const char *field)
{
    if (number != DTYPE_NONE && dtype_bits((enum dtype)number) == 0 && reader->r == 0) {
        CODEC_REFUSE(reader, "%s is %u, which is no element type", field, number);
    }
    return (enum dtype)number;
}

uint8_t codec_take_byte(struct codec_reader *reader, uint32_t number, const char *field)
{
    if (number > UINT8_MAX && reader->r == 0) {
        CODEC_REFUSE(reader, "%s is %u, over 255", field, number);
    }
    return (uint8_t)number;
}

int codec_take_status(struct codec_reader *reader, uint32_t number, const char *field)
{
    bool is_known = number == STATUS_OK || (number >= (STATUS_CATEGORY_USAGE << 8) &&
                                            number <= (STATUS_CATEGORY_INTERNAL << 8 | 0xff));
    if (!is_known && reader->r == 0) {
        CODEC_REFUSE(reader, "%s is %u, which is no status", field, number);
    }
    return (int)number;
}

void *codec_take_array(struct codec_reader *reader, size_t n, size_t n_max, size_t size_bytes,
                       const char *field)
{
    if (reader->r != 0 || n == 0) {
        return NULL;
    }
    if (n > n_max) {
        CODEC_REFUSE(reader, "%s has %zu entries, over the limit of %zu", field, n, n_max);
        return NULL;
    }
    void *array = calloc(n, size_bytes);
    if (array == NULL) {
        reader->r = err_raise(-ENOMEM);
    }
    return array;
}

int codec_unpack_failed(const struct arena *arena, size_t n_bytes, const char *what,
                        struct reason *why)
{
    if (arena->is_out_of_heap) {
        return err_raise(-ENOMEM);
    }
    if (arena->is_over_limit) {
        return reason_set(why, STATUS_BAD_MESSAGE,
                          "the %s of %zu bytes needs more than %zu bytes when decoded", what,
                          n_bytes, arena->n_bytes_max);
    }
    return reason_set(why, STATUS_BAD_MESSAGE, "the %s of %zu bytes is not valid protobuf", what,
                      n_bytes);
}
