/* model.c - see model.h. */
#include "daemon/weights/model.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/weights/warnings.h"
#include "ipc/base/error.h"

int tally_new(struct tally **ret_tally)
{
    struct tally *tally = calloc(1, sizeof(*tally));
    if (!tally) {
        return err_raise(-ENOMEM);
    }
    atomic_init(&tally->n_refs, 1);
    *ret_tally = tally;
    return 0;
}

struct tally *tally_ref(struct tally *tally)
{
    atomic_fetch_add_explicit(&tally->n_refs, 1, memory_order_relaxed);
    return tally;
}

struct tally *tally_unref(struct tally *tally)
{
    if (tally && atomic_fetch_sub_explicit(&tally->n_refs, 1, memory_order_acq_rel) == 1) {
        free(tally);
    }
    return NULL;
}

int weight_new(struct device *device, struct weight **ret_weight)
{
    struct weight *weight = calloc(1, sizeof(*weight));
    if (!weight) {
        return err_raise(-ENOMEM);
    }
    atomic_init(&weight->n_refs, 1);
    weight->device = device;
    weight->packed = REGION_NULL;
    *ret_weight = weight;
    return 0;
}

struct weight *weight_ref(struct weight *weight)
{
    atomic_fetch_add_explicit(&weight->n_refs, 1, memory_order_relaxed);
    return weight;
}

static void weight_free(struct weight *weight)
{
    if (atomic_load(&weight->is_retired)) {
        atomic_fetch_sub(&weight->tally->retired_bytes, weight->packed.size_bytes);
    }
    tally_unref(weight->tally);
    tuning_unref(atomic_load(&weight->tuning));
    if (weight->packed.base || weight->packed.fd >= 0) {
        weight->device->ops->region_free(weight->device, &weight->packed);
    }
    free(weight);
}

struct weight *weight_unref(struct weight *weight)
{
    if (weight && atomic_fetch_sub_explicit(&weight->n_refs, 1, memory_order_acq_rel) == 1) {
        weight_free(weight);
    }
    return NULL;
}

struct gk_problem weight_problem(const struct weight *weight)
{
    return (struct gk_problem){.desc = weight->desc,
                               .layout = weight->layout,
                               .m = 1,
                               .x_dtype = weight->act_dtype,
                               .y_dtype = weight->act_dtype,
                               .cuda_arch = weight->device->cuda_arch,
                               .n_sms = weight->device->n_sms};
}

int weight_make_ready(struct weight *weight, struct reason *why)
{
    struct device *device = weight->device;
    const struct gk_problem problem = weight_problem(weight);
    int r = device_plan(device, &problem, weight->packed.base, why);
    if (r != 0) {
        return r;
    }
    uint64_t workspace_bytes = gk_workspace_max(&problem);
    uint64_t x_row_bytes = (uint64_t)weight->desc.k * dtype_bytes(DTYPE_F32); /* the widest */
    return device->ops->reserve(device, workspace_bytes, x_row_bytes, why);
}

int weight_select(const struct weight *weight, const struct gk_problem *problem,
                  const struct gk_kernel **ret_kernel, struct reason *why)
{
    const struct gk_kernel *kernel = tuning_choice(atomic_load(&weight->tuning), problem);
    if (!kernel) {
        return gk_select(problem, ret_kernel, why);
    }
    *ret_kernel = kernel;
    return 0;
}

void weight_count(struct weight *weight, uint64_t n_rows)
{
    atomic_fetch_add_explicit(&weight->n_requests, 1, memory_order_relaxed);
    if (weight->stats) {
        atomic_fetch_add_explicit(&weight->stats->n_requests, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&weight->stats->n_rows, n_rows, memory_order_relaxed);
    }
}

void weight_retire(struct weight *weight)
{
    atomic_fetch_add(&weight->tally->retired_bytes, weight->packed.size_bytes);
    atomic_store(&weight->is_retired, true);
}

static_assert((int)GK_ACT_FLOAT == (int)MSG_ACT_FLOAT &&
                  (int)GK_ACT_FP8_TENSOR == (int)MSG_ACT_FP8_TENSOR &&
                  (int)GK_ACT_FP8_TOKEN == (int)MSG_ACT_FP8_TOKEN &&
                  (int)GK_ACT_FP8_GROUP == (int)MSG_ACT_FP8_GROUP &&
                  (int)GK_ACT_INT8_TENSOR == (int)MSG_ACT_INT8_TENSOR &&
                  (int)GK_ACT_INT8_TOKEN == (int)MSG_ACT_INT8_TOKEN &&
                  (int)GK_ACT_INT8_TOKEN_ZERO == (int)MSG_ACT_INT8_TOKEN_ZERO,
              "gk.h and msg.h disagree");

void weight_describe(const struct weight *weight, struct msg_weight *ret_message)
{
    struct msg_weight message = {
        .weight_id = weight->slot_id,
        .generation = weight->generation,
        .n = weight->desc.n,
        .k = weight->desc.k,
        .device_index = weight->device->index,
        .packed_bytes = weight->packed.size_bytes,
        .has_bias = weight->desc.bias_dtype != DTYPE_NONE,
        .act_dtype = weight->act_dtype,
        .act = weight->desc.act,
    };
    (void)snprintf(message.name, sizeof(message.name), "%s", weight->name);
    gk_desc_format(&weight->desc, message.format, sizeof(message.format));
    (void)snprintf(message.layout, sizeof(message.layout), "%s", weight->layout->tag);
    *ret_message = message;
}

int model_new(const char *name, const char *path, struct device *device, uint32_t n_weights,
              struct model **ret_model)
{
    struct model *model = calloc(1, sizeof(*model));
    struct weight **weights = calloc(n_weights, sizeof(*weights));
    if (!model || !weights) {
        free(model);
        free(weights);
        return err_raise(-ENOMEM);
    }
    (void)snprintf(model->name, sizeof(model->name), "%s", name);
    (void)snprintf(model->path, sizeof(model->path), "%s", path);
    model->device = device;
    model->weights = weights;
    *ret_model = model;
    return 0;
}

struct model *model_free(struct model *model)
{
    if (!model) {
        return NULL;
    }
    for (uint32_t i = 0; i < model->n_weights; i++) {
        weight_unref(model->weights[i]);
    }
    free(model->weights);
    warnings_list_free(model->warnings, model->n_warnings);
    sources_finish(&model->sources);
    if (model->is_kept) {
        (void)close(model->manifest_fd);
    }
    free(model);
    return NULL;
}

static int compare_weights(const void *a, const void *b)
{
    const struct weight *const *x = a;
    const struct weight *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int compare_name_to_weight(const void *name, const void *element)
{
    const struct weight *const *weight = element;
    return strcmp(name, (*weight)->name);
}

void model_sort(struct model *model)
{
    qsort(model->weights, model->n_weights, sizeof(*model->weights), compare_weights);
}

struct weight *model_find(const struct model *model, const char *name)
{
    if (model->n_weights == 0) {
        return NULL;
    }
    struct weight **found = bsearch(name, model->weights, model->n_weights, sizeof(*model->weights),
                                    compare_name_to_weight);
    return found ? *found : NULL;
}

uint64_t model_bytes(const struct model *model)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < model->n_weights; i++) {
        sum += model->weights[i]->packed.size_bytes;
    }
    return sum;
}

void model_describe(const struct model *model, struct msg_model *ret_message)
{
    struct msg_model message = {
        .generation = model->generation,
        .n_weights = model->n_weights,
        .packed_bytes = model_bytes(model),
        .load_seconds = model->load_seconds,
        .load_bytes = model->load_bytes,
        .n_warnings = model->n_warnings,
        .act_dtype = model->act_dtype,
    };
    memcpy(message.load_shares, model->load_shares, sizeof(message.load_shares));
    (void)snprintf(message.name, sizeof(message.name), "%s", model->name);
    (void)snprintf(message.path, sizeof(message.path), "%s", model->path);
    (void)snprintf(message.device, sizeof(message.device), "%.*s", MSG_WORD_BYTES - 1,
                   model->device->name);
    (void)snprintf(message.state, sizeof(message.state), "serving");
    (void)snprintf(message.origin, sizeof(message.origin), "%s",
                   model->is_adopted ? "adopted" : "loaded");
    *ret_message = message;
}
