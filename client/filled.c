/* filled.c - structs that a call fills, for callers that were built against another version of
 * gemmd.h. The alternative, a version in the name of each call, would have to be kept for ever. */
#include <string.h>

#include "ipc/base/num.h"

#include "client/client.h"

int filled_check(const char *name, size_t struct_bytes, size_t bytes_min)
{
    if (struct_bytes >= bytes_min) {
        return 0;
    }
    return client_refuse(STATUS_INVALID_ARGUMENT,
                         "%s.struct_bytes is %zu, below the %zu of its first version: start from "
                         "its _INIT macro",
                         name, struct_bytes, bytes_min);
}

void filled_write(void *to, size_t to_bytes, const void *from, size_t from_bytes)
{
    size_t n_bytes = num_min(to_bytes, from_bytes);
    memcpy(to, from, n_bytes);
    memcpy(to, &n_bytes, sizeof(n_bytes));
}
