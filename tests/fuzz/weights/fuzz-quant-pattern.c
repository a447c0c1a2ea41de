/* The first byte as a kind of pattern, the rest up to a NUL byte as its text, and the rest as a
 * module's name. What compiles says yes or no, or refuses, in bounded time. */
#include <stdint.h>
#include <string.h>

#include "ipc/base/check.h"
#include "ipc/base/cleanup.h"

#include "daemon/weights/quant_pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void match(enum quant_pattern_kind kind, const char *text, const char *module)
{
    struct quant_pattern pattern;
    struct reason why = REASON_NULL;
    int r = quant_pattern_init(&pattern, kind, text, &why);
    GD_ASSERT(r == why.status);
    if (r != 0) {
        return;
    }
    bool is_match = false;
    r = quant_pattern_match(&pattern, module, &is_match, &why);
    GD_ASSERT(r == why.status);
    GD_ASSERT(kind == QUANT_PATTERN_REGEX || kind == QUANT_PATTERN_WILDCARD || r == 0);
    if (kind == QUANT_PATTERN_EXACT && is_match) {
        GD_ASSERT(strcmp(text, module) == 0);
    }
    quant_pattern_finish(&pattern);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes == 0) {
        return 0;
    }
    CLEAN_FREE char *text = strndup((const char *)data + 1, n_bytes - 1);
    GD_ASSERT(text);
    size_t text_bytes = strlen(text);
    const char *rest = (const char *)data + 1 + text_bytes;
    size_t rest_bytes = n_bytes - 1 - text_bytes;
    CLEAN_FREE char *module = rest_bytes ? strndup(rest + 1, rest_bytes - 1) : strdup("a.b");
    GD_ASSERT(module);
    match((enum quant_pattern_kind)(data[0] % (QUANT_PATTERN_WILDCARD + 1)), text, module);
    return 0;
}
