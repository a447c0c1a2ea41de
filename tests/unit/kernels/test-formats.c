/* test-formats.c - descriptors, the GPTQ reader (cases T08, T11), and packed layouts: what is
 * packed comes back bit for bit, for odd shapes too. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "kernel_case.h"

/* ---- descriptors ------------------------------------------------------------------------------
 */

static void test_desc_refusals(void **state)
{
    (void)state;
    struct gk_desc good = desc_int4(64, 64, 32, DTYPE_F16, DTYPE_NONE);
    struct reason why = REASON_NULL;
    assert_int_equal(gk_desc_check(&good, &why), 0);

    struct gk_desc desc = good;
    desc.n = 0;
    assert_int_equal(gk_desc_check(&desc, &why), STATUS_INVALID_ARGUMENT);
    desc = good;
    desc.group_size = 0;
    assert_int_equal(gk_desc_check(&desc, &why), STATUS_INVALID_ARGUMENT);
    desc = good;
    desc.bits = 8;
    assert_int_equal(gk_desc_check(&desc, &why), STATUS_UNSUPPORTED);
    assert_non_null(strstr(why.text, "8-bit"));
    desc = good;
    desc.is_symmetric = false;
    assert_int_equal(gk_desc_check(&desc, &why), STATUS_UNSUPPORTED);
    desc = good;
    desc.scale_dtype = DTYPE_I32;
    assert_int_equal(gk_desc_check(&desc, &why), STATUS_UNSUPPORTED);
    desc = good;
    desc.bias_dtype = DTYPE_F64;
    assert_int_equal(gk_desc_check(&desc, &why), STATUS_UNSUPPORTED);
    desc = good;
    desc.k = UINT32_MAX;
    assert_int_equal(gk_desc_check(&desc, &why), STATUS_UNSUPPORTED);
    desc = desc_plain(1, 1, DTYPE_F64, DTYPE_NONE);
    assert_int_equal(gk_desc_check(&desc, &why), STATUS_UNSUPPORTED);
    assert_null(gk_layout_for(&good, GK_DEVICE_CUDA));
}

static void test_desc_text(void **state)
{
    (void)state;
    char text[32];
    struct gk_desc desc = desc_int4(64, 64, 128, DTYPE_F16, DTYPE_NONE);
    gk_desc_format(&desc, text, sizeof(text));
    assert_string_equal(text, "int4 sym g128 f16");
    desc = desc_plain(64, 64, DTYPE_BF16, DTYPE_NONE);
    gk_desc_format(&desc, text, sizeof(text));
    assert_string_equal(text, "plain bf16");
    gk_desc_format(&desc, text, 6);
    assert_string_equal(text, "plain");
}

/* ---- GPTQ -------------------------------------------------------------------------------------
 */

#define GPTQ_N      128u
#define GPTQ_K      256u
#define GPTQ_GROUPS 2u

/* Arrays of a checkpoint, one byte off any alignment, as a mapped file may have them. */
struct gptq_case {
    uint8_t qweight[1 + GPTQ_K * GPTQ_N / 2];
    uint8_t qzeros[1 + GPTQ_GROUPS * GPTQ_N / 2];
    uint8_t scales[1 + GPTQ_GROUPS * GPTQ_N * 2];
    struct gk_gptq source;
    struct gk_canonical canonical;
    struct reason why;
};

static int setup_gptq(void **state)
{
    struct gptq_case *gptq = calloc(1, sizeof(*gptq));
    assert_non_null(gptq);
    struct random random = {1};
    for (uint32_t i = 1; i < sizeof(gptq->qweight); i++) {
        gptq->qweight[i] = (uint8_t)random_next(&random);
    }
    for (uint32_t i = 0; i < GPTQ_GROUPS * GPTQ_N; i++) {
        elem_store(gptq->scales + 1, DTYPE_F16, i, 1.0 + i);
    }
    gptq->source = (struct gk_gptq){gptq->qweight + 1, gptq->qzeros + 1, gptq->scales + 1, true};
    memset(gptq->qzeros, 0x77, sizeof(gptq->qzeros));
    struct gk_desc desc = desc_int4(GPTQ_N, GPTQ_K, 128, DTYPE_F16, DTYPE_NONE);
    assert_int_equal(gk_canonical_alloc(&gptq->canonical, &desc), 0);
    *state = gptq;
    return 0;
}

static int teardown_gptq(void **state)
{
    struct gptq_case *gptq = *state;
    gk_canonical_finish(&gptq->canonical);
    free(gptq);
    return 0;
}

static int read_gptq(struct gptq_case *gptq)
{
    return gk_gptq_read(&gptq->source, &gptq->canonical, &gptq->why);
}

/* Element (k, n): word (k / 8, n), bits 4 * (k % 8); here by bytes, another way than the reader's.
 */
static void test_gptq_order(void **state)
{
    struct gptq_case *gptq = *state;
    assert_int_equal(read_gptq(gptq), 0);
    for (uint32_t i_k = 0; i_k < GPTQ_K; i_k++) {
        for (uint32_t i_n = 0; i_n < GPTQ_N; i_n++) {
            uint8_t byte = gptq->qweight[1 + (i_k / 8 * GPTQ_N + i_n) * 4 + i_k % 8 / 2];
            uint8_t code = i_k % 2 == 0 ? byte & 15 : byte >> 4;
            assert_int_equal(gptq->canonical.codes[i_n * GPTQ_K + i_k], code);
            double scale = 1.0 + i_k / 128 * GPTQ_N + i_n;
            assert_true(gk_canonical_value(&gptq->canonical, i_n, i_k) == scale * (code - 8));
        }
    }
}

static void test_gptq_versions(void **state)
{
    struct gptq_case *gptq = *state;
    assert_int_equal(read_gptq(gptq), 0); /* T08 (a) */
    gptq->source.is_v1 = false;
    assert_int_equal(read_gptq(gptq), STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(gptq->why.text, "looks like v1"));
    memset(gptq->qzeros, 0x88, sizeof(gptq->qzeros));
    assert_int_equal(read_gptq(gptq), 0); /* T08 (b) */
    gptq->source.is_v1 = true;            /* T08 (d) */
    assert_int_equal(read_gptq(gptq), STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(gptq->why.text, "declared gptq (v1)"));
    assert_non_null(strstr(gptq->why.text, "looks like v2"));
    gptq->source.qzeros = NULL;
    assert_int_equal(read_gptq(gptq), 0);
}

/* Every stored value in every field: only the symmetric one passes, nothing carries into a
 * neighbour. */
static void test_gptq_each_zero(void **state)
{
    struct gptq_case *gptq = *state;
    for (uint32_t is_v1 = 0; is_v1 < 2; is_v1++) {
        uint8_t good = is_v1 ? 7 : 8;
        gptq->source.is_v1 = is_v1;
        for (uint32_t i = 0; i < 16u * GPTQ_N; i++) {
            uint32_t i_n = i / 16;
            uint8_t stored = i % 16;
            memset(gptq->qzeros, good * 0x11, sizeof(gptq->qzeros));
            uint8_t *byte = &gptq->qzeros[1 + GPTQ_N / 2 + i_n / 2];
            *byte = i_n % 2 == 0 ? (uint8_t)(good << 4 | stored) : (uint8_t)(stored << 4 | good);
            assert_int_equal(read_gptq(gptq), stored == good ? 0 : STATUS_BAD_CHECKPOINT);
            if (stored != good) {
                char place[48];
                (void)snprintf(place, sizeof(place), "group 1, column %u ", i_n);
                assert_non_null(strstr(gptq->why.text, place));
            }
        }
    }
}

static void test_gptq_scales(void **state)
{
    struct gptq_case *gptq = *state;
    static const double bad[] = {HUGE_VAL, -HUGE_VAL, (double)NAN, -0.5};
    for (uint32_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        elem_store(gptq->scales + 1, DTYPE_F16, GPTQ_N + 5, bad[i]);
        assert_int_equal(read_gptq(gptq), STATUS_BAD_CHECKPOINT);
        assert_non_null(strstr(gptq->why.text, "group 1, column 5"));
    }
    elem_store(gptq->scales + 1, DTYPE_F16, GPTQ_N + 5, 0.0);
    assert_int_equal(read_gptq(gptq), 0);
}

static void test_gptq_shapes(void **state)
{
    struct gptq_case *gptq = *state;
    gptq->canonical.desc.k = GPTQ_K - 4;
    assert_int_equal(read_gptq(gptq), STATUS_BAD_CHECKPOINT);
    gptq->canonical.desc.k = GPTQ_K;
    gptq->canonical.desc.n = GPTQ_N - 4;
    assert_int_equal(read_gptq(gptq), STATUS_BAD_CHECKPOINT);
    gptq->canonical.desc.bits = 8;
    assert_int_equal(read_gptq(gptq), STATUS_UNSUPPORTED);
}

/* ---- packed layouts ---------------------------------------------------------------------------
 */

static void assert_same(const struct gk_canonical *a, const struct gk_canonical *b)
{
    const struct gk_desc *desc = &a->desc;
    uint64_t n_elems = (uint64_t)desc->n * desc->k;
    if (desc->kind == GK_KIND_INT) {
        assert_memory_equal(a->codes, b->codes, n_elems);
        assert_memory_equal(a->scales, b->scales,
                            gk_desc_groups(desc) * desc->n * dtype_bytes(desc->scale_dtype));
    } else {
        assert_memory_equal(a->values, b->values, n_elems * dtype_bytes(desc->value_dtype));
    }
    if (desc->bias_dtype != DTYPE_NONE) {
        assert_memory_equal(a->bias, b->bias, desc->n * dtype_bytes(desc->bias_dtype));
    }
}

/* Random bits, NaN patterns included: nothing may be rounded or quieted on the way. */
static void fill_with_bits(struct gk_canonical *canonical, struct random *random)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_elems = (uint64_t)desc->n * desc->k;
    for (uint64_t i = 0; i < n_elems && desc->kind == GK_KIND_INT; i++) {
        canonical->codes[i] = random_next(random) & 15;
    }
    for (uint64_t i = 0; i < n_elems * dtype_bytes(desc->value_dtype); i++) {
        ((uint8_t *)canonical->values)[i] = (uint8_t)random_next(random);
    }
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * desc->n;
    for (uint64_t i = 0; i < n_scales * dtype_bytes(desc->scale_dtype); i++) {
        ((uint8_t *)canonical->scales)[i] = (uint8_t)random_next(random);
    }
    for (uint64_t i = 0; i < desc->n * dtype_bytes(desc->bias_dtype); i++) {
        ((uint8_t *)canonical->bias)[i] = (uint8_t)random_next(random);
    }
}

static void check_round_trip(const struct gk_desc *desc, struct random *random)
{
    struct gk_canonical canonical, back;
    assert_int_equal(gk_canonical_alloc(&canonical, desc), 0);
    assert_int_equal(gk_canonical_alloc(&back, desc), 0);
    fill_with_bits(&canonical, random);
    const struct gk_layout *layout = gk_layout_for(desc, GK_DEVICE_HOST);
    assert_non_null(layout);
    assert_non_null(layout->tag);
    assert_true(layout->version > 0);
    uint64_t size_bytes = layout->packed_bytes(desc);
    assert_int_equal(size_bytes % 64, 0);
    uint8_t *packed = aligned_alloc(64, size_bytes + 64);
    uint8_t *again = aligned_alloc(64, size_bytes);
    memset(packed, 0x5a, size_bytes + 64);
    memset(again, 0xa5, size_bytes);
    layout->pack(&canonical, packed);
    layout->pack(&canonical, again);
    assert_memory_equal(packed, again, size_bytes); /* no byte is left as it was */
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(packed[size_bytes + i], 0x5a);
    }
    layout->unpack(packed, &back);
    assert_same(&canonical, &back);
    free(packed);
    free(again);
    gk_canonical_finish(&canonical);
    gk_canonical_finish(&back);
}

static void test_layouts_are_lossless(void **state)
{
    (void)state;
    static const uint32_t extents[] = {1, 2, 7, 63, 64, 65, 127, 128, 129, 192, 200};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    struct random random = {2};
    for (uint32_t i = 0; i < ARRAY_LENGTH(extents) * ARRAY_LENGTH(extents); i++) {
        uint32_t n = extents[i / ARRAY_LENGTH(extents)], k = extents[i % ARRAY_LENGTH(extents)];
        for (uint32_t j = 0; j < 3; j++) {
            enum dtype bias_dtype = (i + j) % 4 == 0 ? DTYPE_NONE : dtypes[(i + j) % 3];
            struct gk_desc int4 = desc_int4(n, k, 32u << j, dtypes[j], bias_dtype);
            struct gk_desc plain = desc_plain(n, k, dtypes[j], bias_dtype);
            check_round_trip(&int4, &random);
            check_round_trip(&plain, &random);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_desc_refusals),
        cmocka_unit_test(test_desc_text),
        cmocka_unit_test_setup_teardown(test_gptq_order, setup_gptq, teardown_gptq),
        cmocka_unit_test_setup_teardown(test_gptq_versions, setup_gptq, teardown_gptq),
        cmocka_unit_test_setup_teardown(test_gptq_each_zero, setup_gptq, teardown_gptq),
        cmocka_unit_test_setup_teardown(test_gptq_scales, setup_gptq, teardown_gptq),
        cmocka_unit_test_setup_teardown(test_gptq_shapes, setup_gptq, teardown_gptq),
        cmocka_unit_test(test_layouts_are_lossless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
