/* models.c - load, unload, reload, verify, drain, models, weights. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/dtype.h"

#include "client/tool/tool.h"

static const struct option load_options[] = {
    {"device", required_argument, NULL, 'd'},
    {"tp-rank", required_argument, NULL, 'r'},
    {"tp-size", required_argument, NULL, 's'},
    {0},
};

static int parse_count(const char *text, const char *what, uint32_t *ret_count)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end || text[0] == '-' || value > UINT32_MAX) {
        return tool_usage("%s '%s' is not a number", what, text);
    }
    *ret_count = (uint32_t)value;
    return 0;
}

static int parse_load(int argc, char **argv, struct msg_load *load)
{
    int key;
    int r = 0;
    optind = 0;
    while (r == 0 && (key = getopt_long(argc, argv, "", load_options, NULL)) != -1) {
        switch (key) {
        case 'd':
            r = tool_name(optarg, load->device, sizeof(load->device));
            break;
        case 'r':
            r = parse_count(optarg, "--tp-rank", &load->tp_rank);
            break;
        case 's':
            r = parse_count(optarg, "--tp-size", &load->tp_size);
            break;
        default:
            return TOOL_USAGE;
        }
    }
    if (r == 0 && argc - optind != 2) {
        return tool_usage("load wants NAME and PATH");
    }
    return r;
}

int command_load(struct tool *tool, int argc, char **argv)
{
    struct msg_request request = {.verb = MSG_VERB_LOAD};
    int r = parse_load(argc, argv, &request.load);
    r = r ? r : tool_name(argv[optind], request.load.name, sizeof(request.load.name));
    if (r != 0) {
        return r;
    }
    /* The daemon has another working folder: it gets the whole path. */
    char path[PATH_MAX];
    if (!realpath(argv[optind + 1], path)) {
        (void)fprintf(stderr, "gemmctl: %s: %s\n", argv[optind + 1], strerror(errno));
        return TOOL_REFUSED;
    }
    r = tool_name(path, request.load.path, sizeof(request.load.path));
    if (r != 0) {
        return r;
    }
    struct msg_reply reply;
    r = control_call(tool->client, &request, &reply);
    return r != 0 ? tool_fail(r) : tool_follow_job(tool, &reply);
}

/* A verb that takes one name and answers with nothing, or with a job. */
static int name_verb(struct tool *tool, enum msg_verb verb, int argc, char **argv)
{
    struct msg_request request = {.verb = verb};
    if (argc != 2) {
        return tool_usage("%s wants one name", argv[0]);
    }
    int r = tool_name(argv[1], request.name, sizeof(request.name));
    if (r != 0) {
        return r;
    }
    struct msg_reply reply;
    r = control_call(tool->client, &request, &reply);
    if (r != 0) {
        return tool_fail(r);
    }
    if (reply.body == MSG_BODY_JOB) {
        return tool_follow_job(tool, &reply);
    }
    msg_reply_finish(&reply);
    return tool->is_json ? tool_print_json(json_pack("{ss ss}", "done", argv[0], "name", argv[1]))
                         : TOOL_DONE;
}

int command_unload(struct tool *tool, int argc, char **argv)
{
    return name_verb(tool, MSG_VERB_UNLOAD, argc, argv);
}

int command_reload(struct tool *tool, int argc, char **argv)
{
    return name_verb(tool, MSG_VERB_RELOAD, argc, argv);
}

int command_verify(struct tool *tool, int argc, char **argv)
{
    return name_verb(tool, MSG_VERB_VERIFY, argc, argv);
}

int command_drain(struct tool *tool, int argc, char **argv)
{
    struct msg_request request = {.verb = MSG_VERB_DRAIN};
    struct msg_reply reply;
    if (argc != 1) {
        return tool_usage("%s takes no arguments", argv[0]);
    }
    int r = control_call(tool->client, &request, &reply);
    if (r != 0) {
        return tool_fail(r);
    }
    msg_reply_finish(&reply);
    if (tool->is_json) {
        return tool_print_json(json_pack("{ss}", "done", "drain"));
    }
    (void)printf("draining: new requests are refused, those in flight finish\n");
    return TOOL_DONE;
}

static json_t *model_json(const struct msg_model *model)
{
    return json_pack("{ss ss ss ss sI si sI sf si ss}", "name", model->name, "path", model->path,
                     "device", model->device, "state", model->state, "generation",
                     (json_int_t)model->generation, "n_weights", (int)model->n_weights,
                     "packed_bytes", (json_int_t)model->packed_bytes, "load_seconds",
                     model->load_seconds, "n_warnings", (int)model->n_warnings, "act_dtype",
                     dtype_name(model->act_dtype));
}

int command_models(struct tool *tool, int argc, char **argv)
{
    struct msg_request request = {.verb = MSG_VERB_MODEL_LIST};
    struct msg_reply reply;
    if (argc != 1) {
        return tool_usage("%s takes no arguments", argv[0]);
    }
    int r = control_call(tool->client, &request, &reply);
    if (r != 0) {
        return tool_fail(r);
    }
    json_t *list = json_array();
    if (!tool->is_json) {
        (void)printf("%-20s %-8s %-8s %4s %8s %12s %-5s %s\n", "NAME", "DEVICE", "STATE", "GEN",
                     "WEIGHTS", "PACKED", "ACT", "PATH");
    }
    for (uint32_t i = 0; i < reply.models.n; i++) {
        const struct msg_model *model = &reply.models.items[i];
        char bytes[32];
        json_array_append_new(list, model_json(model));
        if (!tool->is_json) {
            (void)printf("%-20s %-8s %-8s %4llu %8u %12s %-5s %s\n", model->name, model->device,
                         model->state, (unsigned long long)model->generation, model->n_weights,
                         tool_bytes(model->packed_bytes, bytes), dtype_name(model->act_dtype),
                         model->path);
        }
    }
    msg_reply_finish(&reply);
    if (tool->is_json) {
        return tool_print_json(json_pack("{so}", "models", list));
    }
    json_decref(list);
    return TOOL_DONE;
}

static json_t *weight_json(const gemmd_weight_t *weight)
{
    return json_pack("{ss sI si si si ss sI sI sb ss}", "name", weight->name, "id",
                     (json_int_t)weight->id, "n", (int)weight->n, "k", (int)weight->k,
                     "device_index", (int)weight->device_index, "format", weight->format,
                     "packed_bytes", (json_int_t)weight->packed_bytes, "generation",
                     (json_int_t)weight->generation, "has_bias", (int)weight->has_bias, "act_dtype",
                     dtype_name((enum dtype)weight->act_dtype));
}

static int print_weights_json(const gemmd_weight_t *weights, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, weight_json(&weights[i]));
    }
    return tool_print_json(json_pack("{so}", "weights", list));
}

int command_weights(struct tool *tool, int argc, char **argv)
{
    gemmd_weight_t *weights = NULL;
    size_t n = 0;
    if (argc > 2) {
        return tool_usage("weights takes at most one model's name");
    }
    int r = gemmd_list_weights(tool->client, argc == 2 ? argv[1] : NULL, &weights, &n);
    if (r != GEMMD_OK) {
        return tool_fail(r);
    }
    if (tool->is_json) {
        r = print_weights_json(weights, n);
        free(weights);
        return r;
    }
    (void)printf("%-56s %7s %7s %-22s %-4s %10s\n", "WEIGHT", "N", "K", "FORMAT", "BIAS", "PACKED");
    for (size_t i = 0; i < n; i++) {
        char bytes[32];
        (void)printf("%-56s %7u %7u %-22s %-4s %10s\n", weights[i].name, weights[i].n, weights[i].k,
                     weights[i].format, weights[i].has_bias ? "yes" : "no",
                     tool_bytes(weights[i].packed_bytes, bytes));
    }
    free(weights);
    return TOOL_DONE;
}
