/* test-quota.c - all amounts or none, given back once, shared by a user's sessions. */
#include "tests/unit/engine/cmocka_all.h"

#include <string.h>

#include "daemon/engine/quota.h"

static const struct quota_limits limits = {
    .per_user = {4, 10, 1000, 20},
    .total = {6, 100, 1500, 40},
};

static void limits_per_user(void **state)
{
    (void)state;
    struct quota *quota;
    assert_int_equal(quota_new(&limits, &quota), 0);
    struct quota_charge a = QUOTA_CHARGE_NULL;
    struct quota_charge b = QUOTA_CHARGE_NULL;
    struct reason why = REASON_NULL;
    assert_int_equal(quota_take(quota, 1, (uint64_t[]){1, 2, 600, 1}, &a, &why), 0);
    assert_int_equal(quota_take(quota, 1, (uint64_t[]){1, 1, 401, 1}, &b, &why), STATUS_QUOTA);
    assert_non_null(strstr(why.text, "401 more bytes"));
    assert_non_null(strstr(why.text, "uid 1 holds 600 of 1000"));
    assert_null(b.account);
    assert_int_equal(quota_take(quota, 1, (uint64_t[]){0, 0, UINT64_MAX, 0}, &b, &why),
                     STATUS_QUOTA);
    assert_int_equal(quota_take(quota, 1, (uint64_t[]){1, 1, 400, 1}, &b, &why), 0);
    quota_give(&a);
    quota_give(&a);
    uint64_t held[QUOTA_KINDS];
    uint32_t n_accounts;
    quota_totals(quota, held, &n_accounts);
    assert_int_equal(n_accounts, 1);
    assert_int_equal(held[QUOTA_BYTES], 400);
    assert_int_equal(held[QUOTA_SESSIONS], 1);
    quota_give(&b);
    quota_totals(quota, held, &n_accounts);
    assert_int_equal(n_accounts, 0);
    assert_int_equal(held[QUOTA_BYTES], 0);
    assert_null(quota_free(quota));
}

static void limits_may_change(void **state)
{
    (void)state;
    struct quota *quota;
    assert_int_equal(quota_new(&limits, &quota), 0);
    struct quota_charge a = QUOTA_CHARGE_NULL;
    struct quota_charge b = QUOTA_CHARGE_NULL;
    struct reason why = REASON_NULL;
    struct quota_limits lower = limits;
    lower.per_user[QUOTA_BYTES] = 500;
    assert_int_equal(quota_take(quota, 1, (uint64_t[]){0, 0, 600, 0}, &a, &why), 0);
    quota_set_limits(quota, &lower);
    assert_int_equal(quota_take(quota, 1, (uint64_t[]){0, 0, 1, 0}, &b, &why), STATUS_QUOTA);
    assert_non_null(strstr(why.text, "uid 1 holds 600 of 500"));
    quota_set_limits(quota, &limits);
    assert_int_equal(quota_take(quota, 1, (uint64_t[]){0, 0, 400, 0}, &b, &why), 0);
    quota_give(&a);
    quota_give(&b);
    assert_null(quota_free(quota));
}

static void limits_in_total(void **state)
{
    (void)state;
    struct quota *quota;
    assert_int_equal(quota_new(&limits, &quota), 0);
    struct quota_charge a = QUOTA_CHARGE_NULL;
    struct quota_charge b = QUOTA_CHARGE_NULL;
    struct reason why = REASON_NULL;
    assert_int_equal(quota_take(quota, 1, (uint64_t[]){0, 0, 1000, 0}, &a, &why), 0);
    assert_int_equal(quota_take(quota, 2, (uint64_t[]){0, 0, 501, 0}, &b, &why), STATUS_QUOTA);
    assert_non_null(strstr(why.text, "all users together hold 1000 of 1500"));
    uint64_t held[QUOTA_KINDS];
    uint32_t n_accounts;
    quota_totals(quota, held, &n_accounts);
    assert_int_equal(n_accounts, 1); /* the refused user left no account behind */
    assert_int_equal(quota_take(quota, 2, (uint64_t[]){0, 0, 500, 0}, &b, &why), 0);
    quota_give(&a);
    quota_give(&b);
    assert_null(quota_free(quota));
    assert_null(quota_free(NULL));
}

static void some_may_go_beyond(void **state)
{
    (void)state;
    struct quota *quota;
    assert_int_equal(quota_new(&limits, &quota), 0);
    const uint64_t one[QUOTA_KINDS] = {1};
    const uint64_t beyond[QUOTA_KINDS] = {2};
    struct quota_charge many = QUOTA_CHARGE_NULL;
    struct quota_charge more[2] = {QUOTA_CHARGE_NULL, QUOTA_CHARGE_NULL};
    struct quota_charge over = QUOTA_CHARGE_NULL;
    struct reason why = REASON_NULL;
    assert_int_equal(quota_take(quota, 1, (uint64_t[]){4, 0, 0, 0}, &many, &why), 0);
    assert_int_equal(quota_take(quota, 1, one, &over, &why), STATUS_QUOTA);
    for (int i = 0; i < 2; i++) { /* beyond the user's limit */
        assert_int_equal(quota_take_beyond(quota, 1, one, beyond, &more[i], &why), 0);
    }
    assert_int_equal(quota_take_beyond(quota, 1, one, beyond, &over, &why), STATUS_QUOTA);
    assert_non_null(strstr(why.text, "uid 1 holds 6 of 4 (user_sessions_max)"));
    quota_give(&more[0]);
    quota_give(&more[1]);
    assert_int_equal(quota_take(quota, 2, (uint64_t[]){2, 0, 0, 0}, &more[0], &why), 0);
    assert_int_equal(quota_take(quota, 3, one, &over, &why), STATUS_QUOTA);
    assert_int_equal(quota_take_beyond(quota, 3, (uint64_t[]){2, 0, 0, 0}, beyond, &more[1], &why),
                     0); /* beyond the total */
    assert_int_equal(quota_take_beyond(quota, 4, one, beyond, &over, &why), STATUS_QUOTA);
    assert_non_null(strstr(why.text, "hold 8 of 6 (total_sessions_max)"));
    quota_give(&many);
    quota_give(&more[0]);
    quota_give(&more[1]);
    assert_null(quota_free(quota));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_per_user),
        cmocka_unit_test(limits_may_change),
        cmocka_unit_test(limits_in_total),
        cmocka_unit_test(some_may_go_beyond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
