/* test-descriptors.c - more clients than the daemon has descriptors for (T43). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/unix.h"
#include "tests/harness/status_document.h"
#include "tests/harness/wire.h"
#include "tests/integ/life_case.h"

#define N_FDS_MAX      64u
#define N_PEERS        200u
#define N_STAYING      50u /* the last to come */
#define ANSWER_SECONDS 2
#define OTHER_UID      65534u

enum welcome { WELCOMED, REFUSED, HUNG_UP };

/* What a peer hears of HELLO, in time. */
static enum welcome greet(const struct life *life, int fd)
{
    const struct timeval limit = {.tv_sec = ANSWER_SECONDS};
    struct side_packet packet;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    if (wire_hello(&life->fixture, fd, &packet) != 1) {
        return HUNG_UP;
    }
    uint16_t type = packet.message.header.type;
    assert_true(type == SIDE_WELCOME ||
                (type == SIDE_REFUSED && packet.message.refused.status == GEMMD_QUOTA));
    side_packet_finish(&packet);
    return type == SIDE_WELCOME ? WELCOMED : REFUSED;
}

/* A region, or the refusal of one. */
static bool has_region(const struct life *life, int fd)
{
    union side_message message;
    struct side_packet packet;
    side_init(&message, SIDE_ALLOC_BUFFER, 2);
    message.alloc_buffer.size_bytes = 4096;
    assert_int_equal(wire_ask(&life->fixture, fd, &message, NULL, 0, &packet), 1);
    uint16_t type = packet.message.header.type;
    assert_true(type == SIDE_BUFFER ||
                (type == SIDE_REFUSED && packet.message.refused.status == GEMMD_QUOTA));
    side_packet_finish(&packet);
    return type == SIDE_BUFFER;
}

static uint64_t fd_gauge(json_t *document, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(document, "fds"), key));
}

/* The status socket has descriptors of its own, and answers whoever looks what is the matter. */
static void expect_status(struct life *life)
{
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    const struct timeval limit = {.tv_sec = ANSWER_SECONDS};
    char answer[512] = "";
    int fd = unix_connect(life_socket_path(life, SIDE_STATUS_NAME), SOCK_STREAM, WIRE_REPLY_MSEC);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL), sizeof(request) - 1);
    assert_true(recv(fd, answer, sizeof(answer) - 1, 0) > 0);
    assert_memory_equal(answer, "HTTP/1.1 200", 12);
    (void)close(fd);
}

/* Those who came before the crowd are served, and told what is the matter. */
static void expect_service(struct life *life, gemmd_client_t *early, struct product *product)
{
    expect_status(life);
    product_clear(product);
    assert_true(product_run(product, early));
    assert_true(product_is_right(product));
    json_t *document = status_document_ask(&life->fixture, early);
    assert_int_equal(fd_gauge(document, "limit"), life->options.n_fds_max);
    assert_in_range(fd_gauge(document, "used"), 8, life->options.n_fds_max);
    json_decref(document);
}

/* A daemon with few descriptors, and the client that came first. */
static gemmd_client_t *start(struct life *life, struct product *product)
{
    life->options.n_fds_max = life->options.n_fds_max != 0 ? life->options.n_fds_max : N_FDS_MAX;
    fixture_start(&life->fixture, &life->options);
    gemmd_client_t *early = fixture_open(&life->fixture, GEMMD_PATH_RING);
    assert_true(product_init(product, early, "tiny", &life->model.weights[TEST_INT4], &life_shape));
    assert_true(product_run(product, early)); /* opens its lane */
    return early;
}

static void stop(struct life *life, gemmd_client_t *early, struct product *product)
{
    assert_true(life_serves_through(early, &life->model));
    product_finish(product);
    gemmd_close(early);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

static uint64_t n_sessions(const struct life *life, gemmd_client_t *early)
{
    json_t *document = status_document_ask(&life->fixture, early);
    const json_t *quota = json_object_get(json_object_get(document, "quotas"), "sessions");
    uint64_t n = (uint64_t)json_integer_value(json_object_get(quota, "held"));
    json_decref(document);
    return n;
}

/* Those who have left are gone a moment later; then newcomers are served. */
static void expect_room(struct life *life, gemmd_client_t *early, uint64_t n_left)
{
    double deadline = fixture_now() + FIXTURE_READY_SECONDS;
    while (n_sessions(life, early) > n_left && fixture_now() < deadline) {
        fixture_sleep(0.005);
    }
    fixture_wait_ready(&life->fixture, true);
    while (n_sessions(life, early) > n_left && fixture_now() < deadline) {
        fixture_sleep(0.005);
    }
    assert_true(life_serves(life));
}

/* N_PEERS connections to the control socket, of whoever this process is just now. */
static void crowd_control_socket(struct life *life, int *peers)
{
    for (uint32_t i = 0; i < N_PEERS; i++) {
        peers[i] =
            unix_connect(life_socket_path(life, SIDE_CONTROL_NAME), SOCK_STREAM, WIRE_REPLY_MSEC);
        assert_true(peers[i] >= 0);
    }
}

static void close_some(const int *fds, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        (void)close(fds[i]);
    }
}

/* 200 sessions, each of which wants a region; most leave; newcomers are served. */
static void test_crowd_of_sessions(void **state)
{
    struct life *life = *state;
    int peers[N_PEERS];
    uint32_t n[HUNG_UP + 1] = {0};
    uint32_t n_regions = 0;
    uint32_t n_staying = 0;
    struct product product;
    gemmd_client_t *early = start(life, &product);
    for (uint32_t i = 0; i < N_PEERS; i++) {
        peers[i] = wire_connect(&life->fixture);
    }
    for (uint32_t i = 0; i < N_PEERS; i++) {
        enum welcome welcome = greet(life, peers[i]);
        n[welcome]++;
        n_regions += welcome == WELCOMED && has_region(life, peers[i]);
        n_staying += welcome == WELCOMED && i >= N_PEERS - N_STAYING;
    }
    expect_service(life, early, &product);
    print_message("%u welcomed, %u refused, %u hung up on; %u regions\n", n[WELCOMED], n[REFUSED],
                  n[HUNG_UP], n_regions);
    assert_true(n[WELCOMED] > 0 && n[REFUSED] + n[HUNG_UP] > 0);
    close_some(peers, 0, N_PEERS - N_STAYING);
    expect_room(life, early, 1 + n_staying);
    close_some(peers, N_PEERS - N_STAYING, N_PEERS);
    stop(life, early, &product);
}

/* 200 connections to the control socket, which are no sessions, and as an administrator's under no
 * quota: those that there is no descriptor for are shed, and counted. */
static void test_crowd_at_the_control_socket(void **state)
{
    struct life *life = *state;
    int peers[N_PEERS];
    struct product product;
    gemmd_client_t *early = start(life, &product);
    crowd_control_socket(life, peers);
    uint64_t n_shed = 0;
    double deadline = fixture_now() + FIXTURE_READY_SECONDS;
    while (n_shed < N_PEERS - N_FDS_MAX && fixture_now() < deadline) {
        expect_service(life, early, &product);
        json_t *document = status_document_ask(&life->fixture, early);
        n_shed = fd_gauge(document, "shed");
        json_decref(document);
    }
    assert_in_range(n_shed, N_PEERS - N_FDS_MAX, N_PEERS);
    close_some(peers, 0, N_PEERS - N_STAYING);
    expect_room(life, early, 1);
    close_some(peers, N_PEERS - N_STAYING, N_PEERS);
    stop(life, early, &product);
}

/* With an administrator's connections, which are under no quota, accounts have room where the
 * process has none: whoever shares memory then is refused, stays connected, and leaves the rest to
 * the daemon. */
static void test_buffers_where_a_crowd_is(void **state)
{
    struct life *life = *state;
    int peers[N_PEERS];
    gemmd_buffer_t *buffers[N_FDS_MAX];
    uint32_t n = 0;
    int r = GEMMD_OK;
    struct product product;
    gemmd_client_t *early = start(life, &product);
    crowd_control_socket(life, peers);
    while (n < N_FDS_MAX && (r = gemmd_buffer_alloc_host(early, 0, 4096, &buffers[n])) == 0) {
        n++;
    }
    assert_int_equal(r, GEMMD_QUOTA);
    assert_non_null(strstr(gemmd_last_error(), "no descriptor is left for clients of the 64"));
    expect_service(life, early, &product);
    assert_int_equal(fixture_logged(&life->fixture, "is hung up"), 0);
    while (n > 0) {
        gemmd_buffer_free(buffers[--n]);
    }
    close_some(peers, 0, N_PEERS);
    stop(life, early, &product);
}

/* ---- administrators ---- */

/* Sockets that another user of this group reaches. */
static void open_to_others(struct life *life)
{
    life->options.config = "socket_mode = 0660\n";
    assert_int_equal(chmod(life->fixture.folder.path, 0711), 0);
    assert_int_equal(chmod(life->fixture.socket_dir, 0750), 0);
}

/* What administrators do while clients hold all that there is for them, several times over. */
static void expect_administration(struct life *life)
{
    for (uint32_t i = 0; i < 5; i++) {
        gemmd_client_t *admin = fixture_open(&life->fixture, GEMMD_PATH_ZEROMQ);
        gemmd_client_t *second = fixture_open(&life->fixture, GEMMD_PATH_ZEROMQ);
        json_decref(status_document_ask(&life->fixture, admin));
        json_decref(status_document_ask(&life->fixture, second));
        gemmd_close(second);
        gemmd_close(admin);
    }
}

/* Another user's sessions, and as many connections to the control socket as go: an administrator
 * gets in all the same. */
static void test_administrators_get_in(void **state)
{
    struct life *life = *state;
    int peers[2 * N_PEERS];
    uint32_t n_refused = 0;
    struct product product;
    if (geteuid() != 0) {
        skip(); /* without another user there is no crowd of others */
    }
    open_to_others(life);
    gemmd_client_t *early = start(life, &product);
    assert_int_equal(seteuid(OTHER_UID), 0);
    for (uint32_t i = 0; i < N_PEERS; i++) {
        peers[i] = wire_connect(&life->fixture);
        n_refused += greet(life, peers[i]) != WELCOMED;
    }
    crowd_control_socket(life, peers + N_PEERS);
    assert_int_equal(seteuid(0), 0);
    assert_true(n_refused > 0);
    expect_administration(life);
    expect_service(life, early, &product);
    close_some(peers, 0, 2 * N_PEERS);
    stop(life, early, &product);
}

/* Nor does it keep out a third user, who is no administrator: of connections to the control socket
 * one may have only so many. */
static void test_other_users_get_in(void **state)
{
    struct life *life = *state;
    int peers[N_PEERS];
    struct product product;
    if (geteuid() != 0) {
        skip();
    }
    open_to_others(life);
    life->options.n_fds_max = 2 * N_FDS_MAX; /* a quarter of which is for one user */
    gemmd_client_t *early = start(life, &product);
    assert_int_equal(seteuid(OTHER_UID), 0);
    crowd_control_socket(life, peers);
    assert_int_equal(seteuid(0), 0);
    expect_service(life, early, &product); /* it has come round all of them */
    assert_int_equal(seteuid(OTHER_UID - 1), 0);
    gemmd_client_t *third = fixture_open(&life->fixture, GEMMD_PATH_ZEROMQ);
    assert_true(life_serves_through(third, &life->model));
    gemmd_close(third);
    assert_int_equal(seteuid(0), 0);
    close_some(peers, 0, N_PEERS);
    stop(life, early, &product);
}

/* As many sessions as the daemon lets a user have; the number, and why there are no more. */
static uint32_t open_all(const struct life *life, gemmd_client_t *clients[N_PEERS])
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    uint32_t n = 0;
    int r = GEMMD_OK;
    options.socket_dir = life->fixture.socket_dir;
    options.path = GEMMD_PATH_ZEROMQ;
    options.timeout_msec = 1000 * ANSWER_SECONDS;
    while (n < N_PEERS && (r = gemmd_open(&options, &clients[n])) == GEMMD_OK) {
        n++;
    }
    assert_int_equal(r, GEMMD_QUOTA);
    return n;
}

/* Whoever is welcomed is heard on the control socket as well, however few descriptors there are. */
static void test_every_session_is_heard(void **state)
{
    struct life *life = *state;
    gemmd_client_t *clients[N_PEERS];
    struct product product;
    if (geteuid() != 0) {
        skip(); /* one's own connections are an administrator's, and not counted */
    }
    open_to_others(life);
    life->options.n_fds_max = 3 * N_FDS_MAX;
    gemmd_client_t *early = start(life, &product);
    assert_int_equal(fixture_logged(&life->fixture, "user_sessions_max is 256, "), 1);
    assert_int_equal(seteuid(OTHER_UID), 0);
    uint32_t n = open_all(life, clients);
    uint32_t n_heard = 0;
    for (uint32_t i = 0; i < n; i++) {
        gemmd_weight_t *weights = NULL;
        size_t n_weights;
        n_heard += gemmd_list_weights(clients[i], "tiny", sizeof(*weights), &weights, &n_weights) ==
                   GEMMD_OK;
        free(weights);
    }
    for (uint32_t i = 0; i < n; i++) {
        gemmd_close(clients[i]);
    }
    assert_int_equal(seteuid(0), 0);
    assert_in_range(n, 16, 3 * N_FDS_MAX / 4);
    assert_int_equal(n_heard, n);
    stop(life, early, &product);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, life_set_up, life_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_crowd_of_sessions),        CASE(test_crowd_at_the_control_socket),
        CASE(test_buffers_where_a_crowd_is), CASE(test_administrators_get_in),
        CASE(test_other_users_get_in),       CASE(test_every_session_is_heard),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
