/* test-half.c - every 16-bit code, and the roundings where a mistake hides. The expected values
 * come from the definition of the formats in double arithmetic, not from a second bit trick. */
#include <math.h>
#include <string.h>

#include "ipc/base/half.h"
#include "t.h"

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The value of a code by definition; NAN for a NaN. */
static double value_of(uint32_t code, int n_exponent, int n_mantissa)
{
    int bias = (1 << (n_exponent - 1)) - 1;
    int exponent = (int)(code >> n_mantissa) & ((1 << n_exponent) - 1);
    double mantissa = (double)(code & ((1u << n_mantissa) - 1)) / (double)(1u << n_mantissa);
    double sign = (code >> (n_exponent + n_mantissa)) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << n_exponent) - 1) {
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return exponent == 0 ? sign * ldexp(mantissa, 1 - bias)
                         : sign * ldexp(1.0 + mantissa, exponent - bias);
}

static void check_code(uint32_t code, float widened, uint16_t narrowed, double expected,
                       uint16_t quiet_nan)
{
    if (isnan(expected)) {
        assert_true(isnan(widened));
        assert_int_equal(narrowed, quiet_nan);
        return;
    }
    assert_int_equal(float_bits(widened), float_bits((float)expected));
    assert_int_equal(narrowed, code);
}

static void test_every_code(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        float half = half_to_f32((uint16_t)code);
        float bf16 = bf16_to_f32((uint16_t)code);
        check_code(code, half, half_from_f32(half), value_of(code, 5, 10), 0x7e00);
        check_code(code, bf16, bf16_from_f32(bf16), value_of(code, 8, 7), 0x7fc0);
    }
}

/* Between two neighbours of one format: the middle goes to the even code, and one binary32 step to
 * either side of it goes to the nearer. */
static void check_middle(uint16_t (*narrow)(float), float (*widen)(uint16_t), uint16_t code)
{
    float low = widen(code);
    float high = widen((uint16_t)(code + 1));
    float middle = (float)(((double)low + (double)high) / 2);
    assert_int_equal(narrow(middle), (code & 1) == 0 ? code : code + 1);
    assert_int_equal(narrow(nextafterf(middle, low)), code);
    assert_int_equal(narrow(nextafterf(middle, high)), code + 1);
}

static void test_ties_go_to_even(void **state)
{
    (void)state;
    for (uint16_t code = 0; code < 0x7bff; code++) {
        check_middle(half_from_f32, half_to_f32, code);
        check_middle(half_from_f32, half_to_f32, (uint16_t)(code | 0x8000));
    }
    for (uint16_t code = 0; code < 0x7f7f; code++) {
        check_middle(bf16_from_f32, bf16_to_f32, code);
        check_middle(bf16_from_f32, bf16_to_f32, (uint16_t)(code | 0x8000));
    }
}

static void test_overflow_and_underflow(void **state)
{
    (void)state;
    assert_int_equal(half_from_f32(65519.996f), 0x7bff);
    assert_int_equal(half_from_f32(65520.0f), 0x7c00);
    assert_int_equal(half_from_f32(-1e30f), 0xfc00);
    assert_int_equal(half_from_f32(0x1p-25f), 0x0000);
    assert_int_equal(half_from_f32(nextafterf(0x1p-25f, 1.0f)), 0x0001);
    assert_int_equal(half_from_f32(-0x1p-149f), 0x8000);
    assert_int_equal(bf16_from_f32(bits_float(0x7f7f7fff)), 0x7f7f);
    assert_int_equal(bf16_from_f32(bits_float(0x7f7f8000)), 0x7f80);
    assert_int_equal(bf16_from_f32(bits_float(0x00008000)), 0x0000);
    assert_int_equal(bf16_from_f32(bits_float(0x00018000)), 0x0002);
}

static void test_every_nan_becomes_the_quiet_one(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffffffff};
    for (size_t i = 0; i < sizeof(nans) / sizeof(nans[0]); i++) {
        assert_int_equal(half_from_f32(bits_float(nans[i])), 0x7e00);
        assert_int_equal(bf16_from_f32(bits_float(nans[i])), 0x7fc0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code),
        cmocka_unit_test(test_ties_go_to_even),
        cmocka_unit_test(test_overflow_and_underflow),
        cmocka_unit_test(test_every_nan_becomes_the_quiet_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
