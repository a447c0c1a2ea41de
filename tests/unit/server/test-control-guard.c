/* test-control-guard.c - connections of one user are counted as long as they are open, whatever
 * becomes of their numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/server/control_guard.h"

#define LIMIT 3

struct link {
    int ours;
    int theirs;
};

static struct link connect_one(void)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    return (struct link){.ours = fds[0], .theirs = fds[1]};
}

static void hang_up(struct link *link)
{
    (void)close(link->ours);
    (void)close(link->theirs);
}

static int tear_down(void **state)
{
    (void)state;
    control_guard_finish();
    return 0;
}

static void test_a_user_has_so_many(void **state)
{
    (void)state;
    struct link links[LIMIT + 1];
    control_guard_set_limit(LIMIT);
    for (int i = 0; i < LIMIT; i++) {
        links[i] = connect_one();
        assert_true(control_guard_admit(links[i].ours));
    }
    links[LIMIT] = connect_one();
    assert_false(control_guard_admit(links[LIMIT].ours));
    hang_up(&links[1]);
    assert_true(control_guard_admit(links[LIMIT].ours));
    struct link more = connect_one();
    assert_false(control_guard_admit(more.ours));
    control_guard_set_limit(LIMIT + 1);
    assert_true(control_guard_admit(more.ours));
    hang_up(&more);
    hang_up(&links[0]);
    hang_up(&links[2]);
    hang_up(&links[LIMIT]);
}

/* A number comes again as that of another connection, or of a file. */
static void test_numbers_come_again(void **state)
{
    (void)state;
    control_guard_set_limit(LIMIT);
    for (int i = 0; i < 10 * LIMIT; i++) {
        struct link link = connect_one();
        assert_true(control_guard_admit(link.ours));
        hang_up(&link);
    }
    struct link links[LIMIT];
    for (int i = 0; i < LIMIT; i++) {
        links[i] = connect_one();
        assert_true(control_guard_admit(links[i].ours));
    }
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(dup3(file, links[0].ours, O_CLOEXEC) >= 0);
    struct link last = connect_one();
    assert_true(control_guard_admit(last.ours));
    (void)close(file);
    hang_up(&last);
    for (int i = 0; i < LIMIT; i++) {
        hang_up(&links[i]);
    }
}

static void test_without_a_limit(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * LIMIT; i++) {
        struct link link = connect_one();
        assert_true(control_guard_admit(link.ours));
        hang_up(&link);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_a_user_has_so_many),
        CASE(test_numbers_come_again),
        CASE(test_without_a_limit),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
