/* manifest_internal.h - what manifest.c, the file, and manifest_model.c, the model in it, share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/weights/model.h"

/* manifest_model_text() - the JSON of a model, the caller's to free; NULL: there is no memory, or a
 * name is no UTF-8. */
char *manifest_model_text(const struct model *model);

/* manifest_damaged() - STATUS_BAD_MESSAGE. manifest_take_text() - copy a member; false: it is not
 * there, or does not fit. */
int manifest_damaged(struct reason *why, const char *what);
bool manifest_take_text(char *target, size_t size_bytes, const char *text);
