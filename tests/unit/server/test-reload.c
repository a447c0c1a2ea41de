/* test-reload.c - which options a reload takes over, and that lists change owner once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "daemon/server/reload.h"

static void read_text(struct config *config, const char *text)
{
    struct reason why = REASON_NULL;
    assert_int_equal(config_init(config), 0);
    if (config_parse(config, "f.conf", text, strlen(text), &why) != 0) {
        fail_msg("%s", why.text);
    }
}

static void test_each_kind_of_option(void **state)
{
    (void)state;
    struct config config;
    struct config fresh;
    struct reload_changes changes;
    read_text(&config, "admin_uids = 7\nmodels = a=/a\nlog = info\nrows_max = 5\n");
    read_text(&fresh, "admin_uids = 8\nadmin_uids = 9\nmodels = b=/b\nlog = error\nrows_max = 6\n"
                      "user_fds_max = 77\nsocket_dir = /x\nbatching = rendezvous\n");
    reload_take(&config, &fresh, &changes);
    assert_int_equal(config.admin_uids.n, 2);
    assert_string_equal(config.admin_uids.items[1], "9");
    assert_string_equal(config.log, "error");
    assert_int_equal(config.user_fds_max, 77);
    assert_int_equal(config.rows_max, 5);
    assert_string_equal(config.models.items[0], "a=/a");
    assert_string_equal(config.socket_dir, "");
    assert_string_equal(changes.taken, "admin_uids, user_fds_max, log");
    assert_string_equal(changes.left, "socket_dir, models, rows_max");
    config_finish(&config);
    config_finish(&fresh);
}

static void test_nothing_differs(void **state)
{
    (void)state;
    struct config config;
    struct config fresh;
    struct reload_changes changes;
    read_text(&config, "models = a=/a\ndevices = host\n");
    read_text(&fresh, "devices = host\nmodels = a=/a\n");
    reload_take(&config, &fresh, &changes);
    assert_string_equal(changes.taken, "");
    assert_string_equal(changes.left, "");
    config_finish(&config);
    config_finish(&fresh);
}

static void test_all_names_fit(void **state)
{
    (void)state;
    uint32_t n;
    size_t n_bytes = 0;
    const struct config_option *options = config_options(&n);
    for (uint32_t i = 0; i < n; i++) {
        n_bytes += strlen(options[i].name) + strlen(", ");
    }
    assert_in_range(n_bytes, 1, RELOAD_NAMES_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind_of_option),
        cmocka_unit_test(test_nothing_differs),
        cmocka_unit_test(test_all_names_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
