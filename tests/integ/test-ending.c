/* test-ending.c - how the daemon ends, whatever it is doing when it is told to (T47) or its device
 * is lost (T48), and draining. */
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
#include <zmq.h>

#include "ipc/base/num.h"
#include "tests/harness/control_job.h"
#include "tests/harness/status_document.h"
#include "tests/harness/wire.h"
#include "tests/integ/life_case.h"

#define N_UNREAD       1000u
#define N_LONG         8u
#define M_LONG         8192u
#define SHARD1_BYTES   (1u << 20)
#define SHARD2_BYTES   (4ull << 30)
#define SECOND_SECONDS 2.0 /* a second signal does not wait for the drain timeout of 3 s */

/* ---- while it starts ---- */

/* What the daemon tells the service manager. */
static int open_notify_socket(const struct life *life)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s",
                   temp_path(&life->fixture.folder, "notify"));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", address.sun_path, 1), 0);
    return fd;
}

static void expect_no_ready_after_stopping(int fd)
{
    char text[512];
    bool is_stopping = false;
    for (ssize_t n; (n = recv(fd, text, sizeof(text) - 1, 0)) > 0;) {
        text[n] = '\0';
        assert_false(is_stopping && strstr(text, "READY=1") != NULL);
        is_stopping = is_stopping || strstr(text, "STOPPING=1") != NULL;
    }
}

static bool has_said_anything(const struct life *life)
{
    struct stat stat;
    return lstat(life->fixture.log_path, &stat) == 0 && stat.st_size > 0;
}

/* Before main() the signal's own default holds; main() blocks signals before it says a word. */
static void test_sigterm_while_starting(void **state)
{
    struct life *life = *state;
    static const double delays[] = {0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.5};
    int notify_fd = open_notify_socket(life);
    for (uint32_t i = 0; i < ARRAY_LENGTH(delays); i++) {
        (void)unlink(life->fixture.log_path);
        fixture_spawn(&life->fixture, &life->options);
        fixture_sleep(delays[i]);
        int code = fixture_stop(&life->fixture);
        if (code != 0 && (code != 256 + SIGTERM || has_said_anything(life))) {
            fail_msg("SIGTERM after %.3f s: %d", delays[i], code);
        }
        assert_false(life_has_sockets(life));
        expect_no_ready_after_stopping(notify_fd);
    }
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    (void)close(notify_fd);
}

/* ---- while it loads ---- */

static void write_shard(const char *path, const char *module, uint64_t n_rows, uint64_t size_bytes)
{
    char header[256];
    (void)snprintf(header, sizeof(header),
                   "{\"%s.weight\":{\"dtype\":\"F32\",\"shape\":[%ju,16384],"
                   "\"data_offsets\":[0,%ju]}}",
                   module, (uintmax_t)n_rows, (uintmax_t)size_bytes);
    write_safetensors(path, header, size_bytes);
}

/* Two shards, the second of 4 GiB, all hole: reading it takes long enough to be interrupted. */
static void write_sparse(const struct life *life, char ret_path[300])
{
    const struct temp_folder *folder = &life->fixture.folder;
    (void)snprintf(ret_path, 300, "%s", temp_path(folder, "sparse"));
    assert_int_equal(mkdir(ret_path, 0700), 0);
    write_text(temp_path(folder, "sparse/config.json"), "{}");
    write_text(temp_path(folder, "sparse/model.safetensors.index.json"),
               "{\"weight_map\":{\"a.weight\":\"model-00001-of-00002.safetensors\","
               "\"b.weight\":\"model-00002-of-00002.safetensors\"}}");
    write_shard(temp_path(folder, "sparse/model-00001-of-00002.safetensors"), "a",
                SHARD1_BYTES / 65536, SHARD1_BYTES);
    write_shard(temp_path(folder, "sparse/model-00002-of-00002.safetensors"), "b",
                SHARD2_BYTES / 65536, SHARD2_BYTES);
}

/* The job, when it has read some of shard 2. */
static void await_shard2(gemmd_client_t *client, uint64_t job_id)
{
    struct msg_request look = {.verb = MSG_VERB_JOB_STATUS, .job_id = job_id};
    double deadline = fixture_now() + FIXTURE_READY_SECONDS;
    bool is_there = false;
    while (!is_there && fixture_now() < deadline) {
        struct msg_reply reply = MSG_REPLY_NULL;
        assert_int_equal(control_call(client, &look, &reply), 0);
        assert_true(strcmp(reply.job.state, "queued") == 0 ||
                    strcmp(reply.job.state, "running") == 0);
        is_there = reply.job.done_bytes > SHARD1_BYTES;
        msg_reply_finish(&reply);
    }
    assert_true(is_there);
}

static void test_sigterm_during_load(void **state)
{
    struct life *life = *state;
    char path[300];
    write_sparse(life, path);
    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    struct msg_request request = {.verb = MSG_VERB_LOAD};
    struct msg_reply reply = MSG_REPLY_NULL;
    (void)snprintf(request.load.name, sizeof(request.load.name), "sparse");
    (void)snprintf(request.load.path, sizeof(request.load.path), "%s", path);
    assert_int_equal(control_call(client, &request, &reply), 0);
    uint64_t job_id = reply.job.job_id;
    msg_reply_finish(&reply);
    await_shard2(client, job_id);
    assert_true(life_serves_through(client, &life->model));
    assert_int_equal(fixture_stop(&life->fixture), 0);
    assert_false(life_has_sockets(life));
    gemmd_close(client);
}

/* The same at the start, before there are sockets. */
static void test_sigterm_during_first_load(void **state)
{
    struct life *life = *state;
    char path[300];
    char argument[400];
    write_sparse(life, path);
    (void)snprintf(argument, sizeof(argument), "sparse=%s", path);
    const struct fixture_options options = {.model = argument};
    int notify_fd = open_notify_socket(life);
    (void)unlink(life->fixture.log_path);
    fixture_spawn(&life->fixture, &options);
    for (double end = fixture_now() + FIXTURE_READY_SECONDS; !has_said_anything(life);) {
        assert_true(fixture_now() < end);
        fixture_sleep(0.01);
    }
    fixture_sleep(0.2);
    assert_int_equal(fixture_stop(&life->fixture), 0);
    expect_no_ready_after_stopping(notify_fd);
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    (void)close(notify_fd);
}

/* ---- while it works ---- */

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
    life->options.config = "lane_entries = 1024\nsession_requests_max = 1024\n";
    for (uint32_t i = 0; i < 4; i++) {
        struct product product;
        struct product_shape shape = life_shape;
        shape.m = 257;
        fixture_start(&life->fixture, &life->options);
        gemmd_client_t *client =
            fixture_open(&life->fixture, i % 2 == 0 ? GEMMD_PATH_RING : GEMMD_PATH_ZEROMQ);
        assert_true(
            product_init(&product, client, "tiny", &life->model.weights[TEST_INT4], &shape));
        submit_many(client, &product, N_UNREAD);
        if (i >= 2) {
            (void)kill(life->fixture.pid, SIGTERM);
        }
        assert_int_equal(fixture_stop(&life->fixture), 0);
        assert_false(life_has_sockets(life));
        int r = gemmd_gemm(client, &product.gemm);
        if (r != GEMMD_DISCONNECTED) {
            fail_msg("run %u, after the end: %s: %s", i, gemmd_status_name(r), gemmd_last_error());
        }
        product_finish(&product);
        gemmd_close(client);
    }
}

/* A peer that has asked and will never read, with more replies than ZeroMQ and the kernel take. */
static void test_sigterm_with_a_deaf_peer(void **state)
{
    struct life *life = *state;
    const struct msg_request request = {.verb = MSG_VERB_STATUS, .request_id = 6};
    char token[SIDE_TOKEN_BYTES];
    struct peer peer;
    fixture_start(&life->fixture, &life->options);
    int fd = wire_session(&life->fixture, token);
    peer_init(&peer, &life->fixture, ZMQ_DEALER, token, sizeof(token));
    for (uint32_t i = 0; i < N_UNREAD; i++) {
        assert_true(peer_send_request(&peer, &request));
    }
    assert_int_equal(fixture_stop(&life->fixture), 0);
    assert_false(life_has_sockets(life));
    peer_finish(&peer);
    (void)close(fd);
}

/* A weight of 2048 x 2048, and more rows for it than five seconds are enough for. */
struct long_work {
    gemmd_client_t *client;
    gemmd_weight_t weight;
    gemmd_buffer_t *x;
    gemmd_buffer_t *y;
    gemmd_ticket_t tickets[N_LONG];
};

static void long_work_init(struct long_work *work, struct life *life)
{
    struct gemmd_gemm gemms[N_LONG];
    char path[300];
    (void)snprintf(path, sizeof(path), "%s", temp_path(&life->fixture.folder, "big"));
    test_gptq_write(&life->fixture.folder, "big", 2048, 2048, 3);
    work->client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    work->weight = (gemmd_weight_t)GEMMD_WEIGHT_INIT;
    assert_int_equal(control_job(work->client, MSG_VERB_LOAD, "big", path, NULL), 0);
    assert_int_equal(gemmd_find_weight(work->client, "big/w", &work->weight), GEMMD_OK);
    assert_int_equal(gemmd_buffer_alloc_host(work->client, 0, M_LONG * 4096ull, &work->x),
                     GEMMD_OK);
    assert_int_equal(gemmd_buffer_alloc_host(work->client, 0, M_LONG * 4096ull, &work->y),
                     GEMMD_OK);
    for (uint32_t i = 0; i < N_LONG; i++) {
        gemms[i] = (struct gemmd_gemm)GEMMD_GEMM_INIT;
        gemms[i].weight = &work->weight;
        gemms[i].x = work->x;
        gemms[i].y = work->y;
        gemms[i].m = M_LONG;
        gemms[i].x_dtype = gemms[i].y_dtype = GEMMD_F16;
    }
    assert_int_equal(gemmd_submit(work->client, gemms, N_LONG, work->tickets), GEMMD_OK);
}

/* Each request ended, or was told that the daemon does. */
static void long_work_finish(struct long_work *work)
{
    for (uint32_t i = 0; i < N_LONG; i++) {
        int r = gemmd_wait(work->client, work->tickets[i], GEMMD_WAIT_FOREVER, NULL);
        if (r != GEMMD_OK && r != GEMMD_SHUTTING_DOWN && r != GEMMD_DISCONNECTED) {
            fail_msg("request %u: %s: %s", i, gemmd_status_name(r), gemmd_last_error());
        }
    }
    gemmd_buffer_free(work->x);
    gemmd_buffer_free(work->y);
    gemmd_close(work->client);
}

static void await_launch(struct life *life)
{
    struct status_counts counts;
    status_counts_read(&life->fixture, &counts);
    assert_true(status_counts_reach(&life->fixture, offsetof(struct status_counts, n_launches),
                                    counts.n_launches + 1, FIXTURE_READY_SECONDS, &counts));
}

static void test_sigterm_with_long_work(void **state)
{
    struct life *life = *state;
    struct long_work work;
    fixture_start(&life->fixture, &life->options);
    long_work_init(&work, life);
    await_launch(life);
    assert_int_equal(fixture_stop(&life->fixture), 0);
    assert_false(life_has_sockets(life));
    long_work_finish(&work);
}

static void test_second_sigterm_with_long_work(void **state)
{
    struct life *life = *state;
    struct long_work work;
    fixture_start(&life->fixture, &life->options);
    long_work_init(&work, life);
    await_launch(life);
    assert_int_equal(kill(life->fixture.pid, SIGTERM), 0);
    fixture_sleep(0.05); /* two signals at once would be one */
    double start = fixture_now();
    assert_int_equal(fixture_stop(&life->fixture), 0);
    assert_true(fixture_now() - start < SECOND_SECONDS);
    assert_false(life_has_sockets(life));
    long_work_finish(&work);
}

static void test_other_signals(void **state)
{
    struct life *life = *state;
    fixture_start(&life->fixture, &life->options);
    assert_int_equal(kill(life->fixture.pid, SIGHUP), 0);
    fixture_sleep(0.05);
    assert_true(life_serves(life));
    assert_int_equal(kill(life->fixture.pid, SIGINT), 0);
    assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_STOP_SECONDS), 0);
    assert_false(life_has_sockets(life));
}

/* ---- a device that is lost ---- */

/* T48: whoever is served learns that it is lost, nobody gets a product any more, and the process
 * ends with the code that has it started anew, and says why. */
static void test_lost_device(void **state)
{
    struct life *life = *state;
    struct product product;
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    gemmd_client_t *client;
    int r = GEMMD_OK;
    assert_int_equal(setenv("GEMMD_FAULT", "lost:5", 1), 0);
    fixture_start(&life->fixture, &life->options);
    assert_int_equal(unsetenv("GEMMD_FAULT"), 0);
    options.socket_dir = life->fixture.socket_dir;
    options.reconnect_msec = 0;
    assert_int_equal(gemmd_open(&options, &client), GEMMD_OK);
    assert_true(
        product_init(&product, client, "tiny", &life->model.weights[TEST_INT4], &life_shape));
    for (uint32_t i = 0; i < 10 && r == GEMMD_OK; i++) {
        r = gemmd_gemm(client, &product.gemm);
    }
    assert_int_equal(r, GEMMD_DEVICE_LOST);
    for (uint32_t i = 0; i < 10; i++) {
        r = gemmd_gemm(client, &product.gemm);
        assert_true(r == GEMMD_DEVICE_LOST || r == GEMMD_DISCONNECTED);
    }
    assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_STOP_SECONDS), EXIT_FAILED);
    assert_int_not_equal(fixture_logged(&life->fixture, "lost"), 0);
    assert_false(life_has_sockets(life));
    product_finish(&product);
    gemmd_close(client);
}

/* ---- draining ---- */

static void test_drain(void **state)
{
    struct life *life = *state;
    struct product product;
    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    assert_true(
        product_init(&product, client, "tiny", &life->model.weights[TEST_INT4], &life_shape));
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
#define CASE(function) cmocka_unit_test_setup_teardown(function, life_set_up, life_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_sigterm_while_starting),
        CASE(test_sigterm_during_load),
        CASE(test_sigterm_during_first_load),
        CASE(test_sigterm_with_unread_replies),
        CASE(test_sigterm_with_a_deaf_peer),
        CASE(test_sigterm_with_long_work),
        CASE(test_second_sigterm_with_long_work),
        CASE(test_other_signals),
        CASE(test_lost_device),
        CASE(test_drain),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
