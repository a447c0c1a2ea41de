/* plan_file.c - see plan_file.h. Written with each new plan, which is rare and took a trial of some
 * tenths of a second: a process that dies soon after has not tried in vain. */
#include "daemon/device/plan_file.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/line_file.h"
#include "ipc/base/log.h"
#include "ipc/base/num.h"

struct plan {
    char key[PLAN_KEY_BYTES];
    char text[GK_PLAN_TEXT_BYTES];
};

struct plan_file {
    char path[PATH_MAX];
    pthread_mutex_t mutex; /* of all below, and of writing */
    struct plan *plans;
    uint32_t n;
    uint32_t n_allocated;
};

/* ---- in memory ---- */

static struct plan *find(const struct plan_file *file, const char *key)
{
    for (uint32_t i = 0; i < file->n; i++) {
        if (strcmp(file->plans[i].key, key) == 0) {
            return &file->plans[i];
        }
    }
    return NULL;
}

static int add(struct plan_file *file, struct plan **ret_plan)
{
    if (file->n == PLAN_FILE_PLANS_MAX) {
        return STATUS_NO_SPACE;
    }
    if (file->n == file->n_allocated) {
        uint32_t n = (uint32_t)num_max(16, 2ull * file->n_allocated);
        struct plan *longer = realloc(file->plans, n * sizeof(*longer));
        if (!longer) {
            return err_raise(-ENOMEM);
        }
        file->plans = longer;
        file->n_allocated = n;
    }
    *ret_plan = &file->plans[file->n++];
    return 0;
}

/* Both fit. */
static int put(struct plan_file *file, const char *key, const char *text)
{
    struct plan *plan = find(file, key);
    int r = plan ? 0 : add(file, &plan);
    if (r == 0) {
        (void)snprintf(plan->key, sizeof(plan->key), "%s", key);
        (void)snprintf(plan->text, sizeof(plan->text), "%s", text);
    }
    return r;
}

/* ---- as a file ---- */

static struct line_file line_file_of(const struct plan_file *file)
{
    return (struct line_file){
        .path = file->path,
        .what = "plan file",
        .header = "# Plans of gemmd's kernels: for what and where, a tab, the plan.\n"
                  "# Lines may be deleted: what is missing is found out again.\n",
        .bytes_max = PLAN_FILE_BYTES_MAX,
    };
}

/* What is known already stays: it is at least as new. */
static int take_line(void *context, char *line)
{
    struct plan_file *file = context;
    const char *key = strsep(&line, "\t");
    bool is_good = line && key[0] != '\0' && strlen(key) < PLAN_KEY_BYTES && line[0] != '\0' &&
                   strlen(line) < GK_PLAN_TEXT_BYTES;
    if (!is_good || file->n == PLAN_FILE_PLANS_MAX) {
        return STATUS_UNSUPPORTED;
    }
    return find(file, key) ? 0 : put(file, key, line);
}

static void format_line(const void *context, uint32_t i, char *text)
{
    const struct plan_file *file = context;
    (void)snprintf(text, LINE_FILE_LINE_BYTES, "%s\t%s", file->plans[i].key, file->plans[i].text);
}

int plan_file_new(const char *path, struct plan_file **ret_file)
{
    struct plan_file *file = calloc(1, sizeof(*file));
    if (!file) {
        return err_raise(-ENOMEM);
    }
    struct reason why = REASON_NULL;
    (void)pthread_mutex_init(&file->mutex, NULL);
    (void)snprintf(file->path, sizeof(file->path), "%s", path);
    const struct line_file lines = line_file_of(file);
    int r = line_file_read(&lines, take_line, file, &why);
    if (r > 0) {
        log_write(LOG_LEVEL_WARNING, "device", "%s", why.text);
    } else if (r < 0) {
        (void)plan_file_free(file);
        return r;
    }
    *ret_file = file;
    return 0;
}

struct plan_file *plan_file_free(struct plan_file *file)
{
    if (file) {
        (void)pthread_mutex_destroy(&file->mutex);
        free(file->plans);
        free(file);
    }
    return NULL;
}

/* ---- plans ---- */

bool plan_file_get(struct plan_file *file, const char *key, char ret_text[GK_PLAN_TEXT_BYTES])
{
    if (!file) {
        return false;
    }
    (void)pthread_mutex_lock(&file->mutex);
    const struct plan *plan = find(file, key);
    if (plan) {
        memcpy(ret_text, plan->text, sizeof(plan->text));
    }
    (void)pthread_mutex_unlock(&file->mutex);
    return plan != NULL;
}

void plan_file_put(struct plan_file *file, const char *key, const char *text)
{
    struct reason why = REASON_NULL;
    if (!file) {
        return;
    }
    (void)pthread_mutex_lock(&file->mutex);
    const struct line_file lines = line_file_of(file);
    CLEAN_FD int lock = line_file_lock(&lines);
    int r = put(file, key, text);
    if (r == 0) { /* faults of lines were told at the start */
        int read = line_file_read(&lines, take_line, file, NULL);
        r = read < 0 ? read : line_file_write(&lines, file->n, format_line, file, &why);
    }
    (void)pthread_mutex_unlock(&file->mutex);
    if (r != 0) {
        const char *sentence = r == STATUS_NO_SPACE ? "there are too many" : why.text;
        log_write(LOG_LEVEL_WARNING, "device", "a plan is not kept: %s",
                  r < 0 ? strerror(-r) : sentence);
    }
}
