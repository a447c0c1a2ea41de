/* test-gpu-example.c - client/examples/early.cu against the daemon: both of its ways give the same
 * x; without MPS it says that it needs it. Skipped without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/gpu/gpu.h"
#include "tests/harness/tiny.h"

static struct fixture fixture;
static struct test_model model;

static int set_up(void **state)
{
    (void)state;
    return tiny_start(&fixture, &model, 1, "devices = cuda:0\n");
}

static int tear_down(void **state)
{
    (void)state;
    return tiny_stop(&fixture, &model);
}

/* Its exit status; the last line of what it printed. */
static int run_example(const char *weight, char *ret_line, int size_bytes)
{
    const char *path = getenv("EXAMPLE_EARLY_PROGRAM"); /* carried to another machine */
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)setenv("GEMMD_SOCKET_DIR", fixture.socket_dir, 1);
        if (dup2(ends[1], STDOUT_FILENO) < 0 || dup2(ends[1], STDERR_FILENO) < 0) {
            _exit(126);
        }
        (void)alarm(30);
        (void)execl(path != NULL ? path : EXAMPLE_EARLY_PROGRAM, "early", weight, "300",
                    (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    assert_non_null(output);
    ret_line[0] = '\0';
    while (fgets(ret_line, size_bytes, output) != NULL) {
        print_message("%s", ret_line);
    }
    (void)fclose(output);
    int state;
    assert_int_equal(waitpid(pid, &state, 0), pid);
    assert_true(WIFEXITED(state));
    return WEXITSTATUS(state);
}

static void test_both_ways_are_the_same(void **state)
{
    (void)state;
    char line[512];
    int code = run_example("tiny/layer.int4", line, sizeof(line));
    if (code == 0) {
        assert_non_null(strstr(line, "the same x"));
    } else {
        assert_int_equal(code, 1);
        assert_non_null(strstr(line, "MPS"));
        assert_null(getenv("CUDA_MPS_PIPE_DIRECTORY")); /* it had what it needs */
    }
}

static void test_what_is_not_there(void **state)
{
    (void)state;
    char line[512];
    assert_int_equal(run_example("tiny/nothing", line, sizeof(line)), 1);
    assert_non_null(strstr(line, "tiny/nothing"));
}

int main(void)
{
    gpu_need();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways_are_the_same),
        cmocka_unit_test(test_what_is_not_there),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
