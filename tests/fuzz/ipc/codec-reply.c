/* codec-reply.c - fuzz: bytes of a daemon, decoded as a reply. What decodes must encode again and
 * decode once more, and everything it owned must be freed. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "ipc/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct msg_reply reply = MSG_REPLY_NULL;
    struct msg_reply again = MSG_REPLY_NULL;
    struct reason why = REASON_NULL;
    uint8_t *bytes = NULL;
    size_t n_encoded = 0;
    int r = codec_decode_reply(data, n_bytes, &reply, &why);
    if (r != 0) {
        GD_ASSERT(r == STATUS_BAD_MESSAGE && why.text[0] != '\0');
        return 0;
    }
    r = codec_encode_reply(&reply, &bytes, &n_encoded);
    GD_ASSERT(r == 0);
    GD_ASSERT(codec_decode_reply(bytes, n_encoded, &again, &why) == 0);
    GD_ASSERT(again.body == reply.body && again.status == reply.status);
    free(bytes);
    msg_reply_finish(&reply);
    msg_reply_finish(&again);
    return 0;
}
