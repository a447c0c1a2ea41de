/* test-host-roof.c - the measured speed of memory: plausible, bounded in time, unknown rather than
 * wrong. */
#include "tests/unit/engine/cmocka_all.h"

#include <time.h>

#include "daemon/device/device.h"
#include "daemon/device/host_roof.h"

static void real_memory(void **state)
{
    (void)state;
    struct device *device = NULL;
    struct timespec begin;
    struct timespec end;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &begin), 0);
    assert_int_equal(device_open("host", 0, 2, &device, NULL), 0);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &end), 0);
    assert_true(end.tv_sec - begin.tv_sec < 10);
    /* 0.05 to 5000 GB/s: from two threads of a machine that is very busy to what none has. */
    print_message("two threads read %.1f GB/s\n", device->read_gbps);
    assert_true(device->read_gbps > 0.05);
    assert_true(device->read_gbps < 5000);
    assert_null(device_close(device));
}

static void too_little_memory_is_unknown(void **state)
{
    (void)state;
    struct thread_pool *pool;
    assert_int_equal(thread_pool_new(2, &pool), 0);
    assert_true(host_roof_gbps(pool, 2, 0) == 0);
    assert_true(host_roof_gbps(pool, 2, 100u << 20) == 0); /* an eighth fits into a cache */
    assert_null(thread_pool_free(pool));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_memory),
        cmocka_unit_test(too_little_memory_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
