/* exit_code.c - see exit_code.h. */
#include "daemon/server/exit_code.h"

#include <string.h>

#include "ipc/base/error.h"
#include "ipc/base/log.h"

static enum exit_code code_of(int r)
{
    switch (r > 0 ? status_category(r) : STATUS_CATEGORY_INTERNAL) {
    case STATUS_CATEGORY_INTERNAL:
    case STATUS_CATEGORY_DEVICE:
        return EXIT_CODE_FAILED;
    default:
        return EXIT_CODE_REFUSED;
    }
}

/* One line for a start that did not work, whatever kind of failure it was. */
enum exit_code exit_code_tell(int r, const struct reason *why, const char *what)
{
    char trail[256];
    error_trail(trail, sizeof(trail));
    if (r > 0) {
        log_event(LOG_EVENT_START_REFUSED, LOG_LEVEL_ERROR, "server", "%s", why->text);
    } else {
        log_event(LOG_EVENT_START_REFUSED, LOG_LEVEL_ERROR, "server", "%s: %s (%s)", what,
                  strerror(-r), trail);
    }
    return code_of(r);
}
