/* model_options.h - how a model of the configuration is shaped: items "NAME: KEY=VALUE ..." of the
 * option model_options.
 *
 * Keys: tp_rank and tp_size (numbers), fuse, split and activations (a rule each time; see
 * daemon/weights/shaping.h). */
#pragma once

#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"
#include "ipc/msg.h"

/* model_options_parse() - one item. 0, or STATUS_INVALID_ARGUMENT naming item and rule. */
int model_options_parse(const char *item, char ret_name[MSG_NAME_BYTES],
                        struct msg_shaping *ret_shaping, struct reason *why) GD_MUST_CHECK;

/* model_options_find() - of the model called `name`, out of n items; "whole, nothing fused" when no
 * item is about it. Two items about one model are refused. Return as model_options_parse(). */
int model_options_find(char *const *items, uint32_t n, const char *name,
                       struct msg_shaping *ret_shaping, struct reason *why) GD_MUST_CHECK;
