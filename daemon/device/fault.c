/* fault.c - see fault.h. */
#include "daemon/device/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/error.h"

int fault_inject(struct fault *fault, int status, uint32_t n_launches)
{
    if ((status != STATUS_DEVICE_LOST && status != STATUS_DEVICE_ERROR) || n_launches == 0) {
        return err_raise(-EINVAL);
    }
    atomic_store(&fault->n_launches, n_launches);
    atomic_store(&fault->status, status);
    return 0;
}

int fault_from_environment(struct fault *fault, struct reason *why)
{
    const char *text = getenv("GEMMD_FAULT");
    if (text == NULL || *text == '\0') {
        return 0;
    }
    char kind[8];
    char rest;
    unsigned n_events;
    int n_read = sscanf(text, "%7[a-z]:%9u%c", kind, &n_events, &rest);
    bool is_lost = n_read == 2 && strcmp(kind, "lost") == 0;
    bool is_error = n_read == 2 && strcmp(kind, "error") == 0;
    bool is_import = n_read == 2 && strcmp(kind, "import") == 0;
    if ((!is_lost && !is_error && !is_import) || n_events == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "GEMMD_FAULT is '%s'; it must be lost:N, error:N or import:N with N >= 1",
                          text);
    }
    if (is_import) {
        atomic_store(&fault->n_imports, n_events);
        return 0;
    }
    return fault_inject(fault, is_lost ? STATUS_DEVICE_LOST : STATUS_DEVICE_ERROR, n_events);
}

int fault_next(struct fault *fault)
{
    int status = atomic_load_explicit(&fault->status, memory_order_relaxed);
    if (status == 0 || atomic_fetch_sub(&fault->n_launches, 1) > 1) {
        return 0;
    }
    atomic_store(&fault->status, 0);
    return status;
}

void fault_on_import(struct fault *fault)
{
    if (atomic_load_explicit(&fault->n_imports, memory_order_relaxed) > 0 &&
        atomic_fetch_sub(&fault->n_imports, 1) == 1) {
        (void)raise(SIGKILL);
    }
}
