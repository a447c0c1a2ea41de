/* test-sockets.c - what the daemon finds at its socket paths, and what others find there (T46). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "ipc/side.h"
#include "tests/integ/life_case.h"

#define N_RACES           100u
#define RACES_PER_SERVICE 10u
#define NOBODY            65534u

static void test_stale_socket(void **state)
{
    struct life *life = *state;
    fixture_start(&life->fixture, &life->options);
    fixture_kill(&life->fixture);
    assert_int_equal(access(life_socket_path(life, SIDE_SOCKET_NAME), F_OK), 0);
    fixture_start(&life->fixture, &life->options);
    assert_true(life_serves(life));
    assert_int_equal(fixture_stop(&life->fixture), 0);
    assert_false(life_has_sockets(life));
}

static void test_second_daemon(void **state)
{
    struct life *life = *state;
    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_ZEROMQ);
    struct fixture second = life->fixture;
    fixture_spawn(&second, &life->options);
    assert_int_equal(fixture_wait_exit(&second, FIXTURE_READY_SECONDS), EXIT_REFUSED);
    assert_true(life_serves_through(client, &life->model));
    assert_true(life_serves(life));
    gemmd_close(client);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

static bool is_over(struct fixture *a, struct fixture *b)
{
    return !fixture_is_running(a) || !fixture_is_running(b);
}

/* Start two at the same moment; when one has given up, *ret_winner is the other. */
static void race(struct fixture *first, struct fixture *second, struct fixture **ret_winner)
{
    const struct fixture_options options = {.config = NULL};
    fixture_spawn(first, &options);
    fixture_spawn(second, &options);
    double deadline = fixture_now() + FIXTURE_READY_SECONDS;
    while (!is_over(first, second) && fixture_now() < deadline) {
        fixture_sleep(0.002);
    }
    bool has_first_won = fixture_is_running(first);
    struct fixture *loser = has_first_won ? second : first;
    *ret_winner = has_first_won ? first : second;
    assert_int_equal(fixture_wait_exit(loser, 0), EXIT_REFUSED);
}

/* Exactly one wins, whoever it is. It goes on to serve and ends well, or is killed at once, which
 * takes less time and leaves the next two a dead daemon's files to race over. */
static void test_two_at_once(void **state)
{
    struct life *life = *state;
    for (uint32_t i = 0; i < N_RACES; i++) {
        struct fixture second = life->fixture;
        struct fixture *winner;
        race(&life->fixture, &second, &winner);
        assert_true(fixture_is_running(winner));
        if (i % RACES_PER_SERVICE == 0) {
            fixture_wait_ready(winner, false);
            assert_int_equal(fixture_stop(winner), 0);
        } else {
            fixture_kill(winner);
        }
    }
}

static void refuse_start(struct life *life)
{
    fixture_spawn(&life->fixture, &life->options);
    assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_READY_SECONDS), EXIT_REFUSED);
}

static void test_foreign_file(void **state)
{
    struct life *life = *state;
    static const char *const names[] = {SIDE_SOCKET_NAME, SIDE_CONTROL_NAME};
    struct stat stat;
    for (uint32_t i = 0; i < ARRAY_LENGTH(names); i++) {
        const char *path = life_socket_path(life, names[i]);
        write_text(path, "precious");
        refuse_start(life);
        assert_int_equal(lstat(path, &stat), 0);
        assert_true(S_ISREG(stat.st_mode) && stat.st_size == 8);
        assert_int_equal(unlink(path), 0);

        assert_int_equal(mkdir(path, 0700), 0);
        refuse_start(life);
        assert_int_equal(rmdir(path), 0);

        assert_int_equal(symlink("/nonexistent/elsewhere", path), 0);
        refuse_start(life);
        assert_int_equal(lstat(path, &stat), 0);
        assert_true(S_ISLNK(stat.st_mode));
        assert_int_equal(unlink(path), 0);
    }
}

/* A socket address holds 107 bytes; "/session" and "/control" take 8 of them. */
static void test_path_lengths(void **state)
{
    struct life *life = *state;
    static const struct {
        size_t n_bytes;
        int exit_code; /* 0: it serves */
    } cases[] = {{99, 0}, {100, EXIT_USAGE}, {4096, EXIT_USAGE}};
    char long_dir[5000];
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        int n = snprintf(long_dir, sizeof(long_dir), "%s/", life->fixture.folder.path);
        assert_true(n > 0 && (size_t)n < 99);
        memset(long_dir + n, 'd', cases[i].n_bytes - (size_t)n);
        long_dir[cases[i].n_bytes] = '\0';
        struct fixture other = life->fixture;
        char config[5100];
        (void)snprintf(config, sizeof(config), "socket_dir = %s\n", long_dir);
        struct fixture_options options = life->options;
        options.config = config;
        other.socket_dir[0] = '\0'; /* the folder of the file counts */
        if (cases[i].exit_code == 0) {
            memcpy(life->fixture.socket_dir, long_dir, cases[i].n_bytes + 1);
            fixture_start(&life->fixture, &options);
            assert_true(life_serves(life));
            assert_int_equal(fixture_stop(&life->fixture), 0);
            continue;
        }
        fixture_spawn(&other, &options);
        assert_int_equal(fixture_wait_exit(&other, FIXTURE_READY_SECONDS), cases[i].exit_code);
    }
}

static void test_socket_modes(void **state)
{
    struct life *life = *state;
    struct stat stat;
    fixture_start(&life->fixture, &life->options);
    assert_int_equal(lstat(life_socket_path(life, SIDE_SOCKET_NAME), &stat), 0);
    assert_int_equal(stat.st_mode & 07777u, 0600);
    assert_int_equal(lstat(life_socket_path(life, SIDE_CONTROL_NAME), &stat), 0);
    assert_int_equal(stat.st_mode & 07777u, 0600);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

/* A folder that is there keeps its mode: who asked for more is told, and who has more than he may
 * think as well. */
static void test_modes_of_the_folder(void **state)
{
    static const struct {
        mode_t mode;
        uint32_t n_narrow, n_wide; /* times that it was told by then */
    } cases[] = {{0700, 1, 0}, {0750, 1, 0}, {0770, 1, 1}};
    struct life *life = *state;
    life->options.config = "socket_mode = 0660\n";
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        assert_int_equal(chmod(life->fixture.socket_dir, cases[i].mode), 0);
        fixture_start(&life->fixture, &life->options);
        assert_int_equal(fixture_stop(&life->fixture), 0);
        assert_int_equal(fixture_logged(&life->fixture, "others cannot reach the sockets"),
                         cases[i].n_narrow);
        assert_int_equal(fixture_logged(&life->fixture, "may write there (mode 0770)"),
                         cases[i].n_wide);
    }
}

/* An abstract name has no permissions: refused. */
static void test_abstract_name(void **state)
{
    struct life *life = *state;
    struct fixture other = life->fixture;
    struct fixture_options options = life->options;
    options.config = "socket_dir = @gemmd\n";
    other.socket_dir[0] = '\0';
    fixture_spawn(&other, &options);
    int code = fixture_wait_exit(&other, FIXTURE_READY_SECONDS);
    assert_true(code == EXIT_REFUSED || code == EXIT_USAGE);
}

/* The folder that the daemon makes lets in whom the sockets' mode lets in, and nobody else. */
static void test_another_user(void **state)
{
    struct life *life = *state;
    struct stat stat;
    int child;
    if (geteuid() != 0) {
        skip(); /* only root can be somebody else */
    }
    assert_int_equal(rmdir(life->fixture.socket_dir), 0);
    fixture_start(&life->fixture, &life->options);
    assert_int_equal(lstat(life->fixture.socket_dir, &stat), 0);
    assert_int_equal(stat.st_mode & 07777u, 0700);
    assert_int_equal(chmod(life->fixture.folder.path, 0755), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool is_other = setgid(NOBODY) == 0 && setuid(NOBODY) == 0;
        _exit(is_other && side_connect(life_socket_path(life, SIDE_SOCKET_NAME), 1000) == -EACCES
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(pid, &child, 0), pid);
    assert_int_equal(child, 0);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, life_set_up, life_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_stale_socket),        CASE(test_second_daemon), CASE(test_two_at_once),
        CASE(test_foreign_file),        CASE(test_path_lengths),  CASE(test_socket_modes),
        CASE(test_modes_of_the_folder), CASE(test_abstract_name), CASE(test_another_user),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
