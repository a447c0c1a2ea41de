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

#define WEIGHT_BYTES_MIN STRUCT_END(struct gemmd_weight, act)

/* Best effort: without memory for it, a request that is in flight when the daemon goes ends. */
static void remember(struct gemmd_client *client, const struct gemmd_weight *weight)
{
    struct known_weight known = {.id = weight->id,
                                 .id_now = weight->id,
                                 .epoch = atomic_load(&client->epoch),
                                 .n = weight->n,
                                 .k = weight->k,
                                 .device_index = weight->device_index};
    (void)snprintf(known.name, sizeof(known.name), "%s", weight->name);
    (void)!known_add(&client->known, &known);
}

/* to: the caller's, of to_bytes. */
static void take_weight(struct gemmd_client *client, const struct msg_weight *message, void *to,
                        size_t to_bytes)
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
    remember(client, &weight);
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
        take_weight(client, &reply.weights.items[0], ret_weight, ret_weight->struct_bytes);
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
            take_weight(client, &reply.weights.items[i], (char *)weights + i * struct_bytes,
                        struct_bytes);
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

/* ---- of a daemon that is gone ---- */

int weights_find(struct gemmd_client *client, control_way call, const struct known_weight *weight,
                 uint64_t *ret_id)
{
    struct msg_request request = {.verb = MSG_VERB_WEIGHT_FIND};
    struct msg_reply reply;
    memcpy(request.name, weight->name, sizeof(request.name));
    int r = call(client, &request, &reply);
    if (r != 0) {
        return r;
    }
    const struct msg_weight *found = reply.weights.items;
    bool is_same = reply.body == MSG_BODY_WEIGHTS && reply.weights.n == 1 &&
                   found->n == weight->n && found->k == weight->k &&
                   found->device_index == weight->device_index;
    if (is_same) {
        *ret_id = found->weight_id;
    }
    msg_reply_finish(&reply);
    return is_same ? 0
                   : client_refuse(STATUS_NOT_FOUND,
                                   "weight '%.150s' has another shape, or another device, since "
                                   "the daemon was started anew",
                                   weight->name);
}

/* What the caller's handle says is what there was. */
static int settle(struct gemmd_client *client, const gemmd_weight_t *weight, uint32_t epoch)
{
    struct known_weight known;
    if (known_find(&client->known, weight->id, weight->name, &known) && known.epoch == epoch) {
        return 0;
    }
    known = (struct known_weight){.id = weight->id,
                                  .n = weight->n,
                                  .k = weight->k,
                                  .device_index = weight->device_index,
                                  .epoch = epoch};
    (void)snprintf(known.name, sizeof(known.name), "%s", weight->name);
    int r = weights_find(client, control_call_once, &known, &known.id_now);
    return r != 0 ? r : known_add(&client->known, &known);
}

int weights_settle(struct gemmd_client *client, const struct gemmd_gemm *gemms, size_t n)
{
    uint32_t epoch = atomic_load(&client->epoch);
    int r = 0;
    for (size_t i = 0; i < n && epoch > 0 && r == 0; i++) {
        r = settle(client, gemms[i].weight, epoch);
    }
    return r < 0 ? client_fail_errno(r, "weights") : r;
}

uint64_t weights_id(struct gemmd_client *client, const gemmd_weight_t *weight)
{
    struct known_weight known;
    if (atomic_load_explicit(&client->epoch, memory_order_relaxed) == 0 ||
        !known_find(&client->known, weight->id, weight->name, &known)) {
        return weight->id;
    }
    return known.id_now;
}
