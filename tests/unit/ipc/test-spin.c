/* test-spin.c - when a wait polls and when it sleeps at once. */
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/spin.h"
#include "t.h"

#define LIMIT_USEC 200u

/* Polls of a wait for what never comes. */
static uint32_t polls_until_sleep(struct spin *spin, uint32_t limit_usec)
{
    uint32_t n_polls = 0;
    struct spin_wait wait = spin_begin(spin, limit_usec);
    while (spin_again(&wait)) {
        n_polls++;
    }
    return n_polls;
}

static bool is_polling(struct spin *spin)
{
    return polls_until_sleep(spin, LIMIT_USEC) > SPIN_LOOK_POLLS;
}

static void hit(struct spin *spin)
{
    struct spin_wait wait = spin_begin(spin, LIMIT_USEC);
    assert_true(spin_again(&wait));
    spin_hit(&wait);
}

static void test_no_limit_no_poll(void **state)
{
    (void)state;
    struct spin spin = {0};
    assert_int_equal(polls_until_sleep(&spin, 0), 0);
    assert_true(is_polling(&spin)); /* and nothing was learned from that */
}

/* Each vain attempt makes the pause to the next one longer. */
static void test_long_waits_stop_polling(void **state)
{
    (void)state;
    struct spin spin = {0};
    for (uint32_t n_skips = 1; n_skips < 1000; n_skips = 2 * n_skips + 1) {
        assert_true(is_polling(&spin));
        uint32_t n_expected = n_skips < SPIN_SKIPS_MAX ? n_skips : SPIN_SKIPS_MAX;
        for (uint32_t i = 0; i < n_expected; i++) {
            assert_int_equal(polls_until_sleep(&spin, LIMIT_USEC), SPIN_LOOK_POLLS);
        }
    }
}

/* What came while it was polled for, be it in the first look, makes the next wait poll again. */
static void test_short_waits_start_polling(void **state)
{
    (void)state;
    struct spin spin = {0};
    for (uint32_t i = 0; i < 200; i++) {
        (void)polls_until_sleep(&spin, LIMIT_USEC);
    }
    if (spin.n_skips == 0) {
        (void)polls_until_sleep(&spin, LIMIT_USEC);
    }
    assert_int_equal(polls_until_sleep(&spin, LIMIT_USEC), SPIN_LOOK_POLLS);
    hit(&spin);
    assert_true(is_polling(&spin));
    assert_false(is_polling(&spin));
    assert_true(is_polling(&spin)); /* one skip only: the long row was forgotten */
}

static void test_hits_keep_polling(void **state)
{
    (void)state;
    struct spin spin = {0};
    for (uint32_t i = 0; i < 1000; i++) {
        hit(&spin);
        assert_int_equal(spin.n_skips, 0);
    }
}

/* In a process of its own, since the number of CPUs is asked once. */
static int polls_on_one_cpu(void)
{
    struct spin spin = {0};
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(sched_getcpu(), &cpus);
    if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0) {
        return 100;
    }
    return (int)polls_until_sleep(&spin, LIMIT_USEC);
}

static void test_one_cpu_never_polls(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(polls_on_one_cpu());
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_cpu_never_polls), /* first: see there */
        cmocka_unit_test(test_no_limit_no_poll),
        cmocka_unit_test(test_long_waits_stop_polling),
        cmocka_unit_test(test_short_waits_start_polling),
        cmocka_unit_test(test_hits_keep_polling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
