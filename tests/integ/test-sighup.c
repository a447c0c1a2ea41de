/* test-sighup.c - a reload of the configuration file under a running daemon: what holds afterwards,
 * for whom, and what a file with a fault changes. Lanes are charged to quotas, on the way. */
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/harness/fixture.h"
#include "tests/harness/product.h"
#include "tests/harness/status_document.h"

#define LINE_SECONDS 5.0
#define LANE_TOO_BIG "user_buffer_bytes_max = 64K\n" /* a lane of 256 entries has 132 KiB */

static struct fixture fixture;
static struct test_model model;

static int set_up(void **state)
{
    (void)state;
    static char argument[400];
    assert_int_equal(unsetenv("GEMMD_LOG"), 0); /* it would go before the file */
    fixture_init(&fixture);
    test_model_write(&model, &fixture.folder, "m", 7);
    (void)snprintf(argument, sizeof(argument), "m=%s", model.path);
    fixture_start(&fixture, &(struct fixture_options){.config = LANE_TOO_BIG, .model = argument});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    int code = fixture_stop(&fixture);
    fixture_finish(&fixture);
    test_model_finish(&model);
    return code;
}

static bool log_has(const char *needle)
{
    char text[1 << 16];
    FILE *file = fopen(fixture.log_path, "re");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    return strstr(text, needle) != NULL;
}

static void await_line(const char *needle)
{
    double end = fixture_now() + LINE_SECONDS;
    while (!log_has(needle)) {
        if (fixture_now() > end) {
            fixture_fail(&fixture, "no line says '%s'", needle);
        }
        fixture_sleep(0.01);
    }
}

/* Write the file anew and tell the daemon. */
static void reload(const char *config)
{
    write_text(temp_path(&fixture.folder, "conf"), config);
    assert_int_equal(kill(fixture.pid, SIGHUP), 0);
}

static int multiply(gemmd_client_t *client)
{
    struct product product;
    const struct product_shape shape = {
        .m = 1, .x_dtype = GEMMD_F32, .y_dtype = GEMMD_F32, .seed = 3};
    assert_true(product_init(&product, client, "m", &model.weights[TEST_INT4], &shape));
    int r = gemmd_gemm(client, &product.gemm);
    assert_true(r != GEMMD_OK || product_is_right(&product));
    product_finish(&product);
    return r;
}

static json_int_t bytes_limit(void)
{
    json_t *document = status_document_read(&fixture);
    const json_t *row = json_object_get(json_object_get(document, "quotas"), "buffer_bytes");
    json_int_t limit = json_integer_value(json_object_get(row, "user_limit"));
    json_decref(document);
    return limit;
}

static void test_the_file_is_named(void **state)
{
    (void)state;
    char line[PATH_MAX + 32];
    (void)snprintf(line, sizeof(line), "configured by '%s'", temp_path(&fixture.folder, "conf"));
    await_line(line);
}

static void test_a_higher_quota_holds_for_open_sessions(void **state)
{
    (void)state;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    assert_int_equal(multiply(client), GEMMD_QUOTA);
    assert_non_null(strstr(gemmd_last_error(), "a lane of 256 entries: "));
    assert_non_null(strstr(gemmd_last_error(), "more bytes"));
    reload("user_buffer_bytes_max = 1G\nthreads = 3\nrows_max = 9\n");
    await_line("was read again; taken over: user_buffer_bytes_max; these need a restart: threads, "
               "rows_max");
    assert_int_equal(bytes_limit(), 1 << 30);
    assert_int_equal(multiply(client), GEMMD_OK);
    gemmd_close(client);
}

static void test_a_fault_changes_nothing(void **state)
{
    (void)state;
    reload("user_buffer_bytes_max = 64K\nlog = error\nuser_fds_max = lots\n");
    await_line("the configuration stays as it was: ");
    await_line("conf:3: user_fds_max: 'lots' is not a number");
    assert_int_equal(bytes_limit(), 1 << 30);
    reload("user_buffer_bytes_max = 64K\nlog = loud\n");
    await_line("log: 'loud' is none of error");
    assert_int_equal(bytes_limit(), 1 << 30);
}

static void greet(const char *name)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    gemmd_client_t *client;
    options.socket_dir = fixture.socket_dir;
    options.name = name;
    assert_int_equal(gemmd_open(&options, &client), GEMMD_OK);
    gemmd_close(client);
}

/* Read again with this limit in it, and so with what else the file says. */
static void reload_with_limit(const char *limit, json_int_t n_bytes, const char *level)
{
    char config[200];
    (void)snprintf(config, sizeof(config), "user_buffer_bytes_max = %s\nlog = %s\n", limit, level);
    reload(config);
    double end = fixture_now() + LINE_SECONDS;
    while (bytes_limit() != n_bytes) { /* at a high level no line says that it is done */
        assert_true(fixture_now() < end);
    }
}

/* That a client comes is for those who look for a fault: at info a poll of the status says nothing.
 */
static void test_log_levels_follow(void **state)
{
    (void)state;
    greet("at-info");
    reload_with_limit("2G", (json_int_t)2 << 30, "debug");
    greet("at-debug");
    await_line("'at-debug'");
    reload_with_limit("3G", (json_int_t)3 << 30, "error");
    greet("at-error");
    reload_with_limit("4G", (json_int_t)4 << 30, "debug");
    greet("again-at-debug");
    await_line("'again-at-debug'");
    assert_false(log_has("'at-info'"));
    assert_false(log_has("'at-error'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_file_is_named),
        cmocka_unit_test(test_a_higher_quota_holds_for_open_sessions),
        cmocka_unit_test(test_a_fault_changes_nothing),
        cmocka_unit_test(test_log_levels_follow),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
