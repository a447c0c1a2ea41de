/* fault.h - failures on order, so that tests see what follows a failing device. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

struct fault {
    _Atomic int status; /* 0: none is ordered */
    _Atomic uint32_t n_launches;
    _Atomic uint32_t n_imports; /* 0: none is deadly */
};

/* fault_inject() - the n-th launch from now on (1: the next) is not run and ends with that status,
 * STATUS_DEVICE_ERROR or STATUS_DEVICE_LOST; the back end keeps the latter, as it does with a real
 * one. Any thread. 0 or -EINVAL. */
int fault_inject(struct fault *fault, int status, uint32_t n_launches) GD_MUST_CHECK;

/* fault_from_environment() - GEMMD_FAULT=error:N or lost:N does the same from the start of the
 * daemon; import:N has the process die of the n-th weight that it adopts, as of memory that cannot
 * be read. 0 or STATUS_INVALID_ARGUMENT. */
int fault_from_environment(struct fault *fault, struct reason *why) GD_MUST_CHECK;

/* fault_next() - what becomes of the launch that is about to run; 0: nothing. Worker thread.
 * fault_on_import() - dies if that was ordered. Any thread. */
int fault_next(struct fault *fault);
void fault_on_import(struct fault *fault);
