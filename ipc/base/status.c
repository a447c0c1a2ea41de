#include "ipc/base/status.h"

const char *status_name(int status)
{
    switch (status) {
#define STATUS_X(name, value, sentence)                                                            \
    case (value):                                                                                  \
        return #name;
        STATUS_LIST(STATUS_X)
#undef STATUS_X
    default:
        return "UNKNOWN";
    }
}

const char *status_text(int status)
{
    switch (status) {
#define STATUS_X(name, value, sentence)                                                            \
    case (value):                                                                                  \
        return sentence;
        STATUS_LIST(STATUS_X)
#undef STATUS_X
    default:
        return "a status this version does not know";
    }
}
