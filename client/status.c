/* status.c - names of statuses, and the proof that the public header and the wire agree. */
#include <assert.h>

#include "client/include/gemmd.h"
#include "ipc/base/status.h"

#define STATUS_X(name, value, sentence)                                                            \
    static_assert((int)GEMMD_##name == (int)STATUS_##name,                                         \
                  "gemmd.h and status.h disagree on " #name);
STATUS_LIST(STATUS_X)
#undef STATUS_X

const char *gemmd_status_name(int status)
{
    return status_name(status);
}

const char *gemmd_status_text(int status)
{
    return status_text(status);
}

enum gemmd_status_category gemmd_status_category(int status)
{
    return (enum gemmd_status_category)status_category(status);
}

const char *gemmd_version(void)
{
    return GEMMD_VERSION_TEXT;
}
