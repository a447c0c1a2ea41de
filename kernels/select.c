/* select.c - which kernels a problem may get, and which it gets unless somebody has measured: the
 * first eligible one, in the order of the registry and of an operator's wishes. Only kernels that
 * give a row the bits it has alone are eligible, so that the choice is a matter of speed only. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "gk/gk.h"
#include "ipc/base/num.h"
#include "kernels/wishes.h"

static enum gk_device_kind kind_of(const struct gk_layout *layout)
{
    return layout != NULL ? layout->device_kind : GK_DEVICE_HOST;
}

/* Asked without a reason to fill, declining costs no formatting: this runs for every launch. */
static bool is_able(const struct gk_problem *problem, const struct gk_kernel *kernel)
{
    return !gk_is_disabled(kernel) && kernel->can_implement(problem, NULL) == 0;
}

/* ---- in the order of preference ---- */

/* The rows of the registry with those first that an operator prefers. */
struct preference {
    enum gk_device_kind device_kind;
    const struct gk_kernel *const *rows;
    uint32_t n_rows;
    uint32_t i_preferred;
    uint32_t i_row;
};

static struct preference preference_for(const struct gk_layout *layout)
{
    struct preference preference = {.device_kind = kind_of(layout)};
    preference.rows = gk_kernels(preference.device_kind, &preference.n_rows);
    return preference;
}

static const struct gk_kernel *next(struct preference *preference)
{
    const struct gk_kernel *kernel;
    while ((kernel = wish_preferred(preference->i_preferred)) != NULL) {
        preference->i_preferred++;
        if (kernel->device_kind == preference->device_kind) {
            return kernel;
        }
    }
    while (preference->i_row < preference->n_rows) {
        kernel = preference->rows[preference->i_row++];
        if (!wish_is_preferred(kernel)) {
            return kernel;
        }
    }
    return NULL;
}

static const struct gk_kernel *first_able(const struct gk_problem *problem)
{
    struct preference preference = preference_for(problem->layout);
    const struct gk_kernel *kernel;
    while ((kernel = next(&preference)) != NULL && !is_able(problem, kernel)) {
    }
    return kernel;
}

/* ---- which are eligible ---- */

/* Whose bits a row has: the kernel's that it gets when it is alone. */
static const struct gk_kernel *leader_of(const struct gk_problem *problem)
{
    struct gk_problem one_row = *problem;
    one_row.m = 1;
    const struct gk_kernel *leader = first_able(&one_row);
    return leader != NULL ? leader : first_able(problem);
}

static bool has_numerics_of(const struct gk_kernel *kernel, const struct gk_kernel *leader)
{
    return leader == NULL || strcmp(kernel->numerics, leader->numerics) == 0;
}

int gk_judge(const struct gk_problem *problem, const struct gk_kernel *kernel, struct reason *why)
{
    if (gk_is_disabled(kernel)) {
        return reason_set(why, STATUS_UNSUPPORTED, "it is disabled in the configuration");
    }
    int r = kernel->can_implement(problem, why);
    if (r != 0) {
        return r;
    }
    const struct gk_kernel *leader = leader_of(problem);
    if (!has_numerics_of(kernel, leader)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "it adds up in another order than %s, which serves single rows",
                          leader->name);
    }
    return 0;
}

uint32_t gk_candidates(const struct gk_problem *problem, const struct gk_kernel **ret_kernels)
{
    const struct gk_kernel *leader = leader_of(problem);
    struct preference preference = preference_for(problem->layout);
    const struct gk_kernel *kernel;
    uint32_t n = 0;
    while (n < GK_KERNELS_MAX && (kernel = next(&preference)) != NULL) {
        if (is_able(problem, kernel) && has_numerics_of(kernel, leader)) {
            ret_kernels[n++] = kernel;
        }
    }
    return n;
}

uint32_t gk_rows_max(const struct gk_problem *problem)
{
    struct gk_problem large = *problem;
    large.m = GK_PREFILL_ROWS_MAX;
    const struct gk_kernel *kernels[GK_KERNELS_MAX];
    bool is_taken = problem->is_prefill && gk_candidates(&large, kernels) != 0;
    return is_taken ? GK_PREFILL_ROWS_MAX : GK_BATCH_ROWS_MAX;
}

/* The names of those that could, if an operator had not disabled them; "" for none. */
static void list_disabled(const struct gk_problem *problem, char text[REASON_TEXT_BYTES])
{
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(kind_of(problem->layout), &n_kernels);
    text[0] = '\0';
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (gk_is_disabled(kernels[i]) && kernels[i]->can_implement(problem, NULL) == 0) {
            size_t used = strlen(text);
            (void)snprintf(text + used, REASON_TEXT_BYTES - used, "%s%s", used == 0 ? "" : ", ",
                           kernels[i]->name);
        }
    }
}

/* An operator's own doing is told as that. Else every kernel's reason is gathered; a sentence that
 * several give is told once. */
static int explain(const struct gk_problem *problem, struct reason *why)
{
    char text[REASON_TEXT_BYTES] = "";
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(kind_of(problem->layout), &n_kernels);
    list_disabled(problem, text);
    if (text[0] != '\0') {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "each kernel that could is disabled in the configuration: %.400s", text);
    }
    for (uint32_t i = 0; i < n_kernels; i++) {
        struct reason one = REASON_NULL;
        (void)gk_judge(problem, kernels[i], &one);
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

bool gk_is_all_disabled(const struct gk_problem *problem)
{
    char text[REASON_TEXT_BYTES];
    list_disabled(problem, text);
    return first_able(problem) == NULL && text[0] != '\0';
}

int gk_select(const struct gk_problem *problem, const struct gk_kernel **ret_kernel,
              struct reason *why)
{
    const struct gk_kernel *leader = leader_of(problem);
    struct preference preference = preference_for(problem->layout);
    const struct gk_kernel *kernel;
    while ((kernel = next(&preference)) != NULL) {
        if (is_able(problem, kernel) && has_numerics_of(kernel, leader)) {
            *ret_kernel = kernel;
            return 0;
        }
    }
    return explain(problem, why);
}

/* ---- workspace ---- */

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

uint64_t gk_workspace_max(const struct gk_problem *like)
{
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(kind_of(like->layout), &n_kernels);
    struct gk_problem problem = {.desc = like->desc,
                                 .layout = like->layout,
                                 .cuda_arch = like->cuda_arch,
                                 .n_sms = like->n_sms};
    uint64_t most = 0;
    for (uint32_t i = 0; i < n_kernels; i++) {
        problem.is_prefill = false;
        for (problem.m = 1; problem.m <= GK_BATCH_ROWS_MAX; problem.m++) {
            most = num_max(most, most_of(kernels[i], &problem));
        }
        problem.is_prefill = true;
        problem.m = GK_PREFILL_ROWS_MAX;
        most = num_max(most, most_of(kernels[i], &problem));
    }
    return most;
}
