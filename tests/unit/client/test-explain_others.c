/* test-explain_others.c - what is said of kernels that were not taken, and that it is said once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/tool/explain.h"

#define N_MAX 4u

static struct msg_declined declined[N_MAX][N_MAX];

/* The reasons of up to N_MAX kernels at 1, 8, 16 and 64 rows; NULL: that one is chosen. */
static void check(const char *const reasons[][N_MAX], uint32_t n_kernels, const char *expected)
{
    static const uint32_t m[N_MAX] = {1, 8, 16, 64};
    struct msg_choice choices[N_MAX] = {0};
    char *text = NULL;
    size_t n_bytes;
    for (uint32_t i = 0; i < N_MAX; i++) {
        choices[i].m = m[i];
        choices[i].declined = declined[i];
        for (uint32_t j = 0; j < n_kernels; j++) {
            if (reasons[j][i]) {
                struct msg_declined *to = &declined[i][choices[i].n_declined++];
                (void)snprintf(to->kernel, sizeof(to->kernel), "kernel%u", j);
                (void)snprintf(to->reason, sizeof(to->reason), "%s", reasons[j][i]);
            }
        }
    }
    FILE *stream = open_memstream(&text, &n_bytes);
    assert_non_null(stream);
    assert_int_equal(explain_others(stream, choices, N_MAX), TOOL_DONE);
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(text, expected);
    free(text);
}

static void test_the_same_at_all_rows(void **state)
{
    (void)state;
    static const char *const reasons[][N_MAX] = {
        {"a", "a", "a", "a"}, {"b: c", "b: c", "b: c", "b: c"}, {"a", "a", "a", "a"}};
    check(reasons, 3, "not taken:\n  kernel0, kernel2: a\n  kernel1: b: c\n");
}

static void test_by_rows(void **state)
{
    (void)state;
    static const char *const reasons[][N_MAX] = {
        {"slow: 1.5 us", "slow: 2.5 us", "slow: 2.5 us", "slower: 9 us"},
        {NULL, "a", "b", "b"},
        {"a", NULL, "a", "a"},
    };
    check(reasons, 3,
          "not taken:\n"
          "  kernel0: slow: 1.5 us at M 1, 2.5 us at M 8 to 16; slower: 9 us at M 64\n"
          "  kernel2: a at M 1; a at M 16 to 64\n"
          "  kernel1: a at M 8; b at M 16 to 64\n");
}

/* The number of rows is no other reason. */
static void test_the_number_of_rows(void **state)
{
    (void)state;
    static const char *const reasons[][N_MAX] = {
        {"from 17, not 1", "from 17, not 8", "from 17, not 16", NULL},
        {"up to 0, not 1", "up to 0, not 8", "up to 0, not 16", "up to 0, not 64"},
        {"for 9, not 3", "for 9, not 3", "for 9, not 3", "for 9, not 3"},
    };
    check(reasons, 3,
          "not taken:\n"
          "  kernel0: from 17 at M 1 to 16\n"
          "  kernel1: up to 0\n"
          "  kernel2: for 9, not 3\n");
}

static void test_nothing_to_say(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n_bytes;
    const struct msg_choice choice = {.m = 1};
    FILE *stream = open_memstream(&text, &n_bytes);
    assert_non_null(stream);
    assert_int_equal(explain_others(stream, &choice, 1), TOOL_DONE);
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(text, "");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_at_all_rows),
        cmocka_unit_test(test_by_rows),
        cmocka_unit_test(test_the_number_of_rows),
        cmocka_unit_test(test_nothing_to_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
