/* test-connection.c - opening, buffers, and daemons that misbehave on the session socket. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/unit/client/fixture.h"

static int set_up(void **state)
{
    *state = fake_new();
    return 0;
}

static int tear_down(void **state)
{
    fake_free(*state);
    return 0;
}

static int open_with(struct fake_daemon *fake, uint32_t quirks, gemmd_client_t **ret_client)
{
    struct fixture fixture = {.fake = fake};
    struct gemmd_options options = fixture_options(&fixture, GEMMD_PATH_RING);
    if (quirks == FAKE_LATE_ANSWER) {
        options.timeout_msec = FIXTURE_SHORT_MSEC;
    }
    fake_set(fake, quirks);
    return gemmd_open(&options, ret_client);
}

static void test_hello_misbehaviour(void **state)
{
    static const struct {
        uint32_t quirk;
        int status;
        const char *says;
    } cases[] = {
        {FAKE_HANG_UP, GEMMD_DISCONNECTED, "hung up"},
        {FAKE_REFUSE, GEMMD_QUOTA, "3 of 3 are in use"},
        {FAKE_REFUSE_WITH_OK, GEMMD_BAD_MESSAGE, "status 0, which is none"},
        {FAKE_WRONG_VERSION, GEMMD_VERSION, "protocol version 99"},
        {FAKE_LATE_ANSWER, GEMMD_TIMEOUT, "within 100 ms"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gemmd_client_t *client = NULL;
        assert_int_equal(open_with(*state, cases[i].quirk, &client), cases[i].status);
        assert_null(client);
        assert_says(cases[i].says);
    }
}

static void test_no_daemon(void **state)
{
    (void)state;
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    gemmd_client_t *client = NULL;
    options.socket_dir = "/nonexistent/folder";
    assert_int_equal(gemmd_open(&options, &client), GEMMD_DISCONNECTED);
    assert_says("/nonexistent/folder/session");
    char longest[101];
    memset(longest, 'a', 100);
    longest[100] = '\0';
    options.socket_dir = longest;
    assert_int_equal(gemmd_open(&options, &client), GEMMD_INVALID_ARGUMENT);
    assert_says("99 bytes");
    longest[99] = '\0';
    assert_int_equal(gemmd_open(&options, &client), GEMMD_DISCONNECTED);
}

static void test_bad_options(void **state)
{
    (void)state;
    gemmd_client_t *client = NULL;
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    options.struct_bytes--;
    assert_int_equal(gemmd_open(&options, &client), GEMMD_INVALID_ARGUMENT);
    assert_says("struct_bytes");
    options = (struct gemmd_options)GEMMD_OPTIONS_INIT;
    options.timeout_msec = 0;
    assert_int_equal(gemmd_open(&options, &client), GEMMD_INVALID_ARGUMENT);
    assert_says("timeout_msec 0");
    options = (struct gemmd_options)GEMMD_OPTIONS_INIT;
    options.path = (enum gemmd_path)7;
    assert_int_equal(gemmd_open(&options, &client), GEMMD_INVALID_ARGUMENT);
    assert_says("path 7");
    assert_int_equal(gemmd_open(NULL, NULL), GEMMD_INVALID_ARGUMENT);
    gemmd_close(NULL);
}

static void test_buffer_misbehaviour(void **state)
{
    static const struct {
        uint32_t quirk;
        int status;
    } cases[] = {
        {FAKE_REFUSE, GEMMD_QUOTA},           {FAKE_REFUSE_WITH_OK, GEMMD_BAD_MESSAGE},
        {FAKE_WRONG_TYPE, GEMMD_BAD_MESSAGE}, {FAKE_NO_FDS, GEMMD_BAD_MESSAGE},
        {FAKE_SMALL_REGION, GEMMD_INTERNAL},  {FAKE_HANG_UP, GEMMD_DISCONNECTED},
    };
    gemmd_client_t *client = NULL;
    assert_int_equal(open_with(*state, 0, &client), GEMMD_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gemmd_buffer_t *buffer = NULL;
        fake_set(*state, cases[i].quirk);
        assert_int_equal(gemmd_buffer_alloc(client, 0, 100000, &buffer), cases[i].status);
        assert_null(buffer);
    }
    gemmd_close(client);
}

/* The answer to the question that timed out comes while the next one is asked. */
static void test_late_answer_is_skipped(void **state)
{
    gemmd_client_t *client = NULL;
    gemmd_buffer_t *buffer = NULL;
    assert_int_equal(open_with(*state, 0, &client), GEMMD_OK);
    fake_set(*state, FAKE_LATE_ANSWER);
    fixture_set_timeout(client, FIXTURE_SHORT_MSEC);
    assert_int_equal(gemmd_buffer_alloc(client, 0, 100, &buffer), GEMMD_TIMEOUT);
    fake_set(*state, 0);
    fixture_set_timeout(client, FIXTURE_PATIENCE_MSEC);
    assert_int_equal(gemmd_buffer_alloc(client, 0, 5000, &buffer), GEMMD_OK);
    assert_int_equal(gemmd_buffer_bytes(buffer), 5000);
    memset(gemmd_buffer_data(buffer), 1, 5000);
    gemmd_buffer_free(buffer);
    gemmd_close(client);
}

static void on_alarm(int signal)
{
    (void)signal;
}

/* A signal that arrives within the look at the session is no hang-up. */
static void test_signals_are_no_hang_up(void **state)
{
    gemmd_client_t *client = NULL;
    struct itimerval interval = {.it_interval = {.tv_usec = 20}, .it_value = {.tv_usec = 20}};
    struct itimerval off = {.it_value = {0}};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    uint32_t n_dead = 0;
    assert_int_equal(open_with(*state, 0, &client), GEMMD_OK);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &interval, NULL), 0);
    uint64_t end = fixture_now_msec() + 300;
    while (fixture_now_msec() < end) {
        n_dead += !session_is_alive(client);
    }
    assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
    assert_int_equal(n_dead, 0);
    gemmd_close(client);
}

static volatile sig_atomic_t n_alarms;

static void on_counted_alarm(int signal)
{
    (void)signal;
    n_alarms++;
}

/* A profiler's signals come faster than the time limit is long, and make no wait longer. */
static void test_signals_make_no_wait_longer(void **state)
{
    gemmd_client_t *client = NULL;
    gemmd_buffer_t *buffer = NULL;
    const suseconds_t usec = FIXTURE_SHORT_MSEC * 1000 / 5;
    struct itimerval interval = {.it_interval = {.tv_usec = usec}, .it_value = {.tv_usec = usec}};
    struct itimerval off = {.it_value = {0}};
    struct sigaction action = {.sa_handler = on_counted_alarm, .sa_flags = SA_RESTART};
    assert_int_equal(open_with(*state, 0, &client), GEMMD_OK);
    fixture_set_timeout(client, FIXTURE_SHORT_MSEC);
    fake_set(*state, FAKE_LATE_ANSWER);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &interval, NULL), 0);
    uint64_t begin = fixture_now_msec();
    assert_int_equal(gemmd_buffer_alloc(client, 0, 100, &buffer), GEMMD_TIMEOUT);
    uint64_t waited = fixture_now_msec() - begin;
    assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
    assert_true(n_alarms > 0 && waited >= FIXTURE_SHORT_MSEC);
    fake_set(*state, 0);
    gemmd_close(client);
}

static void test_import(void **state)
{
    gemmd_client_t *client = NULL;
    gemmd_buffer_t *buffer = NULL;
    assert_int_equal(open_with(*state, 0, &client), GEMMD_OK);
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(gemmd_buffer_import_fd(client, 0, fd, 8192, &buffer), GEMMD_OK);
    ((char *)gemmd_buffer_data(buffer))[8191] = 'z';
    char last = 0;
    assert_int_equal(pread(fd, &last, 1, 8191), 1); /* the fd is still ours, the memory shared */
    assert_int_equal(last, 'z');
    gemmd_buffer_free(buffer);
    assert_int_equal(gemmd_buffer_import_fd(client, 0, -1, 8192, &buffer), GEMMD_INVALID_ARGUMENT);
    assert_int_equal(close(fd), 0);
    gemmd_close(client);
}

/* The buffer is there, and its fd cannot be taken: the daemon is not left with it. */
static void test_no_number_for_a_buffer(void **state)
{
    gemmd_client_t *client = NULL;
    gemmd_buffer_t *buffer = NULL;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    struct rlimit limit;
    assert_int_equal(open_with(*state, 0, &client), GEMMD_OK);
    assert_int_equal(gemmd_find_weight(client, "m/w", &weight), GEMMD_OK); /* all is connected */
    int next = dup(STDIN_FILENO);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit low = {.rlim_cur = (rlim_t)next + 1, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0); /* the fake daemon's takes the last */
    int r = gemmd_buffer_alloc(client, 0, 100, &buffer);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(r, GEMMD_BUSY);
    assert_says("Too many open files");
    assert_int_equal(gemmd_buffer_alloc(client, 0, 100, &buffer), GEMMD_OK);
    assert_int_equal(buffer->id.number, 1); /* the number of the other, which was let go of */
    gemmd_buffer_free(buffer);
    gemmd_close(client);
}

static void test_null_buffers(void **state)
{
    (void)state;
    gemmd_buffer_t *buffer = NULL;
    assert_int_equal(gemmd_buffer_alloc(NULL, 0, 1, &buffer), GEMMD_INVALID_ARGUMENT);
    assert_null(gemmd_buffer_data(NULL));
    assert_int_equal(gemmd_buffer_bytes(NULL), 0);
    gemmd_buffer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hello_misbehaviour, set_up, tear_down),
        cmocka_unit_test(test_no_daemon),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test_setup_teardown(test_buffer_misbehaviour, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_late_answer_is_skipped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_signals_are_no_hang_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_signals_make_no_wait_longer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_import, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_number_for_a_buffer, set_up, tear_down),
        cmocka_unit_test(test_null_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
