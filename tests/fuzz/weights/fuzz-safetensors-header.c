/* Any bytes as a safetensors header. What is accepted must tile the data: checked here again, by
 * other means than the parser's. The first two bytes are the length of the data. */
#include <stdint.h>
#include <string.h>

#include "ipc/base/check.h"

#include "daemon/weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes < 2) {
        return 0;
    }
    uint64_t data_bytes = (uint64_t)data[0] | (uint64_t)data[1] << 8;
    struct safetensors file = SAFETENSORS_NULL;
    struct reason why = REASON_NULL;
    int r = safetensors_parse("fuzz", data + 2, n_bytes - 2, data_bytes, &file, &why);
    if (r != 0) {
        GD_ASSERT(r == why.status && why.text[0] != '\0');
        return 0;
    }
    uint64_t sum_bytes = 0;
    for (uint64_t i = 0; i < file.n_tensors; i++) {
        const struct safetensors_tensor *tensor = &file.tensors[i];
        sum_bytes += tensor->size_bytes;
        GD_ASSERT(tensor->offset_bytes + tensor->size_bytes <= data_bytes);
        GD_ASSERT(safetensors_find(&file, tensor->name) == tensor);
    }
    GD_ASSERT(sum_bytes == data_bytes);
    safetensors_finish(&file);
    return 0;
}
