/* rows.c - what the registry's rows of the host share: legality and prediction. */
#include <stddef.h>

#include "ipc/base/num.h"
#include "kernels/host/panel.h"

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static int check_layout(const struct gk_problem *problem, bool is_plain, struct reason *why)
{
    const struct gk_layout *wanted = is_plain ? &host_plain_layout : &host_int4_layout;
    if (!wanted->fits(&problem->desc)) {
        return reason_set(why, STATUS_UNSUPPORTED, "it is for %s weights",
                          is_plain ? "plain" : "symmetric 4-bit");
    }
    if (problem->layout != wanted) {
        return reason_set(why, STATUS_UNSUPPORTED, "it reads the layout %s, not %s", wanted->tag,
                          problem->layout != NULL ? problem->layout->tag : "none");
    }
    return 0;
}

int host_can_implement(const struct gk_problem *problem, enum isa isa, bool is_plain,
                       struct reason *why)
{
    int r = check_layout(problem, is_plain, why);
    if (r != 0) {
        return r;
    }
    r = gk_desc_check(&problem->desc, why);
    if (r != 0) {
        return r;
    }
    if (problem->m == 0 || problem->m > GK_BATCH_ROWS_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "a launch has 1 to %u rows, not %u",
                          GK_BATCH_ROWS_MAX, problem->m);
    }
    if (!is_float(problem->x_dtype) || !is_float(problem->y_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "x of type %s and y of type %s; only f32, f16, bf16",
                          dtype_name(problem->x_dtype), dtype_name(problem->y_dtype));
    }
    return isa_check(isa, why);
}

double host_predicted_usec(const struct gk_problem *problem, const struct host_rates *rates,
                           uint32_t n_threads)
{
    const struct gk_desc *desc = &problem->desc;
    double flops = 2.0 * problem->m * desc->n * desc->k;
    double bytes = (double)problem->layout->packed_bytes(desc);
    double n_busy = (double)num_max(1, num_min(n_threads, host_panel_shape(desc).n_panels));
    double stream_usec = bytes / (rates->weight_gbps * 1e3);
    double flops_usec = flops / (rates->gflops * 1e3);
    return (stream_usec > flops_usec ? stream_usec : flops_usec) / n_busy;
}
