/* Counters are atomics so that reading a status never waits for a job; only the step's text, which
 * changes a few times a second, has a lock. */
#include "daemon/weights/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ipc/base/clock.h"

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

uint64_t progress_spend(struct progress *progress, enum msg_load_phase phase, uint64_t since_nsec)
{
    uint64_t now_nsec = clock_now_nsec();
    atomic_fetch_add_explicit(&progress->spent_nsec[phase], now_nsec - since_nsec,
                              memory_order_relaxed);
    return now_nsec;
}

void progress_shares(const struct progress *progress, double ret_shares[MSG_LOAD_PHASES])
{
    double total_nsec = 0;
    for (uint32_t i = 0; i < MSG_LOAD_PHASES; i++) {
        ret_shares[i] = (double)atomic_load(&progress->spent_nsec[i]);
        total_nsec += ret_shares[i];
    }
    for (uint32_t i = 0; i < MSG_LOAD_PHASES && total_nsec > 0; i++) {
        ret_shares[i] /= total_nsec;
    }
}

int progress_check(struct progress *progress, struct reason *why)
{
    if (!atomic_load_explicit(&progress->is_cancelled, memory_order_relaxed)) {
        return 0;
    }
    return reason_set(why, STATUS_CANCELLED, "cancelled");
}
