/* fuzz-config.c - configuration files of any bytes: parsed or refused with a sentence. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "daemon/server/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct config config;
    struct reason why = REASON_NULL;
    if (config_init(&config) != 0) {
        abort();
    }
    int r = config_parse(&config, "fuzz", (const char *)data, n_bytes, &why);
    r = r != 0 ? r : config_check(&config, &why);
    if (r > 0 && (why.status != r || why.text[0] == '\0')) {
        abort(); /* refused without a reason */
    }
    config_finish(&config);
    return 0;
}
