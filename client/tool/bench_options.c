/* bench_options.c - the command line of gemmctl bench. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/num.h"

#include "client/tool/bench.h"

#define BUDGET_MSEC_MAX 1000u

static const struct option long_options[] = {
    {"preset", required_argument, NULL, 'p'},  {"shape", required_argument, NULL, 's'},
    {"format", required_argument, NULL, 'f'},  {"m", required_argument, NULL, 'm'},
    {"act", required_argument, NULL, 'a'},     {"device", required_argument, NULL, 'd'},
    {"disable", required_argument, NULL, 'x'}, {"budget-ms", required_argument, NULL, 'b'},
    {"padding", no_argument, NULL, 'P'},       {"csv", required_argument, NULL, 'c'},
    {"svg", required_argument, NULL, 'g'},     {0},
};

/* "4096x14336": N x K */
static int add_shape(const char *text, struct bench_options *options)
{
    struct bench_shape shape = {.name = ""};
    const char *end;
    if (!tool_take_number(text, &shape.n, &end) || *end != 'x' ||
        !tool_take_number(end + 1, &shape.k, &end) || *end != '\0') {
        return tool_usage("--shape '%s' is not NxK, like 4096x14336", text);
    }
    if (options->n_shapes == BENCH_SHAPES_MAX) {
        return tool_usage("more than %u shapes", BENCH_SHAPES_MAX);
    }
    options->shapes[options->n_shapes++] = shape;
    return 0;
}

static int add_format(const char *format, struct bench_options *options)
{
    for (uint32_t i = 0; i < options->n_formats; i++) {
        if (strcmp(options->formats[i], format) == 0) {
            return 0;
        }
    }
    if (options->n_formats == BENCH_FORMATS_MAX || strlen(format) >= MSG_WORD_BYTES) {
        return tool_usage("--format '%.64s': too long a name, or one too many", format);
    }
    options->formats[options->n_formats++] = format;
    return 0;
}

static int parse_rows(const char *text, struct msg_bench *request)
{
    return tool_rows(text, MSG_BENCH_M_MAX, request->m, &request->n_m);
}

static int parse_act(const char *text, struct msg_bench *request)
{
    enum gemmd_dtype dtype;
    int r = tool_act(text, &dtype);
    if (r == 0) {
        request->act_dtype = (enum dtype)dtype;
    }
    return r;
}

static int add_off(const char *kernel, struct msg_bench *request)
{
    if (request->n_off == MSG_BENCH_OFF_MAX) {
        return tool_usage("--disable more than %u times", MSG_BENCH_OFF_MAX);
    }
    char *off = request->off[request->n_off++];
    return tool_name(kernel, off, MSG_WORD_BYTES);
}

static int parse_budget(const char *text, struct msg_bench *request)
{
    uint32_t msec;
    const char *end;
    if (!tool_take_number(text, &msec, &end) || *end != '\0' || msec > BUDGET_MSEC_MAX) {
        return tool_usage("--budget-ms '%s' is not between 1 and %u", text, BUDGET_MSEC_MAX);
    }
    request->budget_usec = msec * 1000;
    return 0;
}

static int take_option(int key, char **argv, struct bench_options *options)
{
    switch (key) {
    case 'p':
        return bench_add_preset(optarg, options)
                   ? 0
                   : tool_usage("--preset '%s' is none, or one too many; there are %s", optarg,
                                bench_preset_names());
    case 's':
        return add_shape(optarg, options);
    case 'f':
        return add_format(optarg, options);
    case 'm':
        return parse_rows(optarg, &options->request);
    case 'a':
        return parse_act(optarg, &options->request);
    case 'd':
        return tool_name(optarg, options->request.device, sizeof(options->request.device));
    case 'x':
        return add_off(optarg, &options->request);
    case 'b':
        return parse_budget(optarg, &options->request);
    case 'P':
        options->has_padding = true;
        return 0;
    case 'c':
        options->csv_path = optarg;
        return 0;
    case 'g':
        options->svg_path = optarg;
        return 0;
    default:
        return tool_bad_option(key, argv);
    }
}

/* The plain format of the activations' type, which others are compared with. */
static int put_baseline_first(struct bench_options *options)
{
    const char *baseline = options->request.act_dtype == DTYPE_F16 ? "f16" : "bf16";
    int r = add_format(baseline, options); /* at the end, if it is not there */
    for (uint32_t i = options->n_formats; r == 0 && i-- > 1;) {
        if (strcmp(options->formats[i], baseline) == 0) {
            options->formats[i] = options->formats[i - 1];
            options->formats[i - 1] = baseline;
        }
    }
    return r;
}

/* What was not said. */
static int fill_defaults(struct bench_options *options)
{
    int r = options->n_formats == 0 ? add_format("int4-g128", options) : 0;
    r = r != 0 ? r : put_baseline_first(options);
    if (r == 0 && options->n_shapes == 0) {
        r = add_shape("4096x4096", options);
    }
    return r != 0 || options->request.n_m != 0 ? r : parse_rows("1..64", &options->request);
}

int bench_parse_options(int argc, char **argv, struct bench_options *ret_options)
{
    int key;
    int r = 0;
    *ret_options = (struct bench_options){.request = {.act_dtype = DTYPE_BF16}};
    optind = 0;
    opterr = 0;
    while (r == 0 && (key = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
        r = take_option(key, argv, ret_options);
    }
    if (r == 0 && optind != argc) {
        return tool_usage("bench takes no '%s'", argv[optind]);
    }
    return r != 0 ? r : fill_defaults(ret_options);
}
