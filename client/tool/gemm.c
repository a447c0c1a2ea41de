/* gemm.c - one product from file to file. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ipc/base/half.h"
#include "ipc/base/num.h"

#include "client/tool/npy.h"
#include "client/tool/tool.h"

#define REPEAT_MAX 1000000u

struct gemm_task {
    const char *weight_name;
    const char *in_path;
    const char *out_path;
    const char *act;
    uint32_t n_repeats;
    gemmd_weight_t weight;
    enum gemmd_dtype act_dtype;
    struct npy_header shape;
    float *x; /* (m, k) */
    gemmd_buffer_t *x_buffer;
    gemmd_buffer_t *y_buffer;
    double *msec;               /* (n_repeats) */
    struct gemmd_result result; /* of the last piece of the last run */
};

static const struct option gemm_options[] = {
    {"in", required_argument, NULL, 'i'},
    {"out", required_argument, NULL, 'o'},
    {"act", required_argument, NULL, 'a'},
    {"repeat", required_argument, NULL, 'r'},
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
    while (r == 0 && (key = getopt_long(argc, argv, "", gemm_options, NULL)) != -1) {
        switch (key) {
        case 'i':
            task->in_path = optarg;
            break;
        case 'o':
            task->out_path = optarg;
            break;
        case 'a':
            task->act = optarg;
            break;
        case 'r':
            r = parse_repeat(optarg, &task->n_repeats);
            break;
        default:
            return TOOL_USAGE;
        }
    }
    if (r == 0 && (argc - optind != 1 || !task->in_path || !task->out_path)) {
        return tool_usage("gemm wants WEIGHT --in x.npy --out y.npy");
    }
    if (r == 0 && task->act && strcmp(task->act, "bf16") != 0 && strcmp(task->act, "fp16") != 0) {
        return tool_usage("--act '%s' is neither bf16 nor fp16", task->act);
    }
    task->weight_name = argv[optind];
    return r;
}

static enum gemmd_dtype choose_act(const struct gemm_task *task)
{
    if (!task->act) {
        return task->weight.act_dtype;
    }
    return strcmp(task->act, "bf16") == 0 ? GEMMD_BF16 : GEMMD_F16;
}

static int prepare(struct tool *tool, struct gemm_task *task)
{
    struct reason why = REASON_NULL;
    int r = tool_connect(tool);
    if (r != 0) {
        return r;
    }
    r = gemmd_find_weight(tool->client, task->weight_name, &task->weight);
    if (r != GEMMD_OK) {
        return tool_fail(r);
    }
    task->act_dtype = choose_act(task);
    if (task->act_dtype < GEMMD_F32 || task->act_dtype > GEMMD_BF16) {
        return tool_fail(client_refuse(STATUS_BAD_MESSAGE,
                                       "the daemon gives %s activations of type %d",
                                       task->weight_name, (int)task->act_dtype));
    }
    r = npy_read(task->in_path, &task->shape, &task->x, &why);
    if (r != 0) {
        return tool_fail(r < 0 ? client_fail_errno(r, task->in_path) : client_fail(&why));
    }
    if (task->shape.n_columns != task->weight.k || task->shape.n_rows > UINT32_MAX) {
        return tool_fail(client_refuse(
            STATUS_INVALID_ARGUMENT, "%s is (%llu, %llu), %s wants (m, %u)", task->in_path,
            (unsigned long long)task->shape.n_rows, (unsigned long long)task->shape.n_columns,
            task->weight_name, task->weight.k));
    }
    task->msec = calloc(task->n_repeats, sizeof(*task->msec));
    return task->msec ? 0 : tool_fail(client_fail_errno(-ENOMEM, "gemm"));
}

static uint32_t act_bytes(const struct gemm_task *task)
{
    return dtype_bytes((enum dtype)task->act_dtype);
}

static void narrow(const struct gemm_task *task)
{
    uint64_t n = task->shape.n_rows * task->weight.k;
    uint16_t *x = gemmd_buffer_data(task->x_buffer);
    if (task->act_dtype == GEMMD_F32) {
        memcpy(x, task->x, n * sizeof(float));
        return;
    }
    bool is_bf16 = task->act_dtype == GEMMD_BF16;
    for (uint64_t i = 0; i < n; i++) {
        x[i] = is_bf16 ? bf16_from_f32(task->x[i]) : half_from_f32(task->x[i]);
    }
}

static int share_buffers(struct tool *tool, struct gemm_task *task)
{
    uint64_t m = num_max(task->shape.n_rows, 1);
    uint64_t y_elems;
    uint64_t y_bytes;
    if (!num_mul(m, task->weight.n, &y_elems) || !num_mul(y_elems, sizeof(float), &y_bytes)) {
        return tool_fail(client_refuse(STATUS_NO_SPACE, "y has %llu rows of %u: over 2^64 bytes",
                                       (unsigned long long)m, task->weight.n));
    }
    uint64_t x_bytes = m * task->weight.k * act_bytes(task); /* x is in memory, so this fits */
    int r =
        gemmd_buffer_alloc_host(tool->client, task->weight.device_index, x_bytes, &task->x_buffer);
    r = r ? r
          : gemmd_buffer_alloc_host(tool->client, task->weight.device_index, y_bytes,
                                    &task->y_buffer);
    if (r != GEMMD_OK) {
        return tool_fail(r);
    }
    narrow(task);
    return 0;
}

/* One pass over all rows, in pieces of what one request may have. */
static int run_once(struct tool *tool, struct gemm_task *task)
{
    uint32_t m = (uint32_t)task->shape.n_rows;
    uint32_t rows_max = tool->client->welcome.rows_max ? tool->client->welcome.rows_max : m;
    uint32_t i_row = 0;
    do {
        struct gemmd_gemm gemm = GEMMD_GEMM_INIT;
        gemmd_ticket_t ticket;
        gemm.weight = &task->weight;
        gemm.m = (uint32_t)num_min(m - i_row, rows_max);
        gemm.x = task->x_buffer;
        gemm.x_dtype = task->act_dtype;
        gemm.x_offset_bytes = (uint64_t)i_row * task->weight.k * act_bytes(task);
        gemm.y = task->y_buffer;
        gemm.y_dtype = GEMMD_F32;
        gemm.y_offset_bytes = (uint64_t)i_row * task->weight.n * sizeof(float);
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

static int report(struct tool *tool, const struct gemm_task *task)
{
    qsort(task->msec, task->n_repeats, sizeof(*task->msec), compare_doubles);
    double median = task->msec[task->n_repeats / 2];
    const char *act = dtype_name((enum dtype)task->act_dtype);
    const struct gemmd_result *last = &task->result;
    if (tool->is_json) {
        return tool_print_json(json_pack(
            "{ss si si si ss si sf sf si si si sf sf ss}", "weight", task->weight_name, "m",
            (int)task->shape.n_rows, "n", (int)task->weight.n, "k", (int)task->weight.k, "act", act,
            "repeats", (int)task->n_repeats, "median_msec", median, "min_msec", task->msec[0],
            "batch_rows", (int)last->batch_rows, "batch_requests", (int)last->batch_requests,
            "batch_sessions", (int)last->batch_sessions, "queue_usec",
            (double)last->queue_nsec / 1e3, "run_usec", (double)last->run_nsec / 1e3, "out",
            task->out_path));
    }
    (void)printf("%s: (%llu, %u) %s -> (%llu, %u) f32 in %s; median %.3f ms, min %.3f ms of %u\n",
                 task->weight_name, (unsigned long long)task->shape.n_rows, task->weight.k, act,
                 (unsigned long long)task->shape.n_rows, task->weight.n, task->out_path, median,
                 task->msec[0], task->n_repeats);
    (void)printf(
        "last launch: %u rows of %u requests of %u sessions, queued %.1f us, ran %.1f us\n",
        last->batch_rows, last->batch_requests, last->batch_sessions,
        (double)last->queue_nsec / 1e3, (double)last->run_nsec / 1e3);
    return TOOL_DONE;
}

static int run_gemm(struct tool *tool, struct gemm_task *task)
{
    int r = prepare(tool, task);
    r = r ? r : share_buffers(tool, task);
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
    r = npy_write(task->out_path, gemmd_buffer_data(task->y_buffer), task->shape.n_rows,
                  task->weight.n);
    return r < 0 ? tool_fail(client_fail_errno(r, task->out_path)) : report(tool, task);
}

int command_gemm(struct tool *tool, int argc, char **argv)
{
    struct gemm_task task = {0};
    int r = parse_gemm(argc, argv, &task);
    r = r ? r : run_gemm(tool, &task);
    gemmd_buffer_free(task.x_buffer);
    gemmd_buffer_free(task.y_buffer);
    free(task.x);
    free(task.msec);
    return r;
}
