/* fuzz-npy.c - any bytes as a .npy file: what is accepted stays inside what was given. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/tool/npy.h"
#include "ipc/base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy_header header;
    struct reason why = REASON_NULL;
    int r = npy_parse(data, size, &header, &why);
    if (r == 0) {
        GD_ASSERT(header.header_bytes <= size);
        GD_ASSERT(header.dtype == DTYPE_F32 || header.dtype == DTYPE_F16 ||
                  header.dtype == DTYPE_I8 || header.dtype == DTYPE_U8);
        return 0;
    }
    GD_ASSERT(r == STATUS_INVALID_ARGUMENT && why.text[0] != '\0');
    return 0;
}
