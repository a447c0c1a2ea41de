/* rows.c - what the registry's rows of the host share: legality and prediction. */
#include <stddef.h>

#include "ipc/base/num.h"
#include "kernels/host/panel.h"

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* Rows as they come, or quantised by the weight's own scheme. */
static int check_x(const struct gk_problem *problem, struct reason *why)
{
    enum dtype quantised = gk_act_dtype(problem->desc.act);
    if (is_float(problem->x_dtype)) {
        return 0;
    }
    if (quantised == DTYPE_NONE || problem->x_dtype != quantised) {
        return reason_set(why, STATUS_UNSUPPORTED, "x of type %s; only f32, f16, bf16%s%s",
                          dtype_name(problem->x_dtype), quantised != DTYPE_NONE ? " and " : "",
                          quantised != DTYPE_NONE ? dtype_name(quantised) : "");
    }
    return 0;
}

int host_can_implement(const struct gk_problem *problem, enum isa isa, uint32_t codes,
                       const char *codes_text, struct reason *why)
{
    const struct gk_desc *desc = &problem->desc;
    if (gk_code_bits(desc->code) == 0 || (HOST_CODE(desc->code) & codes) == 0) {
        return reason_set(why, STATUS_UNSUPPORTED, "it is for %s weights", codes_text);
    }
    if (problem->layout != &host_panel_layout) {
        return reason_set(why, STATUS_UNSUPPORTED, "it reads the layout %s, not %s",
                          host_panel_layout.tag,
                          problem->layout != NULL ? problem->layout->tag : "none");
    }
    int r = gk_desc_check(desc, why);
    if (r == 0) {
        r = check_x(problem, why);
    }
    if (r != 0) {
        return r;
    }
    if (problem->m == 0 || problem->m > GK_BATCH_ROWS_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "a launch has 1 to %u rows, not %u",
                          GK_BATCH_ROWS_MAX, problem->m);
    }
    if (!is_float(problem->y_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED, "y of type %s; only f32, f16, bf16",
                          dtype_name(problem->y_dtype));
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
