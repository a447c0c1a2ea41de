/* Any bytes as the two texts of a model's shape, apart by a NUL byte. What is accepted has rules
 * within their bounds, and says something about any module. */
#include <stdint.h>
#include <string.h>

#include "ipc/base/check.h"

#include "daemon/weights/shaping.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* As much as fits; returns what comes behind the NUL byte that ended it. */
static size_t take_text(const uint8_t *data, size_t n_bytes, char text[MSG_SHAPING_BYTES])
{
    size_t text_bytes = strnlen((const char *)data, n_bytes);
    size_t kept = text_bytes < MSG_SHAPING_BYTES ? text_bytes : MSG_SHAPING_BYTES - 1;
    memcpy(text, data, kept);
    return text_bytes < n_bytes ? text_bytes + 1 : n_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct msg_shaping message = {.tp_size = 2};
    struct shaping shaping;
    struct reason why = REASON_NULL;
    if (n_bytes > 0) {
        size_t used = take_text(data, n_bytes, message.fuse);
        if (used < n_bytes) {
            (void)take_text(data + used, n_bytes - used, message.split);
        }
    }
    int r = shaping_parse(&message, &shaping, &why);
    GD_ASSERT(r == why.status);
    if (r != 0) {
        return 0;
    }
    GD_ASSERT(shaping.n_fuses <= SHAPING_RULES_MAX && shaping.n_splits <= SHAPING_RULES_MAX);
    for (uint32_t i = 0; i < shaping.n_fuses; i++) {
        GD_ASSERT(shaping.fuses[i].n_parts >= 2 && shaping.fuses[i].n_parts <= SHAPING_PARTS_MAX);
        GD_ASSERT(shaping.fuses[i].name[0] != '\0');
    }
    GD_ASSERT(shaping_axis_of(&shaping, "a.b") <= SHAPING_K);
    return 0;
}
