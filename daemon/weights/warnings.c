/* Bounded collection of warnings. A checkpoint of ten thousand odd tensors must not make the daemon
 * keep ten thousand sentences, nor hide that there were so many. */
#include "daemon/weights/warnings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/error.h"
#include "ipc/base/reason.h"
#include "ipc/msg.h"

static void write_dropped(struct warnings *warnings)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "and %llu more warnings",
                   (unsigned long long)warnings->n_dropped);
    char *copy = strdup(text);
    if (copy) {
        free(warnings->items[MSG_WARNINGS_MAX - 1]);
        warnings->items[MSG_WARNINGS_MAX - 1] = copy;
        warnings->n = MSG_WARNINGS_MAX;
    }
}

void warnings_add(struct warnings *warnings, const char *format, ...)
{
    if (!warnings) {
        return;
    }
    if (!warnings->items) {
        warnings->items = calloc(MSG_WARNINGS_MAX, sizeof(*warnings->items));
    }
    if (!warnings->items) {
        warnings->n_dropped++;
        return;
    }
    if (warnings->n >= MSG_WARNINGS_MAX - 1) {
        warnings->n_dropped++;
        write_dropped(warnings);
        return;
    }
    char text[REASON_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    struct reason clean = REASON_NULL;
    (void)reason_set(&clean, 0, "%s", text);
    char *copy = strdup(clean.text);
    if (!copy) {
        warnings->n_dropped++;
        return;
    }
    warnings->items[warnings->n++] = copy;
}

void warnings_take(struct warnings *to, struct warnings *from)
{
    bool has_dropped = from->n_dropped > 0 && from->n == MSG_WARNINGS_MAX;
    uint32_t n = has_dropped ? from->n - 1 : from->n; /* the last is a count */
    for (uint32_t i = 0; i < n; i++) {
        warnings_add(to, "%s", from->items[i]);
    }
    if (to && from->n_dropped > 0) {
        to->n_dropped += from->n_dropped - 1;
        warnings_add(to, "and %llu more warnings", (unsigned long long)from->n_dropped);
    }
    warnings_finish(from);
}

int warnings_copy(char *const *items, uint32_t n, char ***ret_items)
{
    char **copy = calloc(n ? n : 1, sizeof(*copy));
    if (!copy) {
        return err_raise(-ENOMEM);
    }
    for (uint32_t i = 0; i < n; i++) {
        copy[i] = strdup(items[i]);
        if (!copy[i]) {
            warnings_list_free(copy, i);
            return err_raise(-ENOMEM);
        }
    }
    *ret_items = copy;
    return 0;
}

char **warnings_list_free(char **items, uint32_t n)
{
    for (uint32_t i = 0; items && i < n; i++) {
        free(items[i]);
    }
    free(items);
    return NULL;
}

void warnings_finish(struct warnings *warnings)
{
    warnings_list_free(warnings->items, warnings->n);
    *warnings = WARNINGS_NULL;
}
