/* device_order_none.c - a libgemmd built without CUDA's header: there are no streams. */
#include "client/client.h"

static int refuse(void)
{
    return client_refuse(STATUS_UNSUPPORTED,
                         "this libgemmd was built without CUDA: there is no stream to order by");
}

int device_order_init(struct device_order *order, const uint8_t uuid[SIDE_UUID_BYTES], void *words,
                      uint32_t n_entries, int done_fd, uint64_t done_bytes)
{
    (void)order;
    (void)uuid;
    (void)words;
    (void)n_entries;
    (void)done_fd;
    (void)done_bytes;
    return refuse();
}

void device_order_finish(struct device_order *order)
{
    (void)order;
}

int device_order_check(const struct device_order *order, void *stream, enum gemmd_order how)
{
    (void)order;
    (void)stream;
    (void)how;
    return refuse();
}

int device_order_check_capture(const struct device_order *order, void *stream)
{
    (void)order;
    (void)stream;
    return refuse();
}

struct gemmd_signal device_order_signal(const struct device_order *order, uint32_t entry,
                                        uint32_t value)
{
    (void)order;
    (void)entry;
    return (struct gemmd_signal){.value = value};
}

int device_order_enqueue(const struct device_order *order, void *stream, enum gemmd_order how,
                         const struct gemmd_signal *signal)
{
    (void)order;
    (void)stream;
    (void)how;
    (void)signal;
    return refuse();
}
