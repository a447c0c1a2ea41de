/* layout.c - the table of packed layouts. */
#include <stddef.h>

#include "ipc/base/num.h"
#include "kernels/layout/cuda_kmajor.h"
#include "kernels/layout/cuda_strip.h"
#include "kernels/layout/cuda_swizzle.h"
#include "kernels/layout/host_panel.h"

static const struct gk_layout *const layouts[] = {
    &host_panel_layout,      &cuda_strip_u4_layout, &cuda_strip_u8_layout, &cuda_strip_e4m3_layout,
    &cuda_strip_e2m1_layout, &cuda_swizzle_layout,  &cuda_kmajor_layout};

const struct gk_layout *gk_layout_for(const struct gk_desc *desc, enum gk_device_kind device_kind)
{
    for (uint32_t i = 0; i < ARRAY_LENGTH(layouts); i++) {
        if (layouts[i]->device_kind == device_kind && layouts[i]->fits(desc)) {
            return layouts[i];
        }
    }
    return NULL;
}
