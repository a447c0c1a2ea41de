#include "ipc/base/check.h"

#include <stdio.h>
#include <stdlib.h>

#include "ipc/base/error.h"

_Noreturn void check_failed(const char *expression, const char *file, int line)
{
    char trail[512];
    error_trail(trail, sizeof(trail));
    (void)fprintf(stderr, "gemmd: broken invariant at %s:%d: %s; recent errors: %s\n", file, line,
                  expression, trail[0] ? trail : "none");
    abort();
}
