#include "ipc/base/log.h"

#include <stddef.h>

static log_sink sink;

void log_set_sink(log_sink new_sink)
{
    sink = new_sink;
}

void log_write(enum log_level level, const char *topic, const char *format, ...)
{
    if (!sink) {
        return;
    }
    va_list args;
    va_start(args, format);
    sink(LOG_EVENT_NONE, level, topic, format, args);
    va_end(args);
}

void log_event(enum log_event event, enum log_level level, const char *topic, const char *format,
               ...)
{
    if (!sink) {
        return;
    }
    va_list args;
    va_start(args, format);
    sink(event, level, topic, format, args);
    va_end(args);
}
