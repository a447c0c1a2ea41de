/* lists.c - what is served: models, weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/dtype.h"
#include "ipc/base/num.h"

#include "client/tool/tool.h"

static json_t *shares_json(const struct msg_model *model)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < MSG_LOAD_PHASES; i++) {
        json_object_set_new(object, msg_load_phase_name((enum msg_load_phase)i),
                            json_real(model->load_shares[i]));
    }
    return object;
}

static json_t *model_json(const struct msg_model *model)
{
    return json_pack("{ss ss ss ss ss sI si sI sf sI so si ss}", "name", model->name, "path",
                     model->path, "device", model->device, "state", model->state, "origin",
                     model->origin, "generation", (json_int_t)model->generation, "weights",
                     (int)model->n_weights, "packed_bytes", (json_int_t)model->packed_bytes,
                     "load_seconds", model->load_seconds, "load_bytes",
                     (json_int_t)model->load_bytes, "load_shares", shares_json(model), "warnings",
                     (int)model->n_warnings, "act_dtype", dtype_name(model->act_dtype));
}

static int print_models_json(const struct msg_reply *reply)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < reply->models.n; i++) {
        json_array_append_new(list, model_json(&reply->models.items[i]));
    }
    return tool_print_json(json_pack("{so}", "models", list));
}

static int print_models(const struct msg_reply *reply)
{
    (void)printf("%-20s %-8s %-9s %4s %8s %12s %-5s %s\n", "NAME", "DEVICE", "STATE", "GEN",
                 "WEIGHTS", "PACKED", "ACT", "PATH");
    for (uint32_t i = 0; i < reply->models.n; i++) {
        const struct msg_model *model = &reply->models.items[i];
        char bytes[32];
        (void)printf("%-20s %-8s %-9s %4llu %8u %12s %-5s %s\n", model->name, model->device,
                     model->state, (unsigned long long)model->generation, model->n_weights,
                     tool_bytes(model->packed_bytes, bytes), dtype_name(model->act_dtype),
                     model->path);
    }
    return TOOL_DONE;
}

int command_models(struct tool *tool, int argc, char **argv)
{
    struct msg_request request = {.verb = MSG_VERB_MODEL_LIST};
    struct msg_reply reply;
    if (argc != 1) {
        return tool_usage("%s takes no arguments", argv[0]);
    }
    int r = tool_call(tool, &request, MSG_BODY_MODELS, &reply);
    if (r != 0) {
        return r;
    }
    r = tool->is_json ? print_models_json(&reply) : print_models(&reply);
    msg_reply_finish(&reply);
    return r;
}

/* NULL, which prints as null: a scheme of a later daemon's. */
static const char *act_name(enum gemmd_act act)
{
    static const char *const names[] = {
        [GEMMD_ACT_FLOAT] = "float",
        [GEMMD_ACT_FP8_TENSOR] = "fp8_tensor",
        [GEMMD_ACT_FP8_TOKEN] = "fp8_token",
        [GEMMD_ACT_FP8_GROUP] = "fp8_group",
        [GEMMD_ACT_INT8_TENSOR] = "int8_tensor",
        [GEMMD_ACT_INT8_TOKEN] = "int8_token",
        [GEMMD_ACT_INT8_TOKEN_ZERO] = "int8_token_zero",
    };
    return (unsigned)act < ARRAY_LENGTH(names) ? names[act] : NULL;
}

static json_t *weight_json(const gemmd_weight_t *weight)
{
    return json_pack("{ss sI si si si ss sI sI sb ss ss?}", "name", weight->name, "id",
                     (json_int_t)weight->id, "n", (int)weight->n, "k", (int)weight->k,
                     "device_index", (int)weight->device_index, "format", weight->format,
                     "packed_bytes", (json_int_t)weight->packed_bytes, "generation",
                     (json_int_t)weight->generation, "has_bias", (int)weight->has_bias, "act_dtype",
                     dtype_name((enum dtype)weight->act_dtype), "act", act_name(weight->act));
}

static int print_weights_json(const gemmd_weight_t *weights, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, weight_json(&weights[i]));
    }
    return tool_print_json(json_pack("{so}", "weights", list));
}

static int print_weights(const gemmd_weight_t *weights, size_t n)
{
    size_t format_width = 22;
    for (size_t i = 0; i < n; i++) {
        format_width = num_max(format_width, strlen(weights[i].format));
    }
    int width = (int)format_width;
    (void)printf("%-56s %7s %7s %-*s %-4s %10s\n", "WEIGHT", "N", "K", width, "FORMAT", "BIAS",
                 "PACKED");
    for (size_t i = 0; i < n; i++) {
        char bytes[32];
        (void)printf("%-56s %7u %7u %-*s %-4s %10s\n", weights[i].name, weights[i].n, weights[i].k,
                     width, weights[i].format, weights[i].has_bias ? "yes" : "no",
                     tool_bytes(weights[i].packed_bytes, bytes));
    }
    return TOOL_DONE;
}

int command_weights(struct tool *tool, int argc, char **argv)
{
    gemmd_weight_t *weights = NULL;
    size_t n = 0;
    if (argc > 2) {
        return tool_usage("weights takes at most one model's name");
    }
    int r = tool_connect(tool);
    if (r != 0) {
        return r;
    }
    r = gemmd_list_weights(tool->client, argc == 2 ? argv[1] : NULL, sizeof(*weights), &weights,
                           &n);
    if (r != GEMMD_OK) {
        return tool_fail(r);
    }
    r = tool->is_json ? print_weights_json(weights, n) : print_weights(weights, n);
    free(weights);
    return r;
}
