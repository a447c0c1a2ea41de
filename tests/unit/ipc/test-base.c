/* test-base.c - status codes, reasons, errors, checked numbers, element types, lists. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ipc/base/dtype.h"
#include "ipc/base/error.h"
#include "ipc/base/list.h"
#include "ipc/base/log.h"
#include "ipc/base/num.h"
#include "ipc/base/reason.h"
#include "ipc/base/status.h"
#include "t.h"

struct status_row {
    int value;
    const char *name;
    const char *text;
};

static const struct status_row rows[] = {
#define STATUS_X(name, value, sentence) {value, #name, sentence},
    STATUS_LIST(STATUS_X)
#undef STATUS_X
};

static void test_status_codes_are_unique_and_categorised(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(rows[i].value, rows[j].value);
            assert_string_not_equal(rows[i].name, rows[j].name);
        }
        int category = (int)status_category(rows[i].value);
        assert_in_range(category, rows[i].value == 0 ? 0 : STATUS_CATEGORY_USAGE,
                        rows[i].value == 0 ? 0 : STATUS_CATEGORY_INTERNAL);
        assert_string_equal(status_name(rows[i].value), rows[i].name);
        assert_string_equal(status_text(rows[i].value), rows[i].text);
    }
    assert_int_equal(status_category(STATUS_QUOTA), STATUS_CATEGORY_QUOTA);
    assert_string_equal(status_name(0x7ff), "UNKNOWN");
    assert_string_equal(status_name(-1), "UNKNOWN");
}

static void test_reason_says_one_clean_line(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    assert_int_equal(reason_set(&why, STATUS_QUOTA, "m %u of\n'%s'", 7u, "a\x1b[31m\x7f"),
                     STATUS_QUOTA);
    assert_int_equal(why.status, STATUS_QUOTA);
    assert_string_equal(why.text, "m 7 of?'a?[31m?'");
    assert_int_equal(reason_set(NULL, STATUS_BUSY, "nobody listens"), STATUS_BUSY);

    char longer[2 * REASON_TEXT_BYTES];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    (void)reason_set(&why, STATUS_QUOTA, "%s", longer);
    assert_int_equal(strlen(why.text), REASON_TEXT_BYTES - 1);
}

static void test_reason_prefix_and_errno(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    (void)reason_set(&why, STATUS_NOT_FOUND, "no such tensor");
    reason_prefix(&why, "model '%s'", "m");
    assert_string_equal(why.text, "model 'm': no such tensor");
    assert_int_equal(why.status, STATUS_NOT_FOUND);

    assert_int_equal(reason_errno(&why, -ENOMEM, "arena"), STATUS_NO_MEMORY);
    assert_int_equal(reason_errno(&why, -ENOSPC, "arena"), STATUS_NO_SPACE);
    assert_int_equal(reason_errno(&why, -EDQUOT, "arena"), STATUS_NO_SPACE);
    assert_int_equal(reason_errno(&why, -EBADF, "socket %d", 3), STATUS_INTERNAL);
    assert_string_equal(why.text, "socket 3: Bad file descriptor");
}

static void test_error_trail_names_the_place(void **state)
{
    (void)state;
    char trail[256];
    char place[64];
    assert_int_equal(err_raise(0), 0);
    int line = __LINE__ + 1;
    assert_int_equal(err_raise(-EPROTO), -EPROTO);
    error_trail(trail, sizeof(trail));
    (void)snprintf(place, sizeof(place), "test-base.c:%d %d", line, -EPROTO);
    assert_non_null(strstr(trail, place));
    error_trail(trail, 8);
    assert_true(strlen(trail) < 8);
}

static void test_num(void **state)
{
    (void)state;
    uint64_t result = 77;
    assert_false(num_add(UINT64_MAX, 1, &result));
    assert_false(num_mul(1ull << 32, 1ull << 32, &result));
    assert_int_equal(result, 77);
    assert_true(num_add(UINT64_MAX, 0, &result) && result == UINT64_MAX);
    assert_true(num_mul((1ull << 32) - 1, (1ull << 32) + 1, &result) && result == UINT64_MAX);
    assert_int_equal(num_div_up(0, 8), 0);
    assert_int_equal(num_div_up(9, 8), 2);
    assert_true(num_div_up(UINT64_MAX, 2) == 1ull << 63);
    assert_int_equal(num_align_up(4097, 4096), 8192);
    assert_int_equal(num_align_up(4096, 4096), 4096);
    assert_int_equal(num_min(2, 3), 2);
    assert_int_equal(num_max(2, 3), 3);
}

static void test_dtype(void **state)
{
    (void)state;
    for (uint32_t i = DTYPE_F32; i <= DTYPE_F4; i++) {
        enum dtype dtype = (enum dtype)i;
        assert_true(dtype_bits(dtype) > 0);
        assert_int_equal(dtype_bytes(dtype), dtype_bits(dtype) / 8);
        assert_int_equal(dtype_parse(dtype_name(dtype)), dtype);
        assert_int_equal(dtype_parse(dtype_safetensors_name(dtype)), dtype);
    }
    assert_int_equal(dtype_bits(DTYPE_NONE), 0);
    assert_int_equal(dtype_bits((enum dtype)200), 0);
    assert_int_equal(dtype_bytes(DTYPE_F4), 0);
    assert_string_equal(dtype_safetensors_name(DTYPE_BF16), "BF16");
    assert_string_equal(dtype_name(DTYPE_BF16), "bf16");
    assert_string_equal(dtype_name((enum dtype)200), "?");
    assert_int_equal(dtype_parse("Bf16"), DTYPE_NONE);
    assert_int_equal(dtype_parse(""), DTYPE_NONE);
}

struct item {
    int value;
    struct list link;
};

static void test_list_keeps_order_and_forgets(void **state)
{
    (void)state;
    struct list list;
    struct item items[3] = {{.value = 0}, {.value = 1}, {.value = 2}};
    list_init(&list);
    for (int i = 0; i < 3; i++) {
        list_append(&list, &items[i].link);
    }
    list_remove(&items[1].link);
    list_remove(&items[1].link); /* unlinked: does nothing */
    assert_int_equal(LIST_OWNER(list_pop(&list), struct item, link)->value, 0);
    assert_int_equal(LIST_OWNER(list_pop(&list), struct item, link)->value, 2);
    assert_null(list_pop(&list));
    assert_true(list_is_empty(&list));
}

static char logged[64];

static void __attribute__((format(printf, 4, 0)))
keep_log(enum log_event event, enum log_level level, const char *topic, const char *format,
         va_list args)
{
    char text[32];
    (void)vsnprintf(text, sizeof(text), format, args);
    (void)snprintf(logged, sizeof(logged), "%d %d %s %s", (int)event, (int)level, topic, text);
}

static void test_log_goes_to_the_sink(void **state)
{
    (void)state;
    log_set_sink(keep_log);
    log_write(LOG_LEVEL_NOTICE, "ipc", "lane %d", 5);
    assert_string_equal(logged, "0 2 ipc lane 5");
    log_event(LOG_EVENT_DEVICE_LOST, LOG_LEVEL_ERROR, "ipc", "lane %d", 6);
    assert_string_equal(logged, "2 0 ipc lane 6");
    log_set_sink(NULL);
    log_write(LOG_LEVEL_NOTICE, "ipc", "not seen");
    log_event(LOG_EVENT_DEVICE_LOST, LOG_LEVEL_ERROR, "ipc", "not seen");
    assert_string_equal(logged, "2 0 ipc lane 6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_codes_are_unique_and_categorised),
        cmocka_unit_test(test_reason_says_one_clean_line),
        cmocka_unit_test(test_reason_prefix_and_errno),
        cmocka_unit_test(test_error_trail_names_the_place),
        cmocka_unit_test(test_num),
        cmocka_unit_test(test_dtype),
        cmocka_unit_test(test_list_keeps_order_and_forgets),
        cmocka_unit_test(test_log_goes_to_the_sink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
