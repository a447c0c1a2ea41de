/* cuda.h - what the CUDA back end of the daemon needs of the kernel library beside the registry.
 * Only in builds with CUDA. */
#pragma once

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "gk/digest.h"

struct gk_canonical; /* of gk.h, which is C only */
struct gk_codes;
struct gk_layout;

#ifdef __cplusplus
extern "C" {
#endif

/* gk_cuda_stage_rows() - append to a cudaStream_t a copy of m rows (1..GK_BATCH_ROWS_MAX) of
 * row_bytes each, aligned as their elements are, to `target`, stride_bytes apart; target and stride
 * are 16-byte aligned. For rows in CPU memory, which a product would read over the bus again in
 * every thread block. gk_cuda_stage_load() - as gk_kernel.load(). Both: 0 or a cudaError_t. */
int gk_cuda_stage_rows(const void *const *rows, uint32_t m, uint64_t row_bytes, void *target,
                       uint64_t stride_bytes, void *stream);
int gk_cuda_stage_load(void);

/* gk_cuda_signal_words() - append to a cudaStream_t: write each value to its address (memory of the
 * device, or page-locked) when the launch before it is done and all that it wrote can be seen by
 * any processor, the last one once all others can be seen; n of 1 to GK_CUDA_SIGNALS_MAX.
 * may_overlap: the device has programmatic dependent launch (compute capability 9.0).
 * gk_cuda_signal_load() - as gk_kernel.load(). Both: 0 or a cudaError_t. */
#define GK_CUDA_SIGNALS_MAX 80u
struct gk_cuda_signal {
    uint64_t address;
    uint32_t value;
};
int gk_cuda_signal_words(const struct gk_cuda_signal *words, uint32_t n, bool may_overlap,
                         void *stream);
int gk_cuda_signal_load(void);

/* Launches that are in a stream before their rows are known: a gate waits for a table that the CPU
 * fills in and takes it over into the GPU's memory, where the product behind it (gk_launch.ahead)
 * and the signals behind that read it. */

/* A row of the table: its x and y, and a word to be written behind the product, or 0. Addresses are
 * even. In the CPU's table each of the four is | GK_CUDA_AHEAD_WRITTEN, and `value` is shifted left
 * by one to make room; each is written whole, in any order. A row that is not there is nothing but
 * that bit. */
#define GK_CUDA_AHEAD_WRITTEN  1ull
#define GK_CUDA_AHEAD_ROWS_MAX 64u /* GK_BATCH_ROWS_MAX */
struct gk_cuda_ahead_row {
    uint64_t x;
    uint64_t y;
    uint64_t signal;
    uint64_t value;
};

/* The table as the GPU has it: those of m rows, the first, are there; 0: nobody came. */
struct gk_ahead {
    alignas(16) struct gk_cuda_ahead_row rows[GK_CUDA_AHEAD_ROWS_MAX];
    uint32_t m;
};

/* A row that is known before, as it would be in the CPU's table, and what says that its x is there:
 * that word of the device's memory is that value. */
#define GK_CUDA_EXPECTED_MAX 16u
struct gk_cuda_expected {
    struct gk_cuda_ahead_row row;
    uint64_t ready;
    uint32_t value;
};

struct gk_cuda_gate_args {
    const struct gk_cuda_ahead_row *table; /* (n_rows) page-locked, GK_CUDA_AHEAD_WRITTEN nowhere */
    struct gk_ahead *ahead;                /* of the device's memory */
    uint32_t n_rows;                       /* a multiple of 16 */
    uint32_t limit_usec;
    bool holds_place;
    uint32_t n_expected;
    struct gk_cuda_expected expected[GK_CUDA_EXPECTED_MAX]; /* (n_expected); n_rows at most */
};

/* gk_cuda_gate() - append to a cudaStream_t what waits until all rows of the table are written, or
 * the x of all that are expected is there, where some are, or until it has waited limit_usec in
 * vain, and then fills in *ahead; table and *ahead are left alone until what is appended behind it
 * has ended. The product is started when it has seen the rows, or, with holds_place, at once, to
 * wait on the multiprocessors.
 * gk_cuda_signal_ahead() - append, behind the product: write the rows' words, as
 * gk_cuda_signal_words(), and done->value to done->address; where nobody came, before that, to
 * `canceled` as well. gk_cuda_ahead_load() - as gk_kernel.load(). All: 0 or a cudaError_t; the
 * device has programmatic dependent launch. */
int gk_cuda_gate(const struct gk_cuda_gate_args *gate, void *stream);
int gk_cuda_signal_ahead(const struct gk_ahead *ahead, uint32_t n_rows,
                         const struct gk_cuda_signal *done, uint64_t canceled, void *stream);
int gk_cuda_ahead_load(void);

/* gk_cuda_digest() - append to a cudaStream_t: add the digest of n_words words (an even number,
 * 16-byte aligned) to *digest, which is memory of the device. gk_cuda_digest_load() - as
 * gk_kernel.load(). Both: 0 or a cudaError_t. */
int gk_cuda_digest(const void *words, uint64_t n_words, struct gk_digest *digest, void *stream);
int gk_cuda_digest_load(void);

/* gk_cuda_read() - append to a cudaStream_t a launch that reads size_bytes (a multiple of 16) at a
 * 16-byte aligned address and keeps nothing: the yardstick of kernels that stream weights. 0 or a
 * cudaError_t. */
int gk_cuda_read(const void *memory, uint64_t size_bytes, void *stream);

/* gk_cuda_pack() - append to a cudaStream_t what packs n_parts tensors (1..GK_CUDA_PARTS_MAX,
 * ascending in to_n, which cover all rows) and the rest of a canonical weight into its layout, with
 * the bytes that layout->pack() gives. The arrays of the rest, like the parts' bytes (4-byte
 * aligned), are in memory of the device; codes is NULL. `packed` is zeroed, and so is *n_damaged,
 * device memory, which then counts the FP8 codes that are NaN: such a weight is to be refused.
 * gk_cuda_pack_load() - as gk_kernel.load(). 0 or a cudaError_t. */
#define GK_CUDA_PARTS_MAX 8u
int gk_cuda_pack(const struct gk_canonical *rest, const struct gk_codes *parts, uint32_t n_parts,
                 void *packed, uint32_t *n_damaged, void *stream);
int gk_cuda_pack_load(void);

#ifdef __cplusplus
}
#endif
