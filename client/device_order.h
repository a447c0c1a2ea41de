/* device_order.h - one lane's words of stream order (ipc/order.h) as a GPU's streams in this
 * process read and write them. device_order_cuda.c, or device_order_none.c in a build without
 * CUDA's header. Statuses come with the calling thread's sentence. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/device_memory.h"
#include "client/include/gemmd.h"
#include "ipc/base/check.h"
#include "ipc/order.h"
#include "ipc/side.h"

/* Zero is safe to finish. */
struct device_order {
    struct device_memory done; /* holds the GPU's primary context */
    void *context;             /* that one: a CUcontext */
    void *words;               /* page-locked for the GPU; borrowed */
    uint64_t words_address;    /* of the GPU's */
    uint32_t n_entries;
    void *code;        /* CUmodule */
    void *turn_kernel; /* CUfunction */
    bool has_mps;      /* of this process */
};

/* device_order_init() - make words (order_bytes(n_entries)), and the memory of `done` that done_fd
 * exports, reachable for the GPU with that UUID. done_fd stays the caller's. 0, UNSUPPORTED or
 * DEVICE_ERROR. device_order_finish() - waits for what this process has started on the GPU, then
 * undoes that. */
int device_order_init(struct device_order *order, const uint8_t uuid[SIDE_UUID_BYTES], void *words,
                      uint32_t n_entries, int done_fd, uint64_t done_bytes) GD_MUST_CHECK;
void device_order_finish(struct device_order *order);

/* device_order_check() - can that stream (CUstream) be used in that way? 0, INVALID_ARGUMENT where
 * it is another context's, UNSUPPORTED for the legacy default stream and stream memory operations.
 * device_order_check_capture() - UNSUPPORTED while the stream is being captured. */
int device_order_check(const struct device_order *order, void *stream,
                       enum gemmd_order how) GD_MUST_CHECK;
int device_order_check_capture(const struct device_order *order, void *stream) GD_MUST_CHECK;

/* device_order_signal() - where an entry's words are for the GPU. */
struct gemmd_signal device_order_signal(const struct device_order *order, uint32_t entry,
                                        uint32_t value);

/* device_order_enqueue() - append to the stream: say ready, wait until done. 0 or DEVICE_ERROR. */
int device_order_enqueue(const struct device_order *order, void *stream, enum gemmd_order how,
                         const struct gemmd_signal *signal) GD_MUST_CHECK;
