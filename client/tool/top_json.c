/* top_json.c - what gemmctl top shows, as one document. Times are in microseconds, null where
 * nothing happened in the interval. */
#include "client/tool/tool.h"
#include "client/tool/top.h"

static json_t *usec_json(double seconds)
{
    return seconds < 0 ? json_null() : json_real(seconds * 1e6);
}

static json_t *device_json(const struct look *now, const struct look *then, uint32_t i)
{
    const struct stats_worker *worker = &now->page.workers[i];
    struct look_rates rates;
    look_rates(now, then, i, &rates);
    return json_pack(
        "{ss sf sf sf sf sf sf sf sf sf so so so so so sI}", "name", worker->device_name,
        "requests_per_second", rates.requests, "bad_per_second", rates.bad, "rows_per_second",
        rates.rows, "launches_per_second", rates.launches, "busy", rates.busy, "rows_per_launch",
        rates.rows_a_launch, "shared", rates.shared, "ahead", rates.ahead, "vain", rates.vain,
        "queue_p50_usec", usec_json(rates.queue_p50), "queue_p99_usec", usec_json(rates.queue_p99),
        "request_p50_usec", usec_json(rates.request_p50), "request_p99_usec",
        usec_json(rates.request_p99), "stall_p99_usec", usec_json(rates.stall_p99), "in_flight",
        (json_int_t)stats_read(&worker->n_in_flight));
}

static json_t *model_json(const struct stats_model *now, const struct stats_model *then,
                          double seconds)
{
    uint64_t n_requests = stats_read(&now->n_requests);
    uint64_t n_rows = stats_read(&now->n_rows);
    return json_pack(
        "{ss? sf sf sI}", "name", now->is_named != 0 ? now->name : NULL, "requests_per_second",
        (double)(n_requests - stats_read(&then->n_requests)) / seconds, "rows_per_second",
        (double)(n_rows - stats_read(&then->n_rows)) / seconds, "requests", (json_int_t)n_requests);
}

json_t *top_json(const struct look *now, const struct look *then, const char *health)
{
    double seconds = (double)num_max(1, now->at_nsec - then->at_nsec) / 1e9;
    json_t *devices = json_array();
    json_t *models = json_array();
    for (uint32_t i = 0; i < now->page.n_devices && i < STATS_DEVICES_MAX; i++) {
        json_array_append_new(devices, device_json(now, then, i));
    }
    for (uint32_t i = 0; i < STATS_MODELS_MAX; i++) {
        const struct stats_model *model = &now->page.models[i];
        if (stats_read(&model->n_requests) != 0 || model->is_named != 0) {
            json_array_append_new(models, model_json(model, &then->page.models[i], seconds));
        }
    }
    return json_pack("{ss sI sf ss so so}", "version", now->page.daemon_version, "pid",
                     (json_int_t)now->page.pid, "seconds", seconds, "warning", health, "devices",
                     devices, "models", models);
}
