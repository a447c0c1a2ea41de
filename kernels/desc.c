/* desc.c - format descriptors: what can be packed, and how it is called. */
#include <stdio.h>

#include "gk/gk.h"
#include "ipc/base/num.h"

/* Keeps every size of a weight (at most n * k * 4 bytes and its scales) far inside 64 bits. */
#define EXTENT_MAX (1u << 24)

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static int check_extent(const struct gk_desc *desc, struct reason *why)
{
    if (desc->n == 0 || desc->k == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "a weight of %u x %u has no elements",
                          desc->n, desc->k);
    }
    if (desc->n > EXTENT_MAX || desc->k > EXTENT_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "a weight of %u x %u is over the limit of %u",
                          desc->n, desc->k, EXTENT_MAX);
    }
    return 0;
}

static int check_int(const struct gk_desc *desc, struct reason *why)
{
    if (desc->group_size == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "group_size is 0; one group over all of k has group_size %u", desc->k);
    }
    if (desc->bits != 4) {
        return reason_set(why, STATUS_UNSUPPORTED, "%u-bit codes; only 4 bits are supported",
                          desc->bits);
    }
    if (!desc->is_symmetric) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "zero points other than the symmetric one are not supported");
    }
    if (!is_float(desc->scale_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED, "scales of type %s; only f32, f16 and bf16",
                          dtype_name(desc->scale_dtype));
    }
    return 0;
}

static int check_plain(const struct gk_desc *desc, struct reason *why)
{
    if (!is_float(desc->value_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "plain weights of type %s; only f32, f16 and bf16",
                          dtype_name(desc->value_dtype));
    }
    return 0;
}

int gk_desc_check(const struct gk_desc *desc, struct reason *why)
{
    int r = check_extent(desc, why);
    if (r != 0) {
        return r;
    }
    if (desc->bias_dtype != DTYPE_NONE && !is_float(desc->bias_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED, "a bias of type %s; only f32, f16 and bf16",
                          dtype_name(desc->bias_dtype));
    }
    switch (desc->kind) {
    case GK_KIND_PLAIN:
        return check_plain(desc, why);
    case GK_KIND_INT:
        return check_int(desc, why);
    }
    return reason_set(why, STATUS_UNSUPPORTED, "a weight of unknown kind %d", (int)desc->kind);
}

void gk_desc_format(const struct gk_desc *desc, char *text, uint32_t size_bytes)
{
    if (desc->kind == GK_KIND_PLAIN) {
        (void)snprintf(text, size_bytes, "plain %s", dtype_name(desc->value_dtype));
        return;
    }
    (void)snprintf(text, size_bytes, "int%u %s g%u %s", desc->bits,
                   desc->is_symmetric ? "sym" : "asym", desc->group_size,
                   dtype_name(desc->scale_dtype));
}

uint32_t gk_desc_groups(const struct gk_desc *desc)
{
    if (desc->kind == GK_KIND_PLAIN) {
        return 0;
    }
    return (uint32_t)num_div_up(desc->k, desc->group_size);
}
