/* test-gemmctl-bench.c - gemmctl bench against a real daemon: tables, files and JSON of a small
 * shape, refusals before anything is measured, and an interrupt that gives the memory back. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/harness/fixture.h"

#define ARGUMENTS_MAX    24
#define DEADLINE_SECONDS 20.0

enum { DONE = 0, USAGE = 2, REFUSED = 4, FAILED = 5 };

static struct fixture fixture;

static int set_up(void **state)
{
    (void)state;
    fixture_init(&fixture);
    const struct fixture_options options = {.config = "devices = host\nthreads = 1\n"};
    fixture_start(&fixture, &options);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    int code = fixture_stop(&fixture);
    fixture_finish(&fixture);
    return code;
}

/* Standard output and error of a child go to the files "out" and "err" of the fixture's folder. */
static pid_t start_gemmctl(const char *const *words)
{
    const char *argv[ARGUMENTS_MAX + 5] = {"gemmctl", "--socket-dir", fixture.socket_dir, "bench"};
    for (int n = 4; *words != NULL; n++) {
        assert_true(n < ARGUMENTS_MAX + 4);
        argv[n] = *words++;
    }
    char out[300], err[300];
    (void)snprintf(out, sizeof(out), "%s", temp_path(&fixture.folder, "out"));
    (void)snprintf(err, sizeof(err), "%s", temp_path(&fixture.folder, "err"));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int out_fd = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        int err_fd = open(err, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (dup2(out_fd, STDOUT_FILENO) < 0 || dup2(err_fd, STDERR_FILENO) < 0) {
            _exit(126);
        }
        const char *path = getenv("GEMMCTL_PROGRAM"); /* carried to another machine */
        (void)execv(path != NULL ? path : GEMMCTL_PROGRAM, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid;
}

static int end_gemmctl(pid_t pid)
{
    int child;
    assert_int_equal(waitpid(pid, &child, 0), pid);
    assert_true(WIFEXITED(child));
    return WEXITSTATUS(child);
}

#define BENCH(...) end_gemmctl(start_gemmctl((const char *const[]){__VA_ARGS__, NULL}))

/* A whole file of the folder, in static memory. */
static const char *contents(const char *name)
{
    static char text[65536];
    FILE *file = fopen(temp_path(&fixture.folder, name), "re");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

static void has(const char *name, const char *piece)
{
    const char *text = contents(name);
    if (strstr(text, piece) == NULL) {
        fail_msg("no '%s' in %s:\n%s", piece, name, text);
    }
}

static void test_table_and_files(void **state)
{
    (void)state;
    char csv[300], svg[300];
    (void)snprintf(csv, sizeof(csv), "%s", temp_path(&fixture.folder, "x.csv"));
    (void)snprintf(svg, sizeof(svg), "%s", temp_path(&fixture.folder, "x.svg"));
    int code = BENCH("--shape", "96x256", "--format", "int4-g128", "--format", "fp8-channel-w8a8",
                     "--m", "1,64,130", "--act", "fp16", "--budget-ms", "1", "--padding", "--csv",
                     csv, "--svg", svg, "--device", "host");
    if (code != DONE) {
        fail_msg("exit code %d: %s", code, contents("err"));
    }
    assert_string_equal(contents("err"), ""); /* progress is for terminals */
    has("out", "N 96, K 256, f16 activations, host: ");
    has("out", "speed-up is over the fastest kernel of f16");
    has("out", "fp8-channel-w8a8");
    has("out", "price of 96 x 256 against 128 x 256");
    has("x.csv", "device,layer,n,k,act,format,kernel,m,");
    has("x.csv", ",96,256,f16,\"int4-g128\",");
    has("x.csv", ",128,256,f16,\"f16\",");
    has("x.svg", "<svg ");
    has("x.svg", "</svg>\n");
}

static void test_json(void **state)
{
    (void)state;
    json_error_t error;
    assert_int_equal(BENCH("--shape", "64x128", "--m", "1,65", "--budget-ms", "1", "--json"), DONE);
    json_t *document = json_load_file(temp_path(&fixture.folder, "out"), 0, &error);
    assert_non_null(document);
    json_t *shape = json_array_get(json_object_get(document, "shapes"), 0);
    json_t *series = json_object_get(shape, "series");
    size_t n_65 = 0;
    for (size_t i = 0; i < json_array_size(series); i++) {
        json_t *points = json_object_get(json_array_get(series, i), "points");
        json_t *last = json_array_get(points, json_array_size(points) - 1);
        assert_true(json_real_value(json_object_get(last, "usec")) > 0);
        if (json_integer_value(json_object_get(last, "m")) == 65) {
            assert_int_equal(json_integer_value(json_object_get(last, "launches")), 2);
            n_65++;
        }
    }
    assert_true(n_65 >= 2); /* one of bf16, one of int4 */
    json_decref(document);
}

static void expect_refusal(int code, int expected, const char *piece)
{
    assert_string_equal(contents("out"), "");
    has("err", piece);
    assert_int_equal(code, expected);
}

/* Judged before the first shape is measured, all of them. */
static void test_refusals(void **state)
{
    (void)state;
    expect_refusal(BENCH("--format", "int3"), REFUSED,
                   "gemmctl: UNSUPPORTED: no format 'int3'; there are bf16, f16,");
    expect_refusal(BENCH("--m", "1,8193"), REFUSED, "m 8193 is not between 1 and 8192");
    expect_refusal(BENCH("--m", "0"), USAGE, "--m '0'");
    expect_refusal(BENCH("--shape", "64x64", "--shape", "65536x65536"), REFUSED, "over the limit");
    expect_refusal(BENCH("--m", "64..8"), USAGE, "--m '64..8'");
    expect_refusal(BENCH("--device", "cuda:7"), REFUSED, "'cuda:7'; there is host");
    expect_refusal(BENCH("--disable", "avx2_int4_gemm"), REFUSED, "like avx2_int4_gemm_group, ");
    expect_refusal(BENCH("--svg", "/nonexistent/x.svg"), FAILED, "/nonexistent/x.svg");
    expect_refusal(BENCH("--csv", "/nonexistent/x.csv"), FAILED, "/nonexistent/x.csv");
}

/* What --help lists is what the daemon knows. */
static void test_formats_of_help(void **state)
{
    (void)state;
    static char refusal[4096];
    uint32_t n = 0;
    assert_int_equal(BENCH("--format", "int3"), REFUSED);
    (void)snprintf(refusal, sizeof(refusal), "%s", contents("err"));
    char *names = strstr(refusal, "there are ");
    assert_non_null(names);
    assert_int_equal(BENCH("--help"), DONE);
    char *rest = NULL;
    for (char *name = strtok_r(names + strlen("there are "), ", \n", &rest); name != NULL;
         name = strtok_r(NULL, ", \n", &rest)) {
        has("out", name);
        n++;
    }
    const char *end = strstr(contents("out"), "\nDefaults:");
    const char *at = strstr(contents("out"), "\nFormats");
    assert_true(n > 10 && at && end);
    for (at = strchr(at + 1, '\n'); at < end; at++) {
        n -= *at == ',' ? 1 : 0;
    }
    assert_int_equal(n, 1); /* as many, with a comma between any two */
}

/* Regions of the daemon that a bench has made. */
static int count_regions(void)
{
    char path[300], target[300];
    int n = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)fixture.pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        if (length > 0) {
            target[length] = '\0';
            n += strstr(target, "gemmd:bench") != NULL;
        }
    }
    (void)closedir(folder);
    return n;
}

/* Launches of a second and more: the interrupt comes long before the end. */
static void test_interrupt(void **state)
{
    (void)state;
    pid_t pid = start_gemmctl((const char *const[]){"--shape", "2048x2048", "--m", "1..8192",
                                                    "--budget-ms", "1000", NULL});
    double deadline = fixture_now() + DEADLINE_SECONDS;
    while (count_regions() == 0 && fixture_now() < deadline) {
        fixture_sleep(0.01);
    }
    assert_true(count_regions() > 0);
    assert_int_equal(kill(pid, SIGINT), 0);
    assert_int_equal(end_gemmctl(pid), REFUSED);
    has("err", "interrupted, cancelling job");
    has("err", "gemmctl: CANCELLED: cancelled");
    assert_int_equal(count_regions(), 0);
    assert_int_equal(BENCH("--shape", "64x128", "--m", "1", "--budget-ms", "1"), DONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_and_files), cmocka_unit_test(test_json),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_formats_of_help),
        cmocka_unit_test(test_interrupt),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
