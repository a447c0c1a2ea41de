/* manifest_model.c - what a manifest says of a model, and the model that says it: the two lists of
 * fields stand side by side. See manifest.h. */
#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/manifest.h"
#include "daemon/weights/manifest_internal.h"
#include "ipc/base/error.h"

/* Another description of a weight is another format. */
static_assert(sizeof(struct gk_desc) == 52, "MANIFEST_FORMAT and the two lists of fields below");

/* ---- writing ---- */

static json_t *desc_array(const struct gk_desc *desc)
{
    uint32_t scale_bits;
    memcpy(&scale_bits, &desc->act_scale, sizeof(scale_bits));
    return json_pack("[I,I,i,I,I,i,i,i,i,i,i,I,i,i]", (json_int_t)desc->n, (json_int_t)desc->k,
                     (int)desc->code, (json_int_t)desc->group_n, (json_int_t)desc->group_k,
                     (int)desc->scale_dtype, (int)desc->has_zeros, (int)desc->has_perm,
                     (int)desc->column_scale, (int)desc->act, (int)desc->is_act_scale_pow2,
                     (json_int_t)scale_bits, (int)desc->act_zero, (int)desc->bias_dtype);
}

static json_t *weight_array(const struct weight *weight)
{
    char digest[33];
    (void)snprintf(digest, sizeof(digest), "%016jx%016jx", (uintmax_t)weight->digest.sum,
                   (uintmax_t)weight->digest.parity);
    return json_pack("[s,s,i,I,s,i,o]", weight->name, weight->layout->tag,
                     (int)weight->layout->version, (json_int_t)weight->packed.size_bytes, digest,
                     (int)weight->act_dtype, desc_array(&weight->desc));
}

static json_t *weights_array(const struct model *model)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < model->n_weights; i++) {
        (void)json_array_append_new(array, weight_array(model->weights[i]));
    }
    return array;
}

static json_t *sources_array(const struct sources *sources)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < sources->n; i++) {
        const struct source_file *file = &sources->items[i];
        (void)json_array_append_new(array,
                                    json_pack("[s,I,I]", file->path, (json_int_t)file->size_bytes,
                                              (json_int_t)file->mtime_nsec));
    }
    return array;
}

static json_t *warnings_array(const struct model *model)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < model->n_warnings; i++) {
        (void)json_array_append_new(array, json_string(model->warnings[i]));
    }
    return array;
}

/* What does not fit, for want of memory or because a name is no UTF-8, makes the whole NULL, or
 * short, which manifest_write() sees. */
static json_t *model_object(const struct model *model)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:I, s:i, s:f, s:o, s:o, s:o}",
                     "model", model->name, "path", model->path, "device",
                     device_identity(model->device), "tp_rank", (json_int_t)model->shaping.tp_rank,
                     "tp_size", (json_int_t)model->shaping.tp_size, "fuse", model->shaping.fuse,
                     "split", model->shaping.split, "act", model->shaping.act, "generation",
                     (json_int_t)model->generation, "act_dtype", (int)model->act_dtype,
                     "load_seconds", model->load_seconds, "warnings", warnings_array(model),
                     "sources", sources_array(&model->sources), "weights", weights_array(model));
}

char *manifest_model_text(const struct model *model)
{
    json_t *object = model_object(model);
    bool is_whole = json_array_size(json_object_get(object, "weights")) == model->n_weights &&
                    json_array_size(json_object_get(object, "sources")) == model->sources.n;
    char *text = is_whole ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

/* ---- reading ---- */

static bool read_desc(json_t *array, struct gk_desc *ret_desc)
{
    json_int_t n, k, group_n, group_k, scale_bits;
    int code, scale_dtype, has_zeros, has_perm, column_scale, act, is_pow2, act_zero, bias_dtype;
    if (json_unpack(array, "[I,I,i,I,I,i,i,i,i,i,i,I,i,i!]", &n, &k, &code, &group_n, &group_k,
                    &scale_dtype, &has_zeros, &has_perm, &column_scale, &act, &is_pow2, &scale_bits,
                    &act_zero, &bias_dtype) != 0) {
        return false;
    }
    struct gk_desc desc = {
        .n = (uint32_t)n,
        .k = (uint32_t)k,
        .code = (enum gk_code)code,
        .group_n = (uint32_t)group_n,
        .group_k = (uint32_t)group_k,
        .scale_dtype = (enum dtype)scale_dtype,
        .has_zeros = has_zeros != 0,
        .has_perm = has_perm != 0,
        .column_scale = (enum gk_column_scale)column_scale,
        .act = (enum gk_act)act,
        .is_act_scale_pow2 = is_pow2 != 0,
        .act_zero = act_zero,
        .bias_dtype = (enum dtype)bias_dtype,
    };
    uint32_t bits = (uint32_t)scale_bits;
    memcpy(&desc.act_scale, &bits, sizeof(bits));
    *ret_desc = desc;
    return gk_desc_check(&desc, NULL) == 0;
}

static bool read_digest(const char *text, struct gk_digest *ret_digest)
{
    uintmax_t sum, parity;
    int n_read = 0;
    if (sscanf(text, "%16jx%16jx%n", &sum, &parity, &n_read) != 2 || n_read != 32) {
        return false;
    }
    *ret_digest = (struct gk_digest){sum, parity};
    return true;
}

/* The layout that this build gives such a weight has to be the one it lies in. */
static int check_layout(struct weight *weight, const char *tag, int version, struct reason *why)
{
    weight->layout = gk_layout_for(&weight->desc, weight->device->ops->kind);
    bool is_same = weight->layout && strcmp(weight->layout->tag, tag) == 0 &&
                   weight->layout->version == (uint32_t)version &&
                   weight->layout->packed_bytes(&weight->desc) <= weight->packed.size_bytes;
    if (is_same) {
        return 0;
    }
    return reason_set(why, STATUS_VERSION, "'%s' is packed as %s version %d, which this gemmd %s",
                      weight->name, tag, version,
                      weight->layout ? "packs otherwise" : "has no layout for");
}

static int read_weight(json_t *array, struct weight *weight, struct reason *why)
{
    const char *name, *tag, *digest;
    int version, act_dtype;
    json_int_t size_bytes;
    json_t *desc;
    if (json_unpack(array, "[s,s,i,I,s,i,o!]", &name, &tag, &version, &size_bytes, &digest,
                    &act_dtype, &desc) != 0 ||
        !manifest_take_text(weight->name, sizeof(weight->name), name) ||
        !read_digest(digest, &weight->digest) || !read_desc(desc, &weight->desc) ||
        size_bytes <= 0) {
        return manifest_damaged(why, "a weight cannot be read");
    }
    weight->act_dtype = (enum dtype)act_dtype;
    weight->packed.size_bytes = (uint64_t)size_bytes;
    return check_layout(weight, tag, version, why);
}

static int read_weights(const struct manifest *manifest, struct model *model, struct reason *why)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(manifest->root, "weights"), i, item)
    {
        int r = weight_new(model->device, &model->weights[i]);
        if (r != 0) {
            return r;
        }
        model->n_weights++;
        r = read_weight(item, model->weights[i], why);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

static int read_sources(const struct manifest *manifest, struct model *model, struct reason *why)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(manifest->root, "sources"), i, item)
    {
        const char *path;
        json_int_t size_bytes, mtime_nsec;
        if (json_unpack(item, "[s,I,I!]", &path, &size_bytes, &mtime_nsec) != 0) {
            return manifest_damaged(why, "a source cannot be read");
        }
        int r = sources_add(&model->sources, path, (uint64_t)size_bytes, mtime_nsec);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

static int read_warnings(const struct manifest *manifest, struct model *model)
{
    size_t i;
    json_t *item;
    const json_t *array = json_object_get(manifest->root, "warnings");
    model->warnings = calloc(json_array_size(array) + 1, sizeof(*model->warnings));
    if (!model->warnings) {
        return err_raise(-ENOMEM);
    }
    json_array_foreach(array, i, item)
    {
        const char *text = json_string_value(item);
        model->warnings[i] = strdup(text ? text : "");
        if (!model->warnings[i]) {
            return err_raise(-ENOMEM);
        }
        model->n_warnings++;
    }
    return 0;
}

int manifest_model(const struct manifest *manifest, struct device *device, struct model **ret_model,
                   struct reason *why)
{
    const json_t *weights = json_object_get(manifest->root, "weights");
    int act_dtype;
    double load_seconds;
    if (json_unpack(manifest->root, "{s:i, s:F}", "act_dtype", &act_dtype, "load_seconds",
                    &load_seconds) != 0 ||
        json_array_size(weights) == 0) {
        return manifest_damaged(why, "it lists no weights");
    }
    struct model *model;
    int r = model_new(manifest->name, manifest->path, device, (uint32_t)json_array_size(weights),
                      &model);
    if (r != 0) {
        return r;
    }
    model->shaping = manifest->shaping;
    model->generation = manifest->generation;
    model->act_dtype = (enum dtype)act_dtype;
    model->load_seconds = load_seconds;
    r = read_weights(manifest, model, why);
    r = r != 0 ? r : read_sources(manifest, model, why);
    r = r != 0 ? r : read_warnings(manifest, model);
    if (r != 0) {
        model_free(model);
        return r;
    }
    *ret_model = model;
    return 0;
}
