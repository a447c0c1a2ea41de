/* Loading a model. The store sees nothing of it until all layers are there. */
#include "daemon/weights/model_load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/act_rules.h"
#include "daemon/weights/model_fill.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"

/* What the settings say, then the layers that are there; rules are marked on the way. */
static int find_modules(struct model_source *source, struct warnings *warnings, struct reason *why)
{
    const struct checkpoint *checkpoint = &source->checkpoint;
    const struct quant_texts texts = {
        {checkpoint->config, checkpoint->config_bytes},
        {checkpoint->quantize_config, checkpoint->quantize_config_bytes},
        {checkpoint->hf_quant_config, checkpoint->hf_quant_config_bytes},
    };
    struct quant_config config;
    int r = quant_config_parse(&texts, warnings, &config, why);
    if (r != 0) {
        return r;
    }
    r = modules_find(checkpoint, &config, warnings, &source->modules, why);
    quant_config_finish(&config);
    return r;
}

int model_source_open(const char *path, const struct msg_shaping *shaping,
                      struct warnings *warnings, struct model_source *ret_source,
                      struct reason *why)
{
    struct model_source source = MODEL_SOURCE_NULL;
    struct shaping parsed;
    int r = shaping_parse(shaping, &parsed, why);
    if (r == 0) {
        r = checkpoint_open(path, warnings, &source.checkpoint, why);
    }
    if (r == 0) {
        r = find_modules(&source, warnings, why);
    }
    if (r == 0) {
        r = act_rules_apply(&parsed, &source.modules, warnings, why);
    }
    if (r == 0) {
        r = plan_make(&source.modules, &parsed, warnings, &source.plan, why);
    }
    if (r != 0) {
        model_source_finish(&source);
        return r;
    }
    *ret_source = source;
    return 0;
}

void model_source_finish(struct model_source *source)
{
    plan_finish(&source->plan);
    modules_finish(&source->modules);
    checkpoint_finish(&source->checkpoint);
}

static int name_weight(struct weight *weight, const char *model, const char *module,
                       struct reason *why)
{
    int length = snprintf(weight->name, sizeof(weight->name), "%s/%s", model, module);
    if (length < 0 || (size_t)length >= sizeof(weight->name)) {
        return reason_set(
            why, STATUS_UNSUPPORTED,
            "the name of module '%s' is too long: %d bytes with the model's, at most %zu", module,
            length, sizeof(weight->name) - 1);
    }
    return msg_name_check(weight->name, "weight name", why);
}

/* Is there a layout, and a kernel for it? Asked before anything is read. */
static int choose_layout(const struct plan_item *item, struct weight *weight, struct reason *why)
{
    weight->desc = item->desc;
    weight->layout = gk_layout_for(&weight->desc, weight->device->ops->kind);
    if (!weight->layout) {
        char format[MSG_WORD_BYTES];
        gk_desc_format(&weight->desc, format, sizeof(format));
        return reason_set(why, STATUS_UNSUPPORTED, "module '%s' (%s) has no layout on device %s",
                          item->name, format, weight->device->name);
    }
    const struct gk_problem problem = weight_problem(weight);
    const struct gk_kernel *kernel;
    int r = gk_select(&problem, &kernel, why);
    if (r > 0) {
        reason_prefix(why, "module '%s'", item->name);
    }
    return r;
}

static int prepare_weight(struct model *model, const struct plan_item *item, struct reason *why)
{
    struct weight *weight;
    int r = weight_new(model->device, &weight);
    if (r != 0) {
        return r;
    }
    model->weights[model->n_weights++] = weight;
    weight->act_dtype = model->act_dtype;
    r = name_weight(weight, model->name, item->name, why);
    return r != 0 ? r : choose_layout(item, weight, why);
}

static int fill_model(struct model *model, const struct plan *plan, struct progress *progress,
                      struct warnings *warnings, struct reason *why)
{
    uint64_t total_bytes = 0;
    for (uint32_t i = 0; i < plan->n; i++) {
        total_bytes += plan_item_bytes(&plan->items[i]);
        int r = prepare_weight(model, &plan->items[i], why);
        if (r != 0) {
            return r;
        }
    }
    atomic_store(&progress->total_bytes, total_bytes);
    return model_fill(model, plan, progress, warnings, why);
}

static int load_source(const struct model_source *source, struct model *model,
                       struct progress *progress, struct warnings *warnings, struct reason *why)
{
    uint64_t start_nsec = clock_now_nsec();
    model->act_dtype = source->modules.act_dtype;
    int r = sources_read(model->path, &source->checkpoint, &model->sources);
    r = r != 0 ? r : fill_model(model, &source->plan, progress, warnings, why);
    model->load_seconds = 1e-9 * (double)(clock_now_nsec() - start_nsec);
    return r;
}

int model_load(const char *name, const char *path, struct device *device,
               const struct msg_shaping *shaping, struct progress *progress,
               struct warnings *warnings, struct model **ret_model, struct reason *why)
{
    struct model_source source = MODEL_SOURCE_NULL;
    struct model *model = NULL;
    progress_step(progress, "reading headers");
    int r = model_source_open(path, shaping, warnings, &source, why);
    if (r == 0) {
        r = model_new(name, path, device, source.plan.n, &model);
    }
    if (r == 0) {
        model->shaping = *shaping;
        r = load_source(&source, model, progress, warnings, why);
    }
    model_source_finish(&source);
    if (r != 0) {
        model_free(model);
        return r;
    }
    *ret_model = model;
    return 0;
}
