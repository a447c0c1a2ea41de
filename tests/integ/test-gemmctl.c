/* test-gemmctl.c - every command of gemmctl as a program: --json parses, the exit codes say what
 * happened, and the product in the file is the right one. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "client/tool/npy.h"
#include "ipc/base/num.h"
#include "ipc/unix.h"
#include "tests/harness/fixture.h"
#include "tests/harness/model.h"
#include "tests/harness/tiny.h"

#define ARGUMENTS_MAX 16
#define M             5u

enum { DONE = 0, USAGE = 2, NO_DAEMON = 3, REFUSED = 4, FAILED = 5 };

static struct fixture fixture;
static struct test_model model;
static bool is_without_output; /* ">&-" */

static int set_up(void **state)
{
    (void)state;
    return tiny_start(&fixture, &model, 21, "devices = host\nhost_isa = portable\n");
}

static int tear_down(void **state)
{
    (void)state;
    return tiny_stop(&fixture, &model);
}

/* Run "gemmctl --socket-dir DIR ..." (words end with NULL); standard output and error go to the
 * files "out" and "err" of the fixture's folder. Returns the exit code. */
static int gemmctl(const char *socket_dir, const char *const *words)
{
    const char *argv[ARGUMENTS_MAX + 4] = {"gemmctl", "--socket-dir", socket_dir};
    int n = 3;
    while (*words != NULL) {
        assert_true(n < ARGUMENTS_MAX + 3);
        argv[n++] = *words++;
    }
    char out_path[300];
    char err_path[300];
    (void)snprintf(out_path, sizeof(out_path), "%s", temp_path(&fixture.folder, "out"));
    (void)snprintf(err_path, sizeof(err_path), "%s", temp_path(&fixture.folder, "err"));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int out = open(out_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        int err = open(err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (out < 0 || err < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) {
            _exit(126);
        }
        if (is_without_output) {
            (void)close(STDOUT_FILENO);
        }
        const char *path = getenv("GEMMCTL_PROGRAM"); /* carried to another machine */
        (void)execv(path != NULL ? path : GEMMCTL_PROGRAM, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    int child;
    assert_int_equal(waitpid(pid, &child, 0), pid);
    assert_true(WIFEXITED(child));
    return WEXITSTATUS(child);
}

#define GEMMCTL(...) gemmctl(fixture.socket_dir, (const char *const[]){__VA_ARGS__, NULL})

/* The whole standard output as one JSON document. */
static json_t *json_output(void)
{
    json_error_t error;
    json_t *document = json_load_file(temp_path(&fixture.folder, "out"), 0, &error);
    if (document == NULL) {
        fail_msg("not JSON: line %d: %s", error.line, error.text);
    }
    return document;
}

static void expect_json(int code, const char *what)
{
    if (code != DONE) {
        fail_msg("%s --json: exit code %d", what, code);
    }
    json_decref(json_output());
}

/* One line that says what is wrong, and nothing on standard output. */
static void expect_refusal(int code, int expected, const char *words)
{
    char line[1024] = "";
    FILE *err = fopen(temp_path(&fixture.folder, "err"), "r");
    assert_non_null(err);
    size_t n = fread(line, 1, sizeof(line) - 1, err);
    line[n] = '\0';
    (void)fclose(err);
    if (code != expected || strstr(line, words) == NULL) {
        fail_msg("exit code %d, '%s'; expected %d, '%s'", code, line, expected, words);
    }
}

static void expect_silence(void)
{
    char line[1024];
    FILE *err = fopen(temp_path(&fixture.folder, "err"), "r");
    assert_non_null(err);
    if (fgets(line, sizeof(line), err) != NULL) {
        fail_msg("standard error has '%s'", line);
    }
    (void)fclose(err);
}

static void test_every_command_in_json(void **state)
{
    (void)state;
    expect_json(GEMMCTL("status", "--json"), "status");
    expect_json(GEMMCTL("--json", "models"), "models");
    expect_json(GEMMCTL("weights", "--json"), "weights");
    expect_json(GEMMCTL("weights", "tiny", "--json"), "weights tiny");
    expect_json(GEMMCTL("explain", "tiny/layer.int4", "--json"), "explain");
    expect_json(GEMMCTL("explain", "tiny/layer.int4", "--m", "1,16,64", "--json"), "explain --m");
    expect_json(GEMMCTL("verify", "tiny", "--json"), "verify");
    expect_json(GEMMCTL("verify", "tiny/layer.plain", "--json"), "verify weight");
    expect_json(GEMMCTL("load", "second", model.path, "--json"), "load");
    expect_json(GEMMCTL("reload", "second", "--json"), "reload");
    expect_json(GEMMCTL("unload", "second", "--json"), "unload");
}

/* What "models" says of a model, "status" says under the same key. */
static void test_one_name_for_a_key(void **state)
{
    (void)state;
    assert_int_equal(GEMMCTL("models", "--json"), DONE);
    json_t *listed = json_output();
    assert_int_equal(GEMMCTL("status", "--json"), DONE);
    json_t *status = json_output();
    json_t *model_listed = json_array_get(json_object_get(listed, "models"), 0);
    assert_int_equal(json_integer_value(json_object_get(model_listed, "weights")), TEST_WEIGHTS);
    json_t *model_status = json_array_get(json_object_get(status, "models"), 0);
    const char *key;
    json_t *value;
    json_object_foreach(model_listed, key, value)
    {
        assert_true(json_equal(value, json_object_get(model_status, key)));
    }
    json_decref(listed);
    json_decref(status);
    assert_int_equal(GEMMCTL("weights", "tiny", "--json"), DONE);
    json_t *weights = json_output();
    json_t *weight = json_array_get(json_object_get(weights, "weights"), 0);
    const char *act = json_string_value(json_object_get(weight, "act"));
    assert_non_null(act);
    assert_string_equal(act, "float");
    json_decref(weights);
}

/* Rules with and without a word, and where they stop. */
static void test_load_options(void **state)
{
    (void)state;
    expect_refusal(GEMMCTL("load", "cut", model.path, "--fuse", "--tp-size", "2", "--tp-rank", "2"),
                   REFUSED, "rank 2 is out of range for a size of 2");
    expect_refusal(GEMMCTL("load", "--fuse", "x=a,b", "cut", model.path), REFUSED,
                   "fuse 'x': no module of the checkpoint has those parts");
    expect_refusal(GEMMCTL("load", "cut", model.path, "--tp-split", "int4"), REFUSED,
                   "split: 'int4' is not MODULE=n, MODULE=k or MODULE=whole");
    assert_int_equal(GEMMCTL("load", "--tp-size=2", "--tp-rank=1", "--tp-split", "int4=n",
                             "--tp-split", "wide=k", "--fuse", "cut", model.path, "--json"),
                     DONE);
    assert_int_equal(GEMMCTL("weights", "cut", "--json"), DONE);
    json_t *document = json_output();
    json_t *list = json_is_array(document) ? document : json_object_get(document, "weights");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "n")), 48);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 1), "n")), 37);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 2), "k")), 64);
    json_decref(document);
    assert_int_equal(GEMMCTL("unload", "cut"), DONE);
}

/* host_isa leaves the portable kernel; every m has the weight's one floor, and no time, since none
 * was measured. The floor may be unknown, on a machine too busy to tell the speed of its memory,
 * but is never 0. */
static void test_explanation(void **state)
{
    (void)state;
    const char *kernel;
    json_t *predicted;
    json_t *measured;
    json_t *floors[2];
    assert_int_equal(GEMMCTL("explain", "tiny/layer.int4", "--m", "1,64", "--json"), DONE);
    json_t *document = json_output();
    assert_int_equal(json_unpack(document, "{s:[{s:s, s:o, s:o, s:o}, {s:o}]}", "choices", "kernel",
                                 &kernel, "predicted_usec", &predicted, "measured_usec", &measured,
                                 "floor_usec", &floors[0], "floor_usec", &floors[1]),
                     0);
    assert_memory_equal(kernel, "portable_", 9);
    assert_string_equal(json_string_value(json_object_get(document, "ahead")),
                        "no launch: the host queues none");
    assert_true(json_is_null(floors[0]) || json_real_value(floors[0]) > 0);
    assert_true(json_equal(floors[0], floors[1]));
    assert_true(json_is_null(predicted) && json_is_null(measured));
    json_decref(document);
}

static const char *output(void)
{
    static char text[8192];
    FILE *out = fopen(temp_path(&fixture.folder, "out"), "r");
    assert_non_null(out);
    text[fread(text, 1, sizeof(text) - 1, out)] = '\0';
    (void)fclose(out);
    return text;
}

static uint32_t count(const char *text, const char *piece)
{
    uint32_t n = 0;
    for (; (text = strstr(text, piece)) != NULL; text++) {
        n++;
    }
    return n;
}

/* A screen holds it: a line for each number of rows, one for each reason, and no figure of a time
 * that nobody knows. */
static void test_explanation_for_people(void **state)
{
    (void)state;
    assert_int_equal(GEMMCTL("explain", "tiny/layer.int4"), DONE);
    assert_true(count(output(), "\n") <= 23);
    assert_int_equal(count(output(), "portable_int4_gemm_group"), 7);
    assert_int_equal(count(output(), "avx2_fp8_gemm_group"), 1);
    assert_int_equal(count(output(), "; x and y of f16\n"), 1);
    assert_int_equal(count(output(), " predicted"), 0);
    assert_int_equal(count(output(), "\n- not known: the daemon measures"), 1);
    assert_int_equal(GEMMCTL("explain", "tiny/layer.int4", "--m", "3,8..32"), DONE);
    assert_int_equal(count(output(), "portable_int4_gemm_group"), 4);
    expect_refusal(GEMMCTL("explain", "tiny/layer.int4", "--m", "8..4"), USAGE,
                   "--m '8..4' is not a list of at most 32 numbers of rows, like 1,3,8..64");
}

static void test_help_of_commands(void **state)
{
    (void)state;
    assert_int_equal(GEMMCTL("--help"), DONE); /* a line for each, none of them wrapped */
    assert_int_equal(count(output(), "\n  load      load a checkpoint folder as NAME\n"), 1);
    assert_int_equal(count(output(), "answers), else 4\n"), 1);
    assert_int_equal(GEMMCTL("load", "--help"), DONE);
    assert_int_equal(count(output(), "load NAME PATH [--device D]"), 1);
    assert_int_equal(count(output(), "\nSee gemmctl(1).\n"), 1);
    assert_int_equal(GEMMCTL("bench", "--m", "1", "--help"), DONE);
    assert_int_equal(count(output(), "llama-3-8b"), 1);
    assert_int_equal(GEMMCTL("drain", "--help"), DONE);
    assert_int_equal(count(output(), "[--json] drain\n"), 1);
}

/* Each option of the usage has a line that begins with it. */
static void expect_option_lines(const char *command)
{
    assert_int_equal(GEMMCTL(command, "--help"), DONE);
    char usage[1024];
    (void)snprintf(usage, sizeof(usage), "%.*s", (int)strcspn(output(), "\n"), output());
    uint32_t n_options = 0;
    const char *at = strstr(usage, "[--json] ") + strlen("[--json] ");
    for (; (at = strstr(at, "--")) != NULL; n_options++) {
        char name[64];
        at += 2;
        (void)snprintf(name, sizeof(name), "--%.*s ", (int)strcspn(at, " ]"), at);
        const char *lines = strchr(output(), '\n');
        if (strstr(lines, name) == NULL) {
            fail_msg("gemmctl %s --help has no line for %s", command, name);
        }
    }
    assert_true(n_options > 0);
}

static void test_help_of_options(void **state)
{
    (void)state;
    static const char *const commands[] = {"load", "gemm", "explain", "ready", "top", "bench"};
    for (uint32_t i = 0; i < ARRAY_LENGTH(commands); i++) {
        expect_option_lines(commands[i]);
    }
    expect_refusal(GEMMCTL("gemm"), USAGE, "; see gemmctl gemm --help");
    expect_refusal(GEMMCTL("gem"), USAGE, "; see gemmctl --help");
}

/* The last one named counts, wherever it stands. */
static void test_socket_dir_behind_the_command(void **state)
{
    (void)state;
    char word[320];
    (void)snprintf(word, sizeof(word), "--socket-dir=%s", fixture.socket_dir);
    const char *dir = fixture.socket_dir;
    assert_int_equal(gemmctl("/nowhere", (const char *const[]){"models", NULL}), NO_DAEMON);
    assert_int_equal(
        gemmctl("/nowhere", (const char *const[]){"models", "--socket-dir", dir, NULL}), DONE);
    assert_int_equal(gemmctl("/nowhere", (const char *const[]){"weights", word, "tiny", NULL}),
                     DONE);
    expect_refusal(GEMMCTL("models", "--socket-dir"), USAGE, "--socket-dir wants a folder");
}

static void test_every_command_for_people(void **state)
{
    (void)state;
    assert_int_equal(GEMMCTL("status"), DONE);
    assert_int_equal(GEMMCTL("models"), DONE);
    assert_int_equal(GEMMCTL("weights"), DONE);
    assert_int_equal(GEMMCTL("explain", "tiny/layer.wide"), DONE);
    assert_int_equal(GEMMCTL("verify", "tiny"), DONE);
    assert_int_equal(GEMMCTL("load", "third", model.path, "--device", "host"), DONE);
    assert_int_equal(GEMMCTL("reload", "third"), DONE);
    assert_int_equal(GEMMCTL("unload", "third"), DONE);
    assert_int_equal(GEMMCTL("--help"), DONE);
}

/* "models" lists what is served: the names change with load and unload. */
static size_t n_models(void)
{
    assert_int_equal(GEMMCTL("models", "--json"), DONE);
    json_t *document = json_output();
    const json_t *list = json_is_array(document) ? document : json_object_get(document, "models");
    size_t n = json_array_size(list);
    json_decref(document);
    return n;
}

static void test_load_shows_in_models(void **state)
{
    (void)state;
    size_t n = n_models();
    assert_true(n > 0);
    assert_int_equal(GEMMCTL("load", "fourth", model.path), DONE);
    expect_silence(); /* the progress is for terminals */
    assert_int_equal(n_models(), n + 1);
    assert_int_equal(GEMMCTL("unload", "fourth"), DONE);
    assert_int_equal(n_models(), n);
}

static void test_gemm_from_file_to_file(void **state)
{
    (void)state;
    const struct gk_canonical *canonical = &model.weights[TEST_INT4].canonical;
    uint64_t random = 99;
    float x[M * 256];
    double expected[M * 96];
    char in[300];
    char out[300];
    for (uint32_t i = 0; i < M * 256; i++) {
        x[i] = (float)test_random_unit(&random);
    }
    (void)snprintf(in, sizeof(in), "%s", temp_path(&fixture.folder, "x.npy"));
    (void)snprintf(out, sizeof(out), "%s", temp_path(&fixture.folder, "y.npy"));
    assert_int_equal(npy_write(in, x, M, 256), 0);
    expect_json(GEMMCTL("gemm", "tiny/layer.int4", "--in", in, "--out", out, "--act", "fp16",
                        "--repeat", "3", "--json"),
                "gemm");
    struct npy_header shape;
    float *y;
    assert_int_equal(npy_read(out, &shape, &y, NULL), 0);
    assert_int_equal(shape.n_rows, M);
    assert_int_equal(shape.n_columns, 96);
    assert_int_equal(gk_reference_gemm(canonical, x, DTYPE_F32, 256, M, expected), 0);
    for (uint32_t i = 0; i < M * 96; i++) {
        assert_true(fabs((double)y[i] - expected[i]) < 1e-4);
    }
    free(y);
}

/* The largest float16 is 65504; 65520 and more round to infinity. */
static void test_values_beyond_the_type(void **state)
{
    (void)state;
    float x[256] = {1e6f, 65519, 65520, -1e6f, INFINITY};
    char in[300];
    char out[300];
    (void)snprintf(in, sizeof(in), "%s", temp_path(&fixture.folder, "x.npy"));
    (void)snprintf(out, sizeof(out), "%s", temp_path(&fixture.folder, "y.npy"));
    assert_int_equal(npy_write(in, x, 1, 256), 0);
    expect_refusal(GEMMCTL("gemm", "tiny/layer.int4", "--in", in, "--out", out, "--act", "f16"),
                   DONE, "warning: 3 of 256 values of ");
    x[4] = 0;
    assert_int_equal(npy_write(in, x, 1, 256), 0);
    assert_int_equal(GEMMCTL("gemm", "tiny/layer.int4", "--in", in, "--out", out, "--act", "bf16"),
                     DONE);
    expect_silence();
}

static void test_usage(void **state)
{
    (void)state;
    expect_refusal(GEMMCTL("frobnicate"), USAGE, "frobnicate'; there are status, load, unload,");
    expect_refusal(gemmctl(fixture.socket_dir, (const char *const[]){NULL}), USAGE, "missing");
    expect_refusal(GEMMCTL("load", "one-argument"), USAGE, "load");
    expect_refusal(GEMMCTL("load", "a", "/tmp", "--fuse", "bogus"), USAGE,
                   "gemmctl: --fuse 'bogus' is not NAME=PART,PART,...");
    expect_refusal(GEMMCTL("load", "--fuse", "a", "/tmp", "more"), USAGE, "--fuse 'a' is not");
    expect_refusal(GEMMCTL("load", "--fuse", "a"), USAGE, "load wants NAME and PATH");
    expect_refusal(GEMMCTL("load", "a", "/tmp", "--tp-rank", "0"), USAGE,
                   "gemmctl: --tp-rank wants --tp-size beside it");
    expect_refusal(GEMMCTL("load", "a", "/tmp", "--tp-size=2"), USAGE,
                   "gemmctl: --tp-size wants --tp-rank beside it");
    expect_refusal(GEMMCTL("gemm", "tiny/layer.int4"), USAGE, "--in");
    expect_refusal(GEMMCTL("--no-such-option", "status"), USAGE, "no-such-option");
    expect_refusal(GEMMCTL("load", "a", "/tmp", "--bogus"), USAGE,
                   "gemmctl: load has no option '--bogus'");
    expect_refusal(GEMMCTL("explain", "w", "-x"), USAGE, "gemmctl: explain has no option '-x'");
    expect_refusal(GEMMCTL("gemm", "w", "--in"), USAGE, "gemmctl: gemm: '--in' wants a value");
}

static void test_no_daemon(void **state)
{
    (void)state;
    static const char *const commands[][3] = {
        {"status"},
        {"models"},
        {"weights"},
        {"drain"},
        {"unload", "tiny"},
        {"reload", "tiny"},
        {"verify", "tiny"},
        {"explain", "tiny/layer.int4"},
        {"load", "a", "/tmp"},
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        const char *words[4] = {commands[i][0], commands[i][1], commands[i][2]};
        expect_refusal(gemmctl(temp_path(&fixture.folder, "nobody"), words), NO_DAEMON, "gemmctl:");
    }
}

/* A socket that its daemon has left behind: somebody may be starting it anew. */
static void test_daemon_has_died(void **state)
{
    (void)state;
    char dir[256];
    (void)snprintf(dir, sizeof(dir), "%s", temp_path(&fixture.folder, "died"));
    assert_int_equal(mkdir(dir, 0700), 0);
    int fd = unix_listen(temp_path(&fixture.folder, "died/session"), SOCK_SEQPACKET, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    expect_refusal(gemmctl(dir, (const char *const[]){"status", NULL}), NO_DAEMON,
                   "has died, and may be starting anew just now");
}

static void test_refused(void **state)
{
    (void)state;
    static const char no_model[] = "gemmctl: NOT_FOUND: there is no model 'absent'; there is tiny";
    static const char no_weight[] = "gemmctl: NOT_FOUND: no weight 'tiny/layer.int8' is resident; "
                                    "there are tiny/layer.int4, ";
    expect_refusal(GEMMCTL("unload", "absent"), REFUSED, no_model);
    expect_refusal(GEMMCTL("reload", "absent"), REFUSED, no_model);
    expect_refusal(GEMMCTL("weights", "absent"), REFUSED, no_model);
    expect_refusal(GEMMCTL("verify", "absent/layer"), REFUSED, no_model);
    expect_refusal(GEMMCTL("explain", "tiny/layer.int8"), REFUSED, no_weight);
    expect_refusal(GEMMCTL("verify", "tiny/layer.int8"), REFUSED, no_weight);
    expect_refusal(GEMMCTL("gemm", "tiny/layer.int8", "--in", "x", "--out", "y"), REFUSED,
                   no_weight);
    expect_refusal(GEMMCTL("load", "a", model.path, "--device", "cuda:5"), REFUSED,
                   "this daemon owns no device 'cuda:5'; there is host");
    expect_refusal(GEMMCTL("load", "lost", "/missing"), REFUSED,
                   "gemmctl: NOT_FOUND: model 'lost': /missing: No such file or directory\n");
    expect_refusal(GEMMCTL("load", "empty", fixture.socket_dir), REFUSED, ".safetensors");
    expect_refusal(GEMMCTL("load", "tiny", fixture.socket_dir), REFUSED, "another path");
    expect_refusal(GEMMCTL("gemm", "tiny/layer.int4", "--in", "/nonexistent.npy", "--out",
                           "/nonexistent-too.npy"),
                   REFUSED, "nonexistent");
}

/* The product is there and cannot be written: nobody's refusal. */
static void test_failed(void **state)
{
    (void)state;
    float x[256] = {0};
    char in[300];
    (void)snprintf(in, sizeof(in), "%s", temp_path(&fixture.folder, "x.npy"));
    assert_int_equal(npy_write(in, x, 1, 256), 0);
    expect_refusal(GEMMCTL("gemm", "tiny/layer.int4", "--in", in, "--out", "/nonexistent/y.npy"),
                   FAILED, "gemmctl: cannot write /nonexistent/y.npy: ");
    expect_refusal(GEMMCTL("gemm", "tiny/layer.int4", "--in", in, "--out", "/dev/full"), FAILED,
                   "gemmctl: cannot write /dev/full: ");
    const char *out = temp_path(&fixture.folder, "out");
    (void)unlink(out);
    assert_int_equal(symlink("/dev/full", out), 0);
    expect_refusal(GEMMCTL("models"), FAILED, "gemmctl: cannot write standard output: No space");
    expect_refusal(GEMMCTL("status", "--json"), FAILED, "cannot write standard output: No space");
    assert_int_equal(unlink(temp_path(&fixture.folder, "out")), 0);
    is_without_output = true; /* more than stdio keeps until the end: it is in no other's place */
    expect_refusal(GEMMCTL("status", "--json"), FAILED, "standard output: Bad file descriptor");
    assert_int_equal(fixture_logged(&fixture, "is hung up"), 0);
    is_without_output = false;
}

/* Last: a drained daemon still answers status, and takes no more work. */
static void test_drain(void **state)
{
    (void)state;
    expect_json(GEMMCTL("drain", "--json"), "drain");
    expect_json(GEMMCTL("status", "--json"), "status");
    expect_refusal(GEMMCTL("load", "late", model.path), REFUSED, "draining");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_command_in_json),
        cmocka_unit_test(test_one_name_for_a_key),
        cmocka_unit_test(test_load_options),
        cmocka_unit_test(test_explanation),
        cmocka_unit_test(test_explanation_for_people),
        cmocka_unit_test(test_help_of_commands),
        cmocka_unit_test(test_help_of_options),
        cmocka_unit_test(test_socket_dir_behind_the_command),
        cmocka_unit_test(test_every_command_for_people),
        cmocka_unit_test(test_load_shows_in_models),
        cmocka_unit_test(test_gemm_from_file_to_file),
        cmocka_unit_test(test_values_beyond_the_type),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_no_daemon),
        cmocka_unit_test(test_daemon_has_died),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_failed),
        cmocka_unit_test(test_drain),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
