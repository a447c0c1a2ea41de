/* test-lockfile.c - the socket folder: who may use it, and what is never deleted (T46). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/server/lockfile.h"

static char root[] = "/tmp/gemmd-lock-XXXXXX";
static char dir[64];

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    (void)state;
    char command[96];
    (void)snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

static int fresh_dir(void **state)
{
    (void)state;
    static int n;
    (void)snprintf(dir, sizeof(dir), "%s/%d", root, n++);
    return 0;
}

static int take(struct lockfile *lockfile, struct reason *why)
{
    *lockfile = LOCKFILE_NULL;
    *why = REASON_NULL;
    return lockfile_take(lockfile, dir, 0600, why);
}

static const char *path_in_dir(const char *name)
{
    static char path[96];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void test_folder_is_made_private(void **state)
{
    (void)state;
    struct lockfile lockfile;
    struct reason why;
    struct stat found;
    assert_int_equal(take(&lockfile, &why), 0);
    assert_int_equal(stat(dir, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0700);
    lockfile_finish(&lockfile);
    assert_int_equal(lockfile.fd, -1);
    lockfile_finish(&lockfile);
}

/* As for somebody who may not write to /run. */
static void test_folder_cannot_be_made(void **state)
{
    (void)state;
    char deep[128];
    struct lockfile lockfile = LOCKFILE_NULL;
    struct reason why = REASON_NULL;
    (void)snprintf(deep, sizeof(deep), "%s/none/sockets", root);
    assert_int_equal(lockfile_take(&lockfile, deep, 0600, &why), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, "name another with --socket-dir"));
}

static void test_second_is_refused_and_the_first_undisturbed(void **state)
{
    (void)state;
    struct lockfile first;
    struct lockfile second;
    struct reason why;
    assert_int_equal(take(&first, &why), 0);
    assert_int_equal(mknod(path_in_dir("session"), S_IFSOCK | 0600, 0), 0);
    assert_int_equal(take(&second, &why), STATUS_EXISTS);
    assert_non_null(strstr(why.text, "another gemmd is running"));
    lockfile_finish(&second);
    assert_int_equal(access(path_in_dir("session"), F_OK), 0);
    lockfile_finish(&first);
    assert_int_equal(access(path_in_dir("session"), F_OK), -1);
    assert_int_equal(take(&second, &why), 0);
    lockfile_finish(&second);
}

static void test_lock_goes_with_the_process(void **state)
{
    (void)state;
    struct lockfile lockfile;
    struct reason why;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(take(&lockfile, &why) == 0 ? 0 : 1); /* holds it until the kernel drops it */
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(take(&lockfile, &why), 0);
    lockfile_finish(&lockfile);
}

static void try_and_hold(int gate_fd)
{
    struct lockfile lockfile;
    struct reason why;
    char byte;
    int r = take(&lockfile, &why);
    ssize_t ignored = read(gate_fd, &byte, 1); /* until all have tried */
    (void)ignored;
    _exit(r == 0 ? 0 : r == STATUS_EXISTS ? 1 : 2);
}

static void test_one_of_many_wins(void **state)
{
    (void)state;
    enum { N = 8 };
    int gate[2];
    pid_t pids[N];
    int n_by_code[3] = {0};
    assert_int_equal(pipe(gate), 0);
    for (int i = 0; i < N; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            (void)close(gate[1]);
            try_and_hold(gate[0]);
        }
    }
    (void)close(gate[0]);
    (void)usleep(300000);
    (void)close(gate[1]);
    for (int i = 0; i < N; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        n_by_code[WEXITSTATUS(status)]++;
    }
    assert_int_equal(n_by_code[0], 1);
    assert_int_equal(n_by_code[1], N - 1);
}

static void check_in_the_way(const char *path)
{
    struct lockfile lockfile;
    struct reason why;
    struct stat before;
    struct stat after;
    assert_int_equal(lstat(path, &before), 0);
    assert_int_equal(take(&lockfile, &why), STATUS_EXISTS);
    assert_non_null(strstr(why.text, path));
    lockfile_finish(&lockfile);
    assert_int_equal(lstat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
}

static void test_what_is_no_socket_stays(void **state)
{
    (void)state;
    assert_int_equal(mkdir(dir, 0700), 0);
    const char *path = path_in_dir("session");
    assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
    check_in_the_way(path);
    assert_int_equal(unlink(path), 0);
    path = path_in_dir("control");
    assert_int_equal(mkdir(path, 0700), 0);
    check_in_the_way(path);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/nowhere", path), 0);
    check_in_the_way(path);
}

static void test_stale_socket_is_no_obstacle(void **state)
{
    (void)state;
    struct lockfile lockfile;
    struct reason why;
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(mknod(path_in_dir("session"), S_IFSOCK | 0600, 0), 0);
    assert_int_equal(take(&lockfile, &why), 0);
    lockfile_finish(&lockfile);
}

static void test_path_length_limit(void **state)
{
    (void)state;
    char long_dir[256];
    struct lockfile lockfile = LOCKFILE_NULL;
    struct reason why = REASON_NULL;
    /* "/session" and "/control" have 8 bytes each: 99 make 107. */
    (void)snprintf(long_dir, sizeof(long_dir), "%s/", root);
    size_t n_bytes = strlen(long_dir);
    memset(long_dir + n_bytes, 'd', 100);
    long_dir[99] = '\0';
    assert_int_equal(lockfile_take(&lockfile, long_dir, 0600, &why), 0);
    assert_int_equal(strlen(lockfile.session_path), 107);
    lockfile_finish(&lockfile);
    long_dir[99] = 'd';
    long_dir[100] = '\0';
    assert_int_equal(lockfile_take(&lockfile, long_dir, 0600, &why), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, "100 bytes, over the limit of 99"));
    assert_int_equal(lockfile_take(&lockfile, "@abstract", 0600, &why), STATUS_INVALID_ARGUMENT);
}

static void test_folder_must_be_ours(void **state)
{
    (void)state;
    struct lockfile lockfile;
    struct reason why;
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(chmod(dir, 0777), 0);
    assert_int_equal(take(&lockfile, &why), STATUS_PERMISSION);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(close(open(dir, O_CREAT | O_WRONLY, 0600)), 0);
    assert_int_equal(take(&lockfile, &why), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, "Not a directory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_folder_is_made_private, fresh_dir),
        cmocka_unit_test(test_folder_cannot_be_made),
        cmocka_unit_test_setup(test_second_is_refused_and_the_first_undisturbed, fresh_dir),
        cmocka_unit_test_setup(test_lock_goes_with_the_process, fresh_dir),
        cmocka_unit_test_setup(test_one_of_many_wins, fresh_dir),
        cmocka_unit_test_setup(test_what_is_no_socket_stays, fresh_dir),
        cmocka_unit_test_setup(test_stale_socket_is_no_obstacle, fresh_dir),
        cmocka_unit_test_setup(test_path_length_limit, fresh_dir),
        cmocka_unit_test_setup(test_folder_must_be_ours, fresh_dir),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
