/* codec_body.c - see codec_body.h. */
#include "ipc/codec_body.h"

static void put_model(struct arena *arena, const struct msg_model *model, Gemmd__Wire__Model *wire)
{
    gemmd__wire__model__init(wire);
    wire->name = codec_put_text(arena, model->name);
    wire->path = codec_put_text(arena, model->path);
    wire->device = codec_put_text(arena, model->device);
    wire->state = codec_put_text(arena, model->state);
    wire->origin = codec_put_text(arena, model->origin);
    wire->generation = model->generation;
    wire->n_weights = model->n_weights;
    wire->packed_bytes = model->packed_bytes;
    wire->load_seconds = model->load_seconds;
    wire->load_bytes = model->load_bytes;
    wire->read_share = model->load_shares[MSG_LOAD_READ];
    wire->copy_share = model->load_shares[MSG_LOAD_COPY];
    wire->pack_share = model->load_shares[MSG_LOAD_PACK];
    wire->prepare_share = model->load_shares[MSG_LOAD_PREPARE];
    wire->n_warnings = model->n_warnings;
    wire->act_dtype = model->act_dtype;
}

static void take_model(struct codec_reader *reader, const Gemmd__Wire__Model *wire,
                       struct msg_model *model)
{
    CODEC_TAKE_TEXT(reader, model->name, wire->name, "model.name");
    CODEC_TAKE_TEXT(reader, model->path, wire->path, "model.path");
    CODEC_TAKE_TEXT(reader, model->device, wire->device, "model.device");
    CODEC_TAKE_TEXT(reader, model->state, wire->state, "model.state");
    CODEC_TAKE_TEXT(reader, model->origin, wire->origin, "model.origin");
    model->generation = wire->generation;
    model->n_weights = wire->n_weights;
    model->packed_bytes = wire->packed_bytes;
    model->load_seconds = wire->load_seconds;
    model->load_bytes = wire->load_bytes;
    model->load_shares[MSG_LOAD_READ] = wire->read_share;
    model->load_shares[MSG_LOAD_COPY] = wire->copy_share;
    model->load_shares[MSG_LOAD_PACK] = wire->pack_share;
    model->load_shares[MSG_LOAD_PREPARE] = wire->prepare_share;
    model->n_warnings = wire->n_warnings;
    model->act_dtype = codec_take_dtype(reader, wire->act_dtype, "model.act_dtype");
}

void codec_put_models(struct arena *arena, const struct msg_reply *reply, Gemmd__Wire__Models *wire)
{
    uint32_t n = reply->models.n;
    if (!codec_is_countable(arena, n, MSG_MODELS_MAX)) {
        return;
    }
    wire->models = (Gemmd__Wire__Model **)codec_put_array(arena, n, sizeof(**wire->models));
    for (uint32_t i = 0; wire->models != NULL && i < n; i++) {
        put_model(arena, &reply->models.items[i], wire->models[i]);
    }
    wire->n_models = n;
}

void codec_take_models(struct codec_reader *reader, const Gemmd__Wire__Models *wire,
                       struct msg_reply *reply)
{
    reply->models.items = codec_take_array(reader, wire->n_models, MSG_MODELS_MAX,
                                           sizeof(*reply->models.items), "models");
    for (size_t i = 0; reply->models.items != NULL && i < wire->n_models; i++) {
        take_model(reader, wire->models[i], &reply->models.items[i]);
        reply->models.n++;
    }
}

static void put_weight(struct arena *arena, const struct msg_weight *weight,
                       Gemmd__Wire__Weight *wire)
{
    gemmd__wire__weight__init(wire);
    wire->weight_id = weight->weight_id;
    wire->name = codec_put_text(arena, weight->name);
    wire->generation = weight->generation;
    wire->n = weight->n;
    wire->k = weight->k;
    wire->device_index = weight->device_index;
    wire->format = codec_put_text(arena, weight->format);
    wire->layout = codec_put_text(arena, weight->layout);
    wire->packed_bytes = weight->packed_bytes;
    wire->has_bias = weight->has_bias;
    wire->act_dtype = weight->act_dtype;
    wire->act = weight->act;
}

static void take_weight(struct codec_reader *reader, const Gemmd__Wire__Weight *wire,
                        struct msg_weight *weight)
{
    weight->weight_id = wire->weight_id;
    CODEC_TAKE_TEXT(reader, weight->name, wire->name, "weight.name");
    weight->generation = wire->generation;
    weight->n = wire->n;
    weight->k = wire->k;
    weight->device_index = wire->device_index;
    CODEC_TAKE_TEXT(reader, weight->format, wire->format, "weight.format");
    CODEC_TAKE_TEXT(reader, weight->layout, wire->layout, "weight.layout");
    weight->packed_bytes = wire->packed_bytes;
    weight->has_bias = wire->has_bias;
    weight->act_dtype = codec_take_dtype(reader, wire->act_dtype, "weight.act_dtype");
    weight->act = wire->act;
}

void codec_put_weights(struct arena *arena, const struct msg_reply *reply,
                       Gemmd__Wire__Weights *wire)
{
    uint32_t n = reply->weights.n;
    if (!codec_is_countable(arena, n, MSG_WEIGHTS_MAX)) {
        return;
    }
    wire->weights = (Gemmd__Wire__Weight **)codec_put_array(arena, n, sizeof(**wire->weights));
    for (uint32_t i = 0; wire->weights != NULL && i < n; i++) {
        put_weight(arena, &reply->weights.items[i], wire->weights[i]);
    }
    wire->n_weights = n;
}

void codec_take_weights(struct codec_reader *reader, const Gemmd__Wire__Weights *wire,
                        struct msg_reply *reply)
{
    reply->weights.items = codec_take_array(reader, wire->n_weights, MSG_WEIGHTS_MAX,
                                            sizeof(*reply->weights.items), "weights");
    for (size_t i = 0; reply->weights.items != NULL && i < wire->n_weights; i++) {
        take_weight(reader, wire->weights[i], &reply->weights.items[i]);
        reply->weights.n++;
    }
}

static void put_bench(struct arena *arena, const struct msg_bench_result *result,
                      Gemmd__Wire__BenchResult *wire)
{
    gemmd__wire__bench_result__init(wire);
    wire->device = codec_put_text(arena, result->device);
    wire->format = codec_put_text(arena, result->format);
    wire->layout = codec_put_text(arena, result->layout);
    wire->packed_bytes = result->packed_bytes;
    wire->n_copies = result->n_copies;
    wire->floor_usec = result->floor_usec;
    wire->flops = result->flops;
    if (!codec_is_countable(arena, result->n_rows, MSG_BENCH_ROW_MAX)) {
        return;
    }
    wire->rows =
        (Gemmd__Wire__BenchRow **)codec_put_array(arena, result->n_rows, sizeof(**wire->rows));
    for (uint32_t i = 0; wire->rows != NULL && i < result->n_rows; i++) {
        const struct msg_bench_row *row = &result->rows[i];
        gemmd__wire__bench_row__init(wire->rows[i]);
        wire->rows[i]->m = row->m;
        wire->rows[i]->kernel = codec_put_text(arena, row->kernel);
        wire->rows[i]->usec = row->usec;
        wire->rows[i]->n_launches = row->n_launches;
        wire->rows[i]->is_eligible = row->is_eligible != 0;
        wire->rows[i]->is_chosen = row->is_chosen != 0;
    }
    wire->n_rows = result->n_rows;
}

static void take_bench(struct codec_reader *reader, const Gemmd__Wire__BenchResult *wire,
                       struct msg_bench_result *result)
{
    CODEC_TAKE_TEXT(reader, result->device, wire->device, "bench.device");
    CODEC_TAKE_TEXT(reader, result->format, wire->format, "bench.format");
    CODEC_TAKE_TEXT(reader, result->layout, wire->layout, "bench.layout");
    result->packed_bytes = wire->packed_bytes;
    result->n_copies = wire->n_copies;
    result->floor_usec = wire->floor_usec;
    result->flops = wire->flops;
    result->rows = codec_take_array(reader, wire->n_rows, MSG_BENCH_ROW_MAX, sizeof(*result->rows),
                                    "bench.rows");
    for (size_t i = 0; result->rows != NULL && i < wire->n_rows; i++) {
        struct msg_bench_row *row = &result->rows[i];
        row->m = wire->rows[i]->m;
        CODEC_TAKE_TEXT(reader, row->kernel, wire->rows[i]->kernel, "bench.row.kernel");
        row->usec = wire->rows[i]->usec;
        row->n_launches = wire->rows[i]->n_launches;
        row->is_eligible = wire->rows[i]->is_eligible != 0;
        row->is_chosen = wire->rows[i]->is_chosen != 0;
        result->n_rows++;
    }
}

void codec_put_job(struct arena *arena, const struct msg_job *job, Gemmd__Wire__Job *wire)
{
    wire->job_id = job->job_id;
    wire->kind = codec_put_text(arena, job->kind);
    wire->state = codec_put_text(arena, job->state);
    wire->done_bytes = job->done_bytes;
    wire->total_bytes = job->total_bytes;
    wire->step = codec_put_text(arena, job->step);
    wire->status = (uint32_t)job->status;
    wire->text = codec_put_text(arena, job->text);
    if (!codec_is_countable(arena, job->n_warnings, MSG_WARNINGS_MAX)) {
        return;
    }
    wire->warnings = arena_get(arena, job->n_warnings * sizeof(char *));
    for (uint32_t i = 0; wire->warnings != NULL && i < job->n_warnings; i++) {
        wire->warnings[i] = codec_put_text(arena, job->warnings[i]);
    }
    wire->n_warnings = job->n_warnings;
    if (job->bench != NULL) {
        wire->bench = arena_get(arena, sizeof(*wire->bench));
    }
    if (wire->bench != NULL) {
        put_bench(arena, job->bench, wire->bench);
    }
}

void codec_take_job(struct codec_reader *reader, const Gemmd__Wire__Job *wire, struct msg_job *job)
{
    job->job_id = wire->job_id;
    CODEC_TAKE_TEXT(reader, job->kind, wire->kind, "job.kind");
    CODEC_TAKE_TEXT(reader, job->state, wire->state, "job.state");
    job->done_bytes = wire->done_bytes;
    job->total_bytes = wire->total_bytes;
    CODEC_TAKE_TEXT(reader, job->step, wire->step, "job.step");
    job->status = codec_take_status(reader, wire->status, "job.status");
    CODEC_TAKE_TEXT(reader, job->text, wire->text, "job.text");
    job->warnings = codec_take_array(reader, wire->n_warnings, MSG_WARNINGS_MAX, sizeof(char *),
                                     "job.warnings");
    for (size_t i = 0; job->warnings != NULL && i < wire->n_warnings; i++) {
        job->warnings[i] =
            codec_take_heap_text(reader, wire->warnings[i], MSG_TEXT_BYTES - 1, "job.warnings");
        job->n_warnings++;
    }
    if (wire->bench != NULL) {
        job->bench = codec_take_array(reader, 1, 1, sizeof(*job->bench), "job.bench");
    }
    if (job->bench != NULL) {
        take_bench(reader, wire->bench, job->bench);
    }
}

void codec_put_submitted(const struct request_result *result, Gemmd__Wire__Submitted *wire)
{
    wire->request_id = result->request_id;
    wire->batch_rows = result->batch_rows;
    wire->batch_requests = result->batch_requests;
    wire->batch_sessions = result->batch_sessions;
    wire->queue_nsec = result->queue_nsec;
    wire->run_nsec = result->run_nsec;
    wire->accumulation = result->accumulation;
}

void codec_take_submitted(const Gemmd__Wire__Submitted *wire, struct request_result *result)
{
    result->request_id = wire->request_id;
    result->batch_rows = wire->batch_rows;
    result->batch_requests = wire->batch_requests;
    result->batch_sessions = wire->batch_sessions;
    result->queue_nsec = wire->queue_nsec;
    result->run_nsec = wire->run_nsec;
    result->accumulation = wire->accumulation;
}

static void put_choice(struct arena *arena, const struct msg_choice *choice,
                       Gemmd__Wire__Choice *wire)
{
    gemmd__wire__choice__init(wire);
    wire->m = choice->m;
    wire->kernel = codec_put_text(arena, choice->kernel);
    wire->tile = codec_put_text(arena, choice->tile);
    wire->predicted_usec = choice->predicted_usec;
    wire->measured_usec = choice->measured_usec;
    wire->floor_usec = choice->floor_usec;
    if (!codec_is_countable(arena, choice->n_declined, MSG_DECLINED_MAX)) {
        return;
    }
    wire->declined = (Gemmd__Wire__Declined **)codec_put_array(arena, choice->n_declined,
                                                               sizeof(**wire->declined));
    for (uint32_t i = 0; wire->declined != NULL && i < choice->n_declined; i++) {
        gemmd__wire__declined__init(wire->declined[i]);
        wire->declined[i]->kernel = codec_put_text(arena, choice->declined[i].kernel);
        wire->declined[i]->reason = codec_put_text(arena, choice->declined[i].reason);
    }
    wire->n_declined = choice->n_declined;
}

static void take_choice(struct codec_reader *reader, const Gemmd__Wire__Choice *wire,
                        struct msg_choice *choice)
{
    choice->m = wire->m;
    CODEC_TAKE_TEXT(reader, choice->kernel, wire->kernel, "choice.kernel");
    CODEC_TAKE_TEXT(reader, choice->tile, wire->tile, "choice.tile");
    choice->predicted_usec = wire->predicted_usec;
    choice->measured_usec = wire->measured_usec;
    choice->floor_usec = wire->floor_usec;
    choice->declined = codec_take_array(reader, wire->n_declined, MSG_DECLINED_MAX,
                                        sizeof(*choice->declined), "choice.declined");
    for (size_t i = 0; choice->declined != NULL && i < wire->n_declined; i++) {
        struct msg_declined *declined = &choice->declined[i];
        CODEC_TAKE_TEXT(reader, declined->kernel, wire->declined[i]->kernel, "declined.kernel");
        CODEC_TAKE_TEXT(reader, declined->reason, wire->declined[i]->reason, "declined.reason");
        choice->n_declined++;
    }
}

void codec_put_explanation(struct arena *arena, const struct msg_reply *reply,
                           Gemmd__Wire__Explanation *wire)
{
    uint32_t n = reply->explanation.n_choices;
    wire->weight = arena_get(arena, sizeof(*wire->weight));
    if (wire->weight == NULL || !codec_is_countable(arena, n, MSG_EXPLAIN_M_MAX)) {
        return;
    }
    put_weight(arena, &reply->explanation.weight, wire->weight);
    wire->ahead = codec_put_text(arena, reply->explanation.ahead);
    wire->choices = (Gemmd__Wire__Choice **)codec_put_array(arena, n, sizeof(**wire->choices));
    for (uint32_t i = 0; wire->choices != NULL && i < n; i++) {
        put_choice(arena, &reply->explanation.choices[i], wire->choices[i]);
    }
    wire->n_choices = n;
}

void codec_take_explanation(struct codec_reader *reader, const Gemmd__Wire__Explanation *wire,
                            struct msg_reply *reply)
{
    if (wire->weight == NULL) {
        CODEC_REFUSE(reader, "explanation.weight is missing");
        return;
    }
    take_weight(reader, wire->weight, &reply->explanation.weight);
    CODEC_TAKE_TEXT(reader, reply->explanation.ahead, wire->ahead, "explanation.ahead");
    struct msg_choice *choices = codec_take_array(reader, wire->n_choices, MSG_EXPLAIN_M_MAX,
                                                  sizeof(*choices), "explanation.choices");
    reply->explanation.choices = choices;
    for (size_t i = 0; choices != NULL && i < wire->n_choices; i++) {
        take_choice(reader, wire->choices[i], &choices[i]);
        reply->explanation.n_choices++;
    }
}
