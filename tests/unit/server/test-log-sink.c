/* test-log-sink.c - levels by topic, and the limit on lines that clients provoke. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/server/log_sink.h"

/* What one line writes to standard error. */
static const char *written(enum log_level level, const char *topic)
{
    static char text[256];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    log_write(level, topic, "number %d", 7);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
    (void)close(ends[1]);
    ssize_t n = read(ends[0], text, sizeof(text) - 1);
    (void)close(ends[0]);
    assert_true(n >= 0);
    text[n] = '\0';
    return text;
}

static void test_levels(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    log_sink_install();
    assert_int_equal(log_sink_levels("warning, worker:debug", &why), 0);
    assert_string_equal(written(LOG_LEVEL_INFO, "server"), "");
    assert_string_equal(written(LOG_LEVEL_WARNING, "server"), "gemmd: warning: server: number 7\n");
    assert_string_equal(written(LOG_LEVEL_DEBUG, "worker"), "gemmd: debug: worker: number 7\n");
    assert_string_equal(written(LOG_LEVEL_INFO, "something"), "");
}

static void test_bad_specs_change_nothing(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    assert_int_equal(log_sink_levels("error", &why), 0);
    assert_int_equal(log_sink_levels("debug,loud", &why), STATUS_INVALID_ARGUMENT);
    assert_int_equal(log_sink_levels("nosuch:debug", &why), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, "nosuch"));
    assert_string_equal(written(LOG_LEVEL_WARNING, "server"), "");
}

static void test_rate(void **state)
{
    (void)state;
    struct log_rate rate = LOG_RATE_NULL;
    uint64_t second = 1000000000u;
    assert_true(log_allows(&rate, 2, second));
    assert_true(log_allows(&rate, 2, second + 1));
    assert_false(log_allows(&rate, 2, second + 2));
    assert_int_equal(rate.n_suppressed, 1);
    assert_true(log_allows(&rate, 2, 2 * second));
    assert_int_equal(rate.n_suppressed, 0);
}

/* Every event has an id of its own, and an entry in the catalog; the catalog has no other. */
static void test_catalog(void **state)
{
    (void)state;
    char path[512];
    char text[16384];
    uint32_t n_entries = 0;
    (void)snprintf(path, sizeof(path), "%s/deploy/systemd/gemmd.catalog",
                   getenv("GEMMD_SOURCE_DIR"));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[n] = '\0';
    for (const char *entry = text; (entry = strstr(entry, "\n-- ")) != NULL; entry++) {
        n_entries++;
    }
    assert_int_equal(n_entries, LOG_EVENTS - 1);
    for (uint32_t i = 1; i < LOG_EVENTS; i++) {
        const char *id = log_sink_event_id((enum log_event)i);
        assert_int_equal(strlen(id), 32);
        const char *entry = strstr(text, id);
        assert_non_null(entry);
        assert_null(strstr(entry + 1, id));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_bad_specs_change_nothing),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_catalog),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
