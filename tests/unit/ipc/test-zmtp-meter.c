/* test-zmtp-meter.c - limits on frames and bytes of a message, however the stream is cut. */
#include <stdbool.h>
#include <string.h>

#include "ipc/zmtp_meter.h"
#include "t.h"

#define MORE       0x01u
#define LONG       0x02u
#define COMMAND    0x04u
#define BODY_BYTES 1000u

static const uint8_t greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 1, 'N', 'U', 'L', 'L'};

static void greet(struct zmtp_meter *meter)
{
    zmtp_meter_init(meter);
    assert_true(zmtp_meter_take(meter, greeting, sizeof(greeting)));
}

/* One frame of n_bytes, its body fed in pieces. */
static bool take_frame(struct zmtp_meter *meter, uint8_t flags, uint64_t n_bytes)
{
    static const uint8_t body[BODY_BYTES];
    uint8_t head[9] = {flags, (uint8_t)n_bytes};
    if ((flags & LONG) != 0) {
        for (uint32_t i = 0; i < 8; i++) {
            head[1 + i] = (uint8_t)(n_bytes >> (56 - 8 * i));
        }
    }
    bool is_taken = zmtp_meter_take(meter, head, (flags & LONG) != 0 ? 9 : 2);
    while (is_taken && n_bytes > 0) {
        size_t n = n_bytes < sizeof(body) ? n_bytes : sizeof(body);
        is_taken = zmtp_meter_take(meter, body, n);
        n_bytes -= n;
    }
    return is_taken;
}

static void test_frames(void **state)
{
    (void)state;
    struct zmtp_meter meter;
    greet(&meter);
    for (uint32_t i_message = 0; i_message < 3; i_message++) {
        for (uint32_t i = 1; i < ZMTP_MESSAGE_FRAMES_MAX; i++) {
            assert_true(take_frame(&meter, MORE, i % 3));
        }
        assert_true(take_frame(&meter, 0, 5));
    }
    for (uint32_t i = 0; i < ZMTP_MESSAGE_FRAMES_MAX; i++) {
        assert_true(take_frame(&meter, MORE, 0));
    }
    assert_false(take_frame(&meter, 0, 0));
    assert_false(zmtp_meter_take(&meter, greeting, 1)); /* for ever after */
}

static void test_bytes(void **state)
{
    (void)state;
    struct zmtp_meter meter;
    greet(&meter);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(take_frame(&meter, MORE | LONG, ZMTP_MESSAGE_BYTES_MAX - 7));
        assert_true(take_frame(&meter, 0, 7));
    }
    assert_true(take_frame(&meter, MORE | LONG, ZMTP_MESSAGE_BYTES_MAX));
    assert_false(take_frame(&meter, 0, 1));
    greet(&meter);
    assert_true(take_frame(&meter, MORE, 1));
    assert_false(take_frame(&meter, MORE | LONG, UINT64_MAX)); /* the sum does not fit 64 bits */
}

/* Heartbeats neither belong to a message nor end it. */
static void test_commands(void **state)
{
    (void)state;
    struct zmtp_meter meter;
    greet(&meter);
    for (uint32_t i = 0; i < 2 * ZMTP_MESSAGE_FRAMES_MAX; i++) {
        assert_true(take_frame(&meter, COMMAND, 200));
    }
    for (uint32_t i = 0; i < ZMTP_MESSAGE_FRAMES_MAX; i++) {
        assert_true(take_frame(&meter, MORE, 1));
        assert_true(take_frame(&meter, COMMAND, 1));
    }
    assert_false(take_frame(&meter, MORE, 1));
}

static void test_older_versions(void **state)
{
    (void)state;
    struct zmtp_meter meter;
    uint8_t bytes[64];
    memcpy(bytes, greeting, sizeof(bytes));
    bytes[10] = 1; /* version 2 */
    zmtp_meter_init(&meter);
    assert_true(zmtp_meter_take(&meter, bytes, 10));
    assert_false(zmtp_meter_take(&meter, bytes + 10, 1));
    bytes[0] = 1; /* version 1 begins with a frame */
    zmtp_meter_init(&meter);
    assert_false(zmtp_meter_take(&meter, bytes, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_older_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
