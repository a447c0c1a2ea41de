/* device_cuda_pack.c - packing on the GPU. Two chunks of page-locked memory a packer: one is filled
 * from the page cache while the other is copied. Memory of the device comes from the stream's pool,
 * so that nothing else on the GPU waits for it to come or go. */
#include "daemon/device/device_cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gk/cuda.h"
#include "ipc/base/error.h"

#define N_CHUNKS    2u
#define ALIGNMENT   256u
#define N_ARRAYS    5u
#define EXTRA_BYTES 256u /* behind the arrays: the count of damaged codes */

struct packer {
    struct packer *next; /* idle ones */
    struct device_cuda *cuda;
    cudaStream_t stream;
    uint8_t *chunks; /* page-locked, N_CHUNKS x PACKER_CHUNK_BYTES */
    cudaEvent_t is_sent[N_CHUNKS];
    uint32_t i_chunk; /* the one that chunk() gave out last */
    void *codes;      /* device memory of the weight that has begun, or NULL */
};

static int fail(struct packer *packer, cudaError_t error, const char *what, struct reason *why)
{
    return error == cudaSuccess ? 0 : cuda_fail(packer->cuda, error, what, why);
}

static void drop_codes(struct packer *packer)
{
    if (packer->codes != NULL) {
        (void)cudaFreeAsync(packer->codes, packer->stream);
        packer->codes = NULL;
    }
}

static void destroy(struct packer *packer)
{
    if (packer->stream != NULL) {
        (void)cudaStreamDestroy(packer->stream);
    }
    for (uint32_t i = 0; i < N_CHUNKS; i++) {
        if (packer->is_sent[i] != NULL) {
            (void)cudaEventDestroy(packer->is_sent[i]);
        }
    }
    (void)cudaFreeHost(packer->chunks);
    free(packer);
}

void cuda_packers_finish(struct device_cuda *cuda)
{
    while (cuda->idle_packers != NULL) {
        struct packer *packer = cuda->idle_packers;
        cuda->idle_packers = packer->next;
        destroy(packer);
    }
}

static struct packer *take_idle(struct device_cuda *cuda)
{
    (void)pthread_mutex_lock(&cuda->packers_mutex);
    struct packer *packer = cuda->idle_packers;
    if (packer != NULL) {
        cuda->idle_packers = packer->next;
    }
    (void)pthread_mutex_unlock(&cuda->packers_mutex);
    return packer;
}

static struct packer *packer_free(struct packer *packer)
{
    if (packer == NULL) {
        return NULL;
    }
    struct device_cuda *cuda = packer->cuda;
    drop_codes(packer);
    (void)cudaStreamSynchronize(packer->stream);
    (void)pthread_mutex_lock(&cuda->packers_mutex);
    packer->next = cuda->idle_packers;
    cuda->idle_packers = packer;
    (void)pthread_mutex_unlock(&cuda->packers_mutex);
    return NULL;
}

static cudaError_t set_up(struct packer *packer)
{
    cudaError_t error = cudaStreamCreateWithFlags(&packer->stream, cudaStreamNonBlocking);
    for (uint32_t i = 0; error == cudaSuccess && i < N_CHUNKS; i++) {
        error = cudaEventCreateWithFlags(&packer->is_sent[i], cudaEventDisableTiming);
    }
    if (error == cudaSuccess) {
        error = cudaHostAlloc((void **)&packer->chunks, N_CHUNKS * PACKER_CHUNK_BYTES,
                              cudaHostAllocDefault);
    }
    return error;
}

static int packer_new(struct device *device, struct packer **ret_packer, struct reason *why)
{
    struct device_cuda *cuda = cuda_of(device);
    int r = cuda_enter(cuda, why);
    if (r != 0) {
        return r;
    }
    struct packer *packer = take_idle(cuda);
    if (packer != NULL) {
        *ret_packer = packer;
        return 0;
    }
    packer = calloc(1, sizeof(*packer));
    if (packer == NULL) {
        return err_raise(-ENOMEM);
    }
    packer->cuda = cuda;
    r = fail(packer, set_up(packer), "preparing to pack weights", why);
    if (r != 0) {
        destroy(packer);
        return r;
    }
    *ret_packer = packer;
    return 0;
}

static int begin(struct packer *packer, uint64_t size_bytes, const void **ret_base,
                 struct reason *why)
{
    int r = cuda_enter(packer->cuda, why);
    if (r != 0) {
        return r;
    }
    drop_codes(packer);
    r = fail(packer, cudaMallocAsync(&packer->codes, size_bytes, packer->stream),
             "allocating memory for a weight's codes", why);
    if (r == 0) {
        *ret_base = packer->codes;
    }
    return r;
}

static int chunk(struct packer *packer, void **ret_bytes, struct reason *why)
{
    packer->i_chunk = (packer->i_chunk + 1) % N_CHUNKS;
    int r = fail(packer, cudaEventSynchronize(packer->is_sent[packer->i_chunk]),
                 "copying a weight's codes", why);
    if (r == 0) {
        *ret_bytes = packer->chunks + packer->i_chunk * PACKER_CHUNK_BYTES;
    }
    return r;
}

static int send(struct packer *packer, uint64_t offset, uint64_t n_bytes, struct reason *why)
{
    cudaError_t error = cudaMemcpyAsync((uint8_t *)packer->codes + offset,
                                        packer->chunks + packer->i_chunk * PACKER_CHUNK_BYTES,
                                        n_bytes, cudaMemcpyHostToDevice, packer->stream);
    if (error == cudaSuccess) {
        error = cudaEventRecord(packer->is_sent[packer->i_chunk], packer->stream);
    }
    return fail(packer, error, "copying a weight's codes", why);
}

/* ---- the weight ---- */

/* An array of the rest, and its place in the device's copy. */
struct array {
    void *bytes; /* NULL: absent */
    uint64_t n_bytes;
    uint64_t offset;
};

/* Returns the bytes of all. */
static uint64_t list_arrays(const struct gk_canonical *rest, struct array arrays[N_ARRAYS])
{
    const struct gk_desc *desc = &rest->desc;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    arrays[0] = (struct array){rest->scales, n_scales * dtype_bytes(desc->scale_dtype), 0};
    arrays[1] = (struct array){rest->zeros, n_scales, 0};
    arrays[2] = (struct array){rest->perm, (uint64_t)desc->k * sizeof(*rest->perm), 0};
    arrays[3] = (struct array){rest->column_scales, (uint64_t)desc->n * sizeof(float), 0};
    arrays[4] = (struct array){rest->bias, (uint64_t)desc->n * dtype_bytes(desc->bias_dtype), 0};
    uint64_t total_bytes = 0;
    for (uint32_t i = 0; i < N_ARRAYS; i++) {
        arrays[i].offset = total_bytes;
        total_bytes += arrays[i].bytes != NULL ? num_align_up(arrays[i].n_bytes, ALIGNMENT) : 0;
    }
    return total_bytes;
}

static void *place_of(const struct array *array, uint8_t *memory)
{
    return array->bytes != NULL ? memory + array->offset : NULL;
}

/* Everything but codes to the device, then the launches. *memory lives until the stream is done. */
static cudaError_t enqueue(struct packer *packer, const struct gk_canonical *rest,
                           const struct gk_codes *codes, uint32_t n_codes, void *packed,
                           uint8_t *memory, const struct array arrays[N_ARRAYS],
                           uint32_t *n_damaged)
{
    cudaError_t error = cudaMemsetAsync(n_damaged, 0, sizeof(*n_damaged), packer->stream);
    for (uint32_t i = 0; error == cudaSuccess && i < N_ARRAYS; i++) {
        if (arrays[i].bytes != NULL) {
            error = cudaMemcpyAsync(memory + arrays[i].offset, arrays[i].bytes, arrays[i].n_bytes,
                                    cudaMemcpyHostToDevice, packer->stream);
        }
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct gk_canonical on_device = {
        .desc = rest->desc,
        .scales = place_of(&arrays[0], memory),
        .zeros = place_of(&arrays[1], memory),
        .perm = place_of(&arrays[2], memory),
        .column_scales = place_of(&arrays[3], memory),
        .bias = place_of(&arrays[4], memory),
    };
    return (cudaError_t)gk_cuda_pack(&on_device, codes, n_codes, packed, n_damaged, packer->stream);
}

static int judge(uint32_t n_damaged, struct reason *why)
{
    return n_damaged == 0 ? 0
                          : reason_set(why, STATUS_BAD_CHECKPOINT, "%u weights are NaN", n_damaged);
}

static int pack(struct packer *packer, const struct gk_canonical *rest,
                const struct gk_codes *codes, uint32_t n_codes, const struct region *region,
                struct reason *why)
{
    struct array arrays[N_ARRAYS];
    uint64_t arrays_bytes = list_arrays(rest, arrays);
    uint8_t *memory = NULL;
    uint32_t found = 0;
    cudaError_t error =
        cudaMallocAsync((void **)&memory, arrays_bytes + EXTRA_BYTES, packer->stream);
    if (error == cudaSuccess) {
        uint32_t *n_damaged = (uint32_t *)(void *)(memory + arrays_bytes);
        error = enqueue(packer, rest, codes, n_codes, region->base, memory, arrays, n_damaged);
        if (error == cudaSuccess) {
            error = cudaMemcpyAsync(&found, n_damaged, sizeof(found), cudaMemcpyDeviceToHost,
                                    packer->stream);
        }
        (void)cudaFreeAsync(memory, packer->stream);
    }
    drop_codes(packer);
    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(packer->stream);
    }
    int r = fail(packer, error, "packing a weight", why);
    return r != 0 ? r : judge(found, why);
}

const struct packer_ops cuda_packing = {
    .packer_new = packer_new,
    .packer_free = packer_free,
    .begin = begin,
    .chunk = chunk,
    .send = send,
    .pack = pack,
};
