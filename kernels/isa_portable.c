/* isa_portable.c - CPU detection where only the portable kernels are built. */
#include "kernels/isa.h"

enum isa isa_detect(void)
{
    return ISA_PORTABLE;
}
