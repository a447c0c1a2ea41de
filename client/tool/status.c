/* status.c - the daemon's status document, as it is or as tables. A key that is missing prints as
 * 0 or "-": an older daemon is no error. */
#include "client/tool/status.h"

#include "client/tool/tool.h"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "-";
}

static unsigned long long count_of(const json_t *object, const char *key)
{
    return (unsigned long long)json_integer_value(json_object_get(object, key));
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *bytes_of(const json_t *object, const char *key, char text[32])
{
    return tool_bytes(count_of(object, key), text);
}

static void print_head(const json_t *document, FILE *out)
{
    char packed[32];
    const json_t *resident = json_object_get(document, "resident");
    const json_t *start = json_object_get(document, "start");
    (void)fprintf(out, "gemmd %s, pid %llu, %s, up %.0f s\n", text_of(document, "version"),
                  count_of(document, "pid"), text_of(document, "state"),
                  number_of(document, "uptime_seconds"));
    unsigned long long n_models = count_of(resident, "models");
    unsigned long long n_weights = count_of(resident, "weights");
    unsigned long long n_adopted = count_of(start, "adopted_models");
    (void)fprintf(out, "resident: %llu model%s, %llu weight%s, %s packed\n", n_models,
                  tool_plural(n_models), n_weights, tool_plural(n_weights),
                  bytes_of(resident, "packed_bytes", packed));
    (void)fprintf(out, "ready in %.2f s: %llu model%s adopted in %.2f s, %s\n",
                  number_of(start, "ready_seconds"), n_adopted, tool_plural(n_adopted),
                  number_of(start, "adopt_seconds"),
                  json_is_true(json_object_get(start, "is_kept"))
                      ? "weights outlive the process"
                      : "weights go with the process (no keeper, no systemd)");
}

/* Rates since the start: what a sum over the uptime can honestly say. */
static void print_device(const json_t *device, double uptime_seconds, FILE *out)
{
    const json_t *worker = json_object_get(device, "worker");
    unsigned long long n_launches = count_of(worker, "launches");
    double rows_per_launch = n_launches ? number_of(worker, "rows") / (double)n_launches : 0;
    double per_second = uptime_seconds > 0 ? 1 / uptime_seconds : 0;
    (void)fprintf(out, "%-8s %10llu %10llu %8llu %9.1f/s %8.1f%% %9.2f %9llu  %s\n",
                  text_of(device, "name"), count_of(worker, "requests"), count_of(worker, "ok"),
                  count_of(worker, "in_flight"), number_of(worker, "requests") * per_second,
                  100 * number_of(worker, "busy_seconds") * per_second, rows_per_launch,
                  count_of(worker, "shared_launches"), text_of(device, "description"));
}

static void print_devices(const json_t *document, FILE *out)
{
    size_t i;
    json_t *device;
    (void)fprintf(out, "\n%-8s %10s %10s %8s %11s %9s %9s %9s  %s\n", "DEVICE", "REQUESTS", "OK",
                  "RUNNING", "RATE", "BUSY", "ROWS/RUN", "SHARED", "WHAT");
    json_array_foreach(json_object_get(document, "devices"), i, device)
    {
        print_device(device, number_of(document, "uptime_seconds"), out);
    }
}

static void print_models(const json_t *document, FILE *out)
{
    size_t i;
    json_t *model;
    char bytes[32];
    (void)fprintf(out, "\n%-20s %-8s %-9s %4s %8s %12s %-5s %-8s %8s\n", "MODEL", "DEVICE", "STATE",
                  "GEN", "WEIGHTS", "PACKED", "ACT", "ORIGIN", "TOOK");
    json_array_foreach(json_object_get(document, "models"), i, model)
    {
        (void)fprintf(out, "%-20s %-8s %-9s %4llu %8llu %12s %-5s %-8s %6.2f s\n",
                      text_of(model, "name"), text_of(model, "device"), text_of(model, "state"),
                      count_of(model, "generation"), count_of(model, "weights"),
                      bytes_of(model, "packed_bytes", bytes), text_of(model, "act_dtype"),
                      text_of(model, "origin"), number_of(model, "load_seconds"));
    }
}

static void print_jobs(const json_t *document, FILE *out)
{
    size_t i;
    json_t *job;
    if (json_array_size(json_object_get(document, "jobs")) == 0) {
        return;
    }
    (void)fprintf(out, "\n%-5s %-8s %-9s  %s\n", "JOB", "KIND", "STATE", "AT");
    json_array_foreach(json_object_get(document, "jobs"), i, job)
    {
        const char *text = text_of(job, "text");
        (void)fprintf(out, "%-5llu %-8s %-9s  %s\n", count_of(job, "id"), text_of(job, "kind"),
                      text_of(job, "state"), *text ? text : text_of(job, "step"));
    }
}

static void print_sessions(const json_t *document, FILE *out)
{
    size_t i;
    json_t *session;
    char bytes[32];
    (void)fprintf(out, "\n%-8s %-20s %8s %8s %-8s %8s %12s\n", "SESSION", "NAME", "PID", "UID",
                  "STATE", "BUFFERS", "BYTES");
    json_array_foreach(json_object_get(document, "sessions"), i, session)
    {
        (void)fprintf(out, "%-8llu %-20s %8llu %8llu %-8s %8llu %12s\n", count_of(session, "id"),
                      text_of(session, "name"), count_of(session, "pid"), count_of(session, "uid"),
                      text_of(session, "state"), count_of(session, "buffers"),
                      bytes_of(session, "buffer_bytes", bytes));
    }
}

void status_print(const json_t *document, FILE *out)
{
    print_head(document, out);
    print_devices(document, out);
    print_models(document, out);
    print_jobs(document, out);
    print_sessions(document, out);
}

int command_status(struct tool *tool, int argc, char **argv)
{
    struct msg_request request = {.verb = MSG_VERB_STATUS};
    struct msg_reply reply;
    if (argc != 1) {
        return tool_usage("%s takes no arguments", argv[0]);
    }
    int r = tool_call(tool, &request, MSG_BODY_STATUS, &reply);
    if (r != 0) {
        return r;
    }
    json_t *document = reply.json ? json_loads(reply.json, JSON_REJECT_DUPLICATES, NULL) : NULL;
    msg_reply_finish(&reply);
    if (!json_is_object(document)) {
        json_decref(document);
        return tool_fail(
            client_refuse(STATUS_BAD_MESSAGE, "the daemon's status is not a JSON object"));
    }
    if (tool->is_json) {
        return tool_print_json(document);
    }
    status_print(document, stdout);
    json_decref(document);
    return TOOL_DONE;
}
