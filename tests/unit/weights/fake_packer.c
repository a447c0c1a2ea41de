/* fake_packer.c - see fake_packer.h. */
#include "tests/unit/weights/fake_packer.h"

#include <stdlib.h>
#include <string.h>

#include "ipc/base/num.h"

struct fake_packing fake_packing;

struct packer {
    uint8_t *room;
    uint8_t *chunk;
};

static int packer_new(struct device *device, struct packer **ret_packer, struct reason *why)
{
    (void)device;
    if (atomic_fetch_sub(&fake_packing.n_packers_left, 1) <= 0) {
        return reason_set(why, STATUS_NO_SPACE, "no more packers");
    }
    struct packer *packer = calloc(1, sizeof(*packer));
    GD_ASSERT(packer);
    packer->chunk = malloc(PACKER_CHUNK_BYTES);
    GD_ASSERT(packer->chunk);
    atomic_fetch_add(&fake_packing.n_packers, 1);
    *ret_packer = packer;
    return 0;
}

static struct packer *packer_free(struct packer *packer)
{
    if (packer) {
        free(packer->room);
        free(packer->chunk);
        free(packer);
        atomic_fetch_sub(&fake_packing.n_packers, 1);
    }
    return NULL;
}

static int begin(struct packer *packer, uint64_t size_bytes, const void **ret_base,
                 struct reason *why)
{
    if (atomic_load(&fake_packing.has_no_room)) {
        return reason_set(why, STATUS_NO_SPACE, "no room");
    }
    free(packer->room);
    packer->room = malloc(size_bytes);
    GD_ASSERT(packer->room);
    *ret_base = packer->room;
    return 0;
}

static int chunk(struct packer *packer, void **ret_bytes, struct reason *why)
{
    (void)why;
    *ret_bytes = packer->chunk;
    return 0;
}

static int send(struct packer *packer, uint64_t offset, uint64_t n_bytes, struct reason *why)
{
    (void)why;
    memcpy(packer->room + offset, packer->chunk, n_bytes);
    return 0;
}

/* Field i of a row of little-endian words, which is a stream of bits. */
static uint8_t field(const uint8_t *words, uint64_t i, uint32_t bits)
{
    uint64_t at = i * bits;
    return (uint8_t)(words[at / 8] >> at % 8 & ((1u << bits) - 1));
}

static uint8_t code_of(const struct gk_codes *codes, uint32_t bits, uint64_t i_n, uint64_t i_k)
{
    static const uint8_t awq_nibble[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const uint8_t *bytes = codes->bytes;
    uint64_t fields = 32 / bits;
    switch (codes->order) {
    case GK_CODE_ORDER_GPTQ:
        return field(bytes + (i_k / fields * codes->tensor_n + i_n) * 4, i_k % fields, bits);
    case GK_CODE_ORDER_AWQ:
        return field(bytes + (i_k * codes->tensor_n + i_n / 8 * 8) / 2, awq_nibble[i_n % 8], 4);
    case GK_CODE_ORDER_CT_PACKED:
        return field(bytes + i_n * num_div_up(codes->tensor_k, fields) * 4, i_k, bits);
    case GK_CODE_ORDER_FP4:
        return field(bytes + i_n * codes->tensor_k / 2, i_k, 4);
    case GK_CODE_ORDER_INT8:
        return (uint8_t)(bytes[i_n * codes->tensor_k + i_k] + 128u);
    default:
        return bytes[i_n * codes->tensor_k + i_k];
    }
}

static void fill_plain(const struct gk_codes *codes, struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t elem_bytes = dtype_bytes(gk_code_dtype(desc->code));
    for (uint64_t i = 0; i < codes->n; i++) {
        uint64_t i_from = (codes->first_n + i) * codes->tensor_k + codes->first_k;
        uint64_t i_to = (codes->to_n + i) * desc->k;
        memcpy((char *)canonical->codes + i_to * elem_bytes,
               (const char *)codes->bytes + i_from * elem_bytes, desc->k * elem_bytes);
    }
}

/* False where there is a NaN among fp8 codes. */
static bool fill(const struct gk_codes *codes, struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint32_t bits = gk_code_bits(desc->code);
    if (codes->order == GK_CODE_ORDER_PLAIN) {
        fill_plain(codes, canonical);
        return true;
    }
    for (uint64_t i = 0; i < codes->n; i++) {
        uint8_t *row = (uint8_t *)canonical->codes + (codes->to_n + i) * desc->k;
        for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
            uint32_t from = desc->has_perm ? canonical->perm[i_k] : i_k;
            row[i_k] = code_of(codes, bits, codes->first_n + i, codes->first_k + from);
            if (desc->code == GK_CODE_E4M3 && (row[i_k] & 0x7f) == 0x7f) {
                return false;
            }
        }
    }
    return true;
}

static int pack(struct packer *packer, const struct gk_canonical *rest,
                const struct gk_codes *codes, uint32_t n_codes, const struct region *region,
                struct reason *why)
{
    (void)packer;
    struct gk_canonical canonical = *rest;
    bool is_good = true;
    GD_ASSERT(!rest->codes);
    canonical.codes = malloc((uint64_t)rest->desc.n * rest->desc.k * sizeof(float));
    GD_ASSERT(canonical.codes);
    for (uint32_t i = 0; i < n_codes; i++) {
        is_good &= fill(&codes[i], &canonical);
    }
    gk_layout_for(&rest->desc, GK_DEVICE_HOST)->pack(&canonical, region->base);
    free(canonical.codes);
    atomic_fetch_add(&fake_packing.n_packed, 1);
    return is_good ? 0 : reason_set(why, STATUS_BAD_CHECKPOINT, "damaged");
}

void fake_packer_init(struct fake_device *fake)
{
    static const struct packer_ops packing = {
        .packer_new = packer_new,
        .packer_free = packer_free,
        .begin = begin,
        .chunk = chunk,
        .send = send,
        .pack = pack,
    };
    static struct device_ops ops;
    fake_device_init(fake);
    ops = *fake->base.ops;
    ops.packing = &packing;
    fake->base.ops = &ops;
    atomic_store(&fake_packing.n_packed, 0);
    atomic_store(&fake_packing.n_packers, 0);
    atomic_store(&fake_packing.n_packers_left, INT32_MAX);
    atomic_store(&fake_packing.has_no_room, false);
}
