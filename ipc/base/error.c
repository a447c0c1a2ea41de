/* error.c - a short memory of where negative returns were raised.
 *
 * Eight places per thread, overwritten in turn: enough to tell a broken invariant's history, and
 * nothing to allocate or lock. The alternative, a backtrace per error, costs on a path that clients
 * can provoke. */
#include "ipc/base/error.h"

#include <stdio.h>

#define TRAIL_LENGTH 8u

struct place {
    const char *file;
    int line;
    int result;
};

static _Thread_local struct place trail[TRAIL_LENGTH];
static _Thread_local unsigned n_recorded;

int error_record(int r, const char *file, int line)
{
    if (r < 0) {
        trail[n_recorded % TRAIL_LENGTH] = (struct place){file, line, r};
        n_recorded++;
    }
    return r;
}

void error_trail(char *text, size_t size_bytes)
{
    if (size_bytes == 0) {
        return;
    }
    text[0] = '\0';
    size_t used = 0;
    unsigned n = n_recorded < TRAIL_LENGTH ? n_recorded : TRAIL_LENGTH;
    for (unsigned i = 1; i <= n; i++) {
        const struct place *place = &trail[(n_recorded - i) % TRAIL_LENGTH];
        int n_chars = snprintf(text + used, size_bytes - used, "%s%s:%d %d", i > 1 ? ", " : "",
                               place->file, place->line, place->result);
        if (n_chars < 0 || (size_t)n_chars >= size_bytes - used) {
            text[used] = '\0';
            return;
        }
        used += (size_t)n_chars;
    }
}
