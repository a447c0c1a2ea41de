/* gemm.c - one product from file to file. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ipc/base/num.h"
#include "ipc/utf8.h"

#include "client/tool/gemm_input.h"
#include "client/tool/npy.h"
#include "client/tool/out_file.h"
#include "client/tool/tool.h"

#define REPEAT_MAX 1000000u

struct gemm_task {
    const char *weight_name;
    struct gemm_source source;
    const char *out_path;
    uint32_t n_repeats;
    enum gemmd_accumulation accumulation; /* that is asked for */
    gemmd_weight_t weight;
    struct gemm_input input;
    gemmd_buffer_t *y;          /* (m, n) float */
    double *msec;               /* (n_repeats) */
    struct gemmd_result result; /* of the last piece of the last run */
};

static const struct option gemm_options[] = {
    {"in", required_argument, NULL, 'i'},
    {"x-scales", required_argument, NULL, 's'},
    {"out", required_argument, NULL, 'o'},
    {"act", required_argument, NULL, 'a'},
    {"repeat", required_argument, NULL, 'r'},
    {"fast-accumulation", no_argument, NULL, 'f'},
    {0},
};

static int parse_repeat(const char *text, uint32_t *ret_n)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (end == text || *end || n < 1 || n > REPEAT_MAX) {
        return tool_usage("--repeat '%s' is not between 1 and %u", text, REPEAT_MAX);
    }
    *ret_n = (uint32_t)n;
    return 0;
}

static int parse_gemm(int argc, char **argv, struct gemm_task *task)
{
    int key;
    int r = 0;
    task->n_repeats = 1;
    optind = 0;
    opterr = 0;
    while (r == 0 && (key = getopt_long(argc, argv, ":", gemm_options, NULL)) != -1) {
        switch (key) {
        case 'i':
            task->source.path = optarg;
            break;
        case 's':
            task->source.scales_path = optarg;
            break;
        case 'o':
            task->out_path = optarg;
            break;
        case 'a':
            r = tool_act(optarg, &task->source.act);
            break;
        case 'r':
            r = parse_repeat(optarg, &task->n_repeats);
            break;
        case 'f':
            task->accumulation = GEMMD_ACCUMULATION_FAST;
            break;
        default:
            return tool_bad_option(key, argv);
        }
    }
    if (r == 0 && (argc - optind != 1 || !task->source.path || !task->out_path)) {
        return tool_usage("gemm wants WEIGHT --in x.npy --out y.npy");
    }
    task->weight_name = argv[optind];
    return r;
}

static int prepare(struct tool *tool, struct gemm_task *task)
{
    tool->is_patient = true; /* a product may take its time, and may be one of many */
    int r = tool_connect(tool);
    if (r != 0) {
        return r;
    }
    r = gemmd_find_weight(tool->client, task->weight_name, &task->weight);
    if (r != GEMMD_OK) {
        return tool_fail(r);
    }
    r = gemm_input_read(tool, &task->weight, &task->source, &task->input);
    if (r != 0) {
        return r;
    }
    task->msec = calloc(task->n_repeats, sizeof(*task->msec));
    if (!task->msec) {
        return tool_fail(client_fail_errno(-ENOMEM, "gemm"));
    }
    uint64_t y_bytes;
    if (!num_mul((uint64_t)task->weight.n * sizeof(float), num_max(task->input.n_rows, 1),
                 &y_bytes)) {
        return tool_fail(client_refuse(STATUS_NO_SPACE, "y has %u rows of %u: over 2^64 bytes",
                                       task->input.n_rows, task->weight.n));
    }
    r = gemmd_buffer_alloc_host(tool->client, task->weight.device_index, y_bytes, &task->y);
    return r != GEMMD_OK ? tool_fail(r) : 0;
}

/* A piece of m rows from row i_row on. */
static struct gemmd_gemm piece(const struct gemm_task *task, uint32_t i_row, uint32_t m)
{
    const struct gemm_input *input = &task->input;
    struct gemmd_gemm gemm = GEMMD_GEMM_INIT;
    gemm.weight = &task->weight;
    gemm.m = m;
    gemm.x = input->x;
    gemm.x_dtype = input->dtype;
    gemm.x_offset_bytes = (uint64_t)i_row * task->weight.k * dtype_bytes((enum dtype)input->dtype);
    gemm.x_scale = input->x_scale;
    gemm.x_scale_offset_bytes = (uint64_t)i_row * input->n_scales * sizeof(float);
    gemm.y = task->y;
    gemm.y_dtype = GEMMD_F32;
    gemm.accumulation = task->accumulation;
    gemm.y_offset_bytes = (uint64_t)i_row * task->weight.n * sizeof(float);
    return gemm;
}

/* One pass over all rows, in pieces of what one request may have. */
static int run_once(struct tool *tool, struct gemm_task *task)
{
    uint32_t m = task->input.n_rows;
    uint32_t rows_max = tool->client->welcome.rows_max ? tool->client->welcome.rows_max : m;
    uint32_t i_row = 0;
    do {
        struct gemmd_gemm gemm = piece(task, i_row, (uint32_t)num_min(m - i_row, rows_max));
        gemmd_ticket_t ticket;
        int r = gemmd_submit(tool->client, &gemm, 1, &ticket);
        r = r ? r : gemmd_wait(tool->client, ticket, GEMMD_WAIT_FOREVER, &task->result);
        if (r != GEMMD_OK) {
            return r;
        }
        i_row += gemm.m;
    } while (i_row < m);
    return GEMMD_OK;
}

static double now_msec(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int compare_doubles(const void *a, const void *b)
{
    const double *left = a;
    const double *right = b;
    return (*left > *right) - (*left < *right);
}

static const char *accumulation_name(enum gemmd_accumulation accumulation)
{
    return accumulation == GEMMD_ACCUMULATION_FAST ? "fast" : "promoted";
}

static int report(struct tool *tool, const struct gemm_task *task)
{
    qsort(task->msec, task->n_repeats, sizeof(*task->msec), compare_doubles);
    double median = task->msec[task->n_repeats / 2];
    const char *act = dtype_name((enum dtype)task->input.dtype);
    const struct gemmd_result *last = &task->result;
    if (tool->is_json) {
        char out[PATH_MAX];
        (void)snprintf(out, sizeof(out), "%s", task->out_path);
        utf8_mend(out, strlen(out)); /* a path is bytes, a document is text */
        return tool_print_json(json_pack(
            "{ss si si si ss si sf sf si si si sf sf ss ss}", "weight", task->weight_name, "m",
            (int)task->input.n_rows, "n", (int)task->weight.n, "k", (int)task->weight.k, "act", act,
            "repeats", (int)task->n_repeats, "median_msec", median, "min_msec", task->msec[0],
            "batch_rows", (int)last->batch_rows, "batch_requests", (int)last->batch_requests,
            "batch_sessions", (int)last->batch_sessions, "queue_usec",
            (double)last->queue_nsec / 1e3, "run_usec", (double)last->run_nsec / 1e3,
            "accumulation", accumulation_name(last->accumulation), "out", out));
    }
    (void)printf("%s: (%u, %u) %s -> (%u, %u) f32 in %s; median %.3f ms, min %.3f ms of %u\n",
                 task->weight_name, task->input.n_rows, task->weight.k, act, task->input.n_rows,
                 task->weight.n, task->out_path, median, task->msec[0], task->n_repeats);
    (void)printf(
        "last launch: %u row%s of %u request%s of %u session%s, queued %.1f us, ran %.1f us%s\n",
        last->batch_rows, tool_plural(last->batch_rows), last->batch_requests,
        tool_plural(last->batch_requests), last->batch_sessions, tool_plural(last->batch_sessions),
        (double)last->queue_nsec / 1e3, (double)last->run_nsec / 1e3,
        last->accumulation == GEMMD_ACCUMULATION_FAST ? ", fast accumulation" : "");
    return TOOL_DONE;
}

/* y into --out, whole or not at all. */
static int save(const struct gemm_task *task)
{
    struct out_file out;
    int r = out_file_begin(&out, task->out_path);
    if (r < 0) {
        return tool_cannot_write(task->out_path, -r);
    }
    r = npy_write(out.path, gemmd_buffer_data(task->y), task->input.n_rows, task->weight.n);
    r = out_file_end(&out, r);
    return r < 0 ? tool_cannot_write(task->out_path, -r) : 0;
}

static int run_gemm(struct tool *tool, struct gemm_task *task)
{
    int r = out_file_check(task->out_path);
    if (r < 0) {
        return tool_cannot_write(task->out_path, -r);
    }
    r = prepare(tool, task);
    if (r != 0) {
        return r;
    }
    for (uint32_t i = 0; i < task->n_repeats; i++) {
        double start = now_msec();
        r = run_once(tool, task);
        if (r != GEMMD_OK) {
            return tool_fail(r);
        }
        task->msec[i] = now_msec() - start;
    }
    r = save(task);
    return r != 0 ? r : report(tool, task);
}

int command_gemm(struct tool *tool, int argc, char **argv)
{
    struct gemm_task task = {.weight = GEMMD_WEIGHT_INIT, .result = GEMMD_RESULT_INIT};
    int r = parse_gemm(argc, argv, &task);
    r = r ? r : run_gemm(tool, &task);
    gemm_input_finish(&task.input);
    gemmd_buffer_free(task.y);
    free(task.msec);
    return r;
}
