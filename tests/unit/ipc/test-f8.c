/* test-f8.c - every code, every 16-bit float, and a comb of binary32, against the definition of the
 * formats in double arithmetic and a search among their values. With "--exhaustive" the comb has no
 * gaps: all 2^32, about a minute. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "ipc/base/f8.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "t.h"

#define COMB_STEP 4099u

static uint32_t step = COMB_STEP;

/* A format with a sign; codes of magnitude 0 to max_code are finite and ascend. */
struct format {
    const char *name;
    int bias;
    int n_mantissa;
    uint32_t max_code;
    uint32_t sign_code;
    uint32_t nan_code; /* what a NaN becomes */
    float (*widen)(uint8_t code);
    uint8_t (*narrow)(float value);
};

static const struct format formats[] = {
    {"e4m3", 7, 3, 0x7e, 0x80, 0x7f, e4m3_to_f32, e4m3_from_f32},
    {"e5m2", 15, 2, 0x7b, 0x80, 0x7f, e5m2_to_f32, e5m2_from_f32},
    {"e2m1", 1, 1, 0x7, 0x8, 0x7, e2m1_to_f32, e2m1_from_f32},
};

/* The value of a finite magnitude by definition. */
static double value_of(const struct format *format, uint32_t code)
{
    int exponent = (int)(code >> format->n_mantissa);
    uint32_t one = 1u << format->n_mantissa;
    double mantissa = (double)(code & (one - 1)) / (double)one;
    return exponent == 0 ? ldexp(mantissa, 1 - format->bias)
                         : ldexp(1.0 + mantissa, exponent - format->bias);
}

/* Where the rounding of a format changes from one code to the next. */
struct middles {
    double values[128];
};

static struct middles middles_of(const struct format *format)
{
    struct middles middles = {0};
    for (uint32_t code = 0; code < format->max_code; code++) {
        middles.values[code] = (value_of(format, code) + value_of(format, code + 1)) / 2;
    }
    return middles;
}

/* The magnitude code nearest to value, ties to even, sought upwards from `code`, not above it. */
static uint32_t nearest(const struct format *format, const struct middles *middles, double value,
                        uint32_t code)
{
    while (code < format->max_code &&
           (value > middles->values[code] || (value == middles->values[code] && code % 2 != 0))) {
        code++;
    }
    return code;
}

/* Both signs of a magnitude. Asserts only what differs, which is cheaper. */
static void check_narrow(const struct format *format, uint32_t magnitude_bits, uint32_t expected)
{
    uint32_t plus = format->narrow(f8_float_of(magnitude_bits));
    uint32_t minus = format->narrow(f8_float_of(magnitude_bits | 0x80000000u));
    bool is_nan = magnitude_bits > 0x7f800000u;
    uint32_t negative = is_nan ? expected : (expected | format->sign_code);
    if (plus != expected || minus != negative) {
        print_error("%s of +-%a: 0x%02x and 0x%02x, not 0x%02x\n", format->name,
                    (double)f8_float_of(magnitude_bits), plus, minus, expected);
        fail();
    }
}

static void test_every_code_widens(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(formats); i++) {
        const struct format *format = &formats[i];
        for (uint32_t code = 0; code <= format->max_code; code++) {
            float value = (float)value_of(format, code);
            uint32_t negative = code | format->sign_code;
            assert_int_equal(f8_bits_of(format->widen((uint8_t)code)), f8_bits_of(value));
            assert_int_equal(f8_bits_of(format->widen((uint8_t)negative)), f8_bits_of(-value));
            check_narrow(format, f8_bits_of(value), code);
        }
    }
}

static void test_codes_that_are_not_finite(void **state)
{
    (void)state;
    for (uint32_t sign = 0; sign <= 0x80; sign += 0x80) {
        assert_true(isnan(e4m3_to_f32((uint8_t)(sign | 0x7f))));
        assert_int_equal(f8_bits_of(e5m2_to_f32((uint8_t)(sign | 0x7c))), 0x7f800000u | sign << 24);
        for (uint32_t code = 0x7d; code <= 0x7f; code++) {
            assert_true(isnan(e5m2_to_f32((uint8_t)(sign | code))));
        }
    }
    assert_true(e4m3_to_f32(0x7e) == 448.0f);
    assert_true(e5m2_to_f32(0x7b) == 57344.0f);
    assert_true(e2m1_to_f32(0x7) == 6.0f);
    assert_true(e2m1_to_f32(0xf7) == 6.0f); /* the high half of the byte belongs to another */
}

static void test_sixteen_bits_narrow(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(formats); i++) {
        struct middles middles = middles_of(&formats[i]);
        for (uint32_t bits = 0; bits < 0x8000; bits++) {
            float values[] = {half_to_f32((uint16_t)bits), bf16_to_f32((uint16_t)bits)};
            for (size_t j = 0; j < ARRAY_LENGTH(values); j++) {
                uint32_t expected = isnan(values[j])
                                        ? formats[i].nan_code
                                        : nearest(&formats[i], &middles, (double)values[j], 0);
                check_narrow(&formats[i], f8_bits_of(values[j]), expected);
            }
        }
    }
}

static void test_comb_narrows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(formats); i++) {
        struct middles middles = middles_of(&formats[i]);
        uint32_t code = 0;
        for (uint32_t bits = 0; bits <= 0x7f800000u; bits += step) {
            code = nearest(&formats[i], &middles, (double)f8_float_of(bits), code);
            check_narrow(&formats[i], bits, code);
        }
        for (uint32_t bits = 0x7f800001u; bits < 0x80000000u; bits += step) {
            check_narrow(&formats[i], bits, formats[i].nan_code);
        }
    }
}

static void test_ties_go_to_even(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(formats); i++) {
        struct middles middles = middles_of(&formats[i]);
        for (uint32_t code = 0; code < formats[i].max_code; code++) {
            uint32_t bits = f8_bits_of((float)middles.values[code]);
            check_narrow(&formats[i], bits - 1, code);
            check_narrow(&formats[i], bits, code + code % 2);
            check_narrow(&formats[i], bits + 1, code + 1);
        }
        check_narrow(&formats[i], 0x7f7fffffu, formats[i].max_code);
        check_narrow(&formats[i], 0x7f800000u, formats[i].max_code);
    }
}

static void test_e4m3_examples(void **state)
{
    (void)state;
    static const struct {
        float value;
        uint8_t code;
    } examples[] = {
        {17.0f, 0x58},   {19.0f, 0x5a},  {27.0f, 0x5e},   {240.0f, 0x77},
        {248.0f, 0x78},  {256.0f, 0x78}, {272.0f, 0x78},  {288.0f, 0x79},
        {447.0f, 0x7e},  {449.0f, 0x7e}, {464.0f, 0x7e},  {1e9f, 0x7e},
        {0x1p-9f, 0x01}, {0x1p-10f, 0},  {0.0009766f, 1}, {-0.0f, 0x80},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(examples); i++) {
        assert_int_equal(e4m3_from_f32(examples[i].value), examples[i].code);
    }
}

static void test_e8m0(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0xff; code++) {
        float value = ldexpf(1.0f, (int)code - 127);
        assert_true(e8m0_to_f32((uint8_t)code) == value);
        assert_int_equal(e8m0_from_f32(value), code);
        if (code < 0xfe) { /* halfway is 1.5 times as large */
            uint32_t middle = f8_bits_of(1.5f * value);
            assert_int_equal(e8m0_from_f32(f8_float_of(middle - 1)), code);
            assert_int_equal(e8m0_from_f32(f8_float_of(middle)), code + code % 2);
            assert_int_equal(e8m0_from_f32(f8_float_of(middle + 1)), code + 1);
        }
    }
    assert_true(isnan(e8m0_to_f32(0xff)));
    assert_int_equal(e8m0_from_f32(0.0f), 0);
    assert_int_equal(e8m0_from_f32(-0.0f), 0);
    assert_int_equal(e8m0_from_f32(0x1p-149f), 0);
    assert_int_equal(e8m0_from_f32(INFINITY), 0xfe);
    assert_int_equal(e8m0_from_f32(NAN), 0xff);
    assert_int_equal(e8m0_from_f32(-1.0f), 0xff);
    assert_int_equal(e8m0_from_f32(-INFINITY), 0xff);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--exhaustive") == 0) {
        step = 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_widens),
        cmocka_unit_test(test_codes_that_are_not_finite),
        cmocka_unit_test(test_sixteen_bits_narrow),
        cmocka_unit_test(test_comb_narrows),
        cmocka_unit_test(test_ties_go_to_even),
        cmocka_unit_test(test_e4m3_examples),
        cmocka_unit_test(test_e8m0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
