/* error.c - the calling thread's last sentence. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/client.h"

static _Thread_local struct reason last;

const char *gemmd_last_error(void)
{
    return last.text;
}

int client_fail(const struct reason *why)
{
    last = *why;
    if (!last.text[0]) {
        return reason_set(&last, why->status, "%s", status_text(why->status));
    }
    return last.status;
}

int client_refuse(int status, const char *format, ...)
{
    char text[REASON_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return reason_set(&last, status, "%s", text);
}

int client_fail_errno(int negative_errno, const char *what)
{
    (void)reason_errno(&last, negative_errno, "%s", what);
    if (negative_errno == -EMFILE || negative_errno == -ENFILE || negative_errno == -EAGAIN) {
        last.status = STATUS_BUSY; /* the program may close some, or end threads */
    }
    return last.status;
}

int client_fail_wire(uint32_t status, const char *text)
{
    if (status == STATUS_DISCONNECTED) {
        return client_refuse(STATUS_BAD_MESSAGE,
                             "the daemon refused with DISCONNECTED, which is not its to say");
    }
    return client_fail_result(status, text);
}

int client_fail_result(uint32_t status, const char *text)
{
    const uint32_t status_max = 0xffff;
    if (status == STATUS_OK || status > status_max) {
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon refused with status %u, which is none",
                             status);
    }
    struct reason why;
    (void)reason_set(&why, (int)status, "%s", text);
    return client_fail(&why);
}
