/* weights.c - looking weights up. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

static_assert((int)GEMMD_F32 == (int)DTYPE_F32 && (int)GEMMD_F16 == (int)DTYPE_F16 &&
                  (int)GEMMD_BF16 == (int)DTYPE_BF16 && (int)GEMMD_I8 == (int)DTYPE_I8 &&
                  (int)GEMMD_F8_E4M3 == (int)DTYPE_F8_E4M3,
              "gemmd.h and dtype.h disagree");
static_assert((int)GEMMD_ACT_FLOAT == (int)MSG_ACT_FLOAT &&
                  (int)GEMMD_ACT_FP8_TENSOR == (int)MSG_ACT_FP8_TENSOR &&
                  (int)GEMMD_ACT_FP8_TOKEN == (int)MSG_ACT_FP8_TOKEN &&
                  (int)GEMMD_ACT_FP8_GROUP == (int)MSG_ACT_FP8_GROUP &&
                  (int)GEMMD_ACT_INT8_TENSOR == (int)MSG_ACT_INT8_TENSOR &&
                  (int)GEMMD_ACT_INT8_TOKEN == (int)MSG_ACT_INT8_TOKEN &&
                  (int)GEMMD_ACT_INT8_TOKEN_ZERO == (int)MSG_ACT_INT8_TOKEN_ZERO,
              "gemmd.h and msg.h disagree");

#define WEIGHT_BYTES_MIN FILLED_END(struct gemmd_weight, act)

/* to: the caller's, of to_bytes. */
static void take_weight(const struct msg_weight *message, void *to, size_t to_bytes)
{
    struct gemmd_weight weight = {
        .id = message->weight_id,
        .n = message->n,
        .k = message->k,
        .device_index = message->device_index,
        .act_dtype = (enum gemmd_dtype)message->act_dtype,
        .has_bias = message->has_bias,
        .packed_bytes = message->packed_bytes,
        .generation = message->generation,
        .act = (enum gemmd_act)message->act,
    };
    (void)snprintf(weight.format, sizeof(weight.format), "%s", message->format);
    (void)snprintf(weight.name, sizeof(weight.name), "%s", message->name);
    filled_write(to, to_bytes, &weight, sizeof(weight));
}

/* Ask for weights by name with one of the two verbs whose reply lists them. */
static int ask_for_weights(struct gemmd_client *client, enum msg_verb verb, const char *name,
                           struct msg_reply *ret_reply)
{
    struct msg_request request = {.verb = verb};
    if (strlen(name) >= sizeof(request.name)) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "the name is %zu bytes long, the limit is %zu", strlen(name),
                             sizeof(request.name) - 1);
    }
    (void)snprintf(request.name, sizeof(request.name), "%s", name);
    int r = control_call(client, &request, ret_reply);
    if (r == 0 && ret_reply->body != MSG_BODY_WEIGHTS) {
        msg_reply_finish(ret_reply);
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon's reply has no weights in it");
    }
    return r;
}

int gemmd_find_weight(gemmd_client_t *client, const char *name, gemmd_weight_t *ret_weight)
{
    if (!client || !name || !ret_weight) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_find_weight: an argument is NULL");
    }
    struct msg_reply reply;
    int r = filled_check("gemmd_weight_t", ret_weight->struct_bytes, WEIGHT_BYTES_MIN);
    r = r ? r : ask_for_weights(client, MSG_VERB_WEIGHT_FIND, name, &reply);
    if (r != 0) {
        return r;
    }
    if (reply.weights.n == 1) {
        take_weight(&reply.weights.items[0], ret_weight, ret_weight->struct_bytes);
    } else {
        r = client_refuse(STATUS_BAD_MESSAGE, "the daemon found %u weights of one name",
                          reply.weights.n);
    }
    msg_reply_finish(&reply);
    return r;
}

/* Of structs of any version: the name has its place since the first. */
static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct gemmd_weight *)a)->name, ((const struct gemmd_weight *)b)->name);
}

int gemmd_list_weights(gemmd_client_t *client, const char *model, size_t struct_bytes,
                       gemmd_weight_t **ret_weights, size_t *ret_n)
{
    if (!client || !ret_weights || !ret_n) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_list_weights: an argument is NULL");
    }
    struct msg_reply reply;
    int r = filled_check("gemmd_weight_t", struct_bytes, WEIGHT_BYTES_MIN);
    r = r ? r : ask_for_weights(client, MSG_VERB_WEIGHT_LIST, model ? model : "", &reply);
    if (r != 0) {
        return r;
    }
    uint32_t n = reply.weights.n;
    void *weights = n ? calloc(n, struct_bytes) : NULL;
    if (n && !weights) {
        r = client_fail_errno(-ENOMEM, "gemmd_list_weights");
    } else {
        for (uint32_t i = 0; i < n; i++) {
            take_weight(&reply.weights.items[i], (char *)weights + i * struct_bytes, struct_bytes);
        }
        if (n > 1) {
            qsort(weights, n, struct_bytes, compare_names);
        }
        *ret_weights = weights;
        *ret_n = n;
    }
    msg_reply_finish(&reply);
    return r;
}
