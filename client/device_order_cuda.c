/* device_order_cuda.c - see device_order.h: the driver API.
 *
 * The kernel below is PTX, which the driver translates when the words are opened: libgemmd needs no
 * CUDA to be built in, and runs on GPUs that come after it. gemmd_device.h has the same in C++. */
#include <cuda.h>
#include <string.h>

#include "client/client.h"
#include "client/driver_cuda.h"

/* One thread says ready, on the GPU (ORDER_DEVICE_READY_OFFSET) and to the worker's CPU, and waits
 * for its product. A look at `done`, in the GPU's memory, takes
 * 0.7 us; one at `ended` crosses the bus and is for requests that have no product, so it is taken
 * every 256th time only. */
static const char turn_ptx[] = "\
.version 7.0\n\
.target sm_80\n\
.address_size 64\n\
.visible .entry gemmd_turn(.param .u64 ready, .param .u64 done, .param .u64 ended, .param .u32 value)\n\
{\n\
    .reg .pred %p;\n\
    .reg .b32 %value, %word, %n;\n\
    .reg .b64 %ready, %done, %ended, %quick;\n\
    ld.param.u64 %ready, [ready];\n\
    ld.param.u64 %done, [done];\n\
    ld.param.u64 %ended, [ended];\n\
    ld.param.u32 %value, [value];\n\
    cvta.to.global.u64 %ready, %ready;\n\
    cvta.to.global.u64 %done, %done;\n\
    cvta.to.global.u64 %ended, %ended;\n\
    add.s64 %quick, %done, 1048576;\n\
    fence.acq_rel.sys;\n\
    st.relaxed.sys.global.u32 [%quick], %value;\n\
    st.relaxed.sys.global.u32 [%ready], %value;\n\
    mov.u32 %n, 0;\n\
look:\n\
    ld.acquire.sys.global.u32 %word, [%done];\n\
    sub.s32 %word, %word, %value;\n\
    setp.ge.s32 %p, %word, 0;\n\
    @%p bra over;\n\
    add.u32 %n, %n, 1;\n\
    and.b32 %word, %n, 255;\n\
    setp.ne.u32 %p, %word, 0;\n\
    @%p bra look;\n\
    ld.acquire.sys.global.u32 %word, [%ended];\n\
    sub.s32 %word, %word, %value;\n\
    setp.lt.s32 %p, %word, 0;\n\
    @%p bra look;\n\
over:\n\
    ret;\n\
}\n";

/* ---- setting up ---- */

static int lock_words(struct device_order *order, void *words)
{
    CUdeviceptr address;
    CUresult error = driver.cuMemHostRegister(words, order_bytes(order->n_entries),
                                              CU_MEMHOSTREGISTER_DEVICEMAP);
    if (error != CUDA_SUCCESS) {
        return driver_fail(error, "page-locking the words of stream order");
    }
    order->words = words;
    error = driver.cuMemHostGetDevicePointer(&address, words, 0);
    order->words_address = address;
    return error == CUDA_SUCCESS ? 0 : driver_fail(error, "mapping the words of stream order");
}

/* A multiprocessor splits its memory between cache and shared memory while it is empty only: one
 * where this kernel waits must be split as products want it, or a part of each product waits for
 * the kernel that waits for it to end. */
static CUresult share_multiprocessor(CUfunction kernel)
{
    return driver.cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                     CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
}

static int load_code(struct device_order *order)
{
    CUmodule code;
    CUfunction kernel;
    CUresult error = driver.cuModuleLoadData(&code, turn_ptx);
    if (error != CUDA_SUCCESS) {
        return driver_fail(error, "loading the kernel of stream order");
    }
    order->code = code;
    error = driver.cuModuleGetFunction(&kernel, code, "gemmd_turn");
    order->turn_kernel = kernel;
    if (error == CUDA_SUCCESS) {
        error = share_multiprocessor(kernel);
    }
    return error == CUDA_SUCCESS ? 0 : driver_fail(error, "finding the kernel of stream order");
}

static int init_in_context(struct device_order *order, void *words)
{
    int has_mps = 0;
    CUcontext context;
    CUresult error = driver.cuCtxGetCurrent(&context);
    if (error != CUDA_SUCCESS) {
        return driver_fail(error, "finding the context of the daemon's GPU");
    }
    order->context = context;
    (void)driver.cuDeviceGetAttribute(&has_mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED,
                                      order->done.device);
    order->has_mps = has_mps != 0;
    int r = lock_words(order, words);
    return r != 0 ? r : load_code(order);
}

int device_order_init(struct device_order *order, const uint8_t uuid[SIDE_UUID_BYTES], void *words,
                      uint32_t n_entries, int done_fd, uint64_t done_bytes)
{
    struct device_order made = {.n_entries = n_entries};
    int r = device_memory_map(uuid, done_fd, done_bytes, &made.done);
    if (r != 0) {
        return r;
    }
    r = driver_enter(made.done.device);
    if (r == 0) {
        r = init_in_context(&made, words);
        driver_leave();
        driver_forget(made.done.device); /* the mapping holds it */
    }
    if (r != 0) {
        device_order_finish(&made);
        return r;
    }
    *order = made;
    return 0;
}

/* The GPU may still look at the words on behalf of what has ended. */
static void finish_in_context(const struct device_order *order)
{
    (void)driver.cuCtxSynchronize();
    if (order->code != NULL) {
        (void)driver.cuModuleUnload(order->code);
    }
    if (order->words != NULL) {
        (void)driver.cuMemHostUnregister(order->words);
    }
}

void device_order_finish(struct device_order *order)
{
    if (order->context != NULL && driver.cuCtxPushCurrent(order->context) == CUDA_SUCCESS) {
        finish_in_context(order);
        driver_leave();
    }
    device_memory_unmap(&order->done);
    *order = (struct device_order){.context = NULL};
}

/* ---- streams ---- */

int device_order_check(const struct device_order *order, void *stream, enum gemmd_order how)
{
    bool is_legacy = stream == NULL || stream == CU_STREAM_LEGACY;
    CUcontext context = NULL;
    if (how == GEMMD_ORDER_MEMORY && is_legacy) {
        return client_refuse(STATUS_UNSUPPORTED,
                             "gemmd_stream_open: stream memory operations do not work on the "
                             "legacy default stream; make one with cudaStreamCreateWithFlags()");
    }
    CUresult error = driver.cuCtxPushCurrent(order->context);
    if (error == CUDA_SUCCESS) {
        error = driver.cuStreamGetCtx(stream, &context);
        driver_leave();
    }
    if (error != CUDA_SUCCESS) {
        return driver_fail(error, "gemmd_stream_open");
    }
    if (context != order->context) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_stream_open: the stream is not one of the primary context of "
                             "the daemon's GPU");
    }
    return 0;
}

int device_order_check_capture(const struct device_order *order, void *stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult error = driver.cuCtxPushCurrent(order->context);
    if (error == CUDA_SUCCESS) {
        error = driver.cuStreamIsCapturing(stream, &status);
        driver_leave();
    }
    if (error != CUDA_SUCCESS) {
        return driver_fail(error, "asking whether the stream is being captured");
    }
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) {
        return client_refuse(STATUS_UNSUPPORTED,
                             "the stream is being captured: a product is asked for once, by this "
                             "call, and each replay of the graph would wait for one that nobody "
                             "asked for; end the graph before it and begin another behind it");
    }
    return 0;
}

struct gemmd_signal device_order_signal(const struct device_order *order, uint32_t entry,
                                        uint32_t value)
{
    uint64_t offset = entry * sizeof(uint32_t);
    uint64_t ready = order->words_address + offset;
    return (struct gemmd_signal){
        .ready = (uint32_t *)(uintptr_t)ready,
        .done = (const uint32_t *)(uintptr_t)(order->done.address + offset),
        .ended = (const uint32_t *)(uintptr_t)(ready + order->n_entries * sizeof(uint32_t)),
        .value = value,
    };
}

static CUresult enqueue_kernel(const struct device_order *order, CUstream stream,
                               const struct gemmd_signal *signal)
{
    struct gemmd_signal copy = *signal;
    void *arguments[] = {&copy.ready, &copy.done, &copy.ended, &copy.value};
    return driver.cuLaunchKernel(order->turn_kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

/* `ended`, since that comes whatever becomes of the request. */
static CUresult enqueue_memory_operations(CUstream stream, const struct gemmd_signal *signal)
{
    CUstreamBatchMemOpParams turn[] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                        .address = (CUdeviceptr)(uintptr_t)signal->ready,
                        .value = signal->value,
                        .flags = CU_STREAM_WRITE_VALUE_DEFAULT}},
        {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                       .address = (CUdeviceptr)(uintptr_t)signal->ended,
                       .value = signal->value,
                       .flags = CU_STREAM_WAIT_VALUE_GEQ}},
    };
    return driver.cuStreamBatchMemOp(stream, 2, turn, 0);
}

int device_order_enqueue(const struct device_order *order, void *stream, enum gemmd_order how,
                         const struct gemmd_signal *signal)
{
    CUresult error = driver.cuCtxPushCurrent(order->context);
    if (error == CUDA_SUCCESS) {
        error = how == GEMMD_ORDER_KERNEL ? enqueue_kernel(order, stream, signal)
                                          : enqueue_memory_operations(stream, signal);
        driver_leave();
    }
    return error == CUDA_SUCCESS ? 0 : driver_fail(error, "asking for a turn on the stream");
}
