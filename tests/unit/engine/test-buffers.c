/* test-buffers.c - ids, references, removal while in use, and nothing left behind. */
#include "tests/unit/engine/cmocka_all.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "daemon/engine/buffers.h"

static struct device *device;
static struct quota *quota;

static int open_device(void **state)
{
    (void)state;
    struct quota_limits limits;
    for (int i = 0; i < QUOTA_KINDS; i++) {
        limits.per_user[i] = limits.total[i] = 1u << 30;
    }
    return device_open("host", 0, 1, &device, NULL) != 0 || quota_new(&limits, &quota) != 0;
}

static int close_device(void **state)
{
    (void)state;
    (void)device_close(device);
    (void)quota_free(quota); /* asserts that all charges are back */
    return 0;
}

static uint64_t held_bytes(void)
{
    uint64_t held[QUOTA_KINDS];
    uint32_t n_accounts;
    quota_totals(quota, held, &n_accounts);
    return held[QUOTA_BYTES];
}

static uint64_t add(struct buffers *buffers, int fd)
{
    struct region region = REGION_NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    if (fd < 0) {
        assert_int_equal(device->ops->region_new(device, "test", 4096, &region, NULL), 0);
    } else {
        assert_int_equal(device->ops->region_import(device, fd, 4096, &region, NULL), 0);
    }
    assert_int_equal(quota_take(quota, 7, (uint64_t[]){0, 1, 4096, 1}, &charge, NULL), 0);
    uint64_t id;
    assert_int_equal(buffers_add(buffers, device, &region, &charge, &id, NULL), 0);
    assert_int_equal(region.fd, -1);
    assert_null(charge.account);
    return id;
}

static uint32_t count_fds(void)
{
    uint32_t n = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        n++;
    }
    (void)closedir(folder);
    return n;
}

static void ids_are_never_reused(void **state)
{
    (void)state;
    struct buffers *buffers;
    assert_int_equal(buffers_new(4, &buffers), 0);
    uint64_t last = 0;
    for (int i = 0; i < 200; i++) {
        uint64_t id = add(buffers, -1);
        assert_int_equal(id, last + 1);
        last = id;
        assert_int_equal(buffers_remove(buffers, id, NULL), 0);
        assert_int_equal(buffers_remove(buffers, id, NULL), STATUS_NOT_FOUND);
    }
    assert_int_equal(buffers_count(buffers), 0);
    assert_null(buffers_free(buffers));
}

static void full_table_refuses(void **state)
{
    (void)state;
    struct buffers *buffers;
    assert_int_equal(buffers_new(2, &buffers), 0);
    (void)add(buffers, -1);
    (void)add(buffers, -1);
    struct region region = REGION_NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    struct reason why = REASON_NULL;
    uint64_t id;
    assert_int_equal(device->ops->region_new(device, "test", 4096, &region, NULL), 0);
    assert_int_equal(buffers_add(buffers, device, &region, &charge, &id, &why), STATUS_QUOTA);
    assert_non_null(strstr(why.text, "2 buffers"));
    assert_true(region.fd >= 0); /* still the caller's */
    device->ops->region_free(device, &region);
    assert_null(buffers_free(buffers));
    assert_int_equal(held_bytes(), 0);
}

static void removed_buffer_lives_while_in_use(void **state)
{
    (void)state;
    struct buffers *buffers;
    assert_int_equal(buffers_new(4, &buffers), 0);
    uint64_t id = add(buffers, -1);
    void *base;
    uint64_t n_bytes;
    struct buffer *buffer = buffers_acquire(buffers, id, &base, &n_bytes);
    assert_non_null(buffer);
    assert_int_equal(n_bytes, 4096);
    assert_int_equal(buffers_remove(buffers, id, NULL), 0);
    assert_null(buffers_acquire(buffers, id, &base, &n_bytes));
    memset(base, 1, n_bytes);
    assert_int_equal(held_bytes(), 4096);
    assert_null(buffers_free(buffers));
    memset(base, 2, n_bytes); /* the table's end does not take it away either */
    assert_null(buffer_unref(buffer));
    assert_int_equal(held_bytes(), 0);
}

/* T23: one memory under two ids. */
static void two_names_for_one_memory(void **state)
{
    (void)state;
    struct buffers *buffers;
    assert_int_equal(buffers_new(4, &buffers), 0);
    struct region region = REGION_NULL;
    assert_int_equal(device->ops->region_new(device, "test", 4096, &region, NULL), 0);
    uint64_t ids[3] = {add(buffers, fcntl(region.fd, F_DUPFD_CLOEXEC, 0)),
                       add(buffers, fcntl(region.fd, F_DUPFD_CLOEXEC, 0)), add(buffers, -1)};
    device->ops->region_free(device, &region);
    struct buffer *found[3];
    uint8_t *bases[3];
    for (int i = 0; i < 3; i++) {
        void *base;
        uint64_t n_bytes;
        found[i] = buffers_acquire(buffers, ids[i], &base, &n_bytes);
        bases[i] = base;
    }
    assert_true(buffers_share_memory(found[0], found[1]));
    assert_false(buffers_share_memory(found[0], found[2]));
    assert_int_equal(buffers_remove(buffers, ids[0], NULL), 0);
    (void)buffer_unref(found[0]);
    bases[1][5] = 9; /* the other mapping is a mapping of its own */
    (void)buffer_unref(found[1]);
    (void)buffer_unref(found[2]);
    assert_null(buffers_free(buffers));
}

/* T24, twin of the host: descriptors and charges are the same after many cycles. */
static void nothing_is_left_behind(void **state)
{
    (void)state;
    uint32_t n_fds = count_fds();
    for (int i_table = 0; i_table < 50; i_table++) {
        struct buffers *buffers;
        assert_int_equal(buffers_new(64, &buffers), 0);
        for (int i = 0; i < 10; i++) {
            uint64_t id = add(buffers, -1);
            if (i % 2 == 0) {
                assert_int_equal(buffers_remove(buffers, id, NULL), 0);
            }
        }
        assert_null(buffers_free(buffers));
    }
    assert_int_equal(count_fds(), n_fds);
    assert_int_equal(held_bytes(), 0);
}

struct race {
    struct buffers *buffers;
    _Atomic uint64_t id;
    _Atomic bool is_over;
};

static void *keep_acquiring(void *arg)
{
    struct race *race = arg;
    while (!atomic_load(&race->is_over)) {
        void *base;
        uint64_t n_bytes;
        struct buffer *buffer =
            buffers_acquire(race->buffers, atomic_load(&race->id), &base, &n_bytes);
        if (buffer != NULL) {
            assert_int_equal(*(volatile uint8_t *)base, 0);
            (void)buffer_unref(buffer);
        }
    }
    return NULL;
}

static void remove_against_acquire(void **state)
{
    (void)state;
    struct race race = {0};
    assert_int_equal(buffers_new(4, &race.buffers), 0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, keep_acquiring, &race), 0);
    }
    for (int i = 0; i < 300; i++) {
        uint64_t id = add(race.buffers, -1);
        atomic_store(&race.id, id);
        assert_int_equal(buffers_remove(race.buffers, id, NULL), 0);
    }
    atomic_store(&race.is_over, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_null(buffers_free(race.buffers));
    assert_int_equal(held_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_never_reused),
        cmocka_unit_test(full_table_refuses),
        cmocka_unit_test(removed_buffer_lives_while_in_use),
        cmocka_unit_test(two_names_for_one_memory),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(remove_against_acquire),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
