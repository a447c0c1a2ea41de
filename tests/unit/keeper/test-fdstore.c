/* Descriptors by name: put, removed, handed over to a child. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/keeper/fdstore.h"

#define FIRST_FD 3

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int make_fd(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, name, strlen(name)), (ssize_t)strlen(name));
    return fd;
}

static void test_put_and_remove(void **state)
{
    (void)state;
    struct fdstore store = FDSTORE_NULL;
    int a = make_fd("a");
    int b = make_fd("b");
    assert_int_equal(fdstore_put(&store, "one", a), 0);
    assert_int_equal(fdstore_put(&store, "two", b), 0);
    assert_int_equal(fdstore_put(&store, "one", make_fd("c")), 0);
    fdstore_remove(&store, "none");
    assert_int_equal(store.n, 3);
    fdstore_remove(&store, "one");
    assert_int_equal(store.n, 1);
    assert_int_equal(store.items[0].fd, b);
    assert_false(is_open(a));
    fdstore_finish(&store);
    assert_false(is_open(b));
}

static void test_refusals(void **state)
{
    (void)state;
    struct fdstore store = FDSTORE_NULL;
    char long_name[FDSTORE_NAME_BYTES + 1];
    memset(long_name, 'n', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    const char *const names[] = {"", "a:b", "a\nb", long_name};
    for (uint32_t i = 0; i < 4; i++) {
        int fd = make_fd("x");
        assert_int_equal(fdstore_put(&store, names[i], fd), -EINVAL);
        assert_false(is_open(fd));
    }
    store.n = FDSTORE_FDS_MAX; /* as if it were full */
    int one_more = make_fd("y");
    assert_int_equal(fdstore_put(&store, "n", one_more), -ENOBUFS);
    assert_false(is_open(one_more));
    store = (struct fdstore){.n_max = 1};
    assert_int_equal(fdstore_put(&store, "n", make_fd("x")), 0);
    assert_int_equal(fdstore_put(&store, "n", make_fd("y")), -ENOBUFS);
    fdstore_finish(&store);
}

/* In the child: is descriptor FIRST_FD + i the file that holds this text, and is it named so? */
static bool is_handed(uint32_t i, const char *text)
{
    char found[16] = "";
    return pread(FIRST_FD + (int)i, found, sizeof(found) - 1, 0) == (ssize_t)strlen(text) &&
           strcmp(found, text) == 0 && (fcntl(FIRST_FD + (int)i, F_GETFD) & FD_CLOEXEC) == 0;
}

/* The numbers that they get are partly those that others of them have. */
static void test_handing_over(void **state)
{
    (void)state;
    static const char *const texts[] = {"alpha", "beta", "gamma", "delta"};
    struct fdstore store = FDSTORE_NULL;
    for (uint32_t i = 4; i-- > 0;) {
        assert_int_equal(fdstore_put(&store, texts[i], make_fd(texts[i])), 0);
    }
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit limit = {FIRST_FD + 4 + 1, FIRST_FD + 4 + 1}; /* that is enough */
        bool is_right = setrlimit(RLIMIT_NOFILE, &limit) == 0 && fdstore_hand_over(&store) == 0;
        for (uint32_t i = 0; i < 4; i++) {
            is_right = is_right && is_handed(i, texts[3 - i]);
        }
        is_right = is_right && strtol(getenv("LISTEN_PID"), NULL, 10) == getpid() &&
                   strcmp(getenv("LISTEN_FDS"), "4") == 0 &&
                   strcmp(getenv("LISTEN_FDNAMES"), "delta:gamma:beta:alpha") == 0;
        _exit(is_right ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    fdstore_finish(&store);
}

static void test_nothing_to_hand_over(void **state)
{
    (void)state;
    struct fdstore store = FDSTORE_NULL;
    assert_int_equal(setenv("LISTEN_FDS", "7", 1), 0);
    assert_int_equal(fdstore_hand_over(&store), 0);
    assert_null(getenv("LISTEN_FDS"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_and_remove),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_handing_over),
        cmocka_unit_test(test_nothing_to_hand_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
