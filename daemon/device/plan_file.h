/* plan_file.h - plans of kernels (gk_kernel.plan()) that outlive the process: a line each of a text
 * file (ipc/base/line_file.h), a key and the plan between tabs. The file is believed in nothing: a
 * line that is none is left out, and whether a plan holds is for its kernel to find out. Any
 * thread. */
#pragma once

#include <stdbool.h>

#include "gk/gk.h"
#include "ipc/base/check.h"

#define PLAN_FILE_BYTES_MAX (4u * 1024u * 1024u)
#define PLAN_KEY_BYTES      512u
#define PLAN_FILE_PLANS_MAX 4096u /* lines beyond are left out: they are looked for one by one */

struct plan_file;

/* plan_file_new() - with what the file at `path` has; lines of no use, or a file that cannot be
 * read, are logged. 0 or -ENOMEM. plan_file_free() - NULL in, NULL out. */
int plan_file_new(const char *path, struct plan_file **ret_file) GD_MUST_CHECK;
struct plan_file *plan_file_free(struct plan_file *file);

/* plan_file_get() - the plan of that key; false, also of a NULL file: there is none.
 * plan_file_put() - keep one in place of an older one of its key, and write the file, with what
 * other processes have written to it meanwhile; what goes wrong is logged. Nothing with a NULL
 * file. */
bool plan_file_get(struct plan_file *file, const char *key, char ret_text[GK_PLAN_TEXT_BYTES]);
void plan_file_put(struct plan_file *file, const char *key, const char *text);
