/* test-hostile.c - peers that lie, scribble, stay silent or do not read (T26, T29, T41, T42, T44,
 * T45).
 *
 * After every case the daemon must still run and give a well-behaved client the right bits: those
 * of a product that was judged before the first attack. Long because each case speaks the wire by
 * hand. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

#include "ipc/base/num.h"
#include "ipc/codec.h"
#include "ipc/frame.h"
#include "ipc/lane.h"
#include "tests/harness/control_job.h"
#include "tests/harness/fixture.h"
#include "tests/harness/model.h"
#include "tests/harness/product.h"
#include "tests/harness/status_document.h"

#define N_MUTATIONS 2000u
#define N_GARBAGE   300u
#define N_UNREAD    50000u
#define REPLY_MSEC  2000

#define N_SCRIBBLERS   30u
#define N_SCRIBBLES    3000u
#define SETTLE_SECONDS 20.0

static struct fixture fixture;
static struct test_model model;
static gemmd_client_t *good_client;
static struct product good;  /* judged once */
static struct product again; /* must repeat it */
static uint64_t random_state = 0xbad;

static int set_up(void **state)
{
    (void)state;
    char argument[512];
    fixture_init(&fixture);
    test_model_write(&model, &fixture.folder, "tiny", 5);
    (void)snprintf(argument, sizeof(argument), "tiny=%s", model.path);
    const struct fixture_options options = {.model = argument,
                                            .config = "hello_timeout_msec = 500\n"};
    fixture_start(&fixture, &options);
    good_client = fixture_open(&fixture, GEMMD_PATH_RING);
    const struct product_shape shape = {
        .m = 33, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = 1};
    const struct test_weight *weight = &model.weights[TEST_INT4];
    return product_init(&good, good_client, "tiny", weight, &shape) &&
                   product_init(&again, good_client, "tiny", weight, &shape) &&
                   product_run(&good, good_client) && product_is_right(&good)
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    product_finish(&good);
    product_finish(&again);
    gemmd_close(good_client);
    int code = fixture_stop(&fixture);
    fixture_finish(&fixture);
    test_model_finish(&model);
    return code;
}

/* After each test: alive, and right for an old client and a new one, on both paths. */
static int still_serves(void **state)
{
    (void)state;
    if (!fixture_is_running(&fixture)) {
        fixture_fail(&fixture, "the daemon is gone");
    }
    product_clear(&again);
    bool is_right = product_run(&again, good_client) && product_same_bytes(&good, &again);
    for (uint32_t i = 0; i < 2; i++) {
        gemmd_client_t *client =
            fixture_open(&fixture, i == 0 ? GEMMD_PATH_RING : GEMMD_PATH_ZEROMQ);
        struct product fresh = {0};
        const struct product_shape shape = {
            .m = 33, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = 1};
        is_right = is_right &&
                   product_init(&fresh, client, "tiny", &model.weights[TEST_INT4], &shape) &&
                   product_run(&fresh, client) && product_same_bytes(&good, &fresh);
        product_finish(&fresh);
        gemmd_close(client);
    }
    return is_right ? 0 : -1;
}

static void fill_random(void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((uint8_t *)bytes)[i] = (uint8_t)test_random(&random_state);
    }
}

static const char *socket_path(const char *name)
{
    static char path[400];
    (void)snprintf(path, sizeof(path), "%s/%s", fixture.socket_dir, name);
    return path;
}

/* ---- session socket ----------------------------------------------------------------------------
 */

static int connect_session(void)
{
    int fd = side_connect(socket_path(SIDE_SOCKET_NAME), 5000);
    assert_true(fd >= 0);
    return fd;
}

static void hello(int fd, struct side_packet *ret_packet)
{
    union side_message message;
    side_init(&message, SIDE_HELLO, 1);
    message.hello.version_min = SIDE_VERSION_MIN;
    message.hello.version_max = SIDE_VERSION_MAX;
    (void)snprintf(message.hello.name, sizeof(message.hello.name), "hostile");
    assert_int_equal(side_send(fd, &message, NULL, 0), 0);
    assert_int_equal(side_receive(fd, ret_packet, NULL), 1);
}

static void test_session_garbage(void **state)
{
    (void)state;
    uint8_t bytes[2048];
    for (uint32_t i = 0; i < N_GARBAGE; i++) {
        int fd = connect_session();
        if (i % 3 == 0) { /* behind a good greeting */
            struct side_packet welcome;
            hello(fd, &welcome);
            assert_int_equal(welcome.message.header.type, SIDE_WELCOME);
            side_packet_finish(&welcome);
        }
        size_t n = test_random(&random_state) % sizeof(bytes);
        fill_random(bytes, n);
        if (i % 2 == 0 && n >= sizeof(struct side_header)) { /* a good header, then nonsense */
            union side_message message;
            side_init(&message, (enum side_type)(1 + i / 2 % 5), i);
            memcpy(bytes, &message, sizeof(struct side_header));
            n = num_min(n, message.header.size_bytes);
        }
        (void)send(fd, bytes, n, MSG_NOSIGNAL);
        (void)close(fd);
    }
}

/* Descriptors sent along where none belong must not stay open in the daemon. */
static void test_session_stray_fds(void **state)
{
    (void)state;
    int fd = connect_session();
    struct side_packet welcome;
    hello(fd, &welcome);
    side_packet_finish(&welcome);
    uint32_t n_before = fixture_fds(&fixture);
    for (uint32_t i = 0; i < 50; i++) {
        union side_message message;
        struct side_packet answer;
        side_init(&message, SIDE_OPEN_LANE, i + 2);
        message.open_lane.device_index = 99;
        assert_int_equal(side_send(fd, &message, (int[]){fd, fd}, 2), 0);
        assert_int_equal(side_receive(fd, &answer, NULL), 1);
        assert_int_equal(answer.message.header.type, SIDE_REFUSED);
        assert_int_equal(answer.message.refused.status, GEMMD_NOT_FOUND);
        side_packet_finish(&answer);
    }
    double deadline = fixture_now() + 5; /* connections of earlier tests may still be closing */
    while (fixture_fds(&fixture) > n_before && fixture_now() < deadline) {
        fixture_sleep(0.01);
    }
    assert_true(fixture_fds(&fixture) <= n_before);
    (void)close(fd);
}

static void test_silent_peers(void **state)
{
    enum { N_PEERS = 40 };
    (void)state;
    int peers[N_PEERS];
    for (uint32_t i = 0; i < N_PEERS; i++) {
        peers[i] = connect_session();
    }
    product_clear(&again);
    assert_true(product_run(&again, good_client));
    for (uint32_t i = 0; i < N_PEERS; i++) {
        struct side_packet packet; /* comes, or the end does, after hello_timeout_msec */
        int r = side_receive(peers[i], &packet, NULL);
        if (r == 1) {
            side_packet_finish(&packet);
        }
        assert_true(r == 0 || r == -ECONNRESET ||
                    (r == 1 && packet.message.header.type == SIDE_REFUSED));
        (void)close(peers[i]);
    }
}

/* ---- T26 and T29: regions ----------------------------------------------------------------------
 */

static int import(int fd, uint64_t size_bytes, char sentence[512])
{
    gemmd_buffer_t *buffer;
    int r = gemmd_buffer_import_fd(good_client, 0, fd, size_bytes, &buffer);
    (void)snprintf(sentence, 512, "%s", r == GEMMD_OK ? "" : gemmd_last_error());
    if (r == GEMMD_OK) {
        gemmd_buffer_free(buffer);
    }
    return r;
}

static int sealed_memfd(uint64_t size_bytes, int seals)
{
    int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size_bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void refuse_import(int fd, uint64_t size_bytes, const char *words)
{
    char sentence[512];
    assert_true(fd >= 0);
    int r = import(fd, size_bytes, sentence);
    (void)close(fd);
    if (r != GEMMD_INVALID_ARGUMENT || strstr(sentence, words) == NULL) {
        fail_msg("%s '%s' instead of INVALID_ARGUMENT with '%s'", gemmd_status_name(r), sentence,
                 words);
    }
}

static void test_imports(void **state)
{
    (void)state;
    const char *fifo = temp_path(&fixture.folder, "fifo");
    char sentence[512];
    refuse_import(sealed_memfd(4096, F_SEAL_SHRINK), 1 << 20, "4096");
    refuse_import(sealed_memfd(4096, F_SEAL_SHRINK), 8192, "8192");
    refuse_import(sealed_memfd(1 << 20, F_SEAL_GROW), 1 << 20, "seal");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    refuse_import(open(fifo, O_RDWR | O_NONBLOCK | O_CLOEXEC), 4096, "memfd");
    refuse_import(open(fixture.folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), 4096, "memfd");
    refuse_import(open(fixture.log_path, O_RDWR | O_CLOEXEC), 1, "memfd");
    int fd = sealed_memfd(4096, F_SEAL_SHRINK);
    assert_int_equal(import(fd, UINT64_MAX - 15, sentence), GEMMD_QUOTA);
    assert_int_equal(import(fd, 0, sentence), GEMMD_INVALID_ARGUMENT);
    assert_int_equal(ftruncate(fd, 0), -1); /* the seal is what keeps the daemon from faulting */
    assert_int_equal(import(fd, 4096, sentence), GEMMD_OK);
    (void)close(fd);
}

static void refuse_range(struct gemmd_gemm gemm, const char *words)
{
    int r = gemmd_gemm(good_client, &gemm);
    if (r != GEMMD_INVALID_ARGUMENT || strstr(gemmd_last_error(), words) == NULL) {
        fail_msg("%s '%s' instead of INVALID_ARGUMENT with '%s'", gemmd_status_name(r),
                 gemmd_last_error(), words);
    }
}

/* x of one row takes 512 bytes; the region has 4096. */
static void test_ranges(void **state)
{
    (void)state;
    gemmd_buffer_t *region;
    assert_int_equal(gemmd_buffer_alloc(good_client, 0, 4096, &region), GEMMD_OK);
    struct gemmd_gemm gemm = again.gemm;
    gemm.x = region;
    gemm.x_stride = 0;
    gemm.m = 1;
    gemm.x_offset_bytes = 4096 - 512;
    assert_int_equal(gemmd_gemm(good_client, &gemm), GEMMD_OK);
    gemm.x_offset_bytes = 4000;
    refuse_range(gemm, "4512");
    gemm.x_offset_bytes = UINT64_MAX - 15;
    refuse_range(gemm, "18446744073709551600");
    gemm.x_offset_bytes = 4096;
    refuse_range(gemm, "4096");
    gemm.x_offset_bytes = 0;
    gemm.m = 9;
    refuse_range(gemm, "4608");
    gemm.y = region; /* y from 384 on lies within x */
    gemm.m = 1;
    gemm.y_stride = 0;
    gemm.y_offset_bytes = 384;
    refuse_range(gemm, "overlaps");
    gemm.m = 0;
    assert_int_equal(gemmd_gemm(good_client, &gemm), GEMMD_OK);
    gemmd_buffer_free(region);
}

/* ---- control socket ----------------------------------------------------------------------------
 */

struct dealer {
    void *context;
    void *socket;
};

static void dealer_init(struct dealer *dealer, const void *token, size_t n_bytes)
{
    char address[420];
    int msec = REPLY_MSEC;
    int linger = 0;
    (void)snprintf(address, sizeof(address), "ipc://%s", socket_path(SIDE_CONTROL_NAME));
    dealer->context = zmq_ctx_new();
    dealer->socket = zmq_socket(dealer->context, ZMQ_DEALER);
    assert_non_null(dealer->socket);
    assert_int_equal(zmq_setsockopt(dealer->socket, ZMQ_RCVTIMEO, &msec, sizeof(msec)), 0);
    assert_int_equal(zmq_setsockopt(dealer->socket, ZMQ_SNDTIMEO, &msec, sizeof(msec)), 0);
    assert_int_equal(zmq_setsockopt(dealer->socket, ZMQ_LINGER, &linger, sizeof(linger)), 0);
    if (n_bytes > 0) {
        assert_int_equal(zmq_setsockopt(dealer->socket, ZMQ_ROUTING_ID, token, n_bytes), 0);
    }
    assert_int_equal(zmq_connect(dealer->socket, address), 0);
}

static void dealer_finish(struct dealer *dealer)
{
    (void)zmq_close(dealer->socket);
    (void)zmq_ctx_term(dealer->context);
}

static void dealer_send(struct dealer *dealer, const void *bytes, size_t n_bytes)
{
    assert_int_equal(zmq_send(dealer->socket, NULL, 0, ZMQ_SNDMORE), 0);
    assert_int_equal(zmq_send(dealer->socket, bytes, n_bytes, 0), (int)n_bytes);
}

/* One reply; its status, or -1 when none came in time. */
static int dealer_receive(struct dealer *dealer, uint64_t *ret_request_id)
{
    zmq_msg_t message;
    struct msg_reply reply = MSG_REPLY_NULL;
    (void)zmq_msg_init(&message);
    int r = zmq_msg_recv(&message, dealer->socket, 0);
    int status = -1;
    if (r == 0 && zmq_msg_more(&message) && zmq_msg_recv(&message, dealer->socket, 0) >= 0 &&
        codec_decode_reply(zmq_msg_data(&message), zmq_msg_size(&message), &reply, NULL) == 0) {
        status = reply.status;
        if (ret_request_id != NULL) {
            *ret_request_id = reply.request_id;
        }
        msg_reply_finish(&reply);
    }
    (void)zmq_msg_close(&message);
    return status;
}

static int dealer_ping(struct dealer *dealer, uint64_t request_id)
{
    const struct msg_request request = {.verb = MSG_VERB_PING, .request_id = request_id};
    uint8_t *bytes;
    size_t n_bytes;
    uint64_t answered = 0;
    assert_int_equal(codec_encode_request(&request, &bytes, &n_bytes), 0);
    dealer_send(dealer, bytes, n_bytes);
    free(bytes);
    int status;
    do { /* replies to what went before may still be on their way */
        status = dealer_receive(dealer, &answered);
    } while (status >= 0 && answered != request_id);
    return status;
}

/* A real session's socket and a dealer with its token. */
static int session_with_dealer(struct dealer *dealer)
{
    int fd = connect_session();
    struct side_packet welcome;
    hello(fd, &welcome);
    assert_int_equal(welcome.message.header.type, SIDE_WELCOME);
    dealer_init(dealer, welcome.message.welcome.token, SIDE_TOKEN_BYTES);
    side_packet_finish(&welcome);
    assert_int_equal(dealer_ping(dealer, 1), GEMMD_OK);
    return fd;
}

static void test_without_session(void **state)
{
    (void)state;
    static const struct {
        const char *token;
        size_t n_bytes;
    } tokens[] = {{"", 0}, {"T1", 2}, {"00000000000000000000000000000000", SIDE_TOKEN_BYTES}};
    for (uint32_t i = 0; i < ARRAY_LENGTH(tokens); i++) {
        struct dealer dealer;
        dealer_init(&dealer, tokens[i].token, tokens[i].n_bytes);
        assert_int_equal(dealer_ping(&dealer, 7), GEMMD_NO_SESSION);
        dealer_finish(&dealer);
    }
}

/* T41: each answered, and the session still works. */
static void test_malformed_protobuf(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[16];
        size_t n_bytes;
    } cases[] = {
        {{0}, 0},                                                       /* empty */
        {{0x08}, 1},                                                    /* a key, no value */
        {{0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}, 11}, /* endless varint */
        {{0x7a, 0x40, 1}, 3},                                           /* longer than there is */
        {{0x7a, 0x81, 0x80, 0x80, 0x80, 0x10, 1}, 7},                   /* 2^32 + 1 bytes */
        {{0x0b, 0x0c}, 2},                                              /* groups */
        {{0x00, 0x01}, 2},                                              /* field number 0 */
    };
    struct dealer dealer;
    int fd = session_with_dealer(&dealer);
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        dealer_send(&dealer, cases[i].bytes, cases[i].n_bytes);
        assert_int_equal(dealer_receive(&dealer, NULL), GEMMD_BAD_MESSAGE);
    }
    dealer_finish(&dealer);
    (void)close(fd);
}

/* A valid EXPLAIN cut at every byte and with random bytes changed: any answer but silence. */
static void test_mutated_protobuf(void **state)
{
    (void)state;
    struct msg_request request = {.verb = MSG_VERB_EXPLAIN, .request_id = 99};
    struct dealer dealer;
    uint8_t *bytes;
    size_t n_bytes;
    (void)snprintf(request.explain.weight, sizeof(request.explain.weight), "tiny/layer.int4");
    request.explain.n_m = 3;
    assert_int_equal(codec_encode_request(&request, &bytes, &n_bytes), 0);
    int fd = session_with_dealer(&dealer);
    for (size_t i = 0; i < n_bytes; i++) {
        dealer_send(&dealer, bytes, i);
        assert_true(dealer_receive(&dealer, NULL) >= 0);
    }
    for (uint32_t i = 0; i < N_MUTATIONS; i++) {
        uint8_t copy[512];
        assert_true(n_bytes <= sizeof(copy));
        memcpy(copy, bytes, n_bytes);
        for (uint32_t i_byte = 0; i_byte <= i % 3; i_byte++) {
            copy[test_random(&random_state) % n_bytes] = (uint8_t)test_random(&random_state);
        }
        dealer_send(&dealer, copy, n_bytes);
        assert_true(dealer_receive(&dealer, NULL) >= 0);
    }
    assert_int_equal(dealer_ping(&dealer, 1000001), GEMMD_OK);
    free(bytes);
    dealer_finish(&dealer);
    (void)close(fd);
}

static void send_frames(struct dealer *dealer, uint32_t n, size_t n_bytes)
{
    static const uint8_t zeros[4096];
    for (uint32_t i = 0; i < n; i++) {
        (void)zmq_send(dealer->socket, zeros, n_bytes, i + 1 < n ? ZMQ_SNDMORE : 0);
    }
}

/* T44: answered or dropped and counted; the same connection goes on. */
static void test_wrong_framing(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_frames;
        size_t n_bytes;
    } cases[] = {{1, 0}, {1, 16}, {2, 16}, {3, 0}, {20, 0}, {1000, 1}, {3, 300}, {20, 300}};
    struct status_counts before;
    struct status_counts after;
    status_counts_read(&fixture, &before);
    struct dealer dealer;
    int fd = session_with_dealer(&dealer);
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        send_frames(&dealer, cases[i].n_frames, cases[i].n_bytes);
        assert_int_equal(dealer_ping(&dealer, 500 + i), GEMMD_OK);
    }
    dealer_finish(&dealer);
    (void)close(fd);
    status_counts_read(&fixture, &after);
    assert_int_equal(after.n_bad_framing, before.n_bad_framing + ARRAY_LENGTH(cases));
}

/* Over the cap libzmq hangs up on the sender; nobody else notices, and it may connect again. */
static void test_oversized_frame(void **state)
{
    (void)state;
    size_t n_bytes = 64u << 20;
    void *bytes = calloc(1, n_bytes);
    assert_non_null(bytes);
    struct dealer dealer;
    int fd = session_with_dealer(&dealer);
    (void)zmq_send(dealer.socket, NULL, 0, ZMQ_SNDMORE);
    (void)zmq_send(dealer.socket, bytes, n_bytes, 0);
    product_clear(&again);
    assert_true(product_run(&again, good_client));
    assert_true(product_same_bytes(&good, &again));
    dealer_finish(&dealer);
    free(bytes);
    (void)close(fd);
}

/* T42: the newer connection of one routing id takes the older's place; both speak for the session
 * that the token belongs to, and nobody else's replies go astray. */
static void test_one_routing_id_twice(void **state)
{
    (void)state;
    int fd = connect_session();
    struct side_packet welcome;
    hello(fd, &welcome);
    struct dealer first;
    struct dealer second;
    dealer_init(&first, welcome.message.welcome.token, SIDE_TOKEN_BYTES);
    assert_int_equal(dealer_ping(&first, 1), GEMMD_OK);
    dealer_init(&second, welcome.message.welcome.token, SIDE_TOKEN_BYTES);
    assert_int_equal(dealer_ping(&second, 2), GEMMD_OK);
    product_clear(&again);
    assert_true(product_run(&again, good_client));
    dealer_finish(&first);
    assert_int_equal(dealer_ping(&second, 3), GEMMD_OK);
    for (uint32_t i = 0; i < 20; i++) { /* a client that is restarted at once */
        dealer_finish(&second);
        dealer_init(&second, welcome.message.welcome.token, SIDE_TOKEN_BYTES);
        assert_int_equal(dealer_ping(&second, 10 + i), GEMMD_OK);
    }
    dealer_finish(&second);
    side_packet_finish(&welcome);
    (void)close(fd);
}

/* ---- rings and unread replies ------------------------------------------------------------------
 */

/* A process with a real session writes random bytes all over its lane, indices included, and rings.
 * That may be noticed or not. Then it claims more entries than a lane has, which must be, and stays
 * until it is killed. */
static void scribble(uint32_t seed)
{
    uint64_t random = seed * 2 + 1;
    const uint64_t one = 1;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = connect_session();
    struct side_packet packet;
    hello(fd, &packet);
    side_packet_finish(&packet);
    union side_message message;
    side_init(&message, SIDE_OPEN_LANE, 2);
    assert_int_equal(side_send(fd, &message, NULL, 0), 0);
    assert_int_equal(side_receive(fd, &packet, NULL), 1);
    assert_int_equal(packet.message.header.type, SIDE_LANE);
    struct lane lane = LANE_NULL;
    assert_int_equal(lane_attach(&lane, packet.fds[0], packet.fds[1], NULL), 0);
    for (uint32_t i = 0; i < N_SCRIBBLES; i++) {
        uint64_t place = test_random(&random);
        place %= i % 2 == 0 ? 512 : lane.region.size_bytes;
        ((uint8_t *)lane.region.base)[place] = (uint8_t)test_random(&random);
        if (i % 16 == 0) {
            atomic_fetch_add(&lane.shared->submit_tail, (uint32_t)(test_random(&random) % 3));
            (void)!write(lane.doorbell_fd, &one, sizeof(one));
        }
    }
    /* The worker has moved far fewer than 2^31 entries. */
    atomic_store(&lane.shared->submit_tail, 1u << 31);
    atomic_store(&lane.shared->complete_head, 1u << 31);
    (void)!write(lane.doorbell_fd, &one, sizeof(one));
    for (;;) {
        (void)pause();
    }
}

static void test_lane_scribbling(void **state)
{
    (void)state;
    struct status_counts before;
    struct status_counts after;
    status_counts_settle(&fixture, 2, SETTLE_SECONDS, &before);
    for (uint32_t i = 0; i < N_SCRIBBLERS; i++) {
        int child;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            scribble(i);
            _exit(0);
        }
        product_clear(&again);
        assert_true(product_run(&again, good_client));
        assert_true(product_same_bytes(&good, &again));
        bool is_seen =
            status_counts_reach(&fixture, offsetof(struct status_counts, n_corrupt_lanes),
                                before.n_corrupt_lanes + i + 1, SETTLE_SECONDS, &after);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &child, 0), pid);
        assert_true(is_seen && WIFSIGNALED(child));
    }
    assert_int_equal(after.n_corrupt_lanes, before.n_corrupt_lanes + N_SCRIBBLERS);
}

static uint64_t resident_kib(void)
{
    char path[64];
    char line[256];
    unsigned long kib = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)fixture.pid);
    FILE *status = fopen(path, "r");
    assert_non_null(status);
    while (fgets(line, sizeof(line), status) != NULL && sscanf(line, "VmRSS: %lu", &kib) != 1) {
    }
    (void)fclose(status);
    return kib;
}

/* How much the daemon may grow. The sanitizers keep what is freed in quarantine, up to 256 MiB, and
 * shadow memory beside it, so only the plain build can hold it to the real bound. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNREAD_KIB_MAX (1024u * 1024u)
#else
#define UNREAD_KIB_MAX (64u * 1024u)
#endif

/* T45: 50,000 requests and never a look at a reply. It is told BUSY, by and by, or hung up on; the
 * daemon's memory stays bounded, and a well-behaved client is served all the while. */
static void test_client_that_never_reads(void **state)
{
    (void)state;
    struct dealer dealer;
    int fd = session_with_dealer(&dealer);
    int msec = 0;
    assert_int_equal(zmq_setsockopt(dealer.socket, ZMQ_SNDTIMEO, &msec, sizeof(msec)), 0);
    uint64_t kib_before = resident_kib();
    const struct msg_request request = {.verb = MSG_VERB_STATUS, .request_id = 5};
    uint8_t *bytes;
    size_t n_bytes;
    assert_int_equal(codec_encode_request(&request, &bytes, &n_bytes), 0);
    for (uint32_t i = 0; i < N_UNREAD; i++) {
        if (zmq_send(dealer.socket, NULL, 0, ZMQ_SNDMORE) == 0) {
            (void)zmq_send(dealer.socket, bytes, n_bytes, 0);
        }
        if (i % 5000 == 0) {
            product_clear(&again);
            assert_true(product_run(&again, good_client));
            assert_true(product_same_bytes(&good, &again));
        }
    }
    free(bytes);
    fixture_sleep(0.3);
    assert_true(resident_kib() < kib_before + UNREAD_KIB_MAX);
    dealer_finish(&dealer);
    (void)close(fd);
    struct status_counts counts;
    status_counts_settle(&fixture, 2, 20, &counts);
    assert_true(counts.n_sessions <= 2); /* good_client and the one that asks */
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, NULL, still_serves)
    const struct CMUnitTest tests[] = {
        CASE(test_session_garbage),
        CASE(test_session_stray_fds),
        CASE(test_silent_peers),
        CASE(test_imports),
        CASE(test_ranges),
        CASE(test_without_session),
        CASE(test_malformed_protobuf),
        CASE(test_mutated_protobuf),
        CASE(test_wrong_framing),
        CASE(test_oversized_frame),
        CASE(test_one_routing_id_twice),
        CASE(test_lane_scribbling),
        CASE(test_client_that_never_reads),
    };
#undef CASE
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
