/* test-cuda-layouts.c - the GPU's layouts: every kind of weight comes back bit for bit, for odd
 * shapes too, and every byte is written. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "kernel_case.h"
#include "kernels/layout/cuda_kmajor.h"
#include "kernels/layout/cuda_strip.h"
#include "kernels/layout/cuda_swizzle.h"
#include "kernels/layout/strip.h"

static void fill(void *array, uint64_t n_bytes, uint32_t mask, struct random *random)
{
    for (uint64_t i = 0; i < n_bytes; i++) {
        ((uint8_t *)array)[i] = (uint8_t)(random_next(random) & mask);
    }
}

/* Sizes in bytes of the arrays of a canonical weight, as gk.h describes them. */
struct sizes {
    uint64_t codes, scales, zeros, perm, column_scales, bias;
};

static struct sizes sizes_of(const struct gk_desc *desc)
{
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    uint32_t code_bytes = gk_code_is_plain(desc->code) ? gk_code_bits(desc->code) / 8 : 1;
    return (struct sizes){
        .codes = (uint64_t)desc->n * desc->k * code_bytes,
        .scales = n_scales * dtype_bytes(desc->scale_dtype),
        .zeros = desc->has_zeros ? n_scales : 0,
        .perm = desc->has_perm ? desc->k * 4ull : 0,
        .column_scales = desc->column_scale != GK_COLUMN_SCALE_NONE ? desc->n * 4ull : 0,
        .bias = (uint64_t)desc->n * dtype_bytes(desc->bias_dtype),
    };
}

static void assert_same(const void *a, const void *b, uint64_t n_bytes)
{
    if (n_bytes > 0) {
        assert_memory_equal(a, b, n_bytes);
    }
}

static void check_round_trip(const struct gk_layout *layout, const struct gk_desc *desc,
                             struct random *random)
{
    struct gk_canonical canonical, back;
    struct sizes sizes = sizes_of(desc);
    assert_int_equal(gk_desc_check(desc, NULL), 0);
    assert_int_equal(gk_canonical_alloc(&canonical, desc), 0);
    assert_int_equal(gk_canonical_alloc(&back, desc), 0);
    fill(canonical.codes, sizes.codes, gk_code_bits(desc->code) == 4 ? 15 : 255, random);
    fill(canonical.scales, sizes.scales, 255, random);
    fill(canonical.zeros, sizes.zeros, 15, random);
    fill(canonical.perm, sizes.perm, 255, random);
    fill(canonical.column_scales, sizes.column_scales, 255, random);
    fill(canonical.bias, sizes.bias, 255, random);
    uint64_t size_bytes = layout->packed_bytes(desc);
    assert_int_equal(size_bytes % 256, 0);
    uint8_t *packed = aligned_alloc(64, size_bytes + 64);
    uint8_t *again = aligned_alloc(64, size_bytes);
    memset(packed, 0x5a, size_bytes + 64);
    memset(again, 0xa5, size_bytes);
    layout->pack(&canonical, packed);
    layout->pack(&canonical, again);
    assert_memory_equal(packed, again, size_bytes);
    assert_int_equal(packed[size_bytes], 0x5a);
    layout->unpack(packed, &back);
    assert_same(canonical.codes, back.codes, sizes.codes);
    assert_same(canonical.scales, back.scales, sizes.scales);
    assert_same(canonical.zeros, back.zeros, sizes.zeros);
    assert_same(canonical.perm, back.perm, sizes.perm);
    assert_same(canonical.column_scales, back.column_scales, sizes.column_scales);
    assert_same(canonical.bias, back.bias, sizes.bias);
    free(packed);
    free(again);
    gk_canonical_finish(&canonical);
    gk_canonical_finish(&back);
}

static struct gk_desc desc_of(enum gk_code code, uint32_t n, uint32_t k, uint32_t i)
{
    if (gk_code_is_plain(code)) {
        return desc_plain(n, k, gk_code_dtype(code), i % 2 == 0 ? DTYPE_F16 : DTYPE_NONE);
    }
    struct gk_desc desc = desc_int4(n, k, 32, DTYPE_F16, i % 2 == 0 ? DTYPE_F32 : DTYPE_NONE);
    desc.code = code;
    desc.group_n = i % 3 == 0 ? (uint32_t)num_min(n, 128) : 1;
    desc.has_zeros = gk_code_is_int(code) && i % 2 == 1;
    desc.has_perm = i % 5 == 1;
    desc.column_scale = i % 4 == 2 ? GK_COLUMN_SCALE_DIVIDES : GK_COLUMN_SCALE_NONE;
    return desc;
}

static void test_every_code_comes_back(void **state)
{
    (void)state;
    static const uint32_t extents[] = {1, 2, 7, 63, 64, 65, 129, 200};
    struct random random = {3};
    for (uint32_t i = 0; i < ARRAY_LENGTH(extents) * ARRAY_LENGTH(extents); i++) {
        uint32_t n = extents[i / ARRAY_LENGTH(extents)], k = extents[i % ARRAY_LENGTH(extents)];
        for (enum gk_code code = GK_CODE_F32; code <= GK_CODE_E2M1; code++) {
            struct gk_desc desc = desc_of(code, n, k, i);
            check_round_trip(&cuda_kmajor_layout, &desc, &random);
        }
    }
}

/* The kernel reads codes by this rule, so it is stated here once more, in other words. */
static void test_codes_lie_k_by_k(void **state)
{
    (void)state;
    struct gk_desc desc = desc_int4(65, 40, 32, DTYPE_F16, DTYPE_NONE);
    struct gk_canonical canonical;
    struct random random = {4};
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    fill(canonical.codes, 65 * 40, 15, &random);
    uint8_t *packed = aligned_alloc(64, cuda_kmajor_layout.packed_bytes(&desc));
    cuda_kmajor_layout.pack(&canonical, packed);
    const uint8_t *codes = canonical.codes;
    assert_int_equal(packed[0] & 15, codes[0]);                     /* column 0, k 0 */
    assert_int_equal(packed[0] >> 4, codes[40]);                    /* column 1, k 0 */
    assert_int_equal(packed[3 * 64 + 32] & 15, codes[64 * 40 + 3]); /* column 64, k 3 */
    assert_int_equal(packed[3 * 64 + 32] >> 4, 0);                  /* no column 65 */
    free(packed);
    gk_canonical_finish(&canonical);
}

static void test_strips_come_back(void **state)
{
    (void)state;
    static const uint32_t ks[] = {1, 31, 64, 128, 200, 256, 300, 384, 4096, 4200};
    static const uint32_t groups[] = {32, 64, 128, 256, UINT32_MAX};
    struct random random = {5};
    for (uint32_t i = 0; i < ARRAY_LENGTH(ks) * ARRAY_LENGTH(groups); i++) {
        uint32_t k = ks[i / ARRAY_LENGTH(groups)];
        for (enum gk_code code = GK_CODE_U4; code <= GK_CODE_U8; code++) {
            struct gk_desc desc = desc_of(code, 1 + 13 * (i % 4), k, i);
            desc.group_k = (uint32_t)num_min(groups[i % ARRAY_LENGTH(groups)], k);
            const struct gk_layout *layout =
                code == GK_CODE_U4 ? &cuda_strip_u4_layout : &cuda_strip_u8_layout;
            assert_ptr_equal(gk_layout_for(&desc, GK_DEVICE_CUDA), layout);
            check_round_trip(layout, &desc, &random);
        }
    }
}

/* Every format that has strips, in odd shapes. */
static void test_float_strips_come_back(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{1, 2},     {13, 16},   {17, 32},   {40, 100},
                                         {200, 300}, {129, 512}, {33, 4096}, {64, 4200}};
    struct random random = {6};
    uint32_t n_checked = 0;
    for (uint32_t i = 0; i < n_format_cases * ARRAY_LENGTH(shapes); i++) {
        const uint32_t *shape = shapes[i % ARRAY_LENGTH(shapes)];
        struct gk_desc desc = format_desc(&format_cases[i / ARRAY_LENGTH(shapes)], shape[0],
                                          shape[1], i % 2 == 0 ? DTYPE_F32 : DTYPE_NONE);
        const struct gk_layout *layout = gk_layout_for(&desc, GK_DEVICE_CUDA);
        if (layout != &cuda_strip_e4m3_layout && layout != &cuda_strip_e2m1_layout) {
            continue;
        }
        check_round_trip(layout, &desc, &random);
        desc.has_perm = true;
        check_round_trip(layout, &desc, &random);
        n_checked++;
    }
    assert_int_equal(n_checked, 7 * ARRAY_LENGTH(shapes));
}

static void test_strips_decline(void **state)
{
    (void)state;
    struct gk_desc desc = desc_int4(64, 192, 96, DTYPE_F16, DTYPE_NONE);
    assert_false(cuda_strip_u4_layout.fits(&desc)); /* groups that a slice does not hold whole */
    desc = desc_int4(64, 128, 128, DTYPE_F32, DTYPE_NONE);
    assert_false(cuda_strip_u4_layout.fits(&desc));
    desc = desc_plain(64, 128, DTYPE_F16, DTYPE_NONE);
    assert_false(cuda_strip_u4_layout.fits(&desc));
    desc = desc_int4(64, 256, 128, DTYPE_F16, DTYPE_NONE);
    desc.act = GK_ACT_FP8_TOKEN;
    assert_true(cuda_strip_u4_layout.fits(&desc)); /* e4m3 x by the row, in groups of 128 */
    desc.has_perm = true;
    assert_false(cuda_strip_u4_layout.fits(&desc));
    desc.has_perm = false;
    desc.group_k = 64;
    assert_false(cuda_strip_u4_layout.fits(&desc));
    desc.k = 64; /* one group, and a short one all the same */
    assert_false(cuda_strip_u4_layout.fits(&desc));
    desc.k = 256;
    desc.group_k = 128;
    desc.act = GK_ACT_FP8_GROUP;
    assert_false(cuda_strip_u4_layout.fits(&desc));
    desc.act = GK_ACT_FP8_TOKEN;
    desc.code = GK_CODE_U8;
    assert_false(cuda_strip_u8_layout.fits(&desc));
    desc = desc_int4(64, 256, 128, DTYPE_F32, DTYPE_NONE);
    desc.code = GK_CODE_E4M3;
    assert_false(cuda_strip_e4m3_layout.fits(&desc)); /* a scale for each row and 128 */
    desc.group_n = 16;
    assert_true(cuda_strip_e4m3_layout.fits(&desc));
    desc.act = GK_ACT_FP8_TOKEN;
    assert_false(cuda_strip_e4m3_layout.fits(&desc));
    desc = desc_int4(64, 256, 32, DTYPE_F8_E4M3, DTYPE_NONE);
    desc.code = GK_CODE_E2M1;
    assert_false(cuda_strip_e2m1_layout.fits(&desc)); /* groups of 32 have e8m0 scales */
}

/* One code other than zero at a time: it must be where the picture of strip.h says. */
static void test_codes_lie_as_fragments(void **state)
{
    (void)state;
    enum { n = 32, k = 512 };
    struct gk_desc desc = desc_int4(n, k, 128, DTYPE_F16, DTYPE_NONE);
    struct gk_canonical canonical;
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    uint32_t *packed = aligned_alloc(64, cuda_strip_u4_layout.packed_bytes(&desc));
    /* Row 16 + 9 is g 1, lower half; k 256 + 64 + 45 is unit 1 of slice 1, block 1, t 1, its sixth
     * element: word 3, the odd half of the second pair. */
    ((uint8_t *)canonical.codes)[25 * k + 365] = 5;
    cuda_strip_u4_layout.pack(&canonical, packed);
    uint64_t record_words = strip_align(2 * (STRIP_CODES_BYTES + 64)) / 4;
    uint64_t at = record_words + STRIP_CODES_BYTES / 4 + STRIP_UNIT_BYTES / 4 + 4 * (4 * 1 + 1) + 3;
    uint32_t nibble = 4 * (1 + 4); /* register 1, odd half */
    assert_int_equal(packed[at], 5u << nibble << 3 | 5u >> (29 - nibble));
    packed[at] = 0;
    for (uint64_t i = 0; i < 2 * record_words; i++) {
        assert_int_equal(packed[i], 0);
    }
    free(packed);
    gk_canonical_finish(&canonical);
}

static void test_bytes_lie_as_fragments(void **state)
{
    (void)state;
    enum { n = 32, k = 512 };
    struct gk_desc desc = desc_int4(n, k, 128, DTYPE_F16, DTYPE_NONE);
    desc.code = GK_CODE_U8;
    desc.has_zeros = true;
    struct gk_canonical canonical;
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    uint64_t size_bytes = cuda_strip_u8_layout.packed_bytes(&desc);
    uint8_t *packed = aligned_alloc(64, size_bytes);
    /* Row 16 + 9, k 256 + 64 + 45: unit 3 of slice 1, g 1, t 1, its sixth element: word 3, byte 1.
     */
    ((uint8_t *)canonical.codes)[25 * k + 365] = 0xa5;
    cuda_strip_u8_layout.pack(&canonical, packed);
    uint64_t record_bytes = strip_align(2 * (STRIP_CODES_BYTES_OF(8) + 64 + 32));
    uint64_t at = record_bytes + STRIP_CODES_BYTES_OF(8) + 3 * STRIP_UNIT_BYTES + 16 * 5 + 13;
    assert_int_equal(packed[at], 0xa5);
    packed[at] = 0;
    for (uint64_t i = 0; i < size_bytes; i++) {
        assert_int_equal(packed[i], 0);
    }
    free(packed);
    gk_canonical_finish(&canonical);
}

/* The same for float codes: row 25, k 365, as above. */
static void test_float_codes_lie_as_fragments(void **state)
{
    (void)state;
    enum { n = 32, k = 512 };
    struct gk_desc desc = desc_int4(n, k, k, DTYPE_F32, DTYPE_NONE);
    struct gk_canonical canonical;
    desc.code = GK_CODE_E4M3;
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    ((uint8_t *)canonical.codes)[25 * k + 365] = 0xa5;
    uint8_t *packed = aligned_alloc(64, cuda_strip_e4m3_layout.packed_bytes(&desc));
    cuda_strip_e4m3_layout.pack(&canonical, packed);
    uint64_t record_bytes = strip_align(2 * (STRIP_CODES_BYTES_OF(8) + 8));
    uint64_t word = record_bytes + STRIP_CODES_BYTES_OF(8) + 3 * STRIP_UNIT_BYTES + 16 * 5 + 12;
    assert_int_equal(packed[word + 3], 0xa5); /* k 1 of four */
    const float one = 1.0f;
    assert_memory_equal(packed + record_bytes + 2 * STRIP_CODES_BYTES_OF(8), &one, sizeof(one));
    free(packed);
    gk_canonical_finish(&canonical);

    desc = desc_int4(n, k, 16, DTYPE_F8_E4M3, DTYPE_NONE);
    desc.code = GK_CODE_E2M1;
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    ((uint8_t *)canonical.codes)[25 * k + 365] = 0xd; /* -3 */
    ((uint8_t *)canonical.scales)[365 / 16 * n + 25] = 0x77;
    packed = aligned_alloc(64, cuda_strip_e2m1_layout.packed_bytes(&desc));
    cuda_strip_e2m1_layout.pack(&canonical, packed);
    record_bytes = strip_align(2 * (STRIP_CODES_BYTES + 256));
    word = record_bytes + STRIP_CODES_BYTES + STRIP_UNIT_BYTES + 16 * 5 + 12;
    uint32_t bits;
    memcpy(&bits, packed + word, sizeof(bits));
    assert_int_equal(bits, 1u << 28 | 5u << 19); /* register 1, its upper half */
    /* g 1, group 6 of the slice: block 3, its first half; the lower row. */
    assert_int_equal(
        packed[record_bytes + 2 * STRIP_CODES_BYTES + 256 + 2 * ((1 * 2 + 0) * 8 + 3) + 1], 0x77);
    free(packed);
    gk_canonical_finish(&canonical);
}

static struct gk_desc desc_w8a8(bool is_int, uint32_t n, uint32_t k, uint32_t i)
{
    struct gk_desc desc = desc_int4(n, k, k, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, DTYPE_NONE);
    bool is_block = !is_int && i % 3 == 1;
    desc.code = is_int ? GK_CODE_U8 : GK_CODE_E4M3;
    desc.act = is_int ? GK_ACT_INT8_TOKEN : is_block ? GK_ACT_FP8_GROUP : GK_ACT_FP8_TOKEN;
    desc.group_k = is_block ? (uint32_t)num_min(128, k) : k;
    desc.group_n = is_block || i % 3 == 2 ? (uint32_t)num_min(128, n) : 1;
    desc.has_zeros = is_int && i % 2 == 1;
    desc.column_scale = i % 4 == 3 ? GK_COLUMN_SCALE_MULTIPLIES : GK_COLUMN_SCALE_NONE;
    desc.bias_dtype = i % 4 == 1 ? DTYPE_F16 : DTYPE_NONE;
    return desc;
}

static void test_swizzled_weights_come_back(void **state)
{
    (void)state;
    static const uint32_t extents[] = {1, 7, 8, 9, 127, 128, 129, 300};
    struct random random = {6};
    for (uint32_t i = 0; i < ARRAY_LENGTH(extents) * ARRAY_LENGTH(extents); i++) {
        uint32_t n = extents[i / ARRAY_LENGTH(extents)], k = extents[i % ARRAY_LENGTH(extents)];
        for (uint32_t is_int = 0; is_int < 2; is_int++) {
            struct gk_desc desc = desc_w8a8(is_int != 0, n, k, i);
            assert_ptr_equal(gk_layout_for(&desc, GK_DEVICE_CUDA), &cuda_swizzle_layout);
            check_round_trip(&cuda_swizzle_layout, &desc, &random);
        }
    }
}

static void test_swizzled_weights_decline(void **state)
{
    (void)state;
    struct gk_desc desc = desc_w8a8(false, 256, 256, 0);
    desc.act = GK_ACT_FLOAT;
    assert_false(cuda_swizzle_layout.fits(&desc));
    desc = desc_w8a8(false, 256, 256, 1);
    desc.group_n = 64; /* blocks that are none of a warpgroup's */
    assert_false(cuda_swizzle_layout.fits(&desc));
    desc = desc_w8a8(false, 256, 256, 0);
    desc.group_k = 64;
    assert_false(cuda_swizzle_layout.fits(&desc));
    desc.group_k = 256;
    desc.has_perm = true;
    assert_false(cuda_swizzle_layout.fits(&desc));
}

/* One code other than zero: it must be where the picture of swizzle.h says; and what a row of
 * integers sums to. */
static void test_swizzled_codes_lie_in_atoms(void **state)
{
    (void)state;
    enum { n = 20, k = 300 };
    struct gk_desc desc = desc_w8a8(true, n, k, 0);
    struct gk_canonical canonical;
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    memset(canonical.codes, 128, n * k);
    ((uint8_t *)canonical.codes)[13 * k + 128 + 37] = 125;
    uint8_t *packed = aligned_alloc(64, cuda_swizzle_layout.packed_bytes(&desc));
    cuda_swizzle_layout.pack(&canonical, packed);
    /* Row 13 is row 5 of group 1 of 3; k 165 is block 1, unit 2 there, its byte 5. */
    uint64_t at = (1 * 3 + 1) * 1024 + 5 * 128 + (2 ^ 5) * 16 + 5;
    assert_int_equal(packed[at], 0xfd);
    packed[at] = 0;
    for (uint64_t i = 0; i < 9 * 1024; i++) {
        assert_int_equal(packed[i], 0);
    }
    int32_t sums[n];
    memcpy(sums, packed + swizzle_shape(&desc).code_sums_offset, sizeof(sums));
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(sums[i], i == 13 ? -3 : 0);
    }
    free(packed);
    gk_canonical_finish(&canonical);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_comes_back),
        cmocka_unit_test(test_codes_lie_k_by_k),
        cmocka_unit_test(test_strips_come_back),
        cmocka_unit_test(test_float_strips_come_back),
        cmocka_unit_test(test_strips_decline),
        cmocka_unit_test(test_codes_lie_as_fragments),
        cmocka_unit_test(test_bytes_lie_as_fragments),
        cmocka_unit_test(test_swizzled_weights_come_back),
        cmocka_unit_test(test_swizzled_weights_decline),
        cmocka_unit_test(test_swizzled_codes_lie_in_atoms),
        cmocka_unit_test(test_float_codes_lie_as_fragments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
