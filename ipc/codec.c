/* codec.c - protobuf bytes to plain structs and back. Long because it is the only file
 * that sees generated types, and every field of every message is named in it twice.
 *
 * protobuf-c checks the wire format and nothing else, so here: memory is bounded by an arena that
 * is its allocator; a string's length, NULs and UTF-8 are checked when it is copied out; numbers
 * that name something (dtypes, status codes) are checked against their lists. Since the arena goes
 * as a whole, protobuf_c_message_free_unpacked() is never called; when an unpack fails half way,
 * protobuf-c walks the half-built message itself, which is safe because the arena's memory starts
 * as zeros.
 *
 * A reader and a writer each carry the first error along, so that the field lists below read as
 * lists. Encoders replace what is not UTF-8 by '?': a sentence that was cut in the middle of a
 * character must not make the peer refuse the whole reply. */
#include "ipc/codec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gemmd.pb-c.h"
#include "ipc/arena.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/frame.h"
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

static bool has_failed(const struct arena *arena)
{
    return arena->is_over_limit || arena->is_out_of_heap;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

/* A copy of text for the wire; NULL, and a flag in the arena, when there is no room. */
static char *put_text(struct arena *arena, const char *text)
{
    size_t n_bytes = text != NULL ? strlen(text) : 0;
    char *copy = arena_get(arena, n_bytes + 1);
    if (copy == NULL || n_bytes == 0) {
        return copy;
    }
    memcpy(copy, text, n_bytes);
    for (size_t i = 0; (i += utf8_valid_bytes(copy + i, n_bytes - i)) < n_bytes; i++) {
        copy[i] = '?';
    }
    return copy;
}

/* An array of n pointers to n zeroed structs, as protobuf-c wants its repeated messages. */
static void **put_array(struct arena *arena, uint32_t n, size_t size_bytes)
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

static int pack(struct arena *arena, const ProtobufCMessage *message, size_t n_bytes_max,
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

/* Every message that a Request can hold; one of them is in use. */
union wire_verb {
    Gemmd__Wire__Ping ping;
    Gemmd__Wire__Status status;
    Gemmd__Wire__ModelList model_list;
    Gemmd__Wire__WeightList weight_list;
    Gemmd__Wire__WeightFind weight_find;
    Gemmd__Wire__Load load;
    Gemmd__Wire__Unload unload;
    Gemmd__Wire__Reload reload;
    Gemmd__Wire__JobStatus job_status;
    Gemmd__Wire__JobCancel job_cancel;
    Gemmd__Wire__Submit submit;
    Gemmd__Wire__Cancel cancel;
    Gemmd__Wire__Explain explain;
    Gemmd__Wire__Verify verify;
    Gemmd__Wire__Drain drain;
};

/* USE_VERB() - make the union's member `name` the one in use; further text after it fills its
 * fields. */
#define USE_VERB(NAME, name)                                                                       \
    wire->verb_case = GEMMD__WIRE__REQUEST__VERB_##NAME;                                           \
    wire->name = &verb->name;                                                                      \
    gemmd__wire__##name##__init(&verb->name)

static void put_load(struct arena *arena, const struct msg_load *load, Gemmd__Wire__Load *wire)
{
    wire->name = put_text(arena, load->name);
    wire->path = put_text(arena, load->path);
    wire->device = put_text(arena, load->device);
    wire->tp_rank = load->tp_rank;
    wire->tp_size = load->tp_size;
}

static void put_submit(const struct request_desc *desc, Gemmd__Wire__Submit *wire)
{
    wire->request_id = desc->request_id;
    wire->weight_id = desc->weight_id;
    wire->x_buffer_id = desc->x_buffer_id;
    wire->x_offset_bytes = desc->x_offset_bytes;
    wire->x_stride_elems = desc->x_stride_elems;
    wire->y_buffer_id = desc->y_buffer_id;
    wire->y_offset_bytes = desc->y_offset_bytes;
    wire->y_stride_elems = desc->y_stride_elems;
    wire->timeout_usec = desc->timeout_usec;
    wire->m = desc->m;
    wire->n = desc->n;
    wire->k = desc->k;
    wire->x_dtype = desc->x_dtype;
    wire->y_dtype = desc->y_dtype;
    wire->flags = desc->flags;
}

static void put_explain(struct arena *arena, const struct msg_explain *explain,
                        Gemmd__Wire__Explain *wire)
{
    GD_ASSERT(explain->n_m <= MSG_EXPLAIN_M_MAX);
    wire->weight = put_text(arena, explain->weight);
    wire->m = arena_get(arena, sizeof(explain->m));
    if (wire->m != NULL) {
        memcpy(wire->m, explain->m, sizeof(explain->m));
        wire->n_m = explain->n_m;
    }
}

static void put_request(struct arena *arena, const struct msg_request *request,
                        Gemmd__Wire__Request *wire, union wire_verb *verb)
{
    switch (request->verb) {
    case MSG_VERB_PING:
        USE_VERB(PING, ping);
        return;
    case MSG_VERB_STATUS:
        USE_VERB(STATUS, status);
        return;
    case MSG_VERB_MODEL_LIST:
        USE_VERB(MODEL_LIST, model_list);
        return;
    case MSG_VERB_WEIGHT_LIST:
        USE_VERB(WEIGHT_LIST, weight_list);
        verb->weight_list.model = put_text(arena, request->name);
        return;
    case MSG_VERB_WEIGHT_FIND:
        USE_VERB(WEIGHT_FIND, weight_find);
        verb->weight_find.name = put_text(arena, request->name);
        return;
    case MSG_VERB_LOAD:
        USE_VERB(LOAD, load);
        put_load(arena, &request->load, &verb->load);
        return;
    case MSG_VERB_UNLOAD:
        USE_VERB(UNLOAD, unload);
        verb->unload.name = put_text(arena, request->name);
        return;
    case MSG_VERB_RELOAD:
        USE_VERB(RELOAD, reload);
        verb->reload.name = put_text(arena, request->name);
        return;
    case MSG_VERB_JOB_STATUS:
        USE_VERB(JOB_STATUS, job_status);
        verb->job_status.job_id = request->job_id;
        return;
    case MSG_VERB_JOB_CANCEL:
        USE_VERB(JOB_CANCEL, job_cancel);
        verb->job_cancel.job_id = request->job_id;
        return;
    case MSG_VERB_SUBMIT:
        USE_VERB(SUBMIT, submit);
        put_submit(&request->submit, &verb->submit);
        return;
    case MSG_VERB_CANCEL:
        USE_VERB(CANCEL, cancel);
        verb->cancel.request_id = request->cancel_request_id;
        return;
    case MSG_VERB_EXPLAIN:
        USE_VERB(EXPLAIN, explain);
        put_explain(arena, &request->explain, &verb->explain);
        return;
    case MSG_VERB_VERIFY:
        USE_VERB(VERIFY, verify);
        verb->verify.name = put_text(arena, request->name);
        return;
    case MSG_VERB_DRAIN:
        USE_VERB(DRAIN, drain);
        return;
    case MSG_VERB_NONE:
    case MSG_VERB_END:
        break;
    }
    GD_ASSERT(!"a request without a verb");
}

int codec_encode_request(const struct msg_request *request, uint8_t **ret_bytes,
                         size_t *ret_n_bytes)
{
    struct arena arena;
    union wire_verb verb;
    Gemmd__Wire__Request wire;

    gemmd__wire__request__init(&wire);
    arena_init(&arena, CODEC_REQUEST_ARENA_BYTES);
    wire.request_id = request->request_id;
    put_request(&arena, request, &wire, &verb);
    int r = pack(&arena, &wire.base, FRAME_REQUEST_BYTES_MAX, ret_bytes, ret_n_bytes);
    arena_finish(&arena);
    return r;
}

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

static void put_model(struct arena *arena, const struct msg_model *model, Gemmd__Wire__Model *wire)
{
    gemmd__wire__model__init(wire);
    wire->name = put_text(arena, model->name);
    wire->path = put_text(arena, model->path);
    wire->device = put_text(arena, model->device);
    wire->state = put_text(arena, model->state);
    wire->generation = model->generation;
    wire->n_weights = model->n_weights;
    wire->packed_bytes = model->packed_bytes;
    wire->load_seconds = model->load_seconds;
    wire->n_warnings = model->n_warnings;
    wire->act_dtype = model->act_dtype;
}

static void put_weight(struct arena *arena, const struct msg_weight *weight,
                       Gemmd__Wire__Weight *wire)
{
    gemmd__wire__weight__init(wire);
    wire->weight_id = weight->weight_id;
    wire->name = put_text(arena, weight->name);
    wire->generation = weight->generation;
    wire->n = weight->n;
    wire->k = weight->k;
    wire->device_index = weight->device_index;
    wire->format = put_text(arena, weight->format);
    wire->layout = put_text(arena, weight->layout);
    wire->packed_bytes = weight->packed_bytes;
    wire->has_bias = weight->has_bias;
    wire->act_dtype = weight->act_dtype;
}

/* A list longer than its limit would be refused by the peer; the arena's flag makes it -EMSGSIZE.
 */
static bool is_countable(struct arena *arena, uint32_t n, uint32_t n_max)
{
    arena->is_over_limit |= n > n_max;
    return n <= n_max;
}

static void put_models(struct arena *arena, const struct msg_reply *reply,
                       Gemmd__Wire__Models *wire)
{
    uint32_t n = reply->models.n;
    if (!is_countable(arena, n, MSG_MODELS_MAX)) {
        return;
    }
    wire->models = (Gemmd__Wire__Model **)put_array(arena, n, sizeof(**wire->models));
    for (uint32_t i = 0; wire->models != NULL && i < n; i++) {
        put_model(arena, &reply->models.items[i], wire->models[i]);
    }
    wire->n_models = n;
}

static void put_weights(struct arena *arena, const struct msg_reply *reply,
                        Gemmd__Wire__Weights *wire)
{
    uint32_t n = reply->weights.n;
    if (!is_countable(arena, n, MSG_WEIGHTS_MAX)) {
        return;
    }
    wire->weights = (Gemmd__Wire__Weight **)put_array(arena, n, sizeof(**wire->weights));
    for (uint32_t i = 0; wire->weights != NULL && i < n; i++) {
        put_weight(arena, &reply->weights.items[i], wire->weights[i]);
    }
    wire->n_weights = n;
}

static void put_job(struct arena *arena, const struct msg_job *job, Gemmd__Wire__Job *wire)
{
    wire->job_id = job->job_id;
    wire->kind = put_text(arena, job->kind);
    wire->state = put_text(arena, job->state);
    wire->done_bytes = job->done_bytes;
    wire->total_bytes = job->total_bytes;
    wire->step = put_text(arena, job->step);
    wire->status = (uint32_t)job->status;
    wire->text = put_text(arena, job->text);
    if (!is_countable(arena, job->n_warnings, MSG_WARNINGS_MAX)) {
        return;
    }
    wire->warnings = arena_get(arena, job->n_warnings * sizeof(char *));
    for (uint32_t i = 0; wire->warnings != NULL && i < job->n_warnings; i++) {
        wire->warnings[i] = put_text(arena, job->warnings[i]);
    }
    wire->n_warnings = job->n_warnings;
}

static void put_submitted(const struct request_result *result, Gemmd__Wire__Submitted *wire)
{
    wire->request_id = result->request_id;
    wire->batch_rows = result->batch_rows;
    wire->batch_requests = result->batch_requests;
    wire->batch_sessions = result->batch_sessions;
    wire->queue_nsec = result->queue_nsec;
    wire->run_nsec = result->run_nsec;
}

static void put_choice(struct arena *arena, const struct msg_choice *choice,
                       Gemmd__Wire__Choice *wire)
{
    gemmd__wire__choice__init(wire);
    wire->m = choice->m;
    wire->kernel = put_text(arena, choice->kernel);
    wire->tile = put_text(arena, choice->tile);
    wire->predicted_usec = choice->predicted_usec;
    wire->measured_usec = choice->measured_usec;
    wire->floor_usec = choice->floor_usec;
    if (!is_countable(arena, choice->n_declined, MSG_DECLINED_MAX)) {
        return;
    }
    wire->declined =
        (Gemmd__Wire__Declined **)put_array(arena, choice->n_declined, sizeof(**wire->declined));
    for (uint32_t i = 0; wire->declined != NULL && i < choice->n_declined; i++) {
        gemmd__wire__declined__init(wire->declined[i]);
        wire->declined[i]->kernel = put_text(arena, choice->declined[i].kernel);
        wire->declined[i]->reason = put_text(arena, choice->declined[i].reason);
    }
    wire->n_declined = choice->n_declined;
}

static void put_explanation(struct arena *arena, const struct msg_reply *reply,
                            Gemmd__Wire__Explanation *wire)
{
    uint32_t n = reply->explanation.n_choices;
    wire->weight = arena_get(arena, sizeof(*wire->weight));
    if (wire->weight == NULL || !is_countable(arena, n, MSG_EXPLAIN_M_MAX)) {
        return;
    }
    put_weight(arena, &reply->explanation.weight, wire->weight);
    wire->choices = (Gemmd__Wire__Choice **)put_array(arena, n, sizeof(**wire->choices));
    for (uint32_t i = 0; wire->choices != NULL && i < n; i++) {
        put_choice(arena, &reply->explanation.choices[i], wire->choices[i]);
    }
    wire->n_choices = n;
}

static void put_reply(struct arena *arena, const struct msg_reply *reply, Gemmd__Wire__Reply *wire,
                      union wire_body *body)
{
    switch (reply->body) {
    case MSG_BODY_NONE:
        return;
    case MSG_BODY_PONG:
        USE_BODY(PONG, pong);
        body->pong.version = put_text(arena, reply->version);
        return;
    case MSG_BODY_STATUS:
        USE_BODY(STATUS_DOCUMENT, status_document);
        body->status_document.json = put_text(arena, reply->json);
        return;
    case MSG_BODY_MODELS:
        USE_BODY(MODELS, models);
        put_models(arena, reply, &body->models);
        return;
    case MSG_BODY_WEIGHTS:
        USE_BODY(WEIGHTS, weights);
        put_weights(arena, reply, &body->weights);
        return;
    case MSG_BODY_JOB:
        USE_BODY(JOB, job);
        put_job(arena, &reply->job, &body->job);
        return;
    case MSG_BODY_SUBMITTED:
        USE_BODY(SUBMITTED, submitted);
        put_submitted(&reply->submitted, &body->submitted);
        return;
    case MSG_BODY_EXPLANATION:
        USE_BODY(EXPLANATION, explanation);
        put_explanation(arena, reply, &body->explanation);
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
    wire.text = put_text(&arena, reply->text);
    put_reply(&arena, reply, &wire, &body);
    int r = pack(&arena, &wire.base, FRAME_REPLY_BYTES_MAX, ret_bytes, ret_n_bytes);
    arena_finish(&arena);
    return r;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

struct reader {
    int r; /* the first error; later takes do nothing */
    struct reason *why;
};

#define REFUSE(reader, ...)                                                                        \
    ((reader)->r = reason_set((reader)->why, STATUS_BAD_MESSAGE, __VA_ARGS__))

/* How long the string was on the wire: protobuf-c forgets it, the arena does not. An absent string
 * is protobuf-c's own static one. */
static size_t wire_bytes(const char *text)
{
    return text == protobuf_c_empty_string ? 0 : arena_block_bytes(text) - 1;
}

static bool check_text(struct reader *reader, const char *text, size_t n_bytes_max,
                       const char *field)
{
    if (reader->r != 0) {
        return false;
    }
    size_t n_bytes = wire_bytes(text);
    if (n_bytes > n_bytes_max) {
        REFUSE(reader, "%s has %zu bytes, over the limit of %zu", field, n_bytes, n_bytes_max);
        return false;
    }
    if (memchr(text, '\0', n_bytes) != NULL) {
        REFUSE(reader, "%s has a NUL inside, at byte %zu", field, strlen(text));
        return false;
    }
    if (utf8_valid_bytes(text, n_bytes) != n_bytes) {
        REFUSE(reader, "%s is not UTF-8 at byte %zu", field, utf8_valid_bytes(text, n_bytes));
        return false;
    }
    return true;
}

/* The destination is an array, NUL-terminated when done. */
#define TAKE_TEXT(reader, destination, text, field)                                                \
    take_text((reader), (destination), sizeof(destination), (text), (field))

static void take_text(struct reader *reader, char *ret_text, size_t size_bytes, const char *text,
                      const char *field)
{
    if (check_text(reader, text, size_bytes - 1, field)) {
        memcpy(ret_text, text, wire_bytes(text) + 1);
    }
}

static char *take_heap_text(struct reader *reader, const char *text, size_t n_bytes_max,
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

static enum dtype take_dtype(struct reader *reader, uint32_t number, const char *field)
{
    if (number != DTYPE_NONE && dtype_bits((enum dtype)number) == 0 && reader->r == 0) {
        REFUSE(reader, "%s is %u, which is no element type", field, number);
    }
    return (enum dtype)number;
}

/* Only what the descriptor cannot hold is refused here: which types a product may have is judged
 * with the rest of the request, in the same words as on the ring path. */
static uint8_t take_byte(struct reader *reader, uint32_t number, const char *field)
{
    if (number > UINT8_MAX && reader->r == 0) {
        REFUSE(reader, "%s is %u, over 255", field, number);
    }
    return (uint8_t)number;
}

/* Any number of a known category will do: a daemon younger than this library may have more codes,
 * and callers switch on the category. */
static int take_status(struct reader *reader, uint32_t number, const char *field)
{
    bool is_known = number == STATUS_OK || (number >= (STATUS_CATEGORY_USAGE << 8) &&
                                            number <= (STATUS_CATEGORY_INTERNAL << 8 | 0xff));
    if (!is_known && reader->r == 0) {
        REFUSE(reader, "%s is %u, which is no status", field, number);
    }
    return (int)number;
}

/* n zeroed structs on the heap; NULL when n is 0, over its limit, or memory is short. */
static void *take_array(struct reader *reader, size_t n, size_t n_max, size_t size_bytes,
                        const char *field)
{
    if (reader->r != 0 || n == 0) {
        return NULL;
    }
    if (n > n_max) {
        REFUSE(reader, "%s has %zu entries, over the limit of %zu", field, n, n_max);
        return NULL;
    }
    void *array = calloc(n, size_bytes);
    if (array == NULL) {
        reader->r = err_raise(-ENOMEM);
    }
    return array;
}

/* protobuf-c only says that it failed; the arena knows whether for want of memory. */
static int unpack_failed(const struct arena *arena, size_t n_bytes, const char *what,
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

/* request_id of a message that may be broken further on: encoders write field 1 first. */
static uint64_t peek_request_id(const uint8_t *bytes, size_t n_bytes)
{
    uint64_t id = 0;
    if (n_bytes == 0 || bytes[0] != 0x08) { /* field 1, varint */
        return 0;
    }
    for (size_t i = 1; i < n_bytes && i <= 10; i++) {
        id |= (uint64_t)(bytes[i] & 0x7f) << (7 * (i - 1));
        if ((bytes[i] & 0x80) == 0) {
            return id;
        }
    }
    return 0;
}

static void take_load(struct reader *reader, const Gemmd__Wire__Load *wire, struct msg_load *load)
{
    TAKE_TEXT(reader, load->name, wire->name, "load.name");
    TAKE_TEXT(reader, load->path, wire->path, "load.path");
    TAKE_TEXT(reader, load->device, wire->device, "load.device");
    load->tp_rank = wire->tp_rank;
    load->tp_size = wire->tp_size;
}

static void take_submit(struct reader *reader, const Gemmd__Wire__Submit *wire,
                        struct request_desc *desc)
{
    *desc = (struct request_desc){
        .request_id = wire->request_id,
        .weight_id = wire->weight_id,
        .x_buffer_id = wire->x_buffer_id,
        .x_offset_bytes = wire->x_offset_bytes,
        .x_stride_elems = wire->x_stride_elems,
        .y_buffer_id = wire->y_buffer_id,
        .y_offset_bytes = wire->y_offset_bytes,
        .y_stride_elems = wire->y_stride_elems,
        .timeout_usec = wire->timeout_usec,
        .m = wire->m,
        .n = wire->n,
        .k = wire->k,
        .op = REQUEST_OP_GEMM,
        .x_dtype = take_byte(reader, wire->x_dtype, "submit.x_dtype"),
        .y_dtype = take_byte(reader, wire->y_dtype, "submit.y_dtype"),
        .flags = wire->flags,
    };
}

static void take_explain(struct reader *reader, const Gemmd__Wire__Explain *wire,
                         struct msg_explain *explain)
{
    TAKE_TEXT(reader, explain->weight, wire->weight, "explain.weight");
    if (wire->n_m > MSG_EXPLAIN_M_MAX) {
        if (reader->r == 0) {
            REFUSE(reader, "explain.m has %zu entries, over the limit of %d", wire->n_m,
                   MSG_EXPLAIN_M_MAX);
        }
        return;
    }
    if (wire->n_m > 0) {
        memcpy(explain->m, wire->m, wire->n_m * sizeof(explain->m[0]));
    }
    explain->n_m = (uint32_t)wire->n_m;
}

static void take_request(struct reader *reader, const Gemmd__Wire__Request *wire,
                         struct msg_request *request)
{
    switch (wire->verb_case) {
    case GEMMD__WIRE__REQUEST__VERB_PING:
        request->verb = MSG_VERB_PING;
        return;
    case GEMMD__WIRE__REQUEST__VERB_STATUS:
        request->verb = MSG_VERB_STATUS;
        return;
    case GEMMD__WIRE__REQUEST__VERB_MODEL_LIST:
        request->verb = MSG_VERB_MODEL_LIST;
        return;
    case GEMMD__WIRE__REQUEST__VERB_WEIGHT_LIST:
        request->verb = MSG_VERB_WEIGHT_LIST;
        TAKE_TEXT(reader, request->name, wire->weight_list->model, "weight_list.model");
        return;
    case GEMMD__WIRE__REQUEST__VERB_WEIGHT_FIND:
        request->verb = MSG_VERB_WEIGHT_FIND;
        TAKE_TEXT(reader, request->name, wire->weight_find->name, "weight_find.name");
        return;
    case GEMMD__WIRE__REQUEST__VERB_LOAD:
        request->verb = MSG_VERB_LOAD;
        take_load(reader, wire->load, &request->load);
        return;
    case GEMMD__WIRE__REQUEST__VERB_UNLOAD:
        request->verb = MSG_VERB_UNLOAD;
        TAKE_TEXT(reader, request->name, wire->unload->name, "unload.name");
        return;
    case GEMMD__WIRE__REQUEST__VERB_RELOAD:
        request->verb = MSG_VERB_RELOAD;
        TAKE_TEXT(reader, request->name, wire->reload->name, "reload.name");
        return;
    case GEMMD__WIRE__REQUEST__VERB_JOB_STATUS:
        request->verb = MSG_VERB_JOB_STATUS;
        request->job_id = wire->job_status->job_id;
        return;
    case GEMMD__WIRE__REQUEST__VERB_JOB_CANCEL:
        request->verb = MSG_VERB_JOB_CANCEL;
        request->job_id = wire->job_cancel->job_id;
        return;
    case GEMMD__WIRE__REQUEST__VERB_SUBMIT:
        request->verb = MSG_VERB_SUBMIT;
        take_submit(reader, wire->submit, &request->submit);
        return;
    case GEMMD__WIRE__REQUEST__VERB_CANCEL:
        request->verb = MSG_VERB_CANCEL;
        request->cancel_request_id = wire->cancel->request_id;
        return;
    case GEMMD__WIRE__REQUEST__VERB_EXPLAIN:
        request->verb = MSG_VERB_EXPLAIN;
        take_explain(reader, wire->explain, &request->explain);
        return;
    case GEMMD__WIRE__REQUEST__VERB_VERIFY:
        request->verb = MSG_VERB_VERIFY;
        TAKE_TEXT(reader, request->name, wire->verify->name, "verify.name");
        return;
    case GEMMD__WIRE__REQUEST__VERB_DRAIN:
        request->verb = MSG_VERB_DRAIN;
        return;
    default:
        REFUSE(reader, "the field verb is missing, or names a verb that this daemon does not know");
        return;
    }
}

int codec_decode_request(const uint8_t *bytes, size_t n_bytes, struct msg_request *ret_request,
                         struct reason *why)
{
    struct arena arena;
    ProtobufCAllocator allocator = {.alloc = allocate, .free = release, .allocator_data = &arena};
    struct reader reader = {.why = why};
    struct msg_request request;

    memset(&request, 0, sizeof(request)); /* all of the union, which an initialiser need not do */
    arena_init(&arena, CODEC_REQUEST_ARENA_BYTES);
    Gemmd__Wire__Request *wire = gemmd__wire__request__unpack(&allocator, n_bytes, bytes);
    if (wire == NULL) {
        ret_request->request_id = peek_request_id(bytes, n_bytes);
        reader.r = unpack_failed(&arena, n_bytes, "request", why);
    } else {
        request.request_id = wire->request_id;
        ret_request->request_id = wire->request_id;
        take_request(&reader, wire, &request);
    }
    if (reader.r == 0) {
        *ret_request = request;
    }
    arena_finish(&arena);
    return reader.r;
}

static void take_model(struct reader *reader, const Gemmd__Wire__Model *wire,
                       struct msg_model *model)
{
    TAKE_TEXT(reader, model->name, wire->name, "model.name");
    TAKE_TEXT(reader, model->path, wire->path, "model.path");
    TAKE_TEXT(reader, model->device, wire->device, "model.device");
    TAKE_TEXT(reader, model->state, wire->state, "model.state");
    model->generation = wire->generation;
    model->n_weights = wire->n_weights;
    model->packed_bytes = wire->packed_bytes;
    model->load_seconds = wire->load_seconds;
    model->n_warnings = wire->n_warnings;
    model->act_dtype = take_dtype(reader, wire->act_dtype, "model.act_dtype");
}

static void take_weight(struct reader *reader, const Gemmd__Wire__Weight *wire,
                        struct msg_weight *weight)
{
    weight->weight_id = wire->weight_id;
    TAKE_TEXT(reader, weight->name, wire->name, "weight.name");
    weight->generation = wire->generation;
    weight->n = wire->n;
    weight->k = wire->k;
    weight->device_index = wire->device_index;
    TAKE_TEXT(reader, weight->format, wire->format, "weight.format");
    TAKE_TEXT(reader, weight->layout, wire->layout, "weight.layout");
    weight->packed_bytes = wire->packed_bytes;
    weight->has_bias = wire->has_bias;
    weight->act_dtype = take_dtype(reader, wire->act_dtype, "weight.act_dtype");
}

static void take_models(struct reader *reader, const Gemmd__Wire__Models *wire,
                        struct msg_reply *reply)
{
    reply->models.items =
        take_array(reader, wire->n_models, MSG_MODELS_MAX, sizeof(*reply->models.items), "models");
    for (size_t i = 0; reply->models.items != NULL && i < wire->n_models; i++) {
        take_model(reader, wire->models[i], &reply->models.items[i]);
        reply->models.n++;
    }
}

static void take_weights(struct reader *reader, const Gemmd__Wire__Weights *wire,
                         struct msg_reply *reply)
{
    reply->weights.items = take_array(reader, wire->n_weights, MSG_WEIGHTS_MAX,
                                      sizeof(*reply->weights.items), "weights");
    for (size_t i = 0; reply->weights.items != NULL && i < wire->n_weights; i++) {
        take_weight(reader, wire->weights[i], &reply->weights.items[i]);
        reply->weights.n++;
    }
}

static void take_job(struct reader *reader, const Gemmd__Wire__Job *wire, struct msg_job *job)
{
    job->job_id = wire->job_id;
    TAKE_TEXT(reader, job->kind, wire->kind, "job.kind");
    TAKE_TEXT(reader, job->state, wire->state, "job.state");
    job->done_bytes = wire->done_bytes;
    job->total_bytes = wire->total_bytes;
    TAKE_TEXT(reader, job->step, wire->step, "job.step");
    job->status = take_status(reader, wire->status, "job.status");
    TAKE_TEXT(reader, job->text, wire->text, "job.text");
    job->warnings =
        take_array(reader, wire->n_warnings, MSG_WARNINGS_MAX, sizeof(char *), "job.warnings");
    for (size_t i = 0; job->warnings != NULL && i < wire->n_warnings; i++) {
        job->warnings[i] =
            take_heap_text(reader, wire->warnings[i], MSG_TEXT_BYTES - 1, "job.warnings");
        job->n_warnings++;
    }
}

static void take_submitted(const Gemmd__Wire__Submitted *wire, struct request_result *result)
{
    result->request_id = wire->request_id;
    result->batch_rows = wire->batch_rows;
    result->batch_requests = wire->batch_requests;
    result->batch_sessions = wire->batch_sessions;
    result->queue_nsec = wire->queue_nsec;
    result->run_nsec = wire->run_nsec;
}

static void take_choice(struct reader *reader, const Gemmd__Wire__Choice *wire,
                        struct msg_choice *choice)
{
    choice->m = wire->m;
    TAKE_TEXT(reader, choice->kernel, wire->kernel, "choice.kernel");
    TAKE_TEXT(reader, choice->tile, wire->tile, "choice.tile");
    choice->predicted_usec = wire->predicted_usec;
    choice->measured_usec = wire->measured_usec;
    choice->floor_usec = wire->floor_usec;
    choice->declined = take_array(reader, wire->n_declined, MSG_DECLINED_MAX,
                                  sizeof(*choice->declined), "choice.declined");
    for (size_t i = 0; choice->declined != NULL && i < wire->n_declined; i++) {
        struct msg_declined *declined = &choice->declined[i];
        TAKE_TEXT(reader, declined->kernel, wire->declined[i]->kernel, "declined.kernel");
        TAKE_TEXT(reader, declined->reason, wire->declined[i]->reason, "declined.reason");
        choice->n_declined++;
    }
}

static void take_explanation(struct reader *reader, const Gemmd__Wire__Explanation *wire,
                             struct msg_reply *reply)
{
    if (wire->weight == NULL) {
        REFUSE(reader, "explanation.weight is missing");
        return;
    }
    take_weight(reader, wire->weight, &reply->explanation.weight);
    struct msg_choice *choices = take_array(reader, wire->n_choices, MSG_EXPLAIN_M_MAX,
                                            sizeof(*choices), "explanation.choices");
    reply->explanation.choices = choices;
    for (size_t i = 0; choices != NULL && i < wire->n_choices; i++) {
        take_choice(reader, wire->choices[i], &choices[i]);
        reply->explanation.n_choices++;
    }
}

static void take_body(struct reader *reader, const Gemmd__Wire__Reply *wire,
                      struct msg_reply *reply)
{
    switch (wire->body_case) {
    case GEMMD__WIRE__REPLY__BODY_PONG:
        reply->body = MSG_BODY_PONG;
        TAKE_TEXT(reader, reply->version, wire->pong->version, "pong.version");
        return;
    case GEMMD__WIRE__REPLY__BODY_STATUS_DOCUMENT:
        reply->body = MSG_BODY_STATUS;
        reply->json = take_heap_text(reader, wire->status_document->json, FRAME_REPLY_BYTES_MAX,
                                     "status_document.json");
        return;
    case GEMMD__WIRE__REPLY__BODY_MODELS:
        reply->body = MSG_BODY_MODELS;
        take_models(reader, wire->models, reply);
        return;
    case GEMMD__WIRE__REPLY__BODY_WEIGHTS:
        reply->body = MSG_BODY_WEIGHTS;
        take_weights(reader, wire->weights, reply);
        return;
    case GEMMD__WIRE__REPLY__BODY_JOB:
        reply->body = MSG_BODY_JOB;
        take_job(reader, wire->job, &reply->job);
        return;
    case GEMMD__WIRE__REPLY__BODY_SUBMITTED:
        reply->body = MSG_BODY_SUBMITTED;
        take_submitted(wire->submitted, &reply->submitted);
        return;
    case GEMMD__WIRE__REPLY__BODY_EXPLANATION:
        reply->body = MSG_BODY_EXPLANATION;
        take_explanation(reader, wire->explanation, reply);
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
    ProtobufCAllocator allocator = {.alloc = allocate, .free = release, .allocator_data = &arena};
    struct reader reader = {.why = why};
    struct msg_reply reply;

    memset(&reply, 0, sizeof(reply));
    arena_init(&arena, CODEC_REPLY_ARENA_BYTES);
    Gemmd__Wire__Reply *wire = gemmd__wire__reply__unpack(&allocator, n_bytes, bytes);
    if (wire == NULL) {
        reader.r = unpack_failed(&arena, n_bytes, "reply", why);
    } else {
        reply.request_id = wire->request_id;
        reply.status = take_status(&reader, wire->status, "status");
        TAKE_TEXT(&reader, reply.text, wire->text, "text");
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
