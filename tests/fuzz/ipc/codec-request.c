/* codec-request.c - fuzz: bytes of a client, decoded as a request. What decodes must encode again,
 * to something that decodes to the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct msg_request request, again;
    struct reason why = REASON_NULL;
    uint8_t *bytes = NULL;
    size_t n_encoded = 0;
    int r = codec_decode_request(data, n_bytes, &request, &why);
    if (r != 0) {
        GD_ASSERT(r == STATUS_BAD_MESSAGE && why.text[0] != '\0');
        return 0;
    }
    GD_ASSERT(codec_encode_request(&request, &bytes, &n_encoded) == 0);
    GD_ASSERT(codec_decode_request(bytes, n_encoded, &again, &why) == 0);
    GD_ASSERT(memcmp(&request, &again, sizeof(request)) == 0);
    free(bytes);
    return 0;
}
