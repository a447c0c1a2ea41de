/* test-life.c - the daemon's life: what it finds at its socket paths (T46), how it ends (T47),
 * running out of descriptors (T43), reloading under load and in vain, draining. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "ipc/side.h"
#include "tests/harness/control_job.h"
#include "tests/harness/fixture.h"
#include "tests/harness/model.h"
#include "tests/harness/product.h"
#include "tests/harness/status_document.h"

#define EXIT_USAGE   2
#define EXIT_REFUSED 4

struct life {
    struct fixture fixture;
    struct test_model model;
    char argument[512]; /* of --model */
    struct fixture_options options;
};

static int set_up(void **state)
{
    struct life *life = calloc(1, sizeof(*life));
    fixture_init(&life->fixture);
    test_model_write(&life->model, &life->fixture.folder, "tiny", 11);
    (void)snprintf(life->argument, sizeof(life->argument), "tiny=%s", life->model.path);
    life->options.model = life->argument;
    *state = life;
    return 0;
}

static int tear_down(void **state)
{
    struct life *life = *state;
    fixture_finish(&life->fixture);
    test_model_finish(&life->model);
    free(life);
    return 0;
}

static const struct product_shape plain_shape = {
    .m = 9, .x_dtype = GEMMD_F32, .y_dtype = GEMMD_F32, .seed = 77};

static bool serves_through(gemmd_client_t *client, const struct test_model *model)
{
    struct product product;
    if (!product_init(&product, client, "tiny", &model->weights[TEST_INT4], &plain_shape)) {
        return false;
    }
    bool is_served = product_run(&product, client) && product_is_right(&product);
    product_finish(&product);
    return is_served;
}

static bool serves(struct life *life)
{
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    bool is_served = serves_through(client, &life->model);
    gemmd_close(client);
    return is_served;
}

static const char *socket_path(const struct life *life, const char *name)
{
    static char path[400];
    (void)snprintf(path, sizeof(path), "%s/%s", life->fixture.socket_dir, name);
    return path;
}

static void expect_no_sockets(const struct life *life)
{
    assert_int_not_equal(access(socket_path(life, SIDE_SOCKET_NAME), F_OK), 0);
    assert_int_not_equal(access(socket_path(life, SIDE_CONTROL_NAME), F_OK), 0);
}

/* ---- T46: socket files -------------------------------------------------------------------------
 */

static void test_stale_socket(void **state)
{
    struct life *life = *state;
    fixture_start(&life->fixture, &life->options);
    fixture_kill(&life->fixture);
    assert_int_equal(access(socket_path(life, SIDE_SOCKET_NAME), F_OK), 0);
    fixture_start(&life->fixture, &life->options);
    assert_true(serves(life));
    assert_int_equal(fixture_stop(&life->fixture), 0);
    expect_no_sockets(life);
}

static void test_second_daemon(void **state)
{
    struct life *life = *state;
    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_ZEROMQ);
    struct fixture second = life->fixture;
    fixture_spawn(&second, &life->options);
    assert_int_equal(fixture_wait_exit(&second, FIXTURE_READY_SECONDS), EXIT_REFUSED);
    assert_true(serves_through(client, &life->model));
    assert_true(serves(life));
    gemmd_close(client);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

/* Two at the same moment: exactly one wins, whoever it is. */
static void test_two_at_once(void **state)
{
    struct life *life = *state;
    for (uint32_t i = 0; i < 10; i++) {
        struct fixture second = life->fixture;
        fixture_spawn(&life->fixture, &life->options);
        fixture_spawn(&second, &life->options);
        struct fixture *winner = &life->fixture;
        struct fixture *loser = &second;
        double deadline = fixture_now() + FIXTURE_READY_SECONDS;
        while (fixture_is_running(winner) && fixture_is_running(loser) &&
               fixture_now() < deadline) {
            fixture_sleep(0.005);
        }
        if (!fixture_is_running(winner)) {
            winner = &second;
            loser = &life->fixture;
        }
        assert_int_equal(fixture_wait_exit(loser, 0), EXIT_REFUSED);
        fixture_wait_ready(winner, true);
        assert_int_equal(fixture_stop(winner), 0);
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
        const char *path = socket_path(life, names[i]);
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
    } cases[] = {{99, 0}, {100, EXIT_REFUSED}, {4096, EXIT_USAGE}};
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
            assert_true(serves(life));
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
    assert_int_equal(lstat(socket_path(life, SIDE_SOCKET_NAME), &stat), 0);
    assert_int_equal(stat.st_mode & 07777u, 0600);
    assert_int_equal(lstat(socket_path(life, SIDE_CONTROL_NAME), &stat), 0);
    assert_int_equal(stat.st_mode & 07777u, 0600);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

/* ---- T47: signals ------------------------------------------------------------------------------
 */

static bool has_said_anything(const struct life *life)
{
    struct stat stat;
    return lstat(life->fixture.log_path, &stat) == 0 && stat.st_size > 0;
}

/* Before main() the signal's own default holds; main() blocks signals before it says a word. */
static void test_sigterm_while_starting(void **state)
{
    struct life *life = *state;
    static const double delays[] = {0, 0.005, 0.02, 0.05, 0.5};
    for (uint32_t i = 0; i < ARRAY_LENGTH(delays); i++) {
        (void)unlink(life->fixture.log_path);
        fixture_spawn(&life->fixture, &life->options);
        fixture_sleep(delays[i]);
        int code = fixture_stop(&life->fixture);
        if (code != 0 && (code != 256 + SIGTERM || has_said_anything(life))) {
            fail_msg("SIGTERM after %.3f s: %d", delays[i], code);
        }
        expect_no_sockets(life);
    }
}

/* A checkpoint of 2 GiB, all hole: reading it takes long enough to be interrupted. */
static void write_sparse(const struct life *life, char ret_path[300])
{
    (void)snprintf(ret_path, 300, "%s", temp_path(&life->fixture.folder, "sparse"));
    assert_int_equal(mkdir(ret_path, 0700), 0);
    write_text(temp_path(&life->fixture.folder, "sparse/config.json"), "{}");
    write_safetensors(temp_path(&life->fixture.folder, "sparse/model.safetensors"),
                      "{\"w.weight\":{\"dtype\":\"F32\",\"shape\":[32768,16384],"
                      "\"data_offsets\":[0,2147483648]}}",
                      2147483648ull);
}

static void test_sigterm_during_load(void **state)
{
    struct life *life = *state;
    char path[300];
    char argument[400];
    write_sparse(life, path);
    (void)snprintf(argument, sizeof(argument), "sparse=%s", path);
    const struct fixture_options options = {.model = argument};
    fixture_spawn(&life->fixture, &options);
    fixture_sleep(0.3);
    assert_true(fixture_is_running(&life->fixture));
    assert_int_equal(fixture_stop(&life->fixture), 0);

    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    struct msg_request request = {.verb = MSG_VERB_LOAD};
    struct msg_reply reply = MSG_REPLY_NULL;
    (void)snprintf(request.load.name, sizeof(request.load.name), "sparse");
    (void)snprintf(request.load.path, sizeof(request.load.path), "%s", path);
    assert_int_equal(control_call(client, &request, &reply), 0);
    msg_reply_finish(&reply);
    fixture_sleep(0.1);
    assert_true(serves_through(client, &life->model));
    assert_int_equal(fixture_stop(&life->fixture), 0);
    gemmd_close(client);
}

static void submit_many(gemmd_client_t *client, struct product *product, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        gemmd_ticket_t ticket;
        assert_int_equal(gemmd_submit(client, &product->gemm, 1, &ticket), GEMMD_OK);
    }
}

/* Requests in flight and replies that nobody reads, on both paths; then a second signal. */
static void test_sigterm_with_unread_replies(void **state)
{
    struct life *life = *state;
    for (uint32_t i = 0; i < 4; i++) {
        struct product product;
        struct product_shape shape = plain_shape;
        shape.m = 257;
        fixture_start(&life->fixture, &life->options);
        gemmd_client_t *client =
            fixture_open(&life->fixture, i % 2 == 0 ? GEMMD_PATH_RING : GEMMD_PATH_ZEROMQ);
        assert_true(
            product_init(&product, client, "tiny", &life->model.weights[TEST_INT4], &shape));
        submit_many(client, &product, 200);
        if (i >= 2) {
            (void)kill(life->fixture.pid, SIGTERM);
        }
        assert_int_equal(fixture_stop(&life->fixture), 0);
        int r = gemmd_gemm(client, &product.gemm);
        if (r != GEMMD_DISCONNECTED) {
            fail_msg("run %u, after the end: %s: %s", i, gemmd_status_name(r), gemmd_last_error());
        }
        product_finish(&product);
        gemmd_close(client);
    }
}

static void test_other_signals(void **state)
{
    struct life *life = *state;
    fixture_start(&life->fixture, &life->options);
    assert_int_equal(kill(life->fixture.pid, SIGHUP), 0);
    fixture_sleep(0.05);
    assert_true(serves(life));
    assert_int_equal(kill(life->fixture.pid, SIGINT), 0);
    assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_STOP_SECONDS), 0);
}

/* ---- T43: descriptors --------------------------------------------------------------------------
 */

/* A newcomer hears so at once instead of waiting in a queue that never moves. */
static bool is_turned_away(const struct life *life)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    options.socket_dir = life->fixture.socket_dir;
    gemmd_client_t *client;
    double start = fixture_now();
    int r = gemmd_open(&options, &client);
    if (r == GEMMD_OK) {
        gemmd_close(client);
    }
    return (r == GEMMD_QUOTA || r == GEMMD_DISCONNECTED) && fixture_now() - start < 2;
}

static void test_descriptor_limit(void **state)
{
    enum { N_PEERS = 200 };
    struct life *life = *state;
    life->options.n_fds_max = 64;
    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *early = fixture_open(&life->fixture, GEMMD_PATH_RING);
    struct product product;
    assert_true(
        product_init(&product, early, "tiny", &life->model.weights[TEST_INT4], &plain_shape));
    assert_true(product_run(&product, early)); /* opens its lane */
    product_clear(&product);
    int peers[N_PEERS];
    for (uint32_t i = 0; i < N_PEERS; i++) {
        peers[i] = side_connect(socket_path(life, SIDE_SOCKET_NAME), 5000);
    }
    fixture_sleep(0.3);
    assert_true(fixture_is_running(&life->fixture));
    assert_true(fixture_fds(&life->fixture) <= 64);
    assert_true(product_run(&product, early));
    assert_true(product_is_right(&product));
    assert_true(is_turned_away(life));
    for (uint32_t i = 0; i < N_PEERS; i++) {
        if (peers[i] >= 0) {
            (void)close(peers[i]);
        }
    }
    fixture_wait_ready(&life->fixture, true);
    assert_true(serves(life));
    product_finish(&product);
    assert_true(serves_through(early, &life->model));
    gemmd_close(early);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

/* ---- reloading ---------------------------------------------------------------------------------
 */

static void replace_checkpoint(const struct life *life, const char *from)
{
    char source[600];
    char target[600];
    (void)snprintf(source, sizeof(source), "%s/model.safetensors", from);
    (void)snprintf(target, sizeof(target), "%s/model.safetensors", life->model.path);
    assert_int_equal(rename(source, target), 0);
}

static void test_failed_reload(void **state)
{
    struct life *life = *state;
    char text[MSG_TEXT_BYTES];
    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    write_text(temp_path(&life->fixture.folder, "tiny/model.safetensors"), "nonsense");
    assert_int_equal(control_job(client, MSG_VERB_RELOAD, "tiny", NULL, text),
                     GEMMD_BAD_CHECKPOINT);
    assert_non_null(strstr(text, "model.safetensors"));
    assert_true(serves_through(client, &life->model));

    struct test_model other;
    test_model_write(&other, &life->fixture.folder, "other", 12);
    replace_checkpoint(life, other.path);
    assert_int_equal(control_job(client, MSG_VERB_RELOAD, "tiny", NULL, text), 0);
    assert_true(serves_through(client, &other));
    test_model_finish(&other);
    gemmd_close(client);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

/* What the child of test_reload_under_load() and its parent share. */
struct reloading {
    _Atomic uint64_t n_products;
    atomic_bool is_over;
};

/* Every product is the old weight's or the new one's, whole. */
static bool multiply_through_reloads(struct life *life, const struct test_model *other,
                                     struct reloading *shared)
{
    struct product old;
    struct product now;
    struct product fresh;
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    const struct test_weight *weight = &life->model.weights[TEST_INT4];
    if (!product_init(&old, client, "tiny", weight, &plain_shape) ||
        !product_init(&now, client, "tiny", weight, &plain_shape) ||
        !product_init(&fresh, client, "other", &other->weights[TEST_INT4], &plain_shape) ||
        !product_run(&old, client) || !product_is_right(&old) || !product_run(&fresh, client) ||
        !product_is_right(&fresh)) {
        return false;
    }
    uint64_t n[2] = {0, 0};
    while (!atomic_load(&shared->is_over)) {
        product_clear(&now);
        if (!product_run(&now, client)) {
            return false;
        }
        bool is_old = product_same_bytes(&now, &old);
        if (!is_old && !product_same_bytes(&now, &fresh)) {
            (void)fprintf(stderr, "a product is of neither weight\n");
            return false;
        }
        n[is_old]++;
        atomic_fetch_add(&shared->n_products, 1);
    }
    gemmd_close(client);
    return n[0] > 0 && n[1] > 0;
}

/* Two more: the first of them may have been under way, the second has begun since. */
static void await_products(struct reloading *shared)
{
    double deadline = fixture_now() + FIXTURE_READY_SECONDS;
    uint64_t n = atomic_load(&shared->n_products) + 2;
    while (atomic_load(&shared->n_products) < n && fixture_now() < deadline) {
        fixture_sleep(0.0005);
    }
    assert_true(atomic_load(&shared->n_products) >= n);
}

static void test_reload_under_load(void **state)
{
    struct life *life = *state;
    struct test_model other;
    struct test_model copy;
    int child;
    struct reloading *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    test_model_write(&other, &life->fixture.folder, "other", 12);
    assert_int_equal(control_job(client, MSG_VERB_LOAD, "other", other.path, NULL), 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(multiply_through_reloads(life, &other, shared) ? 0 : 1);
    }
    await_products(shared);
    for (uint32_t i = 0; i < 20; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "copy%u", i);
        test_model_write(&copy, &life->fixture.folder, name, 11 + (i + 1) % 2);
        replace_checkpoint(life, copy.path);
        test_model_finish(&copy);
        assert_int_equal(control_job(client, MSG_VERB_RELOAD, "tiny", NULL, NULL), 0);
        await_products(shared);
    }
    atomic_store(&shared->is_over, true);
    assert_int_equal(waitpid(pid, &child, 0), pid);
    assert_int_equal(child, 0);
    (void)munmap(shared, sizeof(*shared));
    gemmd_close(client);
    test_model_finish(&other);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

/* ---- draining ----------------------------------------------------------------------------------
 */

static void test_drain(void **state)
{
    struct life *life = *state;
    struct product product;
    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    assert_true(
        product_init(&product, client, "tiny", &life->model.weights[TEST_INT4], &plain_shape));
    submit_many(client, &product, 100);
    assert_int_equal(control_verb(client, MSG_VERB_DRAIN, NULL), 0);
    assert_int_equal(gemmd_gemm(client, &product.gemm), GEMMD_SHUTTING_DOWN);
    /* A refusal may overtake the requests that were there before: those finish, in time. */
    struct status_counts counts;
    status_counts_read(&life->fixture, &counts);
    for (uint32_t i = 0; counts.n_in_flight > 0 && i < 500; i++) {
        (void)usleep(10000);
        status_counts_read(&life->fixture, &counts);
    }
    assert_int_equal(counts.n_in_flight, 0);
    product_finish(&product);
    gemmd_close(client);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_stale_socket),
        CASE(test_second_daemon),
        CASE(test_two_at_once),
        CASE(test_foreign_file),
        CASE(test_path_lengths),
        CASE(test_socket_modes),
        CASE(test_sigterm_while_starting),
        CASE(test_sigterm_during_load),
        CASE(test_sigterm_with_unread_replies),
        CASE(test_other_signals),
        CASE(test_descriptor_limit),
        CASE(test_failed_reload),
        CASE(test_reload_under_load),
        CASE(test_drain),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
