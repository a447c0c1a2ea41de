/* taken.c - structs that a call takes, from callers that were built against another version of
 * gemmd.h. A smaller one is an older program's, which means the defaults by what it does not know.
 * A larger one is a newer program's, and can be served as long as it uses nothing that is new. The
 * size says which version it is, since each is larger than the one before: what was padding in one
 * is never a field of the next that the size does not tell. */
#include <string.h>

#include "ipc/base/num.h"

#include "client/client.h"

#define TAKEN_BYTES_MAX 4096u /* more is no size of a struct: it was never set */

/* The bytes of fields in a struct of that size; 0: no version has it. */
static size_t bytes_known(const struct taken *taken, size_t struct_bytes)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(taken->ends) && taken->ends[i] != 0; i++) {
        size_t size = num_div_up(taken->ends[i], sizeof(size_t)) * sizeof(size_t);
        bool is_newer = struct_bytes > size && struct_bytes <= TAKEN_BYTES_MAX;
        if (struct_bytes == size || (is_newer && size == taken->struct_bytes)) {
            n_bytes = taken->ends[i];
        }
    }
    return n_bytes;
}

static int check_rest(const struct taken *taken, const char *from, size_t from_bytes)
{
    for (size_t i = taken->struct_bytes; i < from_bytes; i++) {
        if (from[i] != 0) {
            return client_refuse(STATUS_INVALID_ARGUMENT,
                                 "%s has %zu bytes and byte %zu is not 0: a field that this "
                                 "library, whose %s has %zu bytes, does not know",
                                 taken->name, from_bytes, i, taken->name, taken->struct_bytes);
        }
    }
    return 0;
}

int taken_read(const struct taken *taken, const void *from, void *to)
{
    size_t from_bytes;
    memcpy(&from_bytes, from, sizeof(from_bytes));
    size_t n_bytes = bytes_known(taken, from_bytes);
    if (n_bytes == 0) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "%s.struct_bytes is %zu, this library's is %zu, and no version has "
                             "had that: start from its _INIT macro",
                             taken->name, from_bytes, taken->struct_bytes);
    }
    int r = check_rest(taken, from, from_bytes);
    if (r == 0) {
        memcpy(to, from, n_bytes);
        memcpy(to, &taken->struct_bytes, sizeof(taken->struct_bytes));
    }
    return r;
}
