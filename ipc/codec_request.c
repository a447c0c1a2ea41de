/* codec_request.c - requests: each verb's fields, there and back. Every field is named twice, once
 * in a put_ and once in a take_ function. */
#include "ipc/codec.h"

#include <string.h>

#include "ipc/codec_fields.h"
#include "ipc/frame.h"

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
    Gemmd__Wire__Bench bench;
};

/* USE_VERB() - make the union's member `name` the one in use; further text after it fills its
 * fields. */
#define USE_VERB(NAME, name)                                                                       \
    wire->verb_case = GEMMD__WIRE__REQUEST__VERB_##NAME;                                           \
    wire->name = &verb->name;                                                                      \
    gemmd__wire__##name##__init(&verb->name)

static void put_load(struct arena *arena, const struct msg_load *load, Gemmd__Wire__Load *wire)
{
    wire->name = codec_put_text(arena, load->name);
    wire->path = codec_put_text(arena, load->path);
    wire->device = codec_put_text(arena, load->device);
    wire->tp_rank = load->shaping.tp_rank;
    wire->tp_size = load->shaping.tp_size;
    wire->fuse = codec_put_text(arena, load->shaping.fuse);
    wire->split = codec_put_text(arena, load->shaping.split);
    wire->act = codec_put_text(arena, load->shaping.act);
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
    wire->x_scale_buffer_id = desc->x_scale_buffer_id;
    wire->x_scale_offset_bytes = desc->x_scale_offset_bytes;
    wire->x_scale_stride_elems = desc->x_scale_stride_elems;
}

static void put_explain(struct arena *arena, const struct msg_explain *explain,
                        Gemmd__Wire__Explain *wire)
{
    GD_ASSERT(explain->n_m <= MSG_EXPLAIN_M_MAX);
    wire->weight = codec_put_text(arena, explain->weight);
    wire->m = arena_get(arena, sizeof(explain->m));
    if (wire->m != NULL) {
        memcpy(wire->m, explain->m, sizeof(explain->m));
        wire->n_m = explain->n_m;
    }
}

static void put_bench(struct arena *arena, const struct msg_bench *bench, Gemmd__Wire__Bench *wire)
{
    GD_ASSERT(bench->n_m <= MSG_BENCH_M_MAX && bench->n_off <= MSG_BENCH_OFF_MAX);
    wire->device = codec_put_text(arena, bench->device);
    wire->format = codec_put_text(arena, bench->format);
    wire->n = bench->n;
    wire->k = bench->k;
    wire->act_dtype = bench->act_dtype;
    wire->budget_usec = bench->budget_usec;
    wire->is_check = bench->is_check != 0;
    wire->m = arena_get(arena, sizeof(bench->m));
    wire->off = arena_get(arena, MSG_BENCH_OFF_MAX * sizeof(char *));
    if (wire->m == NULL || wire->off == NULL) {
        return;
    }
    memcpy(wire->m, bench->m, sizeof(bench->m));
    wire->n_m = bench->n_m;
    for (uint32_t i = 0; i < bench->n_off; i++) {
        wire->off[i] = codec_put_text(arena, bench->off[i]);
    }
    wire->n_off = bench->n_off;
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
        verb->weight_list.model = codec_put_text(arena, request->name);
        return;
    case MSG_VERB_WEIGHT_FIND:
        USE_VERB(WEIGHT_FIND, weight_find);
        verb->weight_find.name = codec_put_text(arena, request->name);
        return;
    case MSG_VERB_LOAD:
        USE_VERB(LOAD, load);
        put_load(arena, &request->load, &verb->load);
        return;
    case MSG_VERB_UNLOAD:
        USE_VERB(UNLOAD, unload);
        verb->unload.name = codec_put_text(arena, request->name);
        return;
    case MSG_VERB_RELOAD:
        USE_VERB(RELOAD, reload);
        verb->reload.name = codec_put_text(arena, request->name);
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
        verb->verify.name = codec_put_text(arena, request->name);
        return;
    case MSG_VERB_DRAIN:
        USE_VERB(DRAIN, drain);
        return;
    case MSG_VERB_BENCH:
        USE_VERB(BENCH, bench);
        put_bench(arena, &request->bench, &verb->bench);
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
    int r = codec_pack(&arena, &wire.base, FRAME_REQUEST_BYTES_MAX, ret_bytes, ret_n_bytes);
    arena_finish(&arena);
    return r;
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

static void take_load(struct codec_reader *reader, const Gemmd__Wire__Load *wire,
                      struct msg_load *load)
{
    CODEC_TAKE_TEXT(reader, load->name, wire->name, "load.name");
    CODEC_TAKE_TEXT(reader, load->path, wire->path, "load.path");
    CODEC_TAKE_TEXT(reader, load->device, wire->device, "load.device");
    load->shaping.tp_rank = wire->tp_rank;
    load->shaping.tp_size = wire->tp_size;
    CODEC_TAKE_TEXT(reader, load->shaping.fuse, wire->fuse, "load.fuse");
    CODEC_TAKE_TEXT(reader, load->shaping.split, wire->split, "load.split");
    CODEC_TAKE_TEXT(reader, load->shaping.act, wire->act, "load.act");
}

static void take_submit(struct codec_reader *reader, const Gemmd__Wire__Submit *wire,
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
        .x_dtype = codec_take_byte(reader, wire->x_dtype, "submit.x_dtype"),
        .y_dtype = codec_take_byte(reader, wire->y_dtype, "submit.y_dtype"),
        .flags = wire->flags,
        .x_scale_buffer_id = wire->x_scale_buffer_id,
        .x_scale_offset_bytes = wire->x_scale_offset_bytes,
        .x_scale_stride_elems = wire->x_scale_stride_elems,
    };
}

static bool is_countable(struct codec_reader *reader, size_t n, size_t n_max, const char *field)
{
    if (n > n_max && reader->r == 0) {
        CODEC_REFUSE(reader, "%s has %zu entries, over the limit of %zu", field, n, n_max);
    }
    return n <= n_max;
}

/* A repeated number into an array of n_max; how many there were. */
static uint32_t take_numbers(struct codec_reader *reader, const uint32_t *wire, size_t n,
                             uint32_t *ret_numbers, size_t n_max, const char *field)
{
    if (n == 0 || !is_countable(reader, n, n_max, field)) {
        return 0;
    }
    memcpy(ret_numbers, wire, n * sizeof(*wire));
    return (uint32_t)n;
}

static void take_explain(struct codec_reader *reader, const Gemmd__Wire__Explain *wire,
                         struct msg_explain *explain)
{
    CODEC_TAKE_TEXT(reader, explain->weight, wire->weight, "explain.weight");
    explain->n_m =
        take_numbers(reader, wire->m, wire->n_m, explain->m, MSG_EXPLAIN_M_MAX, "explain.m");
}

static void take_bench(struct codec_reader *reader, const Gemmd__Wire__Bench *wire,
                       struct msg_bench *bench)
{
    CODEC_TAKE_TEXT(reader, bench->device, wire->device, "bench.device");
    CODEC_TAKE_TEXT(reader, bench->format, wire->format, "bench.format");
    bench->n = wire->n;
    bench->k = wire->k;
    bench->n_m = take_numbers(reader, wire->m, wire->n_m, bench->m, MSG_BENCH_M_MAX, "bench.m");
    bench->act_dtype = codec_take_dtype(reader, wire->act_dtype, "bench.act_dtype");
    bench->budget_usec = wire->budget_usec;
    bench->is_check = wire->is_check != 0;
    if (!is_countable(reader, wire->n_off, MSG_BENCH_OFF_MAX, "bench.off")) {
        return;
    }
    for (size_t i = 0; i < wire->n_off; i++) {
        CODEC_TAKE_TEXT(reader, bench->off[i], wire->off[i], "bench.off");
    }
    bench->n_off = (uint32_t)wire->n_off;
}

static void take_request(struct codec_reader *reader, const Gemmd__Wire__Request *wire,
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
        CODEC_TAKE_TEXT(reader, request->name, wire->weight_list->model, "weight_list.model");
        return;
    case GEMMD__WIRE__REQUEST__VERB_WEIGHT_FIND:
        request->verb = MSG_VERB_WEIGHT_FIND;
        CODEC_TAKE_TEXT(reader, request->name, wire->weight_find->name, "weight_find.name");
        return;
    case GEMMD__WIRE__REQUEST__VERB_LOAD:
        request->verb = MSG_VERB_LOAD;
        take_load(reader, wire->load, &request->load);
        return;
    case GEMMD__WIRE__REQUEST__VERB_UNLOAD:
        request->verb = MSG_VERB_UNLOAD;
        CODEC_TAKE_TEXT(reader, request->name, wire->unload->name, "unload.name");
        return;
    case GEMMD__WIRE__REQUEST__VERB_RELOAD:
        request->verb = MSG_VERB_RELOAD;
        CODEC_TAKE_TEXT(reader, request->name, wire->reload->name, "reload.name");
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
        CODEC_TAKE_TEXT(reader, request->name, wire->verify->name, "verify.name");
        return;
    case GEMMD__WIRE__REQUEST__VERB_DRAIN:
        request->verb = MSG_VERB_DRAIN;
        return;
    case GEMMD__WIRE__REQUEST__VERB_BENCH:
        request->verb = MSG_VERB_BENCH;
        take_bench(reader, wire->bench, &request->bench);
        return;
    default:
        CODEC_REFUSE(reader,
                     "the field verb is missing, or names a verb that this daemon does not know");
        return;
    }
}

int codec_decode_request(const uint8_t *bytes, size_t n_bytes, struct msg_request *ret_request,
                         struct reason *why)
{
    struct arena arena;
    ProtobufCAllocator allocator = codec_allocator(&arena);
    struct codec_reader reader = {.why = why};
    struct msg_request request;

    memset(&request, 0, sizeof(request)); /* all of the union, which an initialiser need not do */
    arena_init(&arena, CODEC_REQUEST_ARENA_BYTES);
    Gemmd__Wire__Request *wire = gemmd__wire__request__unpack(&allocator, n_bytes, bytes);
    if (wire == NULL) {
        ret_request->request_id = peek_request_id(bytes, n_bytes);
        reader.r = codec_unpack_failed(&arena, n_bytes, "request", why);
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
