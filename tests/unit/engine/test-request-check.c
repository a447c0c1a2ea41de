/* test-request-check.c - every rule with its numbers (T26), and what passes with its references. */
#include "tests/unit/engine/cmocka_all.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "daemon/engine/request_check.h"
#include "tests/unit/engine/bench.h"

#define ROWS_MAX 1000u

static struct bench bench;
static struct buffers *buffers;
static struct place x_place;
static struct place y_place;
static const struct weight *weight; /* plain, n 72, k 96 */

static int set_up(void **state)
{
    (void)state;
    bench_init(&bench, 1);
    buffers = bench_buffers();
    weight = bench.weights[WEIGHT_PLAIN];
    x_place = (struct place){.stride_elems = 96, .dtype = DTYPE_F32};
    y_place = (struct place){.stride_elems = 72, .dtype = DTYPE_F16};
    x_place.buffer_id = bench_add(&bench, buffers, 4096, &x_place.base);
    y_place.buffer_id = bench_add(&bench, buffers, 8192, &y_place.base);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)buffers_free(buffers);
    bench_finish(&bench);
    return 0;
}

static struct request_desc good(uint32_t m)
{
    return bench_desc(weight, 1, m, &x_place, &y_place);
}

static void refuses(const struct request_desc *desc, int status, const char *sentence)
{
    struct checked checked;
    memset(&checked, 0x77, sizeof(checked));
    struct checked before = checked;
    struct reason why = REASON_NULL;
    uint32_t n_refs = atomic_load(&weight->n_refs);
    int r = request_check(desc, bench.store, buffers, bench.device, ROWS_MAX, &checked, &why);
    assert_string_equal(why.text, sentence);
    assert_int_equal(r, status);
    assert_memory_equal(&checked, &before, sizeof(checked));
    assert_int_equal(atomic_load(&weight->n_refs), n_refs);
}

/* Where the daemon has that buffer mapped. */
static uint8_t *mapped_at(uint64_t buffer_id)
{
    void *base;
    uint64_t n_bytes;
    struct buffer *buffer = buffers_acquire(buffers, buffer_id, &base, &n_bytes);
    (void)buffer_unref(buffer);
    return base;
}

static void good_request_passes(void **state)
{
    (void)state;
    struct request_desc desc = good(2);
    desc.x_offset_bytes = 8;
    desc.x_stride_elems = 100;
    desc.flags = REQUEST_FLAG_NO_HOLD | REQUEST_FLAG_HIGH | REQUEST_FLAG_FAST_ACCUMULATION |
                 300u << REQUEST_HOLD_SHIFT;
    struct checked checked;
    struct reason why = REASON_NULL;
    assert_int_equal(
        request_check(&desc, bench.store, buffers, bench.device, ROWS_MAX, &checked, &why), 0);
    assert_ptr_equal(checked.weight, weight);
    assert_int_equal(checked.x_stride_bytes, 400);
    assert_int_equal(checked.y_stride_bytes, 144);
    assert_int_equal(checked.m, 2);
    assert_ptr_equal(checked.x, mapped_at(x_place.buffer_id) + 8);
    assert_ptr_equal(checked.y, mapped_at(y_place.buffer_id));
    checked_finish(&checked);
    assert_null(checked.weight);
    checked_finish(&checked);
}

static void form(void **state)
{
    (void)state;
    struct request_desc desc = good(1);
    desc.op = 9;
    refuses(&desc, STATUS_UNSUPPORTED, "op 9 is not known");
    desc = good(1);
    desc.flags = 0x20;
    refuses(&desc, STATUS_UNSUPPORTED, "flags 0x20 are not known");
    desc = good(1);
    desc.reserved0 = 1;
    refuses(&desc, STATUS_INVALID_ARGUMENT, "reserved fields of the request are not 0");
    desc = good(1);
    desc.order_value = 1;
    refuses(&desc, STATUS_INVALID_ARGUMENT, "reserved fields of the request are not 0");
    desc = good(1);
    desc.order_stream = 1;
    refuses(&desc, STATUS_INVALID_ARGUMENT, "reserved fields of the request are not 0");
    desc = good(1);
    desc.x_dtype = DTYPE_U8;
    refuses(&desc, STATUS_UNSUPPORTED,
            "type 6 of x is not one of f32 (1), f16 (2), bf16 (3), i8 (5), f8_e4m3 (14)");
    desc = good(1);
    desc.y_dtype = DTYPE_I8;
    refuses(&desc, STATUS_UNSUPPORTED, "type 5 of y is not one of f32 (1), f16 (2), bf16 (3)");
    desc = good(1);
    desc.y_dtype = 200;
    refuses(&desc, STATUS_UNSUPPORTED, "type 200 of y is not one of f32 (1), f16 (2), bf16 (3)");
}

static void weights(void **state)
{
    (void)state;
    struct request_desc desc = good(1);
    desc.weight_id = 12345;
    refuses(&desc, STATUS_NOT_FOUND,
            "there is no weight of id 12345: it was unloaded, or reloaded with another shape");
    desc = good(1);
    desc.n = 73;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "the request takes weight 'bench/w1' for 73 x 96, it is 72 x 96");
    desc = good(ROWS_MAX + 1);
    refuses(&desc, STATUS_INVALID_ARGUMENT, "m 1001 is over the limit of 1000 rows");

    struct device *other;
    struct checked checked;
    struct reason why = REASON_NULL;
    assert_int_equal(device_open("host", 1, 1, &other, &why), 0);
    desc = good(1);
    assert_int_equal(request_check(&desc, bench.store, buffers, other, ROWS_MAX, &checked, &why),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, "is on device 0 (host), the request came to device 1 (host)"));
    (void)device_close(other);
}

/* ---- rows that come quantised ---- */

/* m rows of codes for that weight, their scales at the end of y's buffer. */
static struct request_desc good_codes(uint32_t i_weight, uint32_t m)
{
    const struct weight *of = bench.weights[i_weight];
    struct request_desc desc = bench_desc(of, 1, m, &x_place, &y_place);
    desc.x_dtype = gk_act_dtype(of->desc.act);
    desc.x_stride_elems = of->desc.k;
    desc.y_stride_elems = of->desc.n;
    uint32_t n_scales = gk_desc_x_scales(&of->desc);
    if (n_scales != 0) {
        desc.x_scale_buffer_id = y_place.buffer_id;
        desc.x_scale_offset_bytes = 8192 - (uint64_t)m * n_scales * 4;
        desc.x_scale_stride_elems = n_scales;
    }
    return desc;
}

static void good_codes_pass(void **state)
{
    (void)state;
    static const uint32_t weights_of_codes[] = {WEIGHT_FP8_GROUP, WEIGHT_FP8_TENSOR,
                                                WEIGHT_INT8_TOKEN};
    static const uint32_t stride_bytes[] = {8, 0, 4};
    for (size_t i = 0; i < 3; i++) {
        struct request_desc desc = good_codes(weights_of_codes[i], 3);
        struct checked checked;
        struct reason why = REASON_NULL;
        assert_int_equal(
            request_check(&desc, bench.store, buffers, bench.device, ROWS_MAX, &checked, &why), 0);
        const uint8_t *y = mapped_at(y_place.buffer_id);
        const uint8_t *scales = y + desc.x_scale_offset_bytes;
        assert_ptr_equal(checked.x_scales, stride_bytes[i] == 0 ? NULL : scales);
        assert_int_equal(checked.x_scale_stride_bytes, stride_bytes[i]);
        assert_int_equal(checked.x_stride_bytes, desc.k);
        checked_finish(&checked);
        assert_null(checked.x_scale_buffer);
    }
}

static void codes_of_the_wrong_kind(void **state)
{
    (void)state;
    struct request_desc desc = good_codes(WEIGHT_FP8_GROUP, 2);
    desc.x_dtype = DTYPE_I8;
    refuses(&desc, STATUS_UNSUPPORTED,
            "x comes as i8; weight 'bench/w2' takes rows of floats or of f8_e4m3");
    desc = good(1);
    desc.x_dtype = DTYPE_F8_E4M3;
    refuses(&desc, STATUS_UNSUPPORTED,
            "x comes as f8_e4m3; weight 'bench/w1' takes rows of floats only");
}

static void scales_where_they_do_not_belong(void **state)
{
    (void)state;
    struct request_desc desc = good_codes(WEIGHT_FP8_TENSOR, 2);
    desc.x_scale_stride_elems = 1;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "x brings scales, and the weight has one scale for all of x");
    desc = good(2);
    desc.x_scale_buffer_id = 1;
    refuses(&desc, STATUS_INVALID_ARGUMENT, "x brings scales, and is not quantised");
    desc = good_codes(WEIGHT_INT8_TOKEN, 2);
    desc.x_scale_buffer_id = 0;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "x comes as i8 without scales, of which each row has 1");
    desc = good_codes(WEIGHT_FP8_GROUP, 2);
    desc.x_scale_buffer_id = 0;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "x comes as f8_e4m3 without scales, of which each row has 2");
}

static void ranges_of_scales(void **state)
{
    (void)state;
    struct request_desc desc = good_codes(WEIGHT_FP8_GROUP, 2);
    desc.x_scale_offset_bytes += 4;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "x_scale needs bytes 8180 to 8196 of buffer 2, which has 8192");
    desc = good_codes(WEIGHT_FP8_GROUP, 2);
    desc.x_scale_offset_bytes -= 2;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "offset 8174 of x_scale is not a multiple of its element size 4");
    desc = good_codes(WEIGHT_FP8_GROUP, 2);
    desc.x_scale_stride_elems = 1;
    refuses(&desc, STATUS_INVALID_ARGUMENT, "stride 1 of x_scale is below its 2 columns");
    desc = good_codes(WEIGHT_INT8_TOKEN, 2);
    desc.x_scale_stride_elems = UINT64_MAX / 4 + 1;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "2 rows of x_scale with stride 4611686018427387904 from offset 8184 end beyond 2^64 "
            "bytes");
    desc = good_codes(WEIGHT_INT8_TOKEN, 2);
    desc.x_scale_buffer_id = 77;
    refuses(&desc, STATUS_NOT_FOUND, "the session has no buffer 77 for x_scale");
    desc = good_codes(WEIGHT_INT8_TOKEN, 2);
    desc.x_scale_offset_bytes = 300;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "y, bytes 0 to 304 of buffer 2, overlaps x_scale, bytes 300 to 308 of buffer 2");
}

/* ---- memory ---- */

static void ranges(void **state)
{
    (void)state;
    struct request_desc desc = good(11); /* 11 x 96 x 4 = 4224 */
    refuses(&desc, STATUS_INVALID_ARGUMENT, "x needs bytes 0 to 4224 of buffer 1, which has 4096");
    desc = good(1);
    desc.x_offset_bytes = 3716; /* 3712 + 384 = 4096 */
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "x needs bytes 3716 to 4100 of buffer 1, which has 4096");
    desc = good(1);
    desc.x_offset_bytes = UINT64_MAX - 15;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "1 rows of x with stride 96 from offset 18446744073709551600 end beyond 2^64 bytes");
    desc = good(3);
    desc.x_stride_elems = UINT64_MAX / 8;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "3 rows of x with stride 2305843009213693951 from offset 0 end beyond 2^64 bytes");
    desc = good(2);
    desc.y_stride_elems = UINT64_MAX;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "2 rows of y with stride 18446744073709551615 from offset 0 end beyond 2^64 bytes");
    desc = good(1);
    desc.x_offset_bytes = 6;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "offset 6 of x is not a multiple of its element size 4");
    desc = good(2);
    desc.y_stride_elems = 71;
    refuses(&desc, STATUS_INVALID_ARGUMENT, "stride 71 of y is below its 72 columns");
    desc = good(1);
    desc.y_buffer_id = 99;
    refuses(&desc, STATUS_NOT_FOUND, "the session has no buffer 99 for y");
}

static void last_byte_passes(void **state)
{
    (void)state;
    struct request_desc desc = good(1);
    desc.x_offset_bytes = 4096 - 384;
    desc.y_offset_bytes = 8192 - 144;
    desc.x_stride_elems = 0; /* of one row: never used */
    desc.y_stride_elems = UINT64_MAX;
    struct checked checked;
    struct reason why = REASON_NULL;
    assert_int_equal(
        request_check(&desc, bench.store, buffers, bench.device, ROWS_MAX, &checked, &why), 0);
    assert_ptr_equal(checked.y, mapped_at(y_place.buffer_id) + 8192 - 144);
    assert_int_equal(checked.y_stride_bytes, 0);
    checked_finish(&checked);
}

/* T21: an address of one device means nothing to another. */
static void buffers_of_another_device(void **state)
{
    (void)state;
    struct device *device = bench.device;
    struct device *other;
    struct reason why = REASON_NULL;
    uint8_t *base;
    assert_int_equal(device_open("host", 3, 1, &other, &why), 0);
    bench.device = other;
    uint64_t id = bench_add(&bench, buffers, 8192, &base);
    bench.device = device;
    struct request_desc desc = good(1);
    desc.y_buffer_id = id;
    char sentence[REASON_TEXT_BYTES];
    (void)snprintf(sentence, sizeof(sentence),
                   "y is in buffer %llu of device 3 (host), the weight on device 0 (host): use a "
                   "buffer of that device",
                   (unsigned long long)id);
    refuses(&desc, STATUS_INVALID_ARGUMENT, sentence);
    assert_int_equal(buffers_remove(buffers, id, &why), 0);
    assert_null(device_close(other));
}

static void overlap(void **state)
{
    (void)state;
    struct request_desc desc = good(1);
    desc.y_buffer_id = desc.x_buffer_id;
    desc.y_offset_bytes = 382;
    refuses(&desc, STATUS_INVALID_ARGUMENT,
            "y, bytes 382 to 526 of buffer 1, overlaps x, bytes 0 to 384 of buffer 1");
    desc.y_offset_bytes = 384;
    struct checked checked;
    struct reason why = REASON_NULL;
    assert_int_equal(
        request_check(&desc, bench.store, buffers, bench.device, ROWS_MAX, &checked, &why), 0);
    checked_finish(&checked);
}

static void no_rows_need_no_buffer(void **state)
{
    (void)state;
    struct request_desc desc = good(0);
    desc.x_buffer_id = desc.y_buffer_id = 0;
    desc.x_stride_elems = 1;
    struct checked checked;
    struct reason why = REASON_NULL;
    assert_int_equal(
        request_check(&desc, bench.store, buffers, bench.device, ROWS_MAX, &checked, &why), 0);
    assert_null(checked.x_buffer);
    assert_non_null(checked.weight);
    checked_finish(&checked);
    desc.weight_id = 12345;
    refuses(&desc, STATUS_NOT_FOUND,
            "there is no weight of id 12345: it was unloaded, or reloaded with another shape");
}

/* Random descriptors: whatever passes lies inside its buffers, computed here with wider numbers. */
static void random_descriptors_stay_inside(void **state)
{
    (void)state;
    uint64_t seed = 42;
    uint32_t n_passed = 0;
    for (int i = 0; i < 200000; i++) {
        uint64_t numbers[5];
        for (int j = 0; j < 5; j++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            numbers[j] = (seed >> 8) >> ((seed >> 3) % 60);
        }
        struct request_desc desc = good((uint32_t)(numbers[0] % 12));
        desc.x_offset_bytes = numbers[1] & ~3ull;
        desc.x_stride_elems = 96 + numbers[2] % (1ull << (i % 56));
        desc.y_offset_bytes = numbers[3] & ~1ull;
        desc.y_stride_elems = 72 + numbers[4] % (1ull << (i % 56));
        struct checked checked;
        int r = request_check(&desc, bench.store, buffers, bench.device, ROWS_MAX, &checked, NULL);
        if (r != 0) {
            continue;
        }
        n_passed++;
        if (desc.m > 0) {
            unsigned __int128 rows = desc.m - 1;
            assert_true((rows * desc.x_stride_elems + 96) * 4 + desc.x_offset_bytes <= 4096);
            assert_true((rows * desc.y_stride_elems + 72) * 2 + desc.y_offset_bytes <= 8192);
        }
        checked_finish(&checked);
    }
    assert_true(n_passed > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_request_passes),
        cmocka_unit_test(form),
        cmocka_unit_test(weights),
        cmocka_unit_test(good_codes_pass),
        cmocka_unit_test(codes_of_the_wrong_kind),
        cmocka_unit_test(scales_where_they_do_not_belong),
        cmocka_unit_test(ranges_of_scales),
        cmocka_unit_test(ranges),
        cmocka_unit_test(last_byte_passes),
        cmocka_unit_test(buffers_of_another_device),
        cmocka_unit_test(overlap),
        cmocka_unit_test(no_rows_need_no_buffer),
        cmocka_unit_test(random_descriptors_stay_inside),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
