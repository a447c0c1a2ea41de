/* log.h - a hook, not a sink: ipc/, client/ and kernels/ never log above debug. The daemon installs
 * its own sink; with none installed a call costs one load and a branch. */
#pragma once

#include <stdarg.h>

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_NOTICE,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG
};

/* What an operator has to act on; deploy/systemd/gemmd.catalog says how. */
enum log_event {
    LOG_EVENT_NONE,
    LOG_EVENT_START_REFUSED,
    LOG_EVENT_DEVICE_LOST,
    LOG_EVENT_NO_SIGN_OF_LIFE,
    LOG_EVENT_NOT_ADOPTED,
    LOG_EVENT_CHECKPOINT_CHANGED,
    LOG_EVENT_JOB_FAILED,
    LOG_EVENT_CONFIG_REFUSED,
    LOG_EVENTS
};

typedef void (*log_sink)(enum log_event event, enum log_level level, const char *topic,
                         const char *format, va_list args);

/* log_set_sink() - install before any thread starts; NULL silences. */
void log_set_sink(log_sink sink);

/* log_write() - one sentence, no line feed. Any thread. */
void log_write(enum log_level level, const char *topic, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* log_event() - the same for something that has a name. */
void log_event(enum log_event event, enum log_level level, const char *topic, const char *format,
               ...) __attribute__((format(printf, 4, 5)));
