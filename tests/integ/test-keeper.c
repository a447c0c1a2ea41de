/* test-keeper.c - gemmd --keeper: what it starts again and what it does not, what it holds, and who
 * may ask it to. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/harness/control_job.h"
#include "tests/integ/life_case.h"

static int set_up(void **state)
{
    int r = life_set_up(state);
    struct life *life = *state;
    life->options.is_kept = true;
    return r;
}

/* Until another daemon than that one serves; its pid. */
static pid_t await_successor(struct life *life, pid_t before)
{
    fixture_wait_logged(&life->fixture, "is started with", 2);
    fixture_wait_ready(&life->fixture, true);
    pid_t pid = fixture_daemon_pid(&life->fixture);
    assert_int_not_equal(pid, before);
    return pid;
}

static void test_death(void **state)
{
    struct life *life = *state;
    fixture_start(&life->fixture, &life->options);
    pid_t pid = fixture_daemon_pid(&life->fixture);
    assert_int_not_equal(pid, life->fixture.pid);
    uint32_t n_fds = fixture_fds(&life->fixture);
    assert_int_equal(kill(pid, SIGKILL), 0);
    (void)await_successor(life, pid);
    assert_true(life_serves(life));
    assert_int_equal(fixture_logged(&life->fixture, "adopted in"), 1);
    assert_int_equal(fixture_fds(&life->fixture), n_fds);
    assert_int_equal(fixture_stop(&life->fixture), 0);
    assert_false(life_has_sockets(life));
}

/* Reloading and unloading give back what they replace. */
static void test_no_leak(void **state)
{
    struct life *life = *state;
    fixture_start(&life->fixture, &life->options);
    uint32_t n_fds = fixture_fds(&life->fixture);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(control_job(client, MSG_VERB_RELOAD, "tiny", NULL, NULL), 0);
    }
    assert_int_equal(fixture_fds(&life->fixture), n_fds);
    assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, "tiny"), 0);
    gemmd_close(client);
    fixture_sleep(0.05);
    assert_int_equal(fixture_fds(&life->fixture), n_fds - TEST_WEIGHTS - 1);
}

static int set_up_real(void **state)
{
    int r = set_up(state);
    struct life *life = *state;
    (void)snprintf(life->argument, sizeof(life->argument), "minilm=%s/tests/data/minilm-gptq-4bit",
                   getenv("GEMMD_SOURCE_DIR"));
    return r;
}

/* 37 regions and a manifest: what fits the limit is kept; what does not is said, and loaded anew.
 */
static void test_limit(void **state)
{
    struct life *life = *state;
    static const uint64_t limits[] = {2 * 38, 2 * 38 - 2};
    for (uint32_t i = 0; i < 2; i++) {
        life->options.n_fds_max = limits[i];
        fixture_start(&life->fixture, &life->options);
        pid_t pid = fixture_daemon_pid(&life->fixture);
        assert_int_equal(kill(pid, SIGKILL), 0);
        fixture_wait_logged(&life->fixture, "is started with", 2 * (i + 1));
        fixture_wait_ready(&life->fixture, true);
        assert_int_equal(fixture_logged(&life->fixture, "37 weights adopted in"), 1);
        uint32_t n_said = fixture_logged(&life->fixture, "half the limit of 74 open files");
        assert_int_equal(n_said > 0, i == 1);
        assert_true(n_said <= 2); /* once a daemon, not once a weight */
        assert_int_equal(fixture_stop(&life->fixture), 0);
    }
}

/* ---- not started again ---- */

static void read_text(const char *path, char *ret_text, size_t size_bytes)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(ret_text, 1, size_bytes - 1, file);
    ret_text[n] = '\0';
    assert_int_equal(fclose(file), 0);
}

static void test_refusals(void **state)
{
    struct life *life = *state;
    struct fixture second;
    life->options.config = "threads = many\n";
    fixture_spawn(&life->fixture, &life->options);
    assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_STOP_SECONDS), EXIT_USAGE);
    life->options.config = NULL;
    fixture_start(&life->fixture, &life->options);
    fixture_init(&second);
    const struct fixture own = second;
    memcpy(second.socket_dir, life->fixture.socket_dir, sizeof(second.socket_dir));
    fixture_spawn(&second, &life->options);
    assert_int_equal(fixture_wait_exit(&second, FIXTURE_STOP_SECONDS), EXIT_REFUSED);
    assert_int_equal(fixture_logged(&second, "another gemmd is running"), 1);
    memcpy(second.socket_dir, own.socket_dir, sizeof(second.socket_dir));
    fixture_finish(&second);
    assert_true(life_serves(life));
    assert_int_equal(fixture_logged(&life->fixture, "is started with"), 1);
}

/* A fault that comes into the file while weights are held costs neither them nor the service, once
 * it is mended. */
static void test_file_is_mended(void **state)
{
    struct life *life = *state;
    char path[300], text[2000];
    fixture_start(&life->fixture, &life->options);
    (void)snprintf(path, sizeof(path), "%s", temp_path(&life->fixture.folder, "conf"));
    read_text(path, text, sizeof(text));
    write_text(path, "threads = many\n");
    assert_int_equal(kill(fixture_daemon_pid(&life->fixture), SIGKILL), 0);
    fixture_wait_logged(&life->fixture, "ended with code 2", 2);
    write_text(path, text);
    fixture_wait_logged(&life->fixture, "serves on", 2);
    assert_true(life_serves(life));
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

/* One that never gets ready is tried again, more and more slowly, until somebody ends it. */
static void test_backoff(void **state)
{
    struct life *life = *state;
    assert_int_equal(setenv("GEMMD_FAULT", "lost:1", 1), 0);
    double start = fixture_now();
    fixture_spawn(&life->fixture, &life->options);
    fixture_wait_logged(&life->fixture, "ended with code 5", 4);
    assert_true(fixture_now() - start > 0.05 + 0.1 + 0.2);
    assert_int_equal(unsetenv("GEMMD_FAULT"), 0);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

/* ---- signals ---- */

static void copy_program(const char *from, const char *to)
{
    char bytes[65536];
    FILE *source = fopen(from, "r");
    FILE *target = fopen(to, "w");
    assert_true(source != NULL && target != NULL);
    for (size_t n; (n = fread(bytes, 1, sizeof(bytes), source)) > 0;) {
        assert_int_equal(fwrite(bytes, 1, n, target), n);
    }
    assert_int_equal(fclose(source) | fclose(target), 0);
    assert_int_equal(chmod(to, 0700), 0);
}

static ino_t program_of(pid_t pid)
{
    char path[64];
    struct stat file;
    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    assert_int_equal(stat(path, &file), 0);
    return file.st_ino;
}

static void test_upgrade(void **state)
{
    struct life *life = *state;
    const char *path = temp_path(&life->fixture.folder, "gemmd");
    const char *fresh = temp_path(&life->fixture.folder, "gemmd.new");
    const char *built = getenv("GEMMD_PROGRAM");
    char original[600];
    (void)snprintf(original, sizeof(original), "%s", built != NULL ? built : GEMMD_PROGRAM);
    copy_program(original, path);
    copy_program(original, fresh);
    assert_int_equal(setenv("GEMMD_PROGRAM", path, 1), 0);
    fixture_start(&life->fixture, &life->options);
    assert_int_equal(setenv("GEMMD_PROGRAM", original, 1), 0);
    pid_t pid = fixture_daemon_pid(&life->fixture);
    ino_t old_program = program_of(pid);
    assert_int_equal(rename(fresh, path), 0);
    assert_int_equal(kill(life->fixture.pid, SIGUSR1), 0);
    pid = await_successor(life, pid);
    assert_int_not_equal(program_of(pid), old_program);
    assert_true(life_serves(life));
    assert_int_equal(fixture_logged(&life->fixture, "adopted in"), 1);
    assert_int_equal(fixture_logged(&life->fixture, "ended with signal"), 0);
}

static void test_no_sign_of_life(void **state)
{
    struct life *life = *state;
    assert_int_equal(setenv("WATCHDOG_USEC", "500000", 1), 0);
    fixture_start(&life->fixture, &life->options);
    assert_int_equal(unsetenv("WATCHDOG_USEC"), 0);
    pid_t pid = fixture_daemon_pid(&life->fixture);
    fixture_sleep(1);
    assert_int_equal(fixture_daemon_pid(&life->fixture), pid);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    (void)await_successor(life, pid);
    assert_int_equal(fixture_logged(&life->fixture, "no sign of life"), 1);
    assert_true(life_serves(life));
}

/* ---- strangers ---- */

static void notify_address(pid_t pid, struct sockaddr_un *ret_address, socklen_t *ret_n_bytes)
{
    char path[64];
    char text[65536];
    static const char key[] = "NOTIFY_SOCKET=@";
    (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    assert_true(n > 0);
    const char *found = memmem(text, (size_t)n, key, sizeof(key) - 1);
    assert_non_null(found);
    const char *name = found + sizeof(key) - 1;
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_address->sun_path + 1, name, strlen(name));
    *ret_n_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static void test_stranger(void **state)
{
    struct life *life = *state;
    struct sockaddr_un address;
    socklen_t n_bytes;
    static const char text[] = "FDSTOREREMOVE=1\nFDNAME=m.1";
    fixture_start(&life->fixture, &life->options);
    pid_t pid = fixture_daemon_pid(&life->fixture);
    notify_address(pid, &address, &n_bytes);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(sendto(fd, text, sizeof(text) - 1, 0, (struct sockaddr *)&address, n_bytes),
                     (ssize_t)(sizeof(text) - 1));
    (void)close(fd);
    assert_int_equal(kill(pid, SIGKILL), 0);
    (void)await_successor(life, pid);
    assert_int_equal(fixture_logged(&life->fixture, "adopted in"), 1);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, life_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_death),
        CASE(test_no_leak),
        CASE(test_refusals),
        CASE(test_backoff),
        CASE(test_upgrade),
        CASE(test_no_sign_of_life),
        CASE(test_stranger),
        CASE(test_file_is_mended),
        cmocka_unit_test_setup_teardown(test_limit, set_up_real, life_tear_down),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
