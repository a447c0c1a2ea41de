/* select.c - which kernel a problem gets: the first of the registry that is eligible. The order is
 * static: all kernels for a kind of device give the same bits for a format unless NUMERICS.md says
 * otherwise, so it is a matter of speed only. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "gk/gk.h"
#include "ipc/base/num.h"

static const struct gk_kernel *const *candidates(const struct gk_layout *layout, uint32_t *ret_n)
{
    return gk_kernels(layout != NULL ? layout->device_kind : GK_DEVICE_HOST, ret_n);
}

/* Gather every kernel's reason; a sentence that several give is told once. */
static int explain(const struct gk_problem *problem, struct reason *why)
{
    char text[REASON_TEXT_BYTES] = "";
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = candidates(problem->layout, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        struct reason one = REASON_NULL;
        (void)kernels[i]->can_implement(problem, &one);
        size_t used = strlen(text);
        if (strstr(text, one.text) == NULL &&
            snprintf(text + used, sizeof(text) - used, "%s%s: %s", used == 0 ? "" : "; ",
                     kernels[i]->name, one.text) >= (int)(sizeof(text) - used)) {
            break; /* full */
        }
    }
    return reason_set(why, STATUS_UNSUPPORTED, "no kernel fits: %s",
                      n_kernels == 0 ? "this build has none for that kind of device" : text);
}

int gk_select(const struct gk_problem *problem, const struct gk_kernel **ret_kernel,
              struct reason *why)
{
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = candidates(problem->layout, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        /* Without a reason to fill, declining costs no formatting: this runs for every launch. */
        if (kernels[i]->can_implement(problem, NULL) == 0) {
            *ret_kernel = kernels[i];
            return 0;
        }
    }
    return explain(problem, why);
}

/* The types of x and y: what a workspace depends on is the kernel's business, so every combination
 * is asked. Rows that come quantised need no more than those that are quantised here. */
static uint64_t most_of(const struct gk_kernel *kernel, struct gk_problem *problem)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    uint64_t most = 0;
    for (uint32_t i = 0; i < ARRAY_LENGTH(dtypes) * ARRAY_LENGTH(dtypes); i++) {
        problem->x_dtype = dtypes[i % ARRAY_LENGTH(dtypes)];
        problem->y_dtype = dtypes[i / ARRAY_LENGTH(dtypes)];
        if (kernel->can_implement(problem, NULL) == 0) {
            most = num_max(most, kernel->workspace_bytes(problem));
        }
    }
    return most;
}

uint64_t gk_workspace_max(const struct gk_desc *desc, const struct gk_layout *layout,
                          uint32_t cuda_arch)
{
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = candidates(layout, &n_kernels);
    uint64_t most = 0;
    for (uint32_t i = 0; i < n_kernels; i++) {
        for (uint32_t m = 1; m <= GK_BATCH_ROWS_MAX; m++) {
            struct gk_problem problem = {
                .desc = *desc, .layout = layout, .m = m, .cuda_arch = cuda_arch};
            most = num_max(most, most_of(kernels[i], &problem));
        }
    }
    return most;
}
