/* Any bytes as config.json and, after the first NUL byte if there is one, as quantize_config.json.
 * What is accepted is something that is served. */
#include <stdint.h>
#include <string.h>

#include "ipc/base/check.h"

#include "daemon/weights/quant_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const char *text = (const char *)data;
    const char *nul = n_bytes ? memchr(text, '\0', n_bytes) : NULL;
    size_t first_bytes = nul ? (size_t)(nul - text) : n_bytes;
    struct quant_config config;
    struct reason why = REASON_NULL;
    int r = quant_config_parse(n_bytes ? text : NULL, first_bytes, nul ? nul + 1 : NULL,
                               nul ? n_bytes - first_bytes - 1 : 0, &config, &why);
    if (r != 0) {
        GD_ASSERT(r == why.status && why.text[0] != '\0');
        return 0;
    }
    if (config.is_quantised) {
        GD_ASSERT(config.bits == 4 && config.is_symmetric);
        GD_ASSERT(config.group_size == -1 || config.group_size == 32 || config.group_size == 64 ||
                  config.group_size == 128);
    }
    return 0;
}
