/* top_print.c - the text of gemmctl top. */
#include <string.h>

#include "client/tool/tool.h"
#include "client/tool/top.h"

/* "12 us"; "-" below 0. */
static const char *time_text(double seconds, char text[24])
{
    if (seconds < 0) {
        return "-";
    }
    if (seconds < 1e-3) {
        (void)snprintf(text, 24, "%.0f us", seconds * 1e6);
    } else if (seconds < 1) {
        (void)snprintf(text, 24, "%.1f ms", seconds * 1e3);
    } else if (seconds < 7200) {
        (void)snprintf(text, 24, "%.1f s", seconds);
    } else {
        (void)snprintf(text, 24, "%.1f h", seconds / 3600);
    }
    return text;
}

static void print_head(const struct look *now, const char *health, FILE *out)
{
    static const char *const phases[] = {"starting", "serving", "draining", "stopping"};
    const struct stats_main *daemon = &now->page.main;
    const struct stats_store *store = &now->page.store;
    uint64_t phase = num_min(stats_read(&daemon->phase), ARRAY_LENGTH(phases) - 1);
    char up[24], turned[24], buffers[32], packed[32];
    (void)fprintf(out, "gemmd %s, pid %ju, %s, up %s, main thread turned %s ago\n",
                  now->page.daemon_version, (uintmax_t)now->page.pid, phases[phase],
                  time_text(look_since(now, now->page.start_nsec), up),
                  time_text(look_since(now, stats_read(&daemon->turn_nsec)), turned));
    (void)fprintf(
        out, "clients %ju with %ju buffers, %s; resident: %ju model%s, %ju weights, %s\n",
        (uintmax_t)stats_read(&daemon->n_sessions), (uintmax_t)stats_read(&daemon->n_buffers),
        tool_bytes(stats_read(&daemon->buffer_bytes), buffers),
        (uintmax_t)stats_read(&store->n_models), tool_plural(stats_read(&store->n_models)),
        (uintmax_t)stats_read(&store->n_weights),
        tool_bytes(stats_read(&store->packed_bytes), packed));
    if (health[0] != '\0') {
        (void)fprintf(out, "WARNING %s\n", health);
    }
}

static void print_device(const struct look *now, const struct look *then, uint32_t i, FILE *out)
{
    const struct stats_worker *worker = &now->page.workers[i];
    struct look_rates rates;
    char queue[2][24], request[2][24], stall[24], last[24];
    uint64_t last_nsec = stats_read(&worker->last_ok_nsec);
    look_rates(now, then, i, &rates);
    (void)fprintf(out,
                  "%-8s %9.0f %7.0f %9.0f %9.0f %5.1f%% %6.1f %6.1f%% %5.1f%% %5.1f%% %8s %8s %8s "
                  "%8s %8s %7ju %8s\n",
                  worker->device_name, rates.requests, rates.bad, rates.rows, rates.launches,
                  100 * rates.busy, rates.rows_a_launch, 100 * rates.shared, 100 * rates.ahead,
                  100 * rates.vain, time_text(rates.queue_p50, queue[0]),
                  time_text(rates.queue_p99, queue[1]), time_text(rates.request_p50, request[0]),
                  time_text(rates.request_p99, request[1]), time_text(rates.stall_p99, stall),
                  (uintmax_t)stats_read(&worker->n_in_flight),
                  last_nsec == 0 ? "never" : time_text(look_since(now, last_nsec), last));
}

static void print_batches(const struct look *now, const struct look *then, uint32_t i, FILE *out)
{
    struct look_rates rates;
    look_rates(now, then, i, &rates);
    (void)fprintf(out, "%-8s", now->page.workers[i].device_name);
    for (uint32_t j = 0; j < STATS_ROW_BUCKETS; j++) {
        double n_launches = rates.launches * rates.seconds;
        (void)fprintf(out, " %8.1f%%",
                      n_launches > 0 ? 100 * (double)rates.launches_by_rows[j] / n_launches : 0);
    }
    (void)fprintf(out, "\n");
}

static void print_devices(const struct look *now, const struct look *then, FILE *out)
{
    uint32_t n = (uint32_t)num_min(now->page.n_devices, STATS_DEVICES_MAX);
    (void)fprintf(out, "\n%-8s %9s %7s %9s %9s %6s %6s %7s %6s %6s %8s %8s %8s %8s %8s %7s %8s\n",
                  "DEVICE", "REQ/s", "BAD/s", "ROWS/s", "LAUNCH/s", "BUSY", "ROWS/L", "SHARED",
                  "AHEAD", "VAIN", "QUEUE50", "QUEUE99", "REQ50", "REQ99", "STALL99", "FLIGHT",
                  "LAST");
    for (uint32_t i = 0; i < n; i++) {
        print_device(now, then, i, out);
    }
    (void)fprintf(out, "\n%-8s", "ROWS");
    for (uint32_t j = 0; j < STATS_ROW_BUCKETS; j++) {
        (void)fprintf(out, " %9s", stats_rows_name(j));
    }
    (void)fprintf(out, "\n");
    for (uint32_t i = 0; i < n; i++) {
        print_batches(now, then, i, out);
    }
}

/* ---- kernels ---- */

static uint64_t count_of(const struct stats_times *now, const struct stats_times *then)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < STATS_TIME_BUCKETS; i++) {
        n += stats_read(&now->counts[i]) - stats_read(&then->counts[i]);
    }
    return n;
}

/* A line for one kind of weight: half of the launches with so many rows took no longer. */
static void print_kind(const struct stats_worker *now, const struct stats_worker *then,
                       uint32_t code, uint32_t act, FILE *out)
{
    uint64_t n = 0;
    for (uint32_t rows = 0; rows < STATS_ROW_BUCKETS; rows++) {
        n += count_of(&now->kernel[code][act][rows], &then->kernel[code][act][rows]);
    }
    if (n == 0) {
        return;
    }
    char kind[32];
    (void)snprintf(kind, sizeof(kind), "%s %s x %s", now->device_name, stats_code_name(code),
                   stats_act_name(act));
    (void)fprintf(out, "%-20s", kind);
    for (uint32_t rows = 0; rows < STATS_ROW_BUCKETS; rows++) {
        char text[24];
        double p50 =
            look_quantile(&now->kernel[code][act][rows], &then->kernel[code][act][rows], 0.5);
        (void)fprintf(out, " %8s", time_text(p50, text));
    }
    (void)fprintf(out, "\n");
}

static void print_kernels(const struct look *now, const struct look *then, FILE *out)
{
    (void)fprintf(out, "\n%-20s", "KERNEL TIME, HALF");
    for (uint32_t rows = 0; rows < STATS_ROW_BUCKETS; rows++) {
        (void)fprintf(out, " %8s", stats_rows_name(rows));
    }
    (void)fprintf(out, "\n");
    for (uint32_t i = 0; i < now->page.n_devices && i < STATS_DEVICES_MAX; i++) {
        for (uint32_t code = 0; code < STATS_CODES; code++) {
            for (uint32_t act = 0; act < STATS_ACTS && stats_code_name(code); act++) {
                print_kind(&now->page.workers[i], &then->page.workers[i], code, act, out);
            }
        }
    }
}

static void print_models(const struct look *now, const struct look *then, FILE *out)
{
    double seconds = (double)num_max(1, now->at_nsec - then->at_nsec) / 1e9;
    (void)fprintf(out, "\n%-32s %10s %10s %14s\n", "MODEL", "REQ/s", "ROWS/s", "REQUESTS");
    for (uint32_t i = 0; i < STATS_MODELS_MAX; i++) {
        const struct stats_model *a = &now->page.models[i];
        const struct stats_model *b = &then->page.models[i];
        uint64_t n_requests = stats_read(&a->n_requests);
        if (n_requests == 0 && a->is_named == 0) {
            continue;
        }
        (void)fprintf(out, "%-32s %10.0f %10.0f %14ju\n", a->is_named != 0 ? a->name : "(others)",
                      (double)(n_requests - stats_read(&b->n_requests)) / seconds,
                      (double)(stats_read(&a->n_rows) - stats_read(&b->n_rows)) / seconds,
                      (uintmax_t)n_requests);
    }
}

void top_print(const struct look *now, const struct look *then, const char *health, FILE *out)
{
    print_head(now, health, out);
    print_devices(now, then, out);
    print_kernels(now, then, out);
    print_models(now, then, out);
}
