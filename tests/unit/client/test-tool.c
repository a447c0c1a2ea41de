/* test-tool.c - gemmctl's commands: exit codes, what they make of a daemon that misbehaves, and the
 * status table. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/client/fixture.h"

#include "client/tool/doctor.h"
#include "client/tool/npy.h"
#include "client/tool/status.h"
#include "client/tool/tool.h"

/* One command line, split at spaces. */
static int run(struct tool *tool, int (*command)(struct tool *, int, char **), const char *line)
{
    char words[256];
    char *argv[16] = {0};
    int argc = 0;
    (void)snprintf(words, sizeof(words), "%s", line);
    for (char *rest = words; rest;) {
        argv[argc++] = strsep(&rest, " ");
    }
    return command(tool, argc, argv);
}

static void test_usage_needs_no_daemon(void **state)
{
    (void)state;
    struct tool tool = {.socket_dir = "/nonexistent"};
    assert_int_equal(run(&tool, command_status, "status x"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_models, "models x"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_weights, "weights x y"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_load, "load x"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_load, "load x / --tp-size -1"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_load, "load x / --tp-rank 0"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_unload, "unload"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_unload, "unload m\xc3\xa9\xff"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_explain, "explain"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_explain, "explain w --m 1,,2"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_explain, "explain w --m 0"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_explain, "explain w --m 4294967296"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_gemm, "gemm w --in x"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_gemm, "gemm w --in x --out y --act int8"), TOOL_USAGE);
    assert_int_equal(run(&tool, command_gemm, "gemm w --in x --out y --repeat 0"), TOOL_USAGE);
}

/* Every subject that needs no GPU, whatever this machine is; a daemon that is missing is no fault.
 */
static void test_doctor(void **state)
{
    (void)state;
    struct tool tool = {.socket_dir = "/nonexistent"};
    assert_int_equal(run(&tool, command_doctor, "doctor x"), TOOL_USAGE);
    struct findings findings = {.n = 0};
    doctor_machine(&findings);
    assert_true(findings.n >= 2);
    assert_int_equal(findings.items[0].state, FINDING_OK); /* memfds */
    struct rlimit limit, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 100;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    findings.n = 0;
    doctor_machine(&findings);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(findings.items[1].state, FINDING_WARNING);
    assert_non_null(strstr(findings.items[1].text, "100"));
    assert_non_null(strstr(findings.items[1].mend, "ulimit -n"));
    findings.n = 0;
    doctor_ipc(&findings);
    assert_int_equal(findings.n, 1);
    assert_int_equal(findings.items[0].state, FINDING_OK);
    assert_non_null(strstr(findings.items[0].text, "a child process got shared memory"));
    findings.n = 0;
    doctor_daemon(&findings, &tool);
    assert_int_equal(findings.n, 1);
    assert_int_equal(findings.items[0].state, FINDING_WARNING);
    assert_non_null(strstr(findings.items[0].text, "/nonexistent"));
    findings.n = 0;
    doctor_gpu(&findings);
    assert_true(findings.n >= 1);
    assert_string_equal(findings.items[0].subject, "driver");
}

static void test_no_daemon(void **state)
{
    (void)state;
    struct tool tool = {.socket_dir = "/nonexistent"};
    assert_int_equal(run(&tool, command_status, "status"), TOOL_NO_DAEMON);
    assert_int_equal(run(&tool, command_weights, "weights"), TOOL_NO_DAEMON);
    assert_int_equal(run(&tool, command_drain, "drain"), TOOL_NO_DAEMON);
}

/* The fake answers most verbs with a PONG: to be noticed, not to be read as what was asked for. */
static void test_replies_of_another_kind(void **state)
{
    (void)state;
    struct fake_daemon *fake = fake_new();
    struct tool tool = {.socket_dir = fake_dir(fake)};
    assert_int_equal(run(&tool, command_status, "status"), TOOL_FAILED);
    assert_int_equal(run(&tool, command_models, "models"), TOOL_FAILED);
    assert_int_equal(run(&tool, command_explain, "explain w --m 1,16"), TOOL_FAILED);
    fake_set(fake, FAKE_WRONG_BODY);
    assert_int_equal(run(&tool, command_weights, "weights"), TOOL_FAILED);
    assert_int_equal(run(&tool, command_load, "load m /"), TOOL_FAILED);
    gemmd_close(tool.client);
    fake_free(fake);
}

static void test_jobs_are_followed(void **state)
{
    (void)state;
    struct fake_daemon *fake = fake_new();
    struct tool tool = {.socket_dir = fake_dir(fake)};
    assert_int_equal(run(&tool, command_load, "load m /"), TOOL_DONE);
    assert_int_equal(run(&tool, command_verify, "verify m"), TOOL_DONE);
    fake_set(fake, FAKE_REFUSE_REQUEST);
    assert_int_equal(run(&tool, command_reload, "reload m"), TOOL_REFUSED);
    assert_string_equal(gemmd_last_error(), FAKE_SENTENCE);
    gemmd_close(tool.client);
    fake_free(fake);
}

static void *interrupt_soon(void *unused)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
    (void)kill(getpid(), SIGINT);
    return unused;
}

/* Without the cancellation the job runs for ever. */
static void test_an_interrupt_cancels_the_job(void **state)
{
    (void)state;
    struct fake_daemon *fake = fake_new();
    struct tool tool = {.socket_dir = fake_dir(fake)};
    pthread_t thread;
    fake_set(fake, FAKE_HOLD);
    assert_int_equal(pthread_create(&thread, NULL, interrupt_soon, NULL), 0);
    assert_int_equal(run(&tool, command_load, "load m /"), TOOL_REFUSED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    gemmd_close(tool.client);
    fake_free(fake);
}

/* 10 rows are more than the fake takes in one request. */
static void test_gemm_splits_rows(void **state)
{
    (void)state;
    struct fake_daemon *fake = fake_new();
    struct tool tool = {.socket_dir = fake_dir(fake)};
    struct npy_header header;
    float x[10 * FAKE_K];
    float *y = NULL;
    for (uint32_t i = 0; i < 10 * FAKE_K; i++) {
        x[i] = (float)i;
    }
    assert_int_equal(npy_write("test-tool-x.npy", x, 10, FAKE_K), 0);
    assert_int_equal(
        run(&tool, command_gemm, "gemm m/w --in test-tool-x.npy --out test-tool-y.npy --repeat 3"),
        TOOL_DONE);
    assert_int_equal(npy_read("test-tool-y.npy", &header, &y, NULL), 0);
    assert_int_equal(header.n_rows, 10);
    for (uint32_t i = 0; i < 10 * FAKE_N; i++) {
        assert_true(y[i] == 2 * x[i]);
    }
    free(y);
    assert_int_equal(npy_write("test-tool-x.npy", x, 8, FAKE_K + 1), 0);
    assert_int_equal(
        run(&tool, command_gemm, "gemm m/w --in test-tool-x.npy --out test-tool-y.npy"),
        TOOL_REFUSED);
    assert_says("test-tool-x.npy is (8, 5), m/w wants (m, 4)");
    assert_int_equal(run(&tool, command_gemm, "gemm m/missing --in x --out y"), TOOL_REFUSED);
    assert_int_equal(unlink("test-tool-x.npy"), 0);
    assert_int_equal(unlink("test-tool-y.npy"), 0);
    gemmd_close(tool.client);
    fake_free(fake);
}

static size_t bytes_of(const char *path)
{
    struct stat stat;
    return lstat(path, &stat) == 0 ? (size_t)stat.st_size : 0;
}

/* A file that cannot grow is what a full disk is: there is room for x and y in shared memory, which
 * the limit is for as well, and none for y with its header. What cannot be written at all is known
 * before anything is asked of the daemon. */
static void test_out_is_whole_or_as_it_was(void **state)
{
    (void)state;
    struct fake_daemon *fake = fake_new();
    struct tool tool = {.socket_dir = fake_dir(fake)};
    static const float x[256 * FAKE_K];
    char aside[64];
    struct stat stat;
    struct rlimit limit, low;
    (void)snprintf(aside, sizeof(aside), "test-tool-y.npy.%d", (int)getpid());
    static const char line[] = "gemm m/w --in test-tool-x.npy --out test-tool-y.npy";
    assert_int_equal(npy_write("test-tool-x.npy", x, 1, FAKE_K), 0);
    assert_int_equal(run(&tool, command_gemm, line), TOOL_DONE); /* the lane is open from here on */
    size_t one_row = bytes_of("test-tool-y.npy");
    assert_true(one_row > FAKE_N * sizeof(float));
    assert_int_equal(chmod("test-tool-y.npy", 0640), 0);
    assert_int_equal(npy_write("test-tool-x.npy", x, 256, FAKE_K), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    low = limit;
    low.rlim_cur = sizeof(x);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    fake_set(fake, FAKE_REFUSE_REQUEST);
    int refused = run(&tool, command_gemm, line);
    fake_set(fake, 0);
    int failed = run(&tool, command_gemm, line);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(refused, TOOL_REFUSED); /* so the limit lets a request come about */
    assert_int_equal(failed, TOOL_FAILED);
    assert_int_equal(bytes_of("test-tool-y.npy"), one_row);
    assert_int_equal(lstat(aside, &stat), -1);
    assert_int_equal(run(&tool, command_gemm, line), TOOL_DONE);
    assert_int_equal(bytes_of("test-tool-y.npy"), one_row + 255 * FAKE_N * sizeof(float));
    assert_int_equal(lstat(aside, &stat), -1);
    assert_int_equal(lstat("test-tool-y.npy", &stat), 0);
    assert_int_equal(stat.st_mode & 07777u, 0640);
    fake_die(fake);
    assert_int_equal(run(&tool, command_gemm, "gemm m/w --in test-tool-x.npy --out missing/y"),
                     TOOL_FAILED);
    assert_int_equal(run(&tool, command_gemm, "gemm m/w --in test-tool-x.npy --out /"),
                     TOOL_FAILED);
    assert_int_equal(run(&tool, command_gemm, "gemm m/w --in test-tool-x.npy --out="), TOOL_FAILED);
    tool.client->options.reconnect_msec = FIXTURE_SHORT_MSEC;
    assert_int_equal(run(&tool, command_gemm, line), TOOL_NO_DAEMON);
    assert_int_equal(unlink("test-tool-x.npy"), 0);
    assert_int_equal(unlink("test-tool-y.npy"), 0);
    gemmd_close(tool.client);
    fake_free(fake);
}

/* numpy.save() of int8 (n_rows, FAKE_K). */
static void write_codes(const char *path, const int8_t *codes, uint32_t n_rows)
{
    char header[128];
    uint32_t n = (uint32_t)snprintf(
        header, sizeof(header), "{'descr': '|i1', 'fortran_order': False, 'shape': (%u, %u), }\n",
        n_rows, FAKE_K);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    (void)fprintf(file, "\x93NUMPY%c%c%c%c%s", 1, 0, (char)n, 0, header);
    assert_int_equal(fwrite(codes, FAKE_K, n_rows, file), n_rows);
    assert_int_equal(fclose(file), 0);
}

/* In pieces as well: each has its own scales. */
static void test_gemm_of_quantised_rows(void **state)
{
    (void)state;
    struct fake_daemon *fake = fake_new();
    struct tool tool = {.socket_dir = fake_dir(fake)};
    struct npy_header header;
    int8_t codes[10 * FAKE_K];
    float scales[10];
    float *y = NULL;
    for (uint32_t i = 0; i < 10 * FAKE_K; i++) {
        codes[i] = (int8_t)(i * 3 - 60);
        scales[i / FAKE_K] = (float)(i / FAKE_K + 1);
    }
    static const char line[] =
        "gemm m/w --in test-tool-q.npy --x-scales test-tool-s.npy --out test-tool-y.npy";
    write_codes("test-tool-q.npy", codes, 10);
    assert_int_equal(npy_write("test-tool-s.npy", scales, 10, 1), 0);
    assert_int_equal(run(&tool, command_gemm, line), TOOL_DONE);
    assert_int_equal(npy_read("test-tool-y.npy", &header, &y, NULL), 0);
    for (uint32_t i = 0; i < 10 * FAKE_N; i++) {
        assert_true(y[i] == 2 * (float)codes[i] * scales[i / FAKE_N]);
    }
    free(y);
    assert_int_equal(npy_write("test-tool-s.npy", scales, 9, 1), 0);
    assert_int_equal(run(&tool, command_gemm, line), TOOL_REFUSED);
    assert_says("test-tool-s.npy is (9, 1), the rows of x want (10, 1)");
    assert_int_equal(
        run(&tool, command_gemm, "gemm m/w --in test-tool-q.npy --out test-tool-y.npy --act bf16"),
        TOOL_USAGE);
    assert_int_equal(unlink("test-tool-q.npy"), 0);
    assert_int_equal(unlink("test-tool-s.npy"), 0);
    assert_int_equal(unlink("test-tool-y.npy"), 0);
    gemmd_close(tool.client);
    fake_free(fake);
}

static char *render(const char *json)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *stream = open_memstream(&text, &n_bytes);
    json_t *document = json_loads(json, 0, NULL);
    assert_non_null(document);
    status_print(document, stream);
    json_decref(document);
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void test_status_table(void **state)
{
    (void)state;
    char *text = render(
        "{\"version\": \"0.1.0\", \"pid\": 7, \"state\": \"serving\", \"uptime_seconds\": 10.0,"
        " \"resident\": {\"models\": 1, \"weights\": 36, \"packed_bytes\": 1048576},"
        " \"devices\": [{\"name\": \"host\", \"description\": \"a CPU\", \"worker\":"
        "  {\"requests\": 50, \"ok\": 49, \"rows\": 60, \"launches\": 20, \"busy_seconds\": 2.5}}],"
        " \"models\": [{\"name\": \"mini\", \"device\": \"host\", \"state\": \"serving\"}],"
        " \"sessions\": [{\"id\": 3, \"name\": \"prog\", \"buffer_bytes\": 2048}]}");
    assert_non_null(strstr(text, "gemmd 0.1.0, pid 7, serving, up 10 s\n"));
    assert_non_null(strstr(text, "resident: 1 model, 36 weights, 1.0 MiB packed\n"));
    assert_non_null(strstr(text, " 5.0/s "));
    assert_non_null(strstr(text, " 25.0% "));
    assert_non_null(strstr(text, " 3.00 "));
    assert_non_null(strstr(text, "2.0 KiB"));
    free(text);
    text = render("{}"); /* nothing known is no crash */
    assert_non_null(strstr(text, "gemmd -, pid 0"));
    free(text);
}

static void test_bytes(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(tool_bytes(0, text), "0 B");
    assert_string_equal(tool_bytes(1023, text), "1023 B");
    assert_string_equal(tool_bytes(1536, text), "1.5 KiB");
    assert_string_equal(tool_bytes(UINT64_MAX, text), "16777216.0 TiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usage_needs_no_daemon),
        cmocka_unit_test(test_doctor),
        cmocka_unit_test(test_no_daemon),
        cmocka_unit_test(test_replies_of_another_kind),
        cmocka_unit_test(test_jobs_are_followed),
        cmocka_unit_test(test_an_interrupt_cancels_the_job),
        cmocka_unit_test(test_gemm_splits_rows),
        cmocka_unit_test(test_out_is_whole_or_as_it_was),
        cmocka_unit_test(test_gemm_of_quantised_rows),
        cmocka_unit_test(test_status_table),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
