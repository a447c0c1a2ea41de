#include "ipc/base/reason.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Bytes above 0x7f stay: names may be any UTF-8. */
static void replace_control_bytes(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if (*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
}

int reason_set(struct reason *why, int status, const char *format, ...)
{
    if (!why) {
        return status;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why->text, sizeof(why->text), format, args);
    va_end(args);
    replace_control_bytes(why->text);
    why->status = status;
    return status;
}

static int status_of_errno(int positive_errno)
{
    switch (positive_errno) {
    case ENOMEM:
        return STATUS_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
        return STATUS_NO_SPACE;
    default:
        return STATUS_INTERNAL;
    }
}

int reason_errno(struct reason *why, int negative_errno, const char *format, ...)
{
    char what[REASON_TEXT_BYTES];
    char buffer[128];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return reason_set(why, status_of_errno(-negative_errno), "%s: %s", what,
                      strerror_r(-negative_errno, buffer, sizeof(buffer)));
}

/* Cut, not refused, where it does not fit: half a sentence beats none. */
static void append(char text[REASON_TEXT_BYTES], const char *more)
{
    size_t n = strlen(text);
    size_t n_more = strnlen(more, REASON_TEXT_BYTES - 1 - n);
    memcpy(text + n, more, n_more);
    text[n + n_more] = '\0';
}

void reason_prefix(struct reason *why, const char *format, ...)
{
    if (!why) {
        return;
    }
    char said[REASON_TEXT_BYTES];
    memcpy(said, why->text, sizeof(said));
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why->text, sizeof(why->text), format, args);
    va_end(args);
    append(why->text, ": ");
    append(why->text, said);
    replace_control_bytes(why->text);
}
