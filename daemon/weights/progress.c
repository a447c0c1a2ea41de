/* Counters are atomics so that reading a status never waits for a job; only the step's text, which
 * changes a few times a second, has a lock. */
#include "daemon/weights/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void progress_init(struct progress *progress)
{
    *progress = (struct progress){.done_bytes = 0};
    (void)pthread_mutex_init(&progress->mutex, NULL); /* cannot fail without attributes */
}

void progress_finish(struct progress *progress)
{
    (void)pthread_mutex_destroy(&progress->mutex);
}

void progress_step(struct progress *progress, const char *format, ...)
{
    struct reason clean = REASON_NULL;
    char text[MSG_NAME_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    (void)reason_set(&clean, 0, "%s", text); /* names come from files: no control bytes */
    pthread_mutex_lock(&progress->mutex);
    (void)snprintf(progress->step, sizeof(progress->step), "%.*s", MSG_NAME_BYTES - 1, clean.text);
    pthread_mutex_unlock(&progress->mutex);
}

void progress_get_step(struct progress *progress, char ret_step[MSG_NAME_BYTES])
{
    pthread_mutex_lock(&progress->mutex);
    memcpy(ret_step, progress->step, MSG_NAME_BYTES);
    pthread_mutex_unlock(&progress->mutex);
}

int progress_check(struct progress *progress, struct reason *why)
{
    if (!atomic_load_explicit(&progress->is_cancelled, memory_order_relaxed)) {
        return 0;
    }
    return reason_set(why, STATUS_CANCELLED, "cancelled");
}
