/* think.h - a kernel that stands for what a client computes between two products of a decoder, and
 * says when it began and ended. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/gemmd.h"

#define THOUGHTS_MAX 8u

/* Nanoseconds of the GPU's clock, which all its processes share. */
struct think_stamp {
    uint64_t begin_nsec; /* y was there */
    uint64_t end_nsec;   /* x is ready */
};

/* The thoughts of one kernel: each waits for the product before it, takes its time, and says ready
 * for the product behind it. A signal whose `ready` is NULL: none. */
struct thoughts {
    struct gemmd_signal before; /* the first one waits for that */
    struct gemmd_signal after[THOUGHTS_MAX];
    uint32_t n;
    uint32_t nsec;              /* each takes */
    struct think_stamp *stamps; /* (n) in memory of the device */
    bool is_early;              /* the kernel behind may be in its place once the last y is there */
};

/* think_load() - once a process, before the other. think_enqueue() - one kernel. Both return a
 * cudaError_t. */
#ifdef __cplusplus
extern "C" {
#endif
int think_load(void);
int think_enqueue(const struct thoughts *thoughts, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
