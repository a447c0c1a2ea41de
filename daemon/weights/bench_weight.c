/* bench_weight.c - see bench_weight.h.
 *
 * Codes are made 64 bits at a time: random bits, of which a pattern for each code keeps some and
 * sets some, so that a layer of a GiB takes a fraction of a second. What is timed depends on bits
 * that toggle, hence random ones; nothing depends on their being good. */
#include "daemon/weights/bench_weight.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/f8.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"

#define HOST_BYTES                                                                                 \
    (256ull << 20) /* what all copies together have at least: more than the caches                 \
                    */
#define GPU_BYTES (600ull << 20)
#define SCALE     0.01f

/* ---- values ---- */

static uint64_t random_next(uint64_t *state) /* xorshift */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

struct pattern {
    uint64_t keep;
    uint64_t set;
};

/* Sign and mantissa are free, of a plain float's exponent the two low bits: 2^-7 to 2^-3. The top
 * bit of E4M3's exponent is clear, which leaves no NaN. */
static struct pattern pattern_of(enum gk_code code)
{
    switch (code) {
    case GK_CODE_F32:
        return (struct pattern){0x81ffffff81ffffffu, 0x3c0000003c000000u};
    case GK_CODE_F16:
        return (struct pattern){0x8fff8fff8fff8fffu, 0x2000200020002000u};
    case GK_CODE_BF16:
        return (struct pattern){0x81ff81ff81ff81ffu, 0x3c003c003c003c00u};
    case GK_CODE_E4M3:
        return (struct pattern){0xbfbfbfbfbfbfbfbfu, 0};
    case GK_CODE_U4:
    case GK_CODE_E2M1:
        return (struct pattern){0x0f0f0f0f0f0f0f0fu, 0};
    case GK_CODE_U8:
        break;
    }
    return (struct pattern){UINT64_MAX, 0};
}

static void fill_codes(void *codes, uint64_t n_bytes, enum gk_code code, uint64_t *random)
{
    struct pattern pattern = pattern_of(code);
    for (uint64_t i = 0; i < n_bytes; i += sizeof(uint64_t)) {
        uint64_t word = (random_next(random) & pattern.keep) | pattern.set;
        memcpy((uint8_t *)codes + i, &word, num_min(sizeof(word), n_bytes - i));
    }
}

static void fill_scales(void *scales, enum dtype dtype, uint64_t n)
{
    uint16_t bits16 = dtype == DTYPE_F16 ? half_from_f32(SCALE) : bf16_from_f32(SCALE);
    uint8_t bits8 = dtype == DTYPE_F8_E4M3 ? e4m3_from_f32(SCALE) : e8m0_from_f32(SCALE);
    for (uint64_t i = 0; i < n; i++) {
        if (dtype == DTYPE_F32) {
            ((float *)scales)[i] = SCALE;
        } else if (dtype == DTYPE_F16 || dtype == DTYPE_BF16) {
            ((uint16_t *)scales)[i] = bits16;
        } else {
            ((uint8_t *)scales)[i] = bits8;
        }
    }
}

static void fill_perm(uint32_t *perm, uint32_t k, uint64_t *random)
{
    for (uint32_t i = 0; i < k; i++) {
        uint32_t j = (uint32_t)(random_next(random) % (i + 1));
        perm[i] = perm[j];
        perm[j] = i;
    }
}

void bench_weight_fill(struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t random = 0x9e3779b97f4a7c15u;
    bool is_plain = gk_code_is_plain(desc->code);
    uint64_t elem_bytes = is_plain ? gk_code_bits(desc->code) / 8 : 1;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    fill_codes(canonical->codes, (uint64_t)desc->n * desc->k * elem_bytes, desc->code, &random);
    fill_scales(canonical->scales, desc->scale_dtype, n_scales);
    if (desc->has_zeros) {
        fill_codes(canonical->zeros, n_scales, desc->code, &random);
    }
    if (desc->has_perm) {
        fill_perm(canonical->perm, desc->k, &random);
    }
    for (uint32_t i = 0; desc->column_scale != GK_COLUMN_SCALE_NONE && i < desc->n; i++) {
        canonical->column_scales[i] = 1.0f;
    }
}

/* ---- copies ---- */

static uint32_t copies_for(const struct device *device, uint64_t packed_bytes)
{
    uint64_t bytes = device->ops->kind == GK_DEVICE_HOST ? HOST_BYTES : GPU_BYTES;
    return (uint32_t)num_min(num_div_up(bytes, packed_bytes), BENCH_COPIES_MAX);
}

/* In the machine's own memory: the weight before it is packed, one packed, and the copies where
 * the device has no other. */
static int check_memory(const struct device *device, const struct gk_desc *desc,
                        uint64_t packed_bytes, uint32_t n_copies, struct reason *why)
{
    uint64_t elem_bytes = gk_code_is_plain(desc->code) ? gk_code_bits(desc->code) / 8 : 1;
    uint64_t scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    uint64_t bytes = (uint64_t)desc->n * desc->k * elem_bytes + scales * 5 + packed_bytes;
    bytes += device->ops->kind == GK_DEVICE_HOST ? n_copies * packed_bytes : 0;
    uint64_t available_bytes = region_available_bytes();
    if (bytes <= available_bytes) {
        return 0;
    }
    return reason_set(why, STATUS_NO_SPACE,
                      "a weight of %u x %u with %u copies takes %llu MiB to make; the machine has "
                      "%llu MiB available",
                      desc->n, desc->k, n_copies, (unsigned long long)(bytes >> 20),
                      (unsigned long long)(available_bytes >> 20));
}

static int pack_random(const struct gk_desc *desc, const struct gk_layout *layout, void *packed)
{
    struct gk_canonical canonical;
    int r = gk_canonical_alloc(&canonical, desc);
    if (r != 0) {
        return r;
    }
    bench_weight_fill(&canonical);
    layout->pack(&canonical, packed);
    gk_canonical_finish(&canonical);
    return 0;
}

static int add_copy(struct bench_weight *weight, const void *packed, uint64_t packed_bytes,
                    struct reason *why)
{
    struct region *region = &weight->regions[weight->n_copies];
    struct device *device = weight->device;
    int r = device->ops->region_new(device, "gemmd:bench", packed_bytes, region, why);
    if (r != 0) {
        return r;
    }
    weight->packed[weight->n_copies++] = region->base;
    void *bytes;
    r = device_view_begin(device, region, DEVICE_WRITE, &bytes, why);
    if (r != 0) {
        return r;
    }
    memcpy(bytes, packed, packed_bytes);
    return device_view_end(device, region, DEVICE_WRITE, why);
}

int bench_weight_init(struct bench_weight *weight, struct device *device,
                      const struct gk_desc *desc, const struct gk_layout *layout,
                      struct progress *progress, struct reason *why)
{
    uint64_t packed_bytes = layout->packed_bytes(desc);
    uint32_t n_copies = copies_for(device, packed_bytes);
    *weight = (struct bench_weight){.device = device};
    int r = check_memory(device, desc, packed_bytes, n_copies, why);
    if (r != 0) {
        return r;
    }
    CLEAN_FREE void *packed = aligned_alloc(64, packed_bytes); /* a multiple of 64 */
    if (!packed) {
        return err_raise(-ENOMEM);
    }
    memset(packed, 0, packed_bytes); /* as a new region is: padding need not be written */
    r = pack_random(desc, layout, packed);
    for (uint32_t i = 0; r == 0 && i < n_copies; i++) {
        r = progress_check(progress, why);
        r = r != 0 ? r : add_copy(weight, packed, packed_bytes, why);
    }
    if (r != 0) {
        bench_weight_finish(weight);
    }
    return r;
}

void bench_weight_finish(struct bench_weight *weight)
{
    for (uint32_t i = 0; i < weight->n_copies; i++) {
        weight->device->ops->region_free(weight->device, &weight->regions[i]);
    }
    *weight = BENCH_WEIGHT_NULL;
}
