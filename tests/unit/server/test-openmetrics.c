/* test-openmetrics.c - both formats, label by label; tests/service/metrics.py reads what the daemon
 * makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/server/openmetrics.h"
#include "ipc/utf8.h"

static char *write_all(bool is_openmetrics)
{
    struct openmetrics om;
    struct openmetrics_labels labels = OPENMETRICS_LABELS_NONE;
    const struct openmetrics_labels none = OPENMETRICS_LABELS_NONE;
    struct stats_times times = {.sum_nsec = 1500000042};
    _Atomic uint64_t sizes[3] = {4, 0, 1};
    stats_add(&times.counts[0], 2);
    stats_add(&times.counts[STATS_TIME_BUCKETS - 1], 1);
    assert_int_equal(openmetrics_begin(&om, is_openmetrics), 0);
    openmetrics_label(&labels, "a", "x");
    openmetrics_label(&labels, "b", "y");
    openmetrics_family(&om, OPENMETRICS_INFO, "t_build", "What.");
    openmetrics_count(&om, &labels, 1);
    openmetrics_family(&om, OPENMETRICS_COUNTER, "t_busy_seconds", "Busy.");
    openmetrics_nsec(&om, &none, 2000000003);
    openmetrics_family(&om, OPENMETRICS_GAUGE, "t_real", "Real.");
    openmetrics_real(&om, &none, 34359738368.5);
    openmetrics_family(&om, OPENMETRICS_HISTOGRAM, "t_wait_seconds", "Wait.");
    openmetrics_times(&om, &labels, &times);
    openmetrics_family(&om, OPENMETRICS_HISTOGRAM, "t_rows", "Rows.");
    openmetrics_sizes(&om, &none, sizes, 3, 9);
    size_t n_bytes = 0;
    char *text = openmetrics_end(&om, &n_bytes);
    assert_non_null(text);
    assert_int_equal(n_bytes, strlen(text));
    return text;
}

static void has(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    if (at == NULL || (at != text && at[-1] != '\n')) {
        fail_msg("no line '%s' in:\n%s", line, text);
    }
}

static void test_openmetrics(void **state)
{
    (void)state;
    char *text = write_all(true);
    has(text, "# TYPE t_build info\n# HELP t_build What.\nt_build_info{a=\"x\",b=\"y\"} 1\n");
    has(text, "# TYPE t_busy_seconds counter\n# UNIT t_busy_seconds seconds\n"
              "# HELP t_busy_seconds Busy.\nt_busy_seconds_total 2.000000003\n");
    has(text, "t_real 34359738368.5\n");
    has(text, "t_wait_seconds_bucket{a=\"x\",b=\"y\",le=\"1e-06\"} 2\n"
              "t_wait_seconds_bucket{a=\"x\",b=\"y\",le=\"2e-06\"} 2\n");
    has(text, "t_wait_seconds_bucket{a=\"x\",b=\"y\",le=\"1.048576\"} 2\n"
              "t_wait_seconds_bucket{a=\"x\",b=\"y\",le=\"+Inf\"} 3\n"
              "t_wait_seconds_count{a=\"x\",b=\"y\"} 3\n"
              "t_wait_seconds_sum{a=\"x\",b=\"y\"} 1.500000042\n");
    has(text, "t_rows_bucket{le=\"1.0\"} 4\nt_rows_bucket{le=\"2.0\"} 4\n"
              "t_rows_bucket{le=\"+Inf\"} 5\nt_rows_count 5\nt_rows_sum 9\n# EOF\n");
    free(text);
}

static void test_plain_text(void **state)
{
    (void)state;
    char *text = write_all(false);
    has(text, "# TYPE t_build_info gauge\n# HELP t_build_info What.\nt_build_info{");
    has(text, "# TYPE t_busy_seconds_total counter\n# HELP t_busy_seconds_total Busy.\n"
              "t_busy_seconds_total 2.000000003\n");
    assert_null(strstr(text, "# UNIT"));
    assert_null(strstr(text, "# EOF"));
    assert_int_equal(text[strlen(text) - 1], '\n');
    free(text);
}

static void check_label(const char *value, const char *expected)
{
    struct openmetrics_labels labels = OPENMETRICS_LABELS_NONE;
    openmetrics_label(&labels, "l", value);
    assert_string_equal(labels.text, expected);
}

static void test_label_values(void **state)
{
    (void)state;
    check_label("", "l=\"\"");
    check_label("a\"b", "l=\"a\\\"b\"");
    check_label("a\\", "l=\"a\\\\\"");
    check_label("C:\\new", "l=\"C:\\\\new\"");
    check_label("a\nb", "l=\"a\\nb\"");
    check_label("{x}=,", "l=\"{x}=,\"");
    check_label("λέξη", "l=\"λέξη\"");
    check_label("bad\xff\xc3 utf", "l=\"bad?? utf\"");
}

/* What does not fit is cut between characters, and the label still ends. */
static void test_long_values(void **state)
{
    (void)state;
    struct openmetrics_labels labels;
    char value[4001];
    for (uint32_t n_before = 0; n_before < 4; n_before++) {
        labels = OPENMETRICS_LABELS_NONE;
        memset(value, 'a', n_before);
        for (uint32_t i = n_before; i + 2 < sizeof(value); i += 2) {
            memcpy(value + i, n_before < 2 ? "\xce\xbb" : "\\\"", 3);
        }
        openmetrics_label(&labels, "l", value);
        size_t n_bytes = strlen(labels.text);
        assert_in_range(n_bytes, sizeof(labels.text) - 8, sizeof(labels.text) - 1);
        assert_int_equal(labels.text[n_bytes - 1], '"');
        assert_int_equal(utf8_valid_bytes(labels.text, n_bytes), n_bytes);
        assert_true(n_before < 2 || labels.text[n_bytes - 3] == '\\'); /* \\ or \", whole */
        openmetrics_label(&labels, "m", "no room");                    /* left out as a whole */
        assert_int_equal(strlen(labels.text), n_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_openmetrics),
        cmocka_unit_test(test_plain_text),
        cmocka_unit_test(test_label_values),
        cmocka_unit_test(test_long_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
