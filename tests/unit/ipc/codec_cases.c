/* codec_cases.c - see codec_cases.h. */
#include "codec_cases.h"

#include <stdlib.h>
#include <string.h>

#include "t.h"

static uint64_t random_state = 0x853c49e6748fea9bull;

uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

uint64_t random_below(uint64_t limit)
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
        .x_scale_buffer_id = random_bits(),
        .x_scale_offset_bytes = random_bits(),
        .x_scale_stride_elems = random_bits(),
    };
}

static void fill_bench_request(struct msg_bench *bench)
{
    FILL_TEXT(bench->device);
    FILL_TEXT(bench->format);
    bench->n = (uint32_t)random_bits();
    bench->k = (uint32_t)random_bits();
    bench->n_m = (uint32_t)random_below(MSG_BENCH_M_MAX + 1);
    for (uint32_t i = 0; i < bench->n_m; i++) {
        bench->m[i] = (uint32_t)random_bits();
    }
    bench->act_dtype = (enum dtype)random_below(DTYPE_F4 + 1);
    bench->budget_usec = (uint32_t)random_bits();
    bench->is_check = random_below(2) != 0;
    bench->n_off = (uint32_t)random_below(MSG_BENCH_OFF_MAX + 1);
    for (uint32_t i = 0; i < bench->n_off; i++) {
        FILL_TEXT(bench->off[i]);
    }
}

void fill_request(struct msg_request *request, enum msg_verb verb)
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
        request->load.shaping.tp_rank = (uint32_t)random_bits();
        request->load.shaping.tp_size = (uint32_t)random_bits();
        FILL_TEXT(request->load.shaping.fuse);
        FILL_TEXT(request->load.shaping.split);
        FILL_TEXT(request->load.shaping.act);
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
    case MSG_VERB_BENCH:
        fill_bench_request(&request->bench);
        return;
    default:
        return;
    }
}

static void fill_bench(struct msg_bench_result *result)
{
    FILL_TEXT(result->device);
    FILL_TEXT(result->format);
    FILL_TEXT(result->layout);
    result->packed_bytes = random_bits();
    result->n_copies = (uint32_t)random_bits();
    result->floor_usec = (double)random_below(1000) / 8;
    result->flops = random_bits();
    result->n_rows = (uint32_t)random_below(8);
    result->rows = calloc(8, sizeof(*result->rows));
    for (uint32_t i = 0; i < result->n_rows; i++) {
        struct msg_bench_row *row = &result->rows[i];
        row->m = (uint32_t)random_bits();
        FILL_TEXT(row->kernel);
        row->usec = (double)random_below(1000) / 16;
        row->n_launches = (uint32_t)random_bits();
        row->is_eligible = random_below(2) != 0;
        row->is_chosen = random_below(2) != 0;
    }
}

static void fill_model(struct msg_model *model)
{
    FILL_TEXT(model->name);
    FILL_TEXT(model->path);
    FILL_TEXT(model->device);
    FILL_TEXT(model->state);
    FILL_TEXT(model->origin);
    model->generation = random_bits();
    model->n_weights = (uint32_t)random_bits();
    model->packed_bytes = random_bits();
    model->load_seconds = (double)random_bits() / 1000;
    model->load_bytes = random_bits();
    for (uint32_t i = 0; i < MSG_LOAD_PHASES; i++) {
        model->load_shares[i] = (double)random_below(1000) / 1000;
    }
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
    weight->act = (uint32_t)random_bits();
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
    if (random_below(2) == 0) {
        job->bench = calloc(1, sizeof(*job->bench));
        fill_bench(job->bench);
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
    FILL_TEXT(reply->explanation.ahead);
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
    result->accumulation = (uint32_t)random_bits();
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

void fill_reply(struct msg_reply *reply, enum msg_body body)
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
