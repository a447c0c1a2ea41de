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
    sink(level, topic, format, args);
    va_end(args);
}
