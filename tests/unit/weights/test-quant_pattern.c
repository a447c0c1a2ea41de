/* Which modules a pattern means, and that none can keep the loader busy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "ipc/base/num.h"

#include "daemon/weights/quant_pattern.h"

struct pattern_case {
    enum quant_pattern_kind kind;
    const char *text;
    const char *module;
    bool is_match;
};

#define DOWN "model.layers.0.mlp.down_proj"

static const struct pattern_case cases[] = {
    {QUANT_PATTERN_ANY, "", DOWN, true},
    {QUANT_PATTERN_EXACT, DOWN, DOWN, true},
    {QUANT_PATTERN_EXACT, "down_proj", DOWN, false},
    {QUANT_PATTERN_PATH, DOWN, DOWN, true},
    {QUANT_PATTERN_PATH, "mlp.down_proj", DOWN, true},
    {QUANT_PATTERN_PATH, "model.layers.0", DOWN, true},
    {QUANT_PATTERN_PATH, "layers.0", DOWN, false},
    {QUANT_PATTERN_PATH, "wn_proj", DOWN, false},
    {QUANT_PATTERN_PATH, "model.layers.0", "model.layers.01.mlp", false},
    {QUANT_PATTERN_PATH, "", DOWN, false},
    {QUANT_PATTERN_PATH, "a.longer.path", "path", false},
    {QUANT_PATTERN_PART, "mlp.do", DOWN, true},
    {QUANT_PATTERN_PART, "attn", DOWN, false},
    {QUANT_PATTERN_PART, "", DOWN, false},
    {QUANT_PATTERN_CLASS, "Linear", DOWN, true},
    {QUANT_PATTERN_CLASS, "Embedding", DOWN, false},
    /* anchored at the start, as Python's re.match() is, and not at the end */
    {QUANT_PATTERN_REGEX, ".*down_proj.*", DOWN, true},
    {QUANT_PATTERN_REGEX, "down_proj", DOWN, false},
    {QUANT_PATTERN_REGEX, "model", DOWN, true},
    {QUANT_PATTERN_REGEX, "(?P<l>model)\\.layers\\.(0|1)\\.", DOWN, true},
    {QUANT_PATTERN_REGEX, "model.*gate$", DOWN, false},
    {QUANT_PATTERN_WILDCARD, "*down_proj", DOWN, true},
    {QUANT_PATTERN_WILDCARD, "*down", DOWN, false},
    {QUANT_PATTERN_WILDCARD, "down*", DOWN, false},
    {QUANT_PATTERN_WILDCARD, "model.layers.?.mlp*", DOWN, true},
    {QUANT_PATTERN_WILDCARD, "model-layers*", DOWN, false},
    {QUANT_PATTERN_WILDCARD, "modelxlayers*", "model.layers", false},
    {QUANT_PATTERN_WILDCARD, "*.[0-3].*", DOWN, true},
    {QUANT_PATTERN_WILDCARD, "*.[!0-3].*", DOWN, false},
    {QUANT_PATTERN_WILDCARD, "a[]]b", "a]b", true},
    {QUANT_PATTERN_WILDCARD, "a[b", "a[b", true},
    {QUANT_PATTERN_WILDCARD, "a[^b]", "ab", true}, /* '^' is no '!' to the shell of these tools */
    {QUANT_PATTERN_WILDCARD, "a(b)+\\", "a(b)+\\", true},
    {QUANT_PATTERN_WILDCARD, "", "", true},
    {QUANT_PATTERN_WILDCARD, "", "a", false},
};

static void test_matches(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct quant_pattern pattern;
        struct reason why = REASON_NULL;
        bool is_match = !cases[i].is_match;
        assert_int_equal(quant_pattern_init(&pattern, cases[i].kind, cases[i].text, &why), 0);
        assert_int_equal(quant_pattern_match(&pattern, cases[i].module, &is_match, &why), 0);
        if (is_match != cases[i].is_match) {
            fail_msg("case %zu: '%s' on '%s'", i, cases[i].text, cases[i].module);
        }
        quant_pattern_finish(&pattern);
    }
}

static void test_invalid(void **state)
{
    (void)state;
    char text[QUANT_PATTERN_BYTES_MAX + 2];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    struct quant_pattern pattern = QUANT_PATTERN_NULL;
    struct reason why = REASON_NULL;
    assert_int_equal(quant_pattern_init(&pattern, QUANT_PATTERN_REGEX, "a(b", &why),
                     STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(why.text, "'a(b' is no regular expression: "));
    assert_non_null(strstr(why.text, "at byte 3"));
    assert_int_equal(quant_pattern_init(&pattern, QUANT_PATTERN_EXACT, text, &why),
                     STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(why.text, "has 1025 bytes; at most 1024"));
    assert_int_equal(quant_pattern_init(&pattern, QUANT_PATTERN_REGEX,
                                        "((((((a{99}){99}){99}){99}){99}){99})", &why),
                     STATUS_BAD_CHECKPOINT);
}

static double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Each takes exponential time in an engine without limits. */
static void test_hostile(void **state)
{
    (void)state;
    static const struct {
        enum quant_pattern_kind kind;
        const char *text;
    } hostile[] = {
        {QUANT_PATTERN_REGEX, "(a+)+$"},
        {QUANT_PATTERN_REGEX, "(a|aa)+$"},
        {QUANT_PATTERN_REGEX, "(?:a?){64}a{64}b"},
        {QUANT_PATTERN_WILDCARD, "*a*a*a*a*a*a*a*a*a*a*a*a*b"},
    };
    char module[129];
    memset(module, 'a', sizeof(module) - 1);
    module[sizeof(module) - 2] = 'c';
    module[sizeof(module) - 1] = '\0';
    for (size_t i = 0; i < ARRAY_LENGTH(hostile); i++) {
        struct quant_pattern pattern;
        struct reason why = REASON_NULL;
        bool is_match = false;
        assert_int_equal(quant_pattern_init(&pattern, hostile[i].kind, hostile[i].text, &why), 0);
        double start = seconds_now();
        int r = quant_pattern_match(&pattern, module, &is_match, &why);
        double seconds = seconds_now() - start;
        if (r == 0) {
            assert_false(is_match); /* the engine saw through it */
        } else {
            assert_int_equal(r, STATUS_BAD_CHECKPOINT);
            assert_non_null(strstr(why.text, "cannot be tried on module 'aaaa"));
        }
        assert_true(seconds < 5);
        print_message("'%s': %s after %.4f s\n", hostile[i].text, r ? why.text : "no match",
                      seconds);
        quant_pattern_finish(&pattern);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
