/* isa.h - which instruction sets the host kernels may use here. */
#pragma once

#include <stdbool.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

/* Ordered: each includes the ones before it. */
enum isa {
    ISA_PORTABLE,
    ISA_AVX2,   /* AVX2, FMA, F16C */
    ISA_AVX512, /* AVX-512 F, BW, VL as well */
};

/* isa_detect() - the best one that this CPU and this kernel support. One file per architecture. */
enum isa isa_detect(void);

/* isa_check() - 0, or STATUS_UNSUPPORTED and why kernels of that set may not run. Any thread. */
int isa_check(enum isa isa, struct reason *why) GD_MUST_CHECK;
