/* test-shm.c - regions: what we make, what we take, what we refuse. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/shm.h"
#include "t.h"

#define BYTES 8192u

static int make_memfd(unsigned flags, int seals, off_t n_bytes)
{
    int fd = memfd_create("test", MFD_CLOEXEC | flags);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, n_bytes), 0);
    if (seals != 0) {
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    }
    return fd;
}

static void test_create_is_sealed_zeroed_and_committed(void **state)
{
    (void)state;
    struct region region = REGION_NULL;
    struct stat info;
    assert_int_equal(region_create(&region, "test", 5000), 0);
    assert_int_equal(region.size_bytes, 8192);
    assert_int_equal(fcntl(region.fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_int_equal(fcntl(region.fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fstat(region.fd, &info), 0);
    assert_int_equal(info.st_blocks * 512, 8192);
    for (int i = 0; i < 8192; i++) {
        assert_int_equal(((char *)region.base)[i], 0);
    }
    assert_int_equal(ftruncate(region.fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    region_finish(&region);
    assert_int_equal(region.fd, -1);
    assert_null(region.base);
    region_finish(&region);
}

static void test_create_refuses_impossible_sizes(void **state)
{
    (void)state;
    struct region region = REGION_NULL;
    assert_int_equal(region_create(&region, "test", 0), -EINVAL);
    assert_int_equal(region_create(&region, "test", UINT64_MAX), -ENOSPC);
    assert_int_equal(region_create(&region, "test", 1ull << 50), -ENOSPC);
    assert_int_equal(region.fd, -1);
}

static void test_attach_shares_and_checks_the_size(void **state)
{
    (void)state;
    struct region ours = REGION_NULL;
    struct region theirs = REGION_NULL;
    assert_int_equal(region_create(&ours, "test", BYTES), 0);
    assert_int_equal(region_attach(&theirs, fcntl(ours.fd, F_DUPFD_CLOEXEC, 0), BYTES), 0);
    memcpy(ours.base, "hello", 6);
    assert_string_equal(theirs.base, "hello");
    region_finish(&theirs);

    int copy = fcntl(ours.fd, F_DUPFD_CLOEXEC, 0);
    assert_int_equal(region_attach(&theirs, copy, BYTES + 1), -EINVAL);
    assert_int_equal(fcntl(copy, F_GETFD), -1); /* taken over, hence closed */
    assert_int_equal(region_attach(&theirs, -1, BYTES), -EBADF);
    region_finish(&ours);
}

static void check_refused(int fd, uint64_t size_bytes, const char *needle)
{
    struct region region = REGION_NULL;
    struct reason why = REASON_NULL;
    assert_int_equal(region_import(&region, fd, size_bytes, &why), STATUS_INVALID_ARGUMENT);
    if (strstr(why.text, needle) == NULL) {
        fail_msg("'%s' does not say '%s'", why.text, needle);
    }
    assert_int_equal(region.fd, -1);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void test_import_refuses(void **state)
{
    (void)state;
    const unsigned sealable = MFD_ALLOW_SEALING;
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    close(pipes[1]);
    check_refused(pipes[0], BYTES, "not a memfd");
    check_refused(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), BYTES, "not a memfd");
    check_refused(make_memfd(0, 0, BYTES), BYTES, "not sealed");
    check_refused(make_memfd(sealable, 0, BYTES), BYTES, "not sealed");
    check_refused(make_memfd(sealable, F_SEAL_GROW, BYTES), BYTES, "not sealed");
    check_refused(make_memfd(sealable, F_SEAL_SHRINK | F_SEAL_WRITE, BYTES), BYTES,
                  "sealed against writing");
    check_refused(make_memfd(sealable, F_SEAL_SHRINK, BYTES), 0, "size is 0");
    check_refused(make_memfd(sealable, F_SEAL_SHRINK, BYTES), BYTES + 1,
                  "has 8192 bytes, fewer than the declared 8193");
    check_refused(make_memfd(sealable, F_SEAL_SHRINK, BYTES), UINT64_MAX, "fewer");
}

static void test_import_refuses_read_only(void **state)
{
    (void)state;
    char path[64];
    int fd = make_memfd(MFD_ALLOW_SEALING, F_SEAL_SHRINK, BYTES);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    check_refused(open(path, O_RDONLY | O_CLOEXEC), BYTES, "read-only");
    close(fd);
}

static void test_import_takes_a_sealed_memfd(void **state)
{
    (void)state;
    struct region region = REGION_NULL;
    int fd = make_memfd(MFD_ALLOW_SEALING, F_SEAL_SHRINK, BYTES);
    assert_int_equal(pwrite(fd, "abc", 4, 4096), 4);
    assert_int_equal(region_import(&region, fd, BYTES, NULL), 0);
    assert_string_equal((char *)region.base + 4096, "abc");
    assert_int_equal(region.size_bytes, BYTES);
    region_finish(&region);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_is_sealed_zeroed_and_committed),
        cmocka_unit_test(test_create_refuses_impossible_sizes),
        cmocka_unit_test(test_attach_shares_and_checks_the_size),
        cmocka_unit_test(test_import_refuses),
        cmocka_unit_test(test_import_refuses_read_only),
        cmocka_unit_test(test_import_takes_a_sealed_memfd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
