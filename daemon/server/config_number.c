/* config_number.c - see config_number.h. */
#include "daemon/server/config_number.h"

#include <string.h>

#include "ipc/base/num.h"

/* Digits only: strtoull() would let signs, blanks and 0x through. */
static bool parse_digits(const char *text, unsigned base, const char **ret_end, uint64_t *ret_value)
{
    uint64_t value = 0;
    const char *at = text;
    while (*at >= '0' && *at < (char)('0' + (int)base)) {
        if (!num_mul(value, base, &value) || !num_add(value, (uint64_t)(*at - '0'), &value)) {
            return false;
        }
        at++;
    }
    *ret_end = at;
    *ret_value = value;
    return at != text;
}

bool config_bytes(const char *text, uint64_t *ret_value)
{
    static const char suffixes[] = "KMGT";
    const char *end;
    uint64_t value;
    if (!parse_digits(text, 10, &end, &value)) {
        return false;
    }
    const char *suffix = *end != '\0' ? strchr(suffixes, *end) : NULL;
    if (suffix != NULL) {
        end++;
        if (!num_mul(value, 1ull << (10 * (suffix - suffixes + 1)), &value)) {
            return false;
        }
    }
    *ret_value = value;
    return *end == '\0';
}

bool config_number(const char *text, unsigned base, uint64_t *ret_value)
{
    const char *end;
    return parse_digits(text, base, &end, ret_value) && *end == '\0';
}
