/* test-hostile-session.c - peers that lie, babble or stay silent on the session socket, and hand
 * over memory that is not what they say (T26, T29). */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/wire.h"
#include "tests/integ/hostile_case.h"

#define N_GARBAGE 300u

static void test_garbage(void **state)
{
    struct hostile *hostile = *state;
    uint8_t bytes[2048];
    char token[SIDE_TOKEN_BYTES];
    for (uint32_t i = 0; i < N_GARBAGE; i++) {
        bool is_greeted = i % 3 == 0;
        int fd =
            is_greeted ? wire_session(&hostile->fixture, token) : wire_connect(&hostile->fixture);
        size_t n = test_random(&hostile->random) % sizeof(bytes);
        hostile_fill_random(hostile, bytes, n);
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
static void test_stray_descriptors(void **state)
{
    struct hostile *hostile = *state;
    char token[SIDE_TOKEN_BYTES];
    int fd = wire_session(&hostile->fixture, token);
    uint32_t n_before = fixture_fds(&hostile->fixture);
    for (uint32_t i = 0; i < 50; i++) {
        union side_message message;
        struct side_packet answer;
        side_init(&message, SIDE_OPEN_LANE, i + 2);
        message.open_lane.device_index = 99;
        assert_int_equal(wire_ask(&hostile->fixture, fd, &message, (int[]){fd, fd}, 2, &answer), 1);
        assert_int_equal(answer.message.header.type, SIDE_REFUSED);
        assert_int_equal(answer.message.refused.status, GEMMD_NOT_FOUND);
        side_packet_finish(&answer);
    }
    double deadline = fixture_now() + SETTLE_SECONDS;
    while (fixture_fds(&hostile->fixture) > n_before && fixture_now() < deadline) {
        fixture_sleep(0.01); /* connections of earlier tests may still be closing */
    }
    assert_true(fixture_fds(&hostile->fixture) <= n_before);
    (void)close(fd);
}

static void test_silent_peers(void **state)
{
    enum { N_PEERS = 40 };
    struct hostile *hostile = *state;
    int peers[N_PEERS];
    for (uint32_t i = 0; i < N_PEERS; i++) {
        peers[i] = wire_connect(&hostile->fixture);
    }
    assert_true(hostile_good_goes_on(hostile));
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

/* ---- T26 and T29: regions ---- */

static int import(struct hostile *hostile, int fd, uint64_t size_bytes, char sentence[512])
{
    gemmd_buffer_t *buffer;
    int r = gemmd_buffer_import_fd(hostile->good_client, 0, fd, size_bytes, &buffer);
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

static void refuse_import(struct hostile *hostile, int fd, uint64_t size_bytes, const char *words)
{
    char sentence[512];
    assert_true(fd >= 0);
    int r = import(hostile, fd, size_bytes, sentence);
    (void)close(fd);
    if (r != GEMMD_INVALID_ARGUMENT || strstr(sentence, words) == NULL) {
        fail_msg("%s '%s' instead of INVALID_ARGUMENT with '%s'", gemmd_status_name(r), sentence,
                 words);
    }
}

static void test_imports(void **state)
{
    struct hostile *hostile = *state;
    const char *fifo = temp_path(&hostile->fixture.folder, "fifo");
    char sentence[512];
    refuse_import(hostile, sealed_memfd(4096, F_SEAL_SHRINK), 1 << 20, "4096");
    refuse_import(hostile, sealed_memfd(4096, F_SEAL_SHRINK), 8192, "8192");
    refuse_import(hostile, sealed_memfd(1 << 20, F_SEAL_GROW), 1 << 20, "seal");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    refuse_import(hostile, open(fifo, O_RDWR | O_NONBLOCK | O_CLOEXEC), 4096, "memfd");
    refuse_import(hostile, open(hostile->fixture.folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                  4096, "memfd");
    refuse_import(hostile, open(hostile->fixture.log_path, O_RDWR | O_CLOEXEC), 1, "memfd");
    int fd = sealed_memfd(4096, F_SEAL_SHRINK);
    assert_int_equal(import(hostile, fd, UINT64_MAX - 15, sentence), GEMMD_QUOTA);
    assert_int_equal(import(hostile, fd, 0, sentence), GEMMD_INVALID_ARGUMENT);
    assert_int_equal(ftruncate(fd, 0), -1); /* the seal is what keeps the daemon from faulting */
    assert_int_equal(import(hostile, fd, 4096, sentence), GEMMD_OK);
    (void)close(fd);
}

static void refuse_range(struct hostile *hostile, struct gemmd_gemm gemm, const char *words)
{
    int r = gemmd_gemm(hostile->good_client, &gemm);
    if (r != GEMMD_INVALID_ARGUMENT || strstr(gemmd_last_error(), words) == NULL) {
        fail_msg("%s '%s' instead of INVALID_ARGUMENT with '%s'", gemmd_status_name(r),
                 gemmd_last_error(), words);
    }
}

/* x of one row takes 512 bytes; the region has 4096. */
static void test_ranges(void **state)
{
    struct hostile *hostile = *state;
    gemmd_buffer_t *region;
    assert_int_equal(gemmd_buffer_alloc(hostile->good_client, 0, 4096, &region), GEMMD_OK);
    struct gemmd_gemm gemm = hostile->again.gemm;
    gemm.x = region;
    gemm.x_stride = 0;
    gemm.m = 1;
    gemm.x_offset_bytes = 4096 - 512;
    assert_int_equal(gemmd_gemm(hostile->good_client, &gemm), GEMMD_OK);
    gemm.x_offset_bytes = 4000;
    refuse_range(hostile, gemm, "4512");
    gemm.x_offset_bytes = UINT64_MAX - 15;
    refuse_range(hostile, gemm, "18446744073709551600");
    gemm.x_offset_bytes = 4096;
    refuse_range(hostile, gemm, "4096");
    gemm.x_offset_bytes = 0;
    gemm.m = 9;
    refuse_range(hostile, gemm, "4608");
    gemm.y = region; /* y from 384 on lies within x */
    gemm.m = 1;
    gemm.y_stride = 0;
    gemm.y_offset_bytes = 384;
    refuse_range(hostile, gemm, "overlaps");
    gemm.m = 0;
    assert_int_equal(gemmd_gemm(hostile->good_client, &gemm), GEMMD_OK);
    gemmd_buffer_free(region);
}

static int set_up(void **state)
{
    return hostile_set_up(state, "hello_timeout_msec = 500\n");
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, NULL, hostile_still_serves)
    const struct CMUnitTest tests[] = {
        CASE(test_garbage),      CASE(test_stray_descriptors),
        CASE(test_silent_peers), CASE(test_imports),
        CASE(test_ranges),
    };
#undef CASE
    return cmocka_run_group_tests(tests, set_up, hostile_tear_down);
}
