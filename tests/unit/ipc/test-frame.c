/* test-frame.c - T44: envelopes of every wrong shape through a real ROUTER, a proxy in between, and
 * the two ends of sock.h. After each wrong message a right one must be served. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "ipc/base/check.h"
#include "ipc/frame.h"
#include "ipc/sock.h"
#include "t.h"

#define WAIT_MSEC 5000

static char folder[] = "/tmp/gemmd-frame-XXXXXX";
static char path[64];
static char address[80];
static uint8_t payload[FRAME_REQUEST_BYTES_MAX];
static uint8_t big[FRAME_REQUEST_BYTES_MAX + 1];

struct fixture {
    struct sock router;
    void *context;
    void *client; /* raw DEALER with routing id "client" */
};

/* Every wait of a raw socket ends, so that a lost answer fails a test instead of hanging it. */
static void *open_unconnected(struct fixture *fixture, int type, const char *id)
{
    int zero = 0;
    int wait_msec = WAIT_MSEC;
    void *socket = zmq_socket(fixture->context, type);
    GD_ASSERT(zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof(zero)) == 0);
    GD_ASSERT(zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait_msec, sizeof(wait_msec)) == 0);
    GD_ASSERT(id == NULL || zmq_setsockopt(socket, ZMQ_ROUTING_ID, id, strlen(id)) == 0);
    return socket;
}

static void *open_raw(struct fixture *fixture, int type, const char *id)
{
    void *socket = open_unconnected(fixture, type, id);
    GD_ASSERT(zmq_connect(socket, address) == 0);
    return socket;
}

static int set_up(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){.router = SOCK_NULL};
    if (sock_bind_router(&fixture.router, path, 0600) != 0) {
        return -errno;
    }
    fixture.context = zmq_ctx_new();
    fixture.client = open_raw(&fixture, ZMQ_DEALER, "client");
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    zmq_close(fixture->client);
    zmq_ctx_term(fixture->context);
    sock_finish(&fixture->router);
    return unlink(path);
}

/* Waits as the daemon's loop does: by the fd, after asking whether something is there already. */
static bool wait_for_message(const struct sock *sock, int timeout_msec)
{
    struct pollfd item = {.fd = sock_fd(sock), .events = POLLIN};
    for (int waited_msec = 0; !sock_can_receive(sock); waited_msec += 10) {
        if (waited_msec >= timeout_msec) {
            return false;
        }
        (void)poll(&item, 1, 10);
    }
    return true;
}

static int receive(struct fixture *fixture, struct frame_route *route, size_t *ret_n_bytes,
                   struct reason *why)
{
    assert_true(wait_for_message(&fixture->router, WAIT_MSEC));
    return frame_receive(fixture->router.socket, route, payload, ret_n_bytes, why);
}

static void send_part(void *socket, const void *bytes, size_t n_bytes, bool is_more)
{
    assert_int_equal(zmq_send(socket, bytes, n_bytes, is_more ? ZMQ_SNDMORE : 0), (int)n_bytes);
}

static void check_answer(void *socket, const char *expected)
{
    char answer[16] = {0};
    assert_int_equal(zmq_recv(socket, answer, sizeof(answer), 0), 0);
    assert_int_equal(zmq_recv(socket, answer, sizeof(answer), 0), strlen(expected));
    assert_string_equal(answer, expected);
}

static void check_served(struct fixture *fixture)
{
    struct frame_route route;
    size_t n_bytes = 0;
    send_part(fixture->client, "", 0, true);
    send_part(fixture->client, "good", 4, false);
    assert_int_equal(receive(fixture, &route, &n_bytes, NULL), 0);
    assert_int_equal(n_bytes, 4);
    assert_memory_equal(payload, "good", 4);
    const uint8_t *sender = frame_sender(&route, &n_bytes);
    assert_int_equal(n_bytes, 6);
    assert_memory_equal(sender, "client", 6);
    assert_int_equal(frame_send(fixture->router.socket, &route, (const uint8_t *)"yes", 3), 0);
    check_answer(fixture->client, "yes");
}

static void check_refused(struct fixture *fixture, uint8_t n_routes, const char *needle)
{
    struct frame_route route;
    struct reason why = REASON_NULL;
    size_t n_bytes = 77;
    assert_int_equal(receive(fixture, &route, &n_bytes, &why), STATUS_BAD_FRAMING);
    if (strstr(why.text, needle) == NULL) {
        fail_msg("'%s' does not say '%s'", why.text, needle);
    }
    assert_int_equal(route.n_routes, n_routes);
    assert_int_equal(n_bytes, 77);
    assert_int_equal(frame_receive(fixture->router.socket, &route, payload, &n_bytes, NULL),
                     -EAGAIN);
    check_served(fixture);
}

static void test_right_envelope(void **state)
{
    struct fixture *fixture = *state;
    struct frame_route route;
    size_t n_bytes = 0;
    assert_int_equal(frame_receive(fixture->router.socket, &route, payload, &n_bytes, NULL),
                     -EAGAIN);
    check_served(fixture);
    send_part(fixture->client, "", 0, true);
    send_part(fixture->client, big, FRAME_REQUEST_BYTES_MAX, false);
    assert_int_equal(receive(fixture, &route, &n_bytes, NULL), 0);
    assert_int_equal(n_bytes, FRAME_REQUEST_BYTES_MAX);
    send_part(fixture->client, "", 0, true);
    send_part(fixture->client, "", 0, false); /* an empty payload is the codec's business */
    assert_int_equal(receive(fixture, &route, &n_bytes, NULL), 0);
    assert_int_equal(n_bytes, 0);
}

static void test_wrong_envelopes(void **state)
{
    struct fixture *fixture = *state;
    void *client = fixture->client;

    send_part(client, "", 0, false);
    check_refused(fixture, 1, "no payload frame");
    send_part(client, "junk", 4, false);
    check_refused(fixture, 1, "no empty delimiter");
    send_part(client, big, 256, false);
    check_refused(fixture, 1, "256 bytes where a routing id");
    send_part(client, "", 0, true);
    send_part(client, "one", 3, true);
    send_part(client, "two", 3, false);
    check_refused(fixture, 1, "more than one payload");
    send_part(client, "route", 5, true);
    send_part(client, "", 0, true);
    send_part(client, "one", 3, true);
    send_part(client, "two", 3, false);
    check_refused(fixture, 2, "more than one payload");
    for (int i = 0; i < 1000; i++) {
        send_part(client, "x", 1, i < 999);
    }
    check_refused(fixture, 1, "more than 8 routing frames");
}

static void test_req_is_served(void **state)
{
    struct fixture *fixture = *state;
    void *req = open_raw(fixture, ZMQ_REQ, "req");
    struct frame_route route;
    size_t n_bytes = 0;
    char answer[8];
    send_part(req, "hello", 5, false);
    assert_int_equal(receive(fixture, &route, &n_bytes, NULL), 0);
    assert_int_equal(n_bytes, 5);
    assert_int_equal(frame_send(fixture->router.socket, &route, payload, n_bytes), 0);
    assert_int_equal(zmq_recv(req, answer, sizeof(answer), 0), 5);
    zmq_close(req);
}

/* libzmq hangs up on a peer whose frame is too large; nobody else notices. */
static void test_oversized_frames_and_half_messages(void **state)
{
    struct fixture *fixture = *state;
    size_t n_large = (size_t)64 << 20;
    uint8_t *large = calloc(1, n_large);
    assert_non_null(large);
    void *hostile = open_raw(fixture, ZMQ_DEALER, "hostile");
    void *slightly = open_raw(fixture, ZMQ_DEALER, "slightly");
    void *half = open_raw(fixture, ZMQ_DEALER, "half");
    send_part(hostile, "", 0, true);
    send_part(hostile, large, n_large, false);
    free(large);
    send_part(slightly, "", 0, true);
    send_part(slightly, big, sizeof(big), false);
    send_part(half, "", 0, true);
    zmq_close(half);
    assert_false(wait_for_message(&fixture->router, 200));
    check_served(fixture);
    zmq_close(hostile);
    zmq_close(slightly);
    check_served(fixture);
}

/* A peer that comes back with its routing id is heard, and so is one that takes over another's. */
static void test_same_routing_id_again(void **state)
{
    struct fixture *fixture = *state;
    check_served(fixture);
    for (int i = 0; i < 5; i++) {
        zmq_close(fixture->client);
        fixture->client = open_raw(fixture, ZMQ_DEALER, "client");
        check_served(fixture);
    }
    void *first = fixture->client;
    fixture->client = open_raw(fixture, ZMQ_DEALER, "client");
    check_served(fixture);
    zmq_close(first);
}

static void test_send_to_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct frame_route route = {.n_routes = 1, .n_bytes = {6}, .bytes = {"nobody"}};
    assert_int_equal(frame_send(fixture->router.socket, &route, payload, 1), -EHOSTUNREACH);
    check_served(fixture);
}

static void test_a_peer_that_does_not_read(void **state)
{
    struct fixture *fixture = *state;
    struct frame_route route;
    size_t n_bytes = 0;
    int one = 1;
    int r = 0;
    void *lazy = open_unconnected(fixture, ZMQ_DEALER, "lazy");
    assert_int_equal(zmq_setsockopt(lazy, ZMQ_RCVHWM, &one, sizeof(one)), 0);
    assert_int_equal(zmq_connect(lazy, address), 0);
    send_part(lazy, "", 0, true);
    send_part(lazy, "x", 1, false);
    assert_int_equal(receive(fixture, &route, &n_bytes, NULL), 0);
    for (int i = 0; i < 2000 && r == 0; i++) {
        r = frame_send(fixture->router.socket, &route, payload, sizeof(payload));
    }
    assert_int_equal(r, -EAGAIN);
    check_served(fixture);
    zmq_close(lazy);
}

struct proxy {
    void *front;
    void *back;
    void *control;
};

static void *run_proxy(void *argument)
{
    struct proxy *proxy = argument;
    (void)zmq_proxy_steerable(proxy->front, proxy->back, NULL, proxy->control);
    zmq_close(proxy->front);
    zmq_close(proxy->back);
    zmq_close(proxy->control);
    return NULL;
}

static void check_served_from_behind(struct fixture *fixture, void *client)
{
    struct frame_route route;
    size_t n_bytes = 0;
    send_part(client, "", 0, true);
    send_part(client, "far", 3, false);
    assert_int_equal(receive(fixture, &route, &n_bytes, NULL), 0);
    assert_int_equal(route.n_routes, 2);
    assert_memory_equal(frame_sender(&route, &n_bytes), "behind", 6);
    assert_int_equal(frame_send(fixture->router.socket, &route, (const uint8_t *)"back", 4), 0);
    check_answer(client, "back");
}

static void test_through_a_proxy(void **state)
{
    struct fixture *fixture = *state;
    pthread_t thread;
    struct proxy proxy = {.front = open_unconnected(fixture, ZMQ_ROUTER, NULL),
                          .back = open_raw(fixture, ZMQ_DEALER, "proxy"),
                          .control = zmq_socket(fixture->context, ZMQ_PAIR)};
    void *steer = zmq_socket(fixture->context, ZMQ_PAIR);
    void *client = open_unconnected(fixture, ZMQ_DEALER, "behind");
    assert_int_equal(zmq_bind(proxy.front, "inproc://front"), 0);
    assert_int_equal(zmq_bind(proxy.control, "inproc://steer"), 0);
    assert_int_equal(zmq_connect(steer, "inproc://steer"), 0);
    assert_int_equal(zmq_connect(client, "inproc://front"), 0);
    assert_int_equal(pthread_create(&thread, NULL, run_proxy, &proxy), 0);
    check_served_from_behind(fixture, client);
    send_part(steer, "TERMINATE", 9, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    zmq_close(steer);
    zmq_close(client);
}

static void test_sock_round_trip(void **state)
{
    struct fixture *fixture = *state;
    struct sock dealer = SOCK_NULL;
    struct frame_route route;
    uint8_t *reply = NULL;
    size_t n_bytes = 0;
    assert_int_equal(sock_connect_dealer(&dealer, path, "token", 5), 0);
    assert_int_equal(sock_send_request(&dealer, "ask", 3, WAIT_MSEC), 0);
    assert_int_equal(sock_receive_reply(&dealer, 20, &reply, &n_bytes, NULL), -ETIMEDOUT);
    assert_int_equal(receive(fixture, &route, &n_bytes, NULL), 0);
    assert_int_equal(frame_send(fixture->router.socket, &route, (const uint8_t *)"told", 4), 0);
    assert_int_equal(sock_receive_reply(&dealer, WAIT_MSEC, &reply, &n_bytes, NULL), 0);
    assert_int_equal(n_bytes, 4);
    assert_memory_equal(reply, "told", 4);
    free(reply);

    send_part(fixture->router.socket, "token", 5, true); /* no delimiter */
    send_part(fixture->router.socket, "junk", 4, false);
    assert_int_equal(sock_receive_reply(&dealer, WAIT_MSEC, &reply, &n_bytes, NULL),
                     STATUS_BAD_FRAMING);
    sock_finish(&dealer);
}

static void test_sock_without_a_daemon(void **state)
{
    (void)state;
    struct sock dealer = SOCK_NULL;
    char missing[80];
    char longer[200];
    (void)snprintf(missing, sizeof(missing), "%s/none", folder);
    assert_int_equal(sock_connect_dealer(&dealer, missing, "t", 1), 0);
    assert_int_equal(sock_send_request(&dealer, "ask", 3, 50), -ETIMEDOUT);
    sock_finish(&dealer);
    memset(longer, 'x', sizeof(longer));
    longer[108] = '\0';
    assert_int_equal(sock_connect_dealer(&dealer, longer, "t", 1), -ENAMETOOLONG);
    assert_int_equal(sock_bind_router(&dealer, longer, 0600), -ENAMETOOLONG);
    assert_null(dealer.context);
}

static void test_mode_and_what_is_no_socket(void **state)
{
    struct stat info;
    struct sock second = SOCK_NULL;
    (void)state;
    assert_int_equal(lstat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    assert_int_equal(sock_bind_router(&second, folder, 0600), -EEXIST);
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -errno;
    }
    (void)snprintf(path, sizeof(path), "%s/control", folder);
    (void)snprintf(address, sizeof(address), "ipc://%s", path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

#define FRAME_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRAME_TEST(test_right_envelope),
        FRAME_TEST(test_wrong_envelopes),
        FRAME_TEST(test_req_is_served),
        FRAME_TEST(test_oversized_frames_and_half_messages),
        FRAME_TEST(test_same_routing_id_again),
        FRAME_TEST(test_send_to_nobody),
        FRAME_TEST(test_a_peer_that_does_not_read),
        FRAME_TEST(test_through_a_proxy),
        FRAME_TEST(test_sock_round_trip),
        FRAME_TEST(test_mode_and_what_is_no_socket),
        cmocka_unit_test(test_sock_without_a_daemon),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
