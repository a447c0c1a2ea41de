/* test-device.c - the host device with a kernel of the test's own, so that its order of steps, its
 * scratch memory and its faults can be seen. */
#include "tests/unit/engine/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/device/device.h"

static uint64_t wanted_bytes;
static double predicted;
static _Atomic uint32_t n_prepared;
static _Atomic uint32_t n_run;
static _Atomic uint32_t n_out_of_order;
static uint32_t prepare_parts;

static uint64_t workspace_bytes(const struct gk_problem *problem)
{
    (void)problem;
    return wanted_bytes;
}

static double predicted_usec(const struct gk_problem *problem, uint32_t n_threads)
{
    (void)problem;
    (void)n_threads;
    return predicted;
}

static void prepare(const struct gk_launch *launch, uint32_t i_part, uint32_t n_parts)
{
    if (i_part == 0) {
        prepare_parts = n_parts;
        memset(launch->workspace, 0x5a, wanted_bytes);
    }
    atomic_fetch_add(&n_prepared, 1);
}

static void run(const struct gk_launch *launch, uint32_t i_part, uint32_t n_parts)
{
    (void)i_part;
    (void)n_parts;
    bool is_prepared = atomic_load(&n_prepared) == prepare_parts;
    bool has_scratch = ((const uint8_t *)launch->workspace)[wanted_bytes - 1] == 0x5a;
    if (!is_prepared || !has_scratch) {
        atomic_fetch_add(&n_out_of_order, 1);
    }
    atomic_fetch_add(&n_run, 1);
}

static const struct gk_kernel kernel = {
    .name = "test",
    .device_kind = GK_DEVICE_HOST,
    .workspace_bytes = workspace_bytes,
    .predicted_usec = predicted_usec,
    .prepare = prepare,
    .run = run,
};

static struct device *open_host(uint32_t n_threads)
{
    struct device *device;
    struct reason why = REASON_NULL;
    assert_int_equal(device_open("host", 0, n_threads, &device, &why), 0);
    return device;
}

static struct device_launch launch_of(uint32_t m, uint32_t k)
{
    atomic_store(&n_prepared, 0);
    atomic_store(&n_run, 0);
    return (struct device_launch){
        .kernel = &kernel, .gk.problem = {.m = m, .desc = {.n = 1, .k = k}}, .result = -1};
}

static void names(void **state)
{
    (void)state;
    struct device *device;
    struct reason why = REASON_NULL;
    assert_int_not_equal(device_open("cuda:999", 0, 0, &device, &why), 0);
    assert_non_null(strstr(why.text, "cuda:999"));
    assert_int_equal(device_open("abacus", 0, 0, &device, &why), STATUS_NOT_FOUND);
    assert_int_equal(device_open("host", 0, 100000, &device, &why), STATUS_UNSUPPORTED);
    assert_int_equal(device_open("host", 3, 0, &device, &why), 0);
    assert_string_equal(device->name, "host");
    assert_true(device_is_named(device, "host"));
    assert_false(device_is_named(device, "")); /* not the UUID that it lacks */
    assert_int_equal(device->index, 3);
    assert_true(device->n_threads >= 1);
    assert_non_null(strstr(device->description, "thread"));
    assert_null(device_close(device));
    assert_null(device_close(NULL));
}

static void launch_prepares_then_runs(void **state)
{
    (void)state;
    struct device *device = open_host(3);
    struct reason why = REASON_NULL;
    wanted_bytes = 4096;
    predicted = 1e6;
    assert_int_equal(device->ops->reserve(device, wanted_bytes, 0, &why), 0);
    for (int i = 0; i < 500; i++) {
        struct device_launch launch = launch_of(64, 8192);
        assert_int_equal(device->ops->launch(device, &launch), 0);
        assert_int_equal(launch.result, 0);
        assert_true(launch.end_nsec >= launch.start_nsec);
        assert_int_equal(device->ops->launch(device, &launch), -EAGAIN);
        assert_ptr_equal(device->ops->poll(device), &launch);
        assert_null(device->ops->poll(device));
        assert_true(atomic_load(&n_run) > 1);
    }
    assert_int_equal(atomic_load(&n_out_of_order), 0);
    (void)device_close(device);
}

static void small_launch_is_not_cut(void **state)
{
    (void)state;
    struct device *device = open_host(3);
    struct reason why = REASON_NULL;
    wanted_bytes = 64;
    predicted = 3.0;
    assert_int_equal(device->ops->reserve(device, wanted_bytes, 0, &why), 0);
    struct device_launch launch = launch_of(1, 128);
    assert_int_equal(device->ops->launch(device, &launch), 0);
    assert_int_equal(atomic_load(&n_run), 1);
    assert_int_equal(atomic_load(&n_prepared), 1);
    (void)device_close(device);
}

static void unreserved_scratch_is_an_error(void **state)
{
    (void)state;
    struct device *device = open_host(1);
    wanted_bytes = 4096;
    struct device_launch launch = launch_of(1, 128);
    assert_int_equal(device->ops->launch(device, &launch), 0);
    assert_int_equal(launch.result, STATUS_DEVICE_ERROR);
    assert_int_equal(atomic_load(&n_run), 0);
    struct reason why = REASON_NULL;
    assert_int_equal(device->ops->reserve(device, UINT64_MAX, 0, &why), STATUS_NO_SPACE);
    (void)device_close(device);
}

static _Atomic bool is_over;

static void *keep_reserving(void *arg)
{
    struct device *device = arg;
    for (uint64_t n = 4096; n < 4096 * 200 && !atomic_load(&is_over); n += 4096) {
        struct reason why = REASON_NULL;
        assert_int_equal(device->ops->reserve(device, n, 0, &why), 0);
    }
    return NULL;
}

static void reserve_while_launching(void **state)
{
    (void)state;
    struct device *device = open_host(2);
    struct reason why = REASON_NULL;
    wanted_bytes = 4096;
    predicted = 100;
    atomic_store(&n_out_of_order, 0);
    assert_int_equal(device->ops->reserve(device, wanted_bytes, 0, &why), 0);
    pthread_t loader;
    assert_int_equal(pthread_create(&loader, NULL, keep_reserving, device), 0);
    for (int i = 0; i < 300; i++) {
        struct device_launch launch = launch_of(4, 1024);
        assert_int_equal(device->ops->launch(device, &launch), 0);
        assert_int_equal(launch.result, 0);
        assert_ptr_equal(device->ops->poll(device), &launch);
    }
    atomic_store(&is_over, true);
    assert_int_equal(pthread_join(loader, NULL), 0);
    assert_int_equal(atomic_load(&n_out_of_order), 0);
    (void)device_close(device);
}

static int launch_result(struct device *device)
{
    struct device_launch launch = launch_of(1, 128);
    assert_int_equal(device->ops->launch(device, &launch), 0);
    assert_ptr_equal(device->ops->poll(device), &launch);
    return launch.result;
}

static void injected_faults(void **state)
{
    (void)state;
    struct device *device = open_host(1);
    struct reason why = REASON_NULL;
    wanted_bytes = 64;
    assert_int_equal(device->ops->reserve(device, wanted_bytes, 0, &why), 0);
    assert_int_equal(fault_inject(&device->fault, STATUS_BUSY, 1), -EINVAL);
    assert_int_equal(fault_inject(&device->fault, STATUS_DEVICE_ERROR, 2), 0);
    assert_int_equal(launch_result(device), 0);
    assert_int_equal(launch_result(device), STATUS_DEVICE_ERROR);
    assert_int_equal(launch_result(device), 0);
    assert_int_equal(fault_inject(&device->fault, STATUS_DEVICE_LOST, 1), 0);
    assert_int_equal(launch_result(device), STATUS_DEVICE_LOST);
    assert_int_equal(launch_result(device), STATUS_DEVICE_LOST);
    (void)device_close(device);
}

static void faults_from_the_environment(void **state)
{
    (void)state;
    struct device *device;
    struct reason why = REASON_NULL;
    static const char *const bad[] = {"lost", "lost:0", "lost:1x", "found:1", "import:0"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(setenv("GEMMD_FAULT", bad[i], 1), 0);
        assert_int_equal(device_open("host", 0, 1, &device, &why), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(why.text, bad[i]));
    }
    assert_int_equal(setenv("GEMMD_FAULT", "error:1", 1), 0);
    device = open_host(1);
    assert_int_equal(launch_result(device), STATUS_DEVICE_ERROR);
    (void)device_close(device);
    assert_int_equal(unsetenv("GEMMD_FAULT"), 0);
}

static void regions(void **state)
{
    (void)state;
    struct device *device = open_host(1);
    struct reason why = REASON_NULL;
    struct region region = REGION_NULL;
    assert_int_equal(device->ops->region_new(device, "test", 1000, &region, &why), 0);
    assert_true(region.size_bytes >= 1000);
    struct region twin = REGION_NULL;
    assert_int_equal(
        device->ops->region_import(device, fcntl(region.fd, F_DUPFD_CLOEXEC, 0), 4096, &twin, &why),
        0);
    ((char *)region.base)[17] = 'x';
    assert_int_equal(((char *)twin.base)[17], 'x');
    device->ops->region_free(device, &twin);
    /* T26: a region of 4096 bytes, declared as 8192. */
    assert_int_equal(
        device->ops->region_import(device, fcntl(region.fd, F_DUPFD_CLOEXEC, 0), 8192, &twin, &why),
        STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, "8192"));
    assert_non_null(strstr(why.text, "4096"));
    device->ops->region_free(device, &region);
    assert_int_equal(device->ops->region_new(device, "huge", 1ull << 50, &region, &why),
                     STATUS_NO_SPACE);
    assert_non_null(strstr(why.text, "not 1125899906842624 for huge"));
    (void)device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(launch_prepares_then_runs),
        cmocka_unit_test(small_launch_is_not_cut),
        cmocka_unit_test(unreserved_scratch_is_an_error),
        cmocka_unit_test(reserve_while_launching),
        cmocka_unit_test(injected_faults),
        cmocka_unit_test(faults_from_the_environment),
        cmocka_unit_test(regions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
