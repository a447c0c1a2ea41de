/* wishes.c - see wishes.h. Plain globals, set before any launch, as the limit of isa.c is: a choice
 * of kernel must not change under a running daemon. */
#include "kernels/wishes.h"

#include <string.h>

#include "ipc/base/num.h"

struct wishes {
    const struct gk_kernel *kernels[GK_KERNELS_MAX];
    uint32_t n;
};

static struct wishes disabled;
static struct wishes preferred;

static bool has(const struct wishes *wishes, const struct gk_kernel *kernel)
{
    for (uint32_t i = 0; i < wishes->n; i++) {
        if (wishes->kernels[i] == kernel) {
            return true;
        }
    }
    return false;
}

bool gk_is_disabled(const struct gk_kernel *kernel)
{
    return has(&disabled, kernel);
}

bool wish_is_preferred(const struct gk_kernel *kernel)
{
    return has(&preferred, kernel);
}

const struct gk_kernel *wish_preferred(uint32_t i)
{
    return i < preferred.n ? preferred.kernels[i] : NULL;
}

const struct gk_kernel *gk_kernel_named(const char *name)
{
    static const enum gk_device_kind kinds[] = {GK_DEVICE_HOST, GK_DEVICE_CUDA};
    for (uint32_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        uint32_t n_kernels;
        const struct gk_kernel *const *kernels = gk_kernels(kinds[i], &n_kernels);
        for (uint32_t j = 0; j < n_kernels; j++) {
            if (strcmp(kernels[j]->name, name) == 0) {
                return kernels[j];
            }
        }
    }
    return NULL;
}

static int add(struct wishes *wishes, const char *name, struct reason *why)
{
    const struct gk_kernel *kernel = gk_kernel_named(name);
    if (kernel == NULL) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "this build has no kernel '%s'", name);
    }
    if (has(wishes, kernel)) {
        return 0;
    }
    if (wishes->n == GK_KERNELS_MAX) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "more than %u kernels are named",
                          GK_KERNELS_MAX);
    }
    wishes->kernels[wishes->n++] = kernel;
    return 0;
}

int gk_disable(const char *name, struct reason *why)
{
    return add(&disabled, name, why);
}

int gk_prefer(const char *name, struct reason *why)
{
    return add(&preferred, name, why);
}

void gk_wishes_clear(void)
{
    disabled.n = 0;
    preferred.n = 0;
}
