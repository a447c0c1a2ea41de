/* gemm.c - one product of the caller's: taken, checked, and described for the daemon. */
#include "ipc/base/num.h"

#include "client/client.h"

/* The name of a buffer of another client; NULL: there is none. */
static const char *foreign_buffer(const struct gemmd_client *client, const struct gemmd_gemm *gemm)
{
    if (gemm->x && gemm->x->client != client) {
        return "x";
    }
    if (gemm->y && gemm->y->client != client) {
        return "y";
    }
    return gemm->x_scale && gemm->x_scale->client != client ? "x_scale" : NULL;
}

int gemm_take(const struct gemmd_gemm *gemm, struct gemmd_gemm *ret_gemm)
{
    static const struct taken taken = {
        .name = "gemmd_gemm",
        .struct_bytes = sizeof(struct gemmd_gemm),
        .ends = {STRUCT_END(struct gemmd_gemm, timeout_usec),
                 STRUCT_END(struct gemmd_gemm, x_scale_stride),
                 STRUCT_END(struct gemmd_gemm, accumulation)},
    };
    *ret_gemm = (struct gemmd_gemm)GEMMD_GEMM_INIT;
    return taken_read(&taken, gemm, ret_gemm);
}

int gemm_check(const struct gemmd_client *client, const struct gemmd_gemm *gemm)
{
    if (!gemm->weight) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_gemm.weight is NULL");
    }
    if (gemm->m > 0 && (!gemm->x || !gemm->y)) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_gemm.%s is NULL and m is %u",
                             gemm->x ? "y" : "x", gemm->m);
    }
    const char *foreign = foreign_buffer(client, gemm);
    if (foreign) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_gemm.%s belongs to another client",
                             foreign);
    }
    if (!gemm->x_scale && (gemm->x_scale_offset_bytes || gemm->x_scale_stride)) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_gemm.x_scale is NULL and has an offset or a stride");
    }
    if ((unsigned)gemm->x_dtype > UINT8_MAX || (unsigned)gemm->y_dtype > UINT8_MAX) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_gemm: x_dtype %d, y_dtype %d: not a gemmd_dtype",
                             (int)gemm->x_dtype, (int)gemm->y_dtype);
    }
    if ((unsigned)gemm->accumulation > GEMMD_ACCUMULATION_FAST) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_gemm.accumulation %d is not a gemmd_accumulation",
                             (int)gemm->accumulation);
    }
    return 0;
}

/* An offset that is out of range anyway must not wrap into it. */
static uint64_t offset_of(const struct gemmd_buffer *buffer, uint64_t offset_bytes)
{
    uint64_t sum;
    return buffer && num_add(buffer->offset_bytes, offset_bytes, &sum) ? sum : offset_bytes;
}

/* Scales between rows of x_scale. */
static uint64_t scale_stride(const struct gemmd_gemm *gemm)
{
    if (!gemm->x_scale || gemm->x_scale_stride) {
        return gemm->x_scale_stride;
    }
    return gemm->weight->act == GEMMD_ACT_FP8_GROUP ? num_div_up(gemm->weight->k, GEMMD_ACT_GROUP_K)
                                                    : 1;
}

/* What the options say of every request. */
static uint32_t flags_of(const struct gemmd_options *options)
{
    static const uint32_t priorities[] = {[GEMMD_PRIORITY_NORMAL] = REQUEST_FLAG_NONE,
                                          [GEMMD_PRIORITY_HIGH] = REQUEST_FLAG_HIGH,
                                          [GEMMD_PRIORITY_LOW] = REQUEST_FLAG_LOW};
    uint32_t flags = priorities[options->priority];
    if (options->hold_usec == 0) {
        return flags | REQUEST_FLAG_NO_HOLD;
    }
    bool is_bounded = options->hold_usec <= REQUEST_HOLD_USEC_MAX;
    return is_bounded ? flags | options->hold_usec << REQUEST_HOLD_SHIFT : flags;
}

struct request_desc gemm_describe(struct gemmd_client *client, const struct gemmd_gemm *gemm,
                                  uint64_t request_id)
{
    return (struct request_desc){
        .request_id = request_id,
        .weight_id = weights_id(client, gemm->weight),
        .x_buffer_id = gemm->x ? gemm->x->id.number : 0,
        .x_offset_bytes = offset_of(gemm->x, gemm->x_offset_bytes),
        .x_stride_elems = gemm->x_stride ? gemm->x_stride : gemm->weight->k,
        .y_buffer_id = gemm->y ? gemm->y->id.number : 0,
        .y_offset_bytes = offset_of(gemm->y, gemm->y_offset_bytes),
        .y_stride_elems = gemm->y_stride ? gemm->y_stride : gemm->weight->n,
        .timeout_usec = gemm->timeout_usec,
        .m = gemm->m,
        .n = gemm->weight->n,
        .k = gemm->weight->k,
        .op = REQUEST_OP_GEMM,
        .x_dtype = (uint8_t)gemm->x_dtype,
        .y_dtype = (uint8_t)gemm->y_dtype,
        .flags = flags_of(&client->options) |
                 (gemm->accumulation == GEMMD_ACCUMULATION_FAST ? REQUEST_FLAG_FAST_ACCUMULATION
                                                                : REQUEST_FLAG_NONE),
        .x_scale_buffer_id = gemm->x_scale ? gemm->x_scale->id.number : 0,
        .x_scale_offset_bytes = offset_of(gemm->x_scale, gemm->x_scale_offset_bytes),
        .x_scale_stride_elems = scale_stride(gemm),
    };
}
