/* part_case.c - see part_case.h. */
#include "part_case.h"

#include "cmocka_all.h"
#include "ipc/base/num.h"

static double power_of_two(struct random *random)
{
    return (double)(1u << random_next(random) % 8) / 16;
}

static void random_codes(struct gk_canonical *canonical, struct random *random)
{
    enum gk_code code = canonical->desc.code;
    for (uint64_t i = 0; i < (uint64_t)canonical->desc.n * canonical->desc.k; i++) {
        uint32_t value = random_next(random) >> (32 - gk_code_bits(code));
        if (gk_code_is_plain(code)) {
            elem_store(canonical->codes, gk_code_dtype(code), i, value % 16 - 8.0);
            continue;
        }
        bool is_nan = code == GK_CODE_E4M3 && (value & 0x7f) == 0x7f;
        ((uint8_t *)canonical->codes)[i] = is_nan ? 0 : (uint8_t)value;
    }
}

static void random_scales(struct gk_canonical *canonical, struct random *random)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    for (uint64_t i = 0; i < n_scales; i++) {
        if (dtype_bytes(desc->scale_dtype) == 1) {
            ((uint8_t *)canonical->scales)[i] = (uint8_t)(random_next(random) % 0x7f);
        } else {
            elem_store(canonical->scales, desc->scale_dtype, i, power_of_two(random));
        }
        if (desc->has_zeros) {
            uint32_t zero = random_next(random) >> (32 - gk_code_bits(desc->code));
            canonical->zeros[i] = (uint8_t)zero;
        }
    }
}

/* Multiplying by a number without common divisor is a permutation: a multiplier that is prime. */
static void fixed_perm(struct gk_canonical *canonical)
{
    uint32_t k = canonical->desc.k;
    for (uint32_t i = 0; i < k && canonical->desc.has_perm; i++) {
        canonical->perm[i] = i * 8191 % k;
    }
}

void part_random(struct gk_canonical *canonical, const struct gk_desc *desc, struct random *random)
{
    struct reason why = REASON_NULL;
    if (gk_desc_check(desc, &why) != 0) {
        fail_msg("%s", why.text);
    }
    assert_int_equal(gk_canonical_alloc(canonical, desc), 0);
    random_codes(canonical, random);
    random_scales(canonical, random);
    fixed_perm(canonical);
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        if (canonical->column_scales != NULL) {
            canonical->column_scales[i_n] = (float)power_of_two(random);
        }
        if (canonical->bias != NULL) {
            elem_store(canonical->bias, desc->bias_dtype, i_n, random_next(random) % 64);
        }
    }
}

void part_assert(const struct gk_canonical *part, const struct gk_canonical *whole,
                 uint32_t first_n, uint32_t first_k)
{
    for (uint32_t i_n = 0; i_n < part->desc.n; i_n++) {
        for (uint32_t i_k = 0; i_k < part->desc.k; i_k++) {
            double of_whole = gk_canonical_value(whole, first_n + i_n, first_k + i_k);
            assert_true(gk_canonical_value(part, i_n, i_k) == of_whole);
        }
        if (part->bias != NULL) {
            assert_true(gk_canonical_bias(part, i_n) == gk_canonical_bias(whole, first_n + i_n));
        }
    }
}

void part_descs(uint32_t n, uint32_t k, struct gk_desc descs[PART_DESCS])
{
    uint32_t g32 = (uint32_t)num_min(32, k), g128 = (uint32_t)num_min(128, k);
    uint32_t block_n = (uint32_t)num_min(128, n);
    const struct gk_desc all[PART_DESCS] = {
        {.code = GK_CODE_BF16, .bias_dtype = DTYPE_BF16},
        {.code = GK_CODE_U4, .group_n = 1, .group_k = g32, .scale_dtype = DTYPE_F16},
        {.code = GK_CODE_U4,
         .group_n = 1,
         .group_k = g128,
         .scale_dtype = DTYPE_BF16,
         .has_zeros = true,
         .bias_dtype = DTYPE_F16},
        {.code = GK_CODE_U8,
         .group_n = 1,
         .group_k = k,
         .scale_dtype = DTYPE_F32,
         .act = GK_ACT_INT8_TOKEN},
        {.code = GK_CODE_E4M3,
         .group_n = n,
         .group_k = k,
         .scale_dtype = DTYPE_F32,
         .act = GK_ACT_FP8_TENSOR,
         .act_scale = 0.5f},
        {.code = GK_CODE_E4M3,
         .group_n = block_n,
         .group_k = g128,
         .scale_dtype = DTYPE_F32,
         .act = GK_ACT_FP8_GROUP},
        {.code = GK_CODE_E2M1,
         .group_n = 1,
         .group_k = 16,
         .scale_dtype = DTYPE_F8_E4M3,
         .column_scale = GK_COLUMN_SCALE_DIVIDES},
        {.code = GK_CODE_E2M1, .group_n = 1, .group_k = g32, .scale_dtype = DTYPE_F8_E8M0},
        {.code = GK_CODE_U4,
         .group_n = 1,
         .group_k = g32,
         .scale_dtype = DTYPE_F16,
         .has_perm = true},
    };
    for (uint32_t i = 0; i < PART_DESCS; i++) {
        descs[i] = all[i];
        descs[i].n = n;
        descs[i].k = k;
    }
}
