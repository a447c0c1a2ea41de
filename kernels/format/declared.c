/* declared.c - words of a quantisation config that decide whether there is a reader. */
#include <string.h>
#include <strings.h>

#include "gk/gk.h"

int gk_code_of_bits(uint32_t bits, enum gk_code *ret_code, struct reason *why)
{
    if (bits != 4 && bits != 8) {
        return reason_set(why, STATUS_UNSUPPORTED, "%u-bit codes; only 4 and 8 bits are supported",
                          bits);
    }
    *ret_code = bits == 4 ? GK_CODE_U4 : GK_CODE_U8;
    return 0;
}

int gk_pack_dtype_check(const char *name, struct reason *why)
{
    if (name == NULL || strcmp(name, "int32") == 0) {
        return 0;
    }
    return reason_set(why, STATUS_UNSUPPORTED,
                      "codes packed into words of '%s'; only int32 is supported", name);
}

int gk_awq_version_check(const char *version, struct reason *why)
{
    if (version == NULL || strcasecmp(version, "gemm") == 0) {
        return 0;
    }
    return reason_set(why, STATUS_UNSUPPORTED,
                      "the AWQ layout '%s'; only 'gemm' is supported: convert the checkpoint",
                      version);
}
