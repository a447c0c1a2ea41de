/* test-host-roof.c - the measured speed of memory: plausible, bounded in time, unknown rather than
 * wrong. */
#include "tests/unit/engine/cmocka_all.h"

#include <time.h>

#include "daemon/device/device.h"
#include "daemon/device/host_roof.h"

#define TRIES 5u

static double open_and_close(void)
{
    struct device *device = NULL;
    assert_int_equal(device_open("host", 0, 2, &device, NULL), 0);
    double gbps = device->read_gbps;
    assert_null(device_close(device));
    return gbps;
}

/* A machine that is very busy may not be able to tell at once. */
static void real_memory(void **state)
{
    (void)state;
    struct timespec begin;
    struct timespec end;
    double gbps = 0;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &begin), 0);
    for (uint32_t i = 0; i < TRIES && gbps == 0; i++) {
        gbps = open_and_close();
    }
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &end), 0);
    print_message("two threads read %.1f GB/s\n", gbps);
    assert_true(end.tv_sec - begin.tv_sec < 10 * (long)TRIES);
    assert_true(gbps > 0.05); /* from two threads of a machine that is very busy ... */
    assert_true(gbps < 5000); /* ... to what none has */
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
