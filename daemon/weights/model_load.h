/* model_load.h - from a path to a model that can be published. */
#pragma once

#include "daemon/device/device.h"
#include "daemon/weights/checkpoint.h"
#include "daemon/weights/modules.h"
#include "daemon/weights/plan.h"
#include "daemon/weights/progress.h"
#include "daemon/weights/store.h"
#include "daemon/weights/warnings.h"

/* A checkpoint, the layers in it, and the weights that they become; what loading and verifying both
 * start from. */
struct model_source {
    struct checkpoint checkpoint;
    struct module_list modules;
    struct plan plan;
};

#define MODEL_SOURCE_NULL ((struct model_source){CHECKPOINT_NULL, MODULE_LIST_NULL, PLAN_NULL})

/* model_source_open() - settings, headers, layers and plan. Return as shaping_parse(),
 * checkpoint_open(), quant_config_parse(), modules_find() and plan_make(). */
int model_source_open(const char *path, const struct msg_shaping *shaping,
                      struct warnings *warnings, struct model_source *ret_source,
                      struct reason *why) GD_MUST_CHECK;
void model_source_finish(struct model_source *source); /* safe on MODEL_SOURCE_NULL */

/* model_load() - read and pack every layer of a checkpoint into regions of the device. Everything
 * that can be refused without reading data is refused first. The model is not published and has no
 * warnings yet; the caller owns it. Return also: STATUS_CANCELLED, NO_SPACE (the device is full),
 * UNSUPPORTED (no layout, no kernel). */
int model_load(const char *name, const char *path, struct device *device,
               const struct msg_shaping *shaping, struct progress *progress,
               struct warnings *warnings, struct model **ret_model,
               struct reason *why) GD_MUST_CHECK;
