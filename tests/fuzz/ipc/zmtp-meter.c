/* zmtp-meter.c - fuzz: bytes of a peer, measured whole and byte by byte. The verdict and the state
 * must not depend on how the stream is cut, and what is held must be within the limits. */
#include <stddef.h>
#include <stdint.h>

#include "ipc/zmtp_meter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct zmtp_meter whole;
    struct zmtp_meter cut;
    bool is_good = true;
    zmtp_meter_init(&whole);
    zmtp_meter_init(&cut);
    for (size_t i = 0; i < n_bytes; i++) {
        bool was_good = is_good;
        is_good = zmtp_meter_take(&cut, data + i, 1);
        GD_ASSERT(was_good || !is_good);
    }
    GD_ASSERT(zmtp_meter_take(&whole, data, n_bytes) == is_good);
    GD_ASSERT(whole.stage == cut.stage && whole.n_left == cut.n_left);
    GD_ASSERT(whole.message_bytes == cut.message_bytes && whole.n_frames == cut.n_frames);
    GD_ASSERT(!is_good || (whole.message_bytes <= ZMTP_MESSAGE_BYTES_MAX &&
                           whole.n_frames <= ZMTP_MESSAGE_FRAMES_MAX));
    return 0;
}
