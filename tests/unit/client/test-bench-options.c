/* test-bench-options.c - the command line of gemmctl bench, and its presets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/tool/bench.h"

static char words[512];

/* One command line, split at spaces. */
static int parse(const char *line, struct bench_options *options)
{
    char *argv[32] = {0};
    int argc = 0;
    (void)snprintf(words, sizeof(words), "%s", line);
    for (char *rest = words; rest;) {
        argv[argc++] = strsep(&rest, " ");
    }
    return bench_parse_options(argc, argv, options);
}

static void test_defaults(void **state)
{
    (void)state;
    struct bench_options options;
    assert_int_equal(parse("bench", &options), 0);
    assert_int_equal(options.n_shapes, 1);
    assert_int_equal(options.shapes[0].n, 4096);
    assert_int_equal(options.n_formats, 2);
    assert_string_equal(options.formats[0], "bf16");
    assert_string_equal(options.formats[1], "int4-g128");
    assert_int_equal(options.request.n_m, 7);
    assert_int_equal(options.request.m[6], 64);
    assert_int_equal(options.request.act_dtype, DTYPE_BF16);
    assert_null(options.csv_path);
}

static void test_rows(void **state)
{
    (void)state;
    struct bench_options options;
    static const uint32_t expected[] = {1, 3, 8, 16, 32, 64, 100};
    assert_int_equal(parse("bench --m 1,3,8..64,100", &options), 0);
    assert_int_equal(options.request.n_m, 7);
    assert_memory_equal(options.request.m, expected, sizeof(expected));
    assert_int_equal(parse("bench --m 5..19", &options), 0);
    assert_int_equal(options.request.n_m, 2); /* 5, 10 */
    assert_int_equal(parse("bench --m 1..4294967295", &options), 0);
    assert_int_equal(options.request.n_m, MSG_BENCH_M_MAX);
}

static void test_the_baseline_comes_first(void **state)
{
    (void)state;
    struct bench_options options;
    assert_int_equal(parse("bench --format nvfp4 --format f16 --format mxfp4 --act f16", &options),
                     0);
    assert_int_equal(options.n_formats, 3);
    assert_string_equal(options.formats[0], "f16");
    assert_string_equal(options.formats[1], "nvfp4");
    assert_string_equal(options.formats[2], "mxfp4");
    assert_int_equal(options.request.act_dtype, DTYPE_F16);
    assert_int_equal(parse("bench --format bf16 --format bf16", &options), 0);
    assert_int_equal(options.n_formats, 1);
}

static void test_shapes_and_presets(void **state)
{
    (void)state;
    struct bench_options options;
    assert_int_equal(parse("bench --preset llama-3-8b --shape 100x200", &options), 0);
    assert_int_equal(options.n_shapes, 5);
    assert_string_equal(options.shapes[0].name, "llama-3-8b qkv");
    assert_int_equal(options.shapes[0].n, 6144);
    assert_int_equal(options.shapes[0].k, 4096);
    assert_int_equal(options.shapes[4].n, 100);
    assert_int_equal(options.shapes[4].k, 200);
}

/* Every preset that is named is one, with layers, each of which has a name of its own. */
static void test_every_preset(void **state)
{
    (void)state;
    char names[256];
    (void)snprintf(names, sizeof(names), "%s", bench_preset_names());
    uint32_t n = 0;
    for (char *rest = names; rest; n++) {
        struct bench_options options = {.n_shapes = 0};
        char *name = strsep(&rest, ",");
        assert_true(bench_add_preset(name + strspn(name, " "), &options));
        assert_true(options.n_shapes >= 4);
        for (uint32_t i = 0; i < options.n_shapes; i++) {
            assert_true(options.shapes[i].n > 0 && options.shapes[i].k > 0);
            assert_string_not_equal(options.shapes[i].name, options.shapes[(i + 1) % 4].name);
        }
    }
    assert_true(n >= 5);
}

static void test_the_rest(void **state)
{
    (void)state;
    struct bench_options options;
    assert_int_equal(parse("bench --device cuda:1 --disable a --disable b --padding --budget-ms 20 "
                           "--csv x.csv --svg y.svg",
                           &options),
                     0);
    assert_string_equal(options.request.device, "cuda:1");
    assert_int_equal(options.request.n_off, 2);
    assert_string_equal(options.request.off[1], "b");
    assert_true(options.has_padding);
    assert_int_equal(options.request.budget_usec, 20000);
    assert_string_equal(options.csv_path, "x.csv");
    assert_string_equal(options.svg_path, "y.svg");
}

static void test_usage(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "bench x",
        "bench --m",
        "bench --m 0",
        "bench --m 1,,2",
        "bench --m 1,",
        "bench --m -1",
        "bench --m 4294967296",
        "bench --m 1..4294967295,1",
        "bench --shape 4096",
        "bench --shape 4096x",
        "bench --shape 0x4",
        "bench --shape 4x4x4",
        "bench --preset gpt-1",
        "bench --act int8",
        "bench --budget-ms 1001",
        "bench --budget-ms 0",
        "bench --what",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct bench_options options;
        if (parse(lines[i], &options) != TOOL_USAGE) {
            fail_msg("'%s' is taken", lines[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_the_baseline_comes_first),
        cmocka_unit_test(test_shapes_and_presets),
        cmocka_unit_test(test_every_preset),
        cmocka_unit_test(test_the_rest),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
