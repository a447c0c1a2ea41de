/* gk.h - the kernel library: formats, packing, registry, selection, host kernels.
 *
 * Usable without the daemon. Plain C; no threads, no logging, no allocation in a launch.
 *
 * Notation: W is n x k (out_features x in_features), x is m x k row-major, y is m x n row-major,
 * y = x W^T (+ bias). A group is a run of group_size elements along k that share a scale. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/dtype.h"
#include "ipc/base/reason.h"

/* ---- what a weight is ---- */

/* How an element of W is stored. */
enum gk_code {
    GK_CODE_F32 = 1, /* values as they are; no scales */
    GK_CODE_F16 = 2,
    GK_CODE_BF16 = 3,
    GK_CODE_U4 = 4,   /* unsigned integers: w = scale * (code - zero) */
    GK_CODE_U8 = 5,   /* signed bytes of a checkpoint are stored with 128 added */
    GK_CODE_E4M3 = 6, /* floats of 8 and 4 bits: w = scale * code */
    GK_CODE_E2M1 = 7,
};

/* What happens to x before it is multiplied. kernels/NUMERICS.md has each rule. The numbers are
 * part of the wire protocol, which repeats them. */
enum gk_act {
    GK_ACT_FLOAT = 0,           /* nothing: f32, f16, bf16 as they come */
    GK_ACT_FP8_TENSOR = 1,      /* e4m3 by the weight's own act_scale */
    GK_ACT_FP8_TOKEN = 2,       /* e4m3, a scale for each row of x */
    GK_ACT_FP8_GROUP = 3,       /* e4m3, a scale for each 128 of k of each row */
    GK_ACT_INT8_TENSOR = 4,     /* int8 by the weight's own act_scale and act_zero */
    GK_ACT_INT8_TOKEN = 5,      /* int8, symmetric, a scale for each row */
    GK_ACT_INT8_TOKEN_ZERO = 6, /* int8, a scale and a zero point for each row */
};

#define GK_ACT_GROUP_K 128u

/* A further f32 for each row of W, applied to finished sums (NVFP4's global scale; fused modules
 * keep one for each of theirs). */
enum gk_column_scale {
    GK_COLUMN_SCALE_NONE = 0,
    GK_COLUMN_SCALE_MULTIPLIES = 1,
    GK_COLUMN_SCALE_DIVIDES = 2,
};

/* A scale covers group_n rows by group_k columns of W; the last group along either side may be
 * smaller. Usual shapes: 1 x 128 (GPTQ, AWQ), 1 x k (a scale a channel), n x k (a scale a tensor),
 * 128 x 128 (block FP8). Plain codes have none: both are 0. */
struct gk_desc {
    uint32_t n;
    uint32_t k;
    enum gk_code code;
    uint32_t group_n;       /* 1..n */
    uint32_t group_k;       /* 1..k */
    enum dtype scale_dtype; /* F16, BF16, F32, F8_E4M3 or F8_E8M0, as the checkpoint has it */
    bool has_zeros;         /* integer codes: a zero point for each scale; else it is 2^(bits-1) */
    bool has_perm; /* act-order: codes lie sorted by group, position i is element perm[i] of x */
    enum gk_column_scale column_scale;
    enum gk_act act;
    bool is_act_scale_pow2; /* FP8_TOKEN, FP8_GROUP: scales are rounded up to powers of two */
    float act_scale;        /* *_TENSOR */
    int32_t act_zero;       /* INT8_TENSOR: -128..127 */
    enum dtype bias_dtype;  /* DTYPE_NONE: no bias */
};

/* Kinds of codes, and their width; 0 for no code. */
bool gk_code_is_plain(enum gk_code code);
bool gk_code_is_int(enum gk_code code);
uint32_t gk_code_bits(enum gk_code code);
/* gk_code_dtype() - the element type of a plain code; DTYPE_NONE for the others. gk_code_of_dtype()
 * - the plain code of F32, F16, BF16; 0 for other types. */
enum dtype gk_code_dtype(enum gk_code code);
enum gk_code gk_code_of_dtype(enum dtype dtype);

/* Kinds of schemes: INT8 ones, FP8 ones; the type a quantised x has (DTYPE_NONE for FLOAT). */
bool gk_act_is_int8(enum gk_act act);
bool gk_act_is_fp8(enum gk_act act);
enum dtype gk_act_dtype(enum gk_act act);

/* gk_desc_x_scales() - how many f32 scales each row of x has that comes quantised: one, or one for
 * each GK_ACT_GROUP_K of k; 0 for FLOAT and *_TENSOR. */
uint32_t gk_desc_x_scales(const struct gk_desc *desc);

/* gk_desc_check() - a pure predicate: can this be packed at all? 0 or STATUS_UNSUPPORTED /
 * STATUS_INVALID_ARGUMENT with the rule. */
int gk_desc_check(const struct gk_desc *desc, struct reason *why) GD_MUST_CHECK;

/* gk_desc_format() - "int4 sym g128 f16", "int4 g128 act-order f16", "fp8 128x128 f32, fp8 group
 * activations", "plain bf16"; always NUL-terminated. */
void gk_desc_format(const struct gk_desc *desc, char *text, uint32_t size_bytes);

/* Extent of the scales: ceil(k / group_k) by ceil(n / group_n); 0 for plain codes. */
uint32_t gk_desc_groups(const struct gk_desc *desc);
uint32_t gk_desc_scale_columns(const struct gk_desc *desc);

/* A weight in canonical form: what every reader produces and every packer eats. Arrays are the
 * caller's; absent ones are NULL. */
struct gk_canonical {
    struct gk_desc desc;
    void *codes;          /* (n, k): one code a byte; plain: elements of gk_code_dtype() */
    void *scales;         /* (groups, scale_columns) of scale_dtype */
    uint8_t *zeros;       /* (groups, scale_columns) */
    uint32_t *perm;       /* (k) */
    float *column_scales; /* (n), as the checkpoint has them: factors or divisors */
    void *bias;           /* (n) of bias_dtype */
};

/* gk_canonical_alloc() - desc must pass gk_desc_check(). Zeroed. -ENOMEM. _finish() frees and
 * zeroes. */
int gk_canonical_alloc(struct gk_canonical *canonical, const struct gk_desc *desc) GD_MUST_CHECK;
void gk_canonical_finish(struct gk_canonical *canonical);

/* gk_canonical_alloc_rest() - the same without codes, which stay NULL: they are packed from where
 * they lie (struct gk_codes). Readers, fusing and slicing then leave codes alone, and a reader's
 * codes need not be there. */
int gk_canonical_alloc_rest(struct gk_canonical *canonical,
                            const struct gk_desc *desc) GD_MUST_CHECK;

/* gk_canonical_value() - the factor of element i_k of x in column i_n of y, in double: the
 * dequantised W[i_n][i_k], act-order undone. Exact, but for the last rounding where there are
 * column scales. O(k) with has_perm. */
double gk_canonical_value(const struct gk_canonical *canonical, uint32_t i_n, uint32_t i_k);
/* gk_canonical_bias() - bias[i_n] in double, 0 without one. */
double gk_canonical_bias(const struct gk_canonical *canonical, uint32_t i_n);

/* ---- readers of checkpoint layouts -------------------------------------------------------------
 *
 * A reader fills codes, scales, zeros and column_scales of a canonical that was allocated for a
 * checked desc, which says what there is and how large it is. The bias is the caller's to read, and
 * so is perm, before the codes: gk_g_idx_read() makes it. Source pointers may be unaligned; they
 * hold as many elements as the shapes below say, which the caller has compared with the tensors'
 * own; words are little-endian. "groups" and "scale_columns" are gk_desc_groups() and
 * gk_desc_scale_columns(). Every bit is kept: nothing is rounded or rescaled.
 *
 * Refused, naming what, group, column and value: scales that are negative, infinite or NaN; NaN
 * among FP8 weights; zero points where the desc has none. A scale of 0 is let through: quantisers
 * write it for a group of nothing but zeros.
 * Return: 0; STATUS_BAD_CHECKPOINT; STATUS_UNSUPPORTED for a desc that the layout cannot hold.
 * After a refusal the arrays hold part of the weight. Pure but for the canonical; any thread. */

/* gk_code_of_bits() - GK_CODE_U4 or GK_CODE_U8; other widths are STATUS_UNSUPPORTED.
 * gk_pack_dtype_check() - 0 for the word type that GPTQ, AWQ and compressed-tensors pack into
 * ("int32", null as NULL), STATUS_UNSUPPORTED for every other name.
 * gk_awq_version_check() - 0 for "gemm" and NULL; "gemv", "gemv_fast" and others, whose bytes lie
 * otherwise, are STATUS_UNSUPPORTED. Any case of letters. */
int gk_code_of_bits(uint32_t bits, enum gk_code *ret_code, struct reason *why) GD_MUST_CHECK;
int gk_pack_dtype_check(const char *name, struct reason *why) GD_MUST_CHECK;
int gk_awq_version_check(const char *version, struct reason *why) GD_MUST_CHECK;

/* What a g_idx (the group of each element of k) turned out to be. */
enum gk_g_idx {
    GK_G_IDX_PLAIN = 1, /* k / group_k: no act-order, whatever was declared */
    GK_G_IDX_UNSET = 2, /* -1 throughout: as if it were absent; worth a warning */
    GK_G_IDX_ZEROS = 3, /* 0 throughout, several groups, act-order not declared: k / group_k by
                           rule; worth a warning */
    GK_G_IDX_ORDER = 4, /* act-order */
};

/* gk_g_idx_read() - judge g_idx (k) int32 and sort it, stably, into perm (k), which is written for
 * GK_G_IDX_ORDER only (desc.has_perm must then be set). The last group is shorter where group_k
 * does not divide k. Refused: entries outside the groups, by index and value, as damage; groups
 * with any other number of elements than group_k as STATUS_UNSUPPORTED, by group and number.
 * Return: 0, STATUS_BAD_CHECKPOINT, STATUS_UNSUPPORTED or -ENOMEM. */
int gk_g_idx_read(const void *g_idx, uint32_t k, uint32_t group_k, bool is_declared, uint32_t *perm,
                  enum gk_g_idx *ret_kind, struct reason *why) GD_MUST_CHECK;

/* GPTQ, v1 and v2, 4 and 8 bit: U4 or U8 with group_n 1, any group_k, zeros, act-order. Words hold
 * 32 / bits fields, lowest bits first. */
struct gk_gptq {
    const void *qweight; /* (k / fields, n) int32: a word holds consecutive k of a column */
    const void *qzeros;  /* (groups, n / fields) int32: a word holds consecutive columns of a group;
                            NULL: symmetric by declaration; refused with desc.has_zeros */
    const void *scales;  /* (groups, n) */
    bool is_v1;          /* zero points are stored minus one, modulo 2^bits */
};

/* gk_gptq_read() - without desc.has_zeros every zero point must be the symmetric one, 2^(bits-1):
 * files that declare one version and hold the other exist and would be off by one everywhere.
 * *ret_n_wrapped: zero points of v1 stored as 2^bits - 1, taken as 0 (other readers take them as
 * 2^bits, and a known writer damages their neighbours: worth a warning); may be NULL. */
int gk_gptq_read(const struct gk_gptq *source, struct gk_canonical *canonical,
                 uint64_t *ret_n_wrapped, struct reason *why) GD_MUST_CHECK;

/* AWQ "gemm": U4 with group_n 1 and no act-order. A word holds eight consecutive columns, in
 * nibbles 0, 4, 1, 5, 2, 6, 3, 7. Zero points are stored as they are. */
struct gk_awq {
    const void *qweight; /* (k, n / 8) int32 */
    const void *qzeros;  /* (groups, n / 8) int32; NULL without desc.has_zeros */
    const void *scales;  /* (groups, n) */
};
int gk_awq_read(const struct gk_awq *source, struct gk_canonical *canonical,
                struct reason *why) GD_MUST_CHECK;

/* compressed-tensors "pack-quantized", 4 and 8 bit: U4 or U8 with group_n 1 or n. Signed values and
 * zero points, stored with 2^(bits-1) added, which is what canonical codes have. */
struct gk_ct_packed {
    const void *weight_packed;     /* (n, ceil(k / fields)) int32: consecutive k, low first */
    const void *weight_scale;      /* (scale_columns, groups) */
    const void *weight_zero_point; /* (ceil(scale_columns / fields), groups) int32: consecutive
                                      columns, low first; NULL without desc.has_zeros */
    const void *weight_shape;      /* (2) int64: n, k, refused when they differ from the desc's;
                                      NULL: absent */
};
int gk_ct_packed_read(const struct gk_ct_packed *source, struct gk_canonical *canonical,
                      struct reason *why) GD_MUST_CHECK;

/* A byte a weight, signed: U8 of compressed-tensors "int-quantized" and INT8 W8A8. */
struct gk_int8 {
    const void *weight;            /* (n, k) int8 */
    const void *weight_scale;      /* (scale_columns, groups) */
    const void *weight_zero_point; /* (scale_columns, groups) int8; NULL without desc.has_zeros */
};
int gk_int8_read(const struct gk_int8 *source, struct gk_canonical *canonical,
                 struct reason *why) GD_MUST_CHECK;

/* FP8 weights, E4M3, of every origin: "fp8" and block FP8 (weight_scale_inv multiplies, whatever it
 * is called), "fbgemm_fp8", compressed-tensors "float-quantized", ModelOpt FP8, MXFP8 (scale_dtype
 * F8_E8M0, also from tensors of U8). NaN weights (0x7f, 0xff) are refused, by row and column: one
 * makes a whole column of y NaN. */
struct gk_fp8 {
    const void *weight;       /* (n, k) F8_E4M3 */
    const void *weight_scale; /* (scale_columns, groups) */
};
int gk_fp8_read(const struct gk_fp8 *source, struct gk_canonical *canonical,
                struct reason *why) GD_MUST_CHECK;

/* E2M1 weights, two a byte, the low nibble first: NVFP4 (groups of 16, scales F8_E4M3, a global
 * scale that divides in compressed-tensors and multiplies in ModelOpt: desc.column_scale says) and
 * MXFP4 (groups of 32, scales F8_E8M0, no global scale). k is even. */
struct gk_fp4 {
    const void *weight;       /* (n, k / 2) U8 */
    const void *weight_scale; /* (n, groups) */
    const void *global_scale; /* (1) f32, positive: written into every column scale; NULL without
                                 desc.column_scale */
};
int gk_fp4_read(const struct gk_fp4 *source, struct gk_canonical *canonical,
                struct reason *why) GD_MUST_CHECK;

/* ---- fusing and slicing ------------------------------------------------------------------------
 *
 * Exact: nothing is requantised; gk_canonical_value() of every element stays what it was. The
 * gk_desc_ function of a pair is the rule alone, and tells the desc before any data is read; the
 * gk_canonical_ function applies it. Inputs are only read; *ret_canonical is the caller's to
 * gk_canonical_finish(). Return: 0, STATUS_INVALID_ARGUMENT (a range outside the weight),
 * STATUS_UNSUPPORTED with the rule, or -ENOMEM. */

/* gk_canonical_concat_n() - several weights of equal k as one, rows of the first part first (qkv,
 * gate_up). Scales that cover several rows (a tensor, a block) stay so when all parts have the same
 * group_n and it divides the rows of all but the last; else they are repeated row by row (group_n
 * 1). Scales of f32, f16 and bf16 mix as f32, and so do biases. A part without zero points gets the
 * symmetric ones, without a bias -0 (which no sum is changed by), without column scales 1.
 * Refused: parts that differ in code, group_k, act-order (perm itself), or activation scheme;
 * static activation scales or zero points that differ, since one x would have to be quantised two
 * ways; column scales that multiply beside ones that divide. */
int gk_desc_concat_n(const struct gk_desc *parts, uint32_t n_parts, struct gk_desc *ret_desc,
                     struct reason *why) GD_MUST_CHECK;
int gk_canonical_concat_n(const struct gk_canonical *parts, uint32_t n_parts,
                          struct gk_canonical *ret_canonical, struct reason *why) GD_MUST_CHECK;

/* gk_canonical_slice_n() - rows [first_n, first_n + n) of W, columns of y: always possible. Where
 * the first cut goes through scales that cover several rows, they are repeated row by row. */
int gk_desc_slice_n(const struct gk_desc *whole, uint32_t first_n, uint32_t n,
                    struct gk_desc *ret_desc, struct reason *why) GD_MUST_CHECK;
int gk_canonical_slice_n(const struct gk_canonical *whole, uint32_t first_n, uint32_t n,
                         struct gk_canonical *ret_canonical, struct reason *why) GD_MUST_CHECK;

/* gk_canonical_slice_k() - columns [first_k, first_k + k) of W: a summand of y. Slices that cover k
 * sum to the whole: the bias stays with the slice that has first_k 0. A cut at a multiple of
 * group_k keeps the groups. A slice inside one group keeps its scale. Any other cut halves groups
 * until they fit, repeating scales: group_k becomes gcd(group_k, first_k), refused below
 * GK_SLICE_GROUP_K_MIN. Refused as well: act-order, where elements of every group lie all over k;
 * FP8_GROUP activations cut elsewhere than at a multiple of GK_ACT_GROUP_K. Dynamic scales of a
 * token are those of the slice's x, as everywhere in the field. */
#define GK_SLICE_GROUP_K_MIN 32u
int gk_desc_slice_k(const struct gk_desc *whole, uint32_t first_k, uint32_t k,
                    struct gk_desc *ret_desc, struct reason *why) GD_MUST_CHECK;
int gk_canonical_slice_k(const struct gk_canonical *whole, uint32_t first_k, uint32_t k,
                         struct gk_canonical *ret_canonical, struct reason *why) GD_MUST_CHECK;

/* ---- codes where they lie ----------------------------------------------------------------------
 *
 * A device that packs by itself takes the codes as a checkpoint's tensor has them, and everything
 * else in canonical form. */

/* How codes lie in a tensor: the first member of the reader's struct above. */
enum gk_code_order {
    GK_CODE_ORDER_GPTQ = 1,
    GK_CODE_ORDER_AWQ = 2,
    GK_CODE_ORDER_CT_PACKED = 3,
    GK_CODE_ORDER_INT8 = 4,
    GK_CODE_ORDER_FP8 = 5, /* NaN among them is for the packer to find */
    GK_CODE_ORDER_FP4 = 6,
    GK_CODE_ORDER_PLAIN = 7, /* elements of the code's own type */
};

/* A tensor of tensor_n x tensor_k codes, of which rows first_n to first_n + n - 1, elements from
 * first_k on, become rows to_n.. of a weight. */
struct gk_codes {
    enum gk_code_order order;
    const void *bytes;
    uint64_t size_bytes; /* of the tensor */
    uint32_t tensor_n;
    uint32_t tensor_k;
    uint32_t first_n;
    uint32_t first_k;
    uint32_t n;
    uint32_t to_n;
};

/* ---- packed layouts ---- */

enum gk_device_kind { GK_DEVICE_HOST = 1, GK_DEVICE_CUDA = 2 };

/* A packed layout: tagged, versioned, lossless, reversible. Padding lives only in here. */
struct gk_layout {
    const char *tag; /* "host-int4-n64k8" */
    uint32_t version;
    enum gk_device_kind device_kind;
    bool (*fits)(const struct gk_desc *desc);
    uint64_t (*packed_bytes)(
        const struct gk_desc *desc); /* scales and bias included; 64-byte multiple */
    void (*pack)(const struct gk_canonical *canonical, void *packed);
    void (*unpack)(const void *packed, struct gk_canonical *canonical); /* canonical->desc is set */
};

/* gk_layout_for() - the layout a weight gets on that kind of device; NULL: none. Static storage.
 * Packed memory must be 64-byte aligned. */
const struct gk_layout *gk_layout_for(const struct gk_desc *desc, enum gk_device_kind device_kind);

/* ---- launches ---- */

#define GK_BATCH_ROWS_MAX 64u /* rows of one launch, from anywhere */
#define GK_PREFILL_ROWS_MAX                                                                        \
    1024u /* rows of one request in a launch: about a millisecond's work                           \
           */

/* What is asked, without addresses: enough to choose a kernel. */
struct gk_problem {
    struct gk_desc desc;
    const struct gk_layout *layout;
    uint32_t m;         /* 1..GK_BATCH_ROWS_MAX; of prefill up to gk_rows_max() */
    enum dtype x_dtype; /* F32, F16, BF16; or gk_act_dtype() when the rows come quantised */
    enum dtype y_dtype;
    uint32_t cuda_arch; /* what the GPU can: 80 for Ampere, 90 for Hopper; 0 on host */
    uint32_t n_sms;     /* its multiprocessors, as this process sees them; 0 on host */
    bool is_prefill;    /* rows of one request that has more than GK_BATCH_ROWS_MAX: so in all of
                           its launches, that of its last few rows too */
    bool may_accumulate_fast; /* sums of e4m3 x may stay in the tensor core for all of k, which is
                                 less exact: see accumulates_fast() */
};

struct gk_ahead; /* gk/cuda.h */

/* A launch: the problem with its row-pointer tables. Rows are read and written in place, wherever
 * they are; x_rows[i] points to k elements, y_rows[i] to n, each aligned to its element size only.
 * An output row overlaps no input row and no other output row. On a GPU the tables lie in CPU
 * memory, and what they and the other pointers point to where the GPU reaches it.
 * The rows of prefill lie a stride apart, and are given that way too; they are in the tables as
 * well, unless there are more than GK_BATCH_ROWS_MAX. */
struct gk_launch {
    struct gk_problem problem;
    const void *packed;
    struct gk_prefill {
        const void *x;
        void *y;
        const void *x_scales; /* as x_scale_rows; or NULL */
        uint64_t x_stride_bytes;
        uint64_t y_stride_bytes;
        uint64_t x_scale_stride_bytes;
    } prefill;
    const void *const *x_rows;        /* (m) */
    const float *const *x_scale_rows; /* (m), rows that come quantised, but for *_TENSOR: pointers
                                         to gk_desc_x_scales() scales each; else NULL */
    void *const *y_rows;              /* (m) */
    void *workspace;                  /* gk_kernel.workspace_bytes(problem), 64-byte aligned (256 on
                                         a GPU), whatever was left in it */
    const struct gk_ahead *ahead;     /* CUDA kernels that can (rows_ahead_max): the launch is made
                                         before its rows are known; they, and how many of
                                         problem.m, are here, in the GPU's memory, by the time that
                                         what is before it in the stream has ended, and the tables
                                         above are not read. NULL: no */
};

/* What plan() below finds out, as a line of printable text without tabs that can be kept for
 * another process of the same build on a GPU of the same kind and driver, which is spared most of
 * the work.
 */
#define GK_PLAN_TEXT_BYTES 4096u
struct gk_planning {
    const char *kept;              /* such a line, however damaged; NULL: there is none */
    char text[GK_PLAN_TEXT_BYTES]; /* out: the line to be kept; left alone where nothing new was
                                      found out */
    struct reason note;            /* out: what went otherwise than it should, for people: that
                                      `kept` was of no use, or that something failed; left alone
                                      where all is well */
};
#define GK_PLANNING_NULL ((struct gk_planning){0})

/* One row of the registry. */
struct gk_kernel {
    const char *name; /* arch_types_op_scheme: "avx2_int4_gemm_group" */
    enum gk_device_kind device_kind;
    const char *tile;     /* for people: "64n x 8m, k128" */
    const char *numerics; /* kernels that name the same order of sums (NUMERICS.md) give the same
                             bits for a row, whatever m */

    /* Legality is a pure predicate: 0, or STATUS_UNSUPPORTED with the reason in one sentence. */
    int (*can_implement)(const struct gk_problem *problem, struct reason *why);

    uint64_t (*workspace_bytes)(const struct gk_problem *problem);
    double (*predicted_usec)(const struct gk_problem *problem, uint32_t n_threads);

    /* Does it make use of may_accumulate_fast for that problem? Its bits are others then, and those
     * of all launches of one prefill are of one kind. NULL: never. */
    bool (*accumulates_fast)(const struct gk_problem *problem);

    /* Host kernels run in two steps, each split into n_parts that may run on different threads; all
     * parts of prepare() end before the first of run() begins. Part i_part of n_parts writes
     * disjoint memory. The bits of y do not depend on n_parts. */
    void (*prepare)(const struct gk_launch *launch, uint32_t i_part, uint32_t n_parts);
    void (*run)(const struct gk_launch *launch, uint32_t i_part, uint32_t n_parts);

    /* CUDA kernels have these instead; they return 0 or a cudaError_t, for the caller to judge.
     * load(): once a device, with that device current, before any launch: load the code and raise
     * its limits, so that enqueue() never does. enqueue(): append the launch to a cudaStream_t and
     * return at once; it allocates nothing, waits for nothing, and passes the row tables by value,
     * so that they may change as soon as it returns.
     * plan(): for a weight whose problem (at m = 1) it may serve, with that device current, before
     * any launch of that weight: find out how to run weights of that shape. It may take some tenths
     * of a second and allocate. What it cannot plan, can_implement() declines from then on; NULL:
     * there is nothing to plan. Any thread. *planning: what is kept of it, and what there is to
     * say. rows_ahead_max(): the most rows of a launch of that problem, whatever its m, that is
     * told of them by gk_launch.ahead; 0, or no such function: it takes none. With that device
     * current. */
    int (*load)(void);
    int (*plan)(const struct gk_problem *problem, const void *packed, struct gk_planning *planning);
    int (*enqueue)(const struct gk_launch *launch, void *stream);
    uint32_t (*rows_ahead_max)(const struct gk_problem *problem);
};

/* gk_kernels() - the registry's rows for one kind of device, most preferred first; *ret_n is 0
 * where the build has none. */
const struct gk_kernel *const *gk_kernels(enum gk_device_kind device_kind, uint32_t *ret_n);

/* gk_judge() - may that kernel serve that problem? Beside its own can_implement(): it is not
 * disabled, and its numerics are those of the kernel that one row of the same weight and types
 * gets, prefill or not, since a row's bits must not depend on how many others it is batched or
 * chunked with. 0, or
 * STATUS_UNSUPPORTED with the reason (why: or NULL). Pure. */
int gk_judge(const struct gk_problem *problem, const struct gk_kernel *kernel, struct reason *why);

/* gk_candidates() - every kernel that may serve the problem, most preferred first: up to
 * GK_KERNELS_MAX, which is all a build has. They give the same bits. Pure. */
#define GK_KERNELS_MAX 32u
uint32_t gk_candidates(const struct gk_problem *problem, const struct gk_kernel **ret_kernels);

/* gk_select() - the first of them. *why tells all reasons in one sentence when there is none. 0 or
 * STATUS_UNSUPPORTED. Pure and cheap enough for every launch. */
int gk_select(const struct gk_problem *problem, const struct gk_kernel **ret_kernel,
              struct reason *why) GD_MUST_CHECK;

/* gk_is_all_disabled() - is there none, and would there be one if none were disabled? Pure. */
bool gk_is_all_disabled(const struct gk_problem *problem);

/* gk_rows_max() - the most rows a launch of that problem may have, whatever its m: more than
 * GK_BATCH_ROWS_MAX for prefill that some kernel takes in larger launches. Pure. */
uint32_t gk_rows_max(const struct gk_problem *problem);

/* gk_disable() - an operator's wish: never take the kernel of that name. gk_prefer() - take it
 * before others wherever it is eligible; the first one named comes first. The bits of products may
 * change with either. gk_kernel_named() - the row of that name, of any kind of device; NULL: none.
 * gk_wishes_clear() forgets all. Not thread-safe: before any launch. 0 or STATUS_INVALID_ARGUMENT
 * for a name that no kernel of this build has. */
int gk_disable(const char *name, struct reason *why) GD_MUST_CHECK;
int gk_prefer(const char *name, struct reason *why) GD_MUST_CHECK;
const struct gk_kernel *gk_kernel_named(const char *name);
void gk_wishes_clear(void);
/* gk_is_disabled() - has gk_disable() named it? Pure, any thread once wishes are set. */
bool gk_is_disabled(const struct gk_kernel *kernel);

/* gk_workspace_max() - the most any eligible kernel needs for a weight of that problem's desc and
 * layout on its GPU, at any m and dtype: what a device sizes its scratch by at load. */
uint64_t gk_workspace_max(const struct gk_problem *like);

/* gk_host_isa_limit() - for tests and operators: forbid host kernels above "portable", "avx2" or
 * "avx512"; NULL lifts it. Not thread-safe: before any launch. gk_host_isa_check() - is it one of
 * these? Both: 0 or STATUS_INVALID_ARGUMENT. */
int gk_host_isa_limit(const char *isa, struct reason *why) GD_MUST_CHECK;
int gk_host_isa_check(const char *isa, struct reason *why) GD_MUST_CHECK;

/* ---- reference ---- */

/* gk_reference_gemm() - y in double from the canonical weight, in double, k ascending; x quantised
 * first by desc.act, as every kernel does it. x (m, k) of F32, F16 or BF16, x_stride_elems >= k; y
 * (m, n) double, packed. 0 or -ENOMEM. */
int gk_reference_gemm(const struct gk_canonical *canonical, const void *x, enum dtype x_dtype,
                      uint64_t x_stride_elems, uint32_t m, double *y) GD_MUST_CHECK;
