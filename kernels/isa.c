/* isa.c - the limit that an operator or a test puts on instruction sets.
 *
 * A plain global, set before any launch: a choice of kernel must not change under a running daemon.
 */
#include <stdint.h>
#include <string.h>

#include "gk/gk.h"
#include "ipc/base/num.h"
#include "kernels/isa.h"

static const struct {
    const char *name;
    const char *missing; /* what a CPU without it lacks */
} sets[] = {
    [ISA_PORTABLE] = {"portable", "nothing"},
    [ISA_AVX2] = {"avx2", "AVX2, FMA and F16C"},
    [ISA_AVX512] = {"avx512", "AVX-512 F, BW and VL"},
};

static enum isa limit = ISA_AVX512;

int isa_check(enum isa isa, struct reason *why)
{
    if (isa > isa_detect()) {
        return reason_set(why, STATUS_UNSUPPORTED, "this CPU does not have all of %s",
                          sets[isa].missing);
    }
    if (isa > limit) {
        return reason_set(why, STATUS_UNSUPPORTED, "host kernels above %s are forbidden",
                          sets[limit].name);
    }
    return 0;
}

static int find(const char *isa, enum isa *ret_isa, struct reason *why)
{
    for (uint32_t i = 0; i < ARRAY_LENGTH(sets); i++) {
        if (strcmp(isa, sets[i].name) == 0) {
            *ret_isa = (enum isa)i;
            return 0;
        }
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT,
                      "no instruction set '%s'; there are portable, avx2 and avx512", isa);
}

int gk_host_isa_check(const char *isa, struct reason *why)
{
    enum isa found;
    return find(isa, &found, why);
}

int gk_host_isa_limit(const char *isa, struct reason *why)
{
    limit = ISA_AVX512;
    return isa == NULL ? 0 : find(isa, &limit, why);
}
