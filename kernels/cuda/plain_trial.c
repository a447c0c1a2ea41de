/* plain_trial.c - see plain_trial.h.
 *
 * The rows of x are noise. What all rows give at once is kept on the device, and every other
 * product of some of these rows is compared with it there, by digests: of 64 MiB, copies to the CPU
 * would take longer than all products.
 *
 * W is the weight's own, which costs no memory: but zeros have the same bits in whatever order they
 * are added up, so for such a weight W is noise, too. */
#include "kernels/cuda/plain_trial.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gk/cuda.h"
#include "ipc/base/noise.h"
#include "ipc/base/num.h"
#include "kernels/cuda/finish_rows.h"

#define RANKED_MAX  8u                     /* of a range */
#define KNOWN_MAX   (PLAIN_RANGES_MAX + 1) /* the reference, and what was chosen for ranges */
#define HOPELESS    1.3f                   /* times the fastest: not timed again */
#define BUDGET_MSEC 0.6f                   /* for timing an algorithm once more */
#define POISON_BYTE 0xff
#define NO_TEXT     "no algorithm of cuBLASLt gives a row the same bits at every m"

/* Memory for products of up to m_max rows, and algorithms that are known to give what is
 * expected. */
struct trial {
    struct cublaslt_gemm gemm; /* m is set for each */
    struct cublaslt_pointers at;
    uint32_t m_max;
    uint8_t *memory;
    void *noise_w;             /* NULL: the weight's own does */
    void *expected;            /* y of all rows */
    struct gk_digest *digests; /* of what is expected, and of what came */
    cublasLtMatmulAlgo_t known[KNOWN_MAX];
    uint32_t n_known;
    cudaStream_t stream;
    cudaEvent_t start, end;
};

/* ---- ranges ---- */

uint32_t plain_range_end(uint32_t rows_max, uint32_t i_range)
{
    static const uint16_t ends[PLAIN_RANGES_MAX] = {16,  32,  64,  96,  128, 192,
                                                    256, 384, 512, 768, 1024};
    return (uint32_t)num_min(ends[i_range], rows_max);
}

static uint32_t range_of(uint32_t rows_max, uint32_t m)
{
    uint32_t i_range = 0;
    while (plain_range_end(rows_max, i_range) < m) {
        i_range++;
    }
    return i_range;
}

const cublasLtMatmulAlgo_t *plain_algorithm(const struct plain_choice *choice, uint32_t m)
{
    return &choice->algorithms[range_of(choice->rows_max, m)];
}

/* ---- memory ---- */

static void trial_finish(struct trial *trial)
{
    if (trial->start != NULL) {
        (void)cudaEventDestroy(trial->start);
    }
    if (trial->end != NULL) {
        (void)cudaEventDestroy(trial->end);
    }
    if (trial->stream != NULL) {
        (void)cudaStreamDestroy(trial->stream);
    }
    (void)cudaFree(trial->noise_w);
    (void)cudaFree(trial->memory);
}

/* Of x, the beginning of which is the bias, too. */
static uint64_t x_elems(const struct cublaslt_gemm *gemm)
{
    return num_max(gemm->m * gemm->x_stride, gemm->n);
}

/* Something that uses every bit of a mantissa, the same in no two rows. On the stream that reads
 * it: a copy on another one may still be under way when cudaMemcpy() returns. */
static cudaError_t fill(struct trial *trial, void *array, uint64_t n_elems)
{
    uint16_t *noise = malloc(n_elems * sizeof(*noise));
    if (noise == NULL) {
        return cudaErrorMemoryAllocation;
    }
    noise_fill(noise, trial->gemm.dtype, n_elems);
    cudaError_t error = cudaMemcpyAsync(array, noise, n_elems * sizeof(*noise),
                                        cudaMemcpyHostToDevice, trial->stream);
    error = error != cudaSuccess ? error : cudaStreamSynchronize(trial->stream);
    free(noise);
    return error;
}

/* Take noise for W from here on. */
static cudaError_t replace_w(struct trial *trial)
{
    uint64_t n_elems = trial->gemm.k * trial->gemm.w_stride;
    cudaError_t error = cudaMalloc(&trial->noise_w, n_elems * 2);
    trial->at.w = trial->noise_w;
    return error != cudaSuccess ? error : fill(trial, trial->noise_w, n_elems);
}

static uint64_t y_row_bytes(const struct cublaslt_gemm *gemm)
{
    return gemm->y_stride * dtype_bytes(gemm->y_dtype);
}

/* gemm: the one of most rows; y_bytes: of the largest y. */
static cudaError_t trial_init(struct trial *trial, const struct cublaslt_gemm *gemm,
                              uint64_t y_bytes, const void *packed)
{
    *trial = (struct trial){.gemm = *gemm, .m_max = gemm->m};
    uint64_t x_bytes = num_align_up(x_elems(gemm) * 2, 256);
    uint64_t total_bytes = CUBLASLT_WORKSPACE_BYTES + x_bytes + 2 * y_bytes + 256;
    cudaError_t error = cudaMalloc((void **)&trial->memory, total_bytes);
    error = error != cudaSuccess ? error
                                 : cudaStreamCreateWithFlags(&trial->stream, cudaStreamNonBlocking);
    error = error != cudaSuccess ? error : cudaEventCreate(&trial->start);
    error = error != cudaSuccess ? error : cudaEventCreate(&trial->end);
    if (error != cudaSuccess) {
        return error;
    }
    uint8_t *x = trial->memory + CUBLASLT_WORKSPACE_BYTES;
    trial->at = (struct cublaslt_pointers){
        .w = packed, .x = x, .y = x + x_bytes, .bias = x, .workspace = trial->memory};
    trial->expected = x + x_bytes + y_bytes;
    trial->digests = (struct gk_digest *)(void *)(x + x_bytes + 2 * y_bytes);
    return fill(trial, x, x_elems(&trial->gemm));
}

/* ---- comparing ---- */

/* The product of m rows from first_m on. */
static cudaError_t multiply(struct trial *trial, const cublasLtMatmulAlgo_t *algorithm,
                            uint32_t first_m, uint32_t m, void *y)
{
    struct cublaslt_pointers at = trial->at;
    trial->gemm.m = m;
    at.x = (const uint8_t *)at.x + first_m * trial->gemm.x_stride * 2;
    at.y = y;
    cudaError_t error =
        cudaMemsetAsync(y, POISON_BYTE, m * y_row_bytes(&trial->gemm), trial->stream);
    return error != cudaSuccess
               ? error
               : (cudaError_t)cublaslt_enqueue(&trial->gemm, &at, algorithm, trial->stream);
}

/* Is in m rows at a what is in those at b? */
static bool is_same(struct trial *trial, const void *a, const void *b, uint32_t m)
{
    struct gk_digest got[2];
    uint64_t n_words = m * y_row_bytes(&trial->gemm) / sizeof(uint64_t);
    cudaStream_t stream = trial->stream;
    cudaError_t error = cudaMemsetAsync(trial->digests, 0, sizeof(got), stream);
    error = error != cudaSuccess
                ? error
                : (cudaError_t)gk_cuda_digest(a, n_words, &trial->digests[0], stream);
    error = error != cudaSuccess
                ? error
                : (cudaError_t)gk_cuda_digest(b, n_words, &trial->digests[1], stream);
    error = error != cudaSuccess
                ? error
                : cudaMemcpyAsync(got, trial->digests, sizeof(got), cudaMemcpyDeviceToHost, stream);
    error = error != cudaSuccess ? error : cudaStreamSynchronize(stream);
    return error == cudaSuccess && gk_digest_is_same(&got[0], &got[1]);
}

static const void *expected_row(const struct trial *trial, uint32_t i_m)
{
    return (const uint8_t *)trial->expected + i_m * y_row_bytes(&trial->gemm);
}

/* Do rows have the bits that are expected, for some numbers of them from first_m to last_m, lying
 * in various places? */
static bool is_invariant(struct trial *trial, const cublasLtMatmulAlgo_t *algorithm,
                         uint32_t first_m, uint32_t last_m)
{
    /* Of each range the first, the last, and some between, odd and even. */
    static const uint16_t sample[] = {1,   2,   3,   7,   8,   16,  17,  32,  33,   63,   64,
                                      65,  80,  95,  96,  97,  112, 127, 128, 129,  160,  191,
                                      192, 193, 222, 255, 256, 257, 320, 383, 384,  385,  448,
                                      511, 512, 513, 640, 767, 768, 769, 896, 1000, 1023, 1024};
    for (uint32_t i = 0; i < ARRAY_LENGTH(sample); i++) {
        uint32_t m = sample[i];
        uint32_t first = 37 * i % (trial->m_max - (uint32_t)num_min(m, trial->m_max) + 1);
        if (m >= first_m && m <= last_m &&
            (multiply(trial, algorithm, first, m, trial->at.y) != cudaSuccess ||
             !is_same(trial, trial->at.y, expected_row(trial, first), m))) {
            return false;
        }
    }
    return true;
}

/* Does it run with all numbers of rows, and where rows of x and y lie as close as 16 bytes allow?
 */
static bool can_all(const struct trial *trial, const cublasLtMatmulAlgo_t *algorithm,
                    uint32_t first_m, uint32_t last_m)
{
    struct cublaslt_gemm gemm = trial->gemm, askew = trial->gemm;
    uint32_t x_step = CUBLASLT_ALIGNMENT / 2;
    uint32_t y_step = CUBLASLT_ALIGNMENT / dtype_bytes(gemm.y_dtype);
    askew.x_stride = (gemm.x_stride / x_step | 1) * x_step;
    askew.y_stride = (gemm.y_stride / y_step | 1) * y_step;
    for (uint32_t m = first_m; m <= last_m; m++) {
        gemm.m = askew.m = m;
        if (!cublaslt_can(&gemm, algorithm) || !cublaslt_can(&askew, algorithm)) {
            return false;
        }
    }
    return true;
}

static bool will_do(struct trial *trial, const cublasLtMatmulAlgo_t *algorithm, uint32_t first_m,
                    uint32_t last_m)
{
    return can_all(trial, algorithm, first_m, last_m) &&
           is_invariant(trial, algorithm, first_m, last_m);
}

/* ---- choosing ---- */

static uint32_t ranked(struct trial *trial, uint32_t m, cublasLtMatmulAlgo_t *ret_algorithms)
{
    trial->gemm.m = m;
    return cublaslt_algorithms(&trial->gemm, ret_algorithms, RANKED_MAX);
}

/* Leave little of the weight in the cache: a pass through a model's weights finds none of it. */
static cudaError_t cool(struct trial *trial)
{
    uint64_t y_bytes = trial->m_max * y_row_bytes(&trial->gemm);
    cudaError_t error =
        cudaMemsetAsync(trial->at.workspace, 0, CUBLASLT_WORKSPACE_BYTES, trial->stream);
    return error != cudaSuccess ? error : cudaMemsetAsync(trial->at.y, 0, y_bytes, trial->stream);
}

/* Milliseconds of a launch; infinite where it cannot be timed. */
static float time_launch(struct trial *trial, const cublasLtMatmulAlgo_t *algorithm, uint32_t m)
{
    float msec = INFINITY;
    trial->gemm.m = m;
    cudaError_t error = cool(trial);
    error = error != cudaSuccess ? error : cudaEventRecord(trial->start, trial->stream);
    error = error != cudaSuccess
                ? error
                : (cudaError_t)cublaslt_enqueue(&trial->gemm, &trial->at, algorithm, trial->stream);
    error = error != cudaSuccess ? error : cudaEventRecord(trial->end, trial->stream);
    error = error != cudaSuccess ? error : cudaEventSynchronize(trial->end);
    error = error != cudaSuccess ? error : cudaEventElapsedTime(&msec, trial->start, trial->end);
    return error == cudaSuccess ? msec : INFINITY;
}

/* The first launch loads code. Some more follow, but of what is far too slow. */
static float time_at(struct trial *trial, const cublasLtMatmulAlgo_t *algorithm, uint32_t m,
                     float best_msec)
{
    (void)time_launch(trial, algorithm, m);
    float msec = time_launch(trial, algorithm, m);
    if (msec > HOPELESS * best_msec) {
        return INFINITY;
    }
    uint32_t n_launches = (uint32_t)fminf(fmaxf(BUDGET_MSEC / msec, 2), 20);
    float sum_msec = 0;
    for (uint32_t i = 0; i < n_launches; i++) {
        sum_msec += time_launch(trial, algorithm, m);
    }
    return sum_msec / (float)n_launches;
}

/* Is the last of n algorithms among those before it? */
static bool is_repeated(const cublasLtMatmulAlgo_t *algorithms, uint32_t n)
{
    uint32_t i = 0;
    while (memcmp(&algorithms[i], &algorithms[n - 1], sizeof(algorithms[0])) != 0) {
        i++;
    }
    return i < n - 1;
}

/* For a range, the fastest that gives what is expected: of those that are known, and those that the
 * library ranks for the last m. */
static bool choose(struct trial *trial, uint32_t first_m, uint32_t last_m,
                   cublasLtMatmulAlgo_t *ret_algorithm)
{
    cublasLtMatmulAlgo_t algorithms[KNOWN_MAX + RANKED_MAX];
    float best_msec = INFINITY;
    memcpy(algorithms, trial->known, trial->n_known * sizeof(algorithms[0]));
    uint32_t n = trial->n_known + ranked(trial, last_m, &algorithms[trial->n_known]);
    for (uint32_t i = 0; i < n; i++) {
        if (is_repeated(algorithms, i + 1)) {
            continue;
        }
        float msec = time_at(trial, &algorithms[i], last_m, best_msec);
        if (msec < best_msec && will_do(trial, &algorithms[i], first_m, last_m)) {
            best_msec = msec;
            *ret_algorithm = algorithms[i];
        }
    }
    return best_msec < INFINITY;
}

/* For each range, the largest first: what is chosen there is often the best for fewer rows, too,
 * where the library would rather split k and ranks little that does not. */
static bool choose_all(struct trial *trial, struct plain_choice *ret_choice)
{
    uint32_t i_last = range_of(trial->m_max, trial->m_max);
    for (uint32_t i = i_last; i != UINT32_MAX; i--) {
        uint32_t first_m = i == 0 ? 1 : plain_range_end(trial->m_max, i - 1) + 1;
        cublasLtMatmulAlgo_t *chosen = &ret_choice->algorithms[i];
        if (!choose(trial, first_m, plain_range_end(trial->m_max, i), chosen)) {
            return false;
        }
        trial->known[trial->n_known++] = *chosen;
    }
    ret_choice->rows_max = trial->m_max;
    return true;
}

/* ---- sums, and what is rounded ---- */

static void begin(struct trial *trial, const struct cublaslt_gemm *gemm)
{
    trial->gemm = *gemm;
    trial->m_max = gemm->m;
    trial->n_known = 0;
}

/* The first that will do for all m; what it gives is expected from then on. */
static bool find_reference(struct trial *trial)
{
    cublasLtMatmulAlgo_t algorithms[RANKED_MAX];
    uint32_t n = ranked(trial, trial->m_max, algorithms);
    for (uint32_t i = 0; i < n; i++) {
        if (multiply(trial, &algorithms[i], 0, trial->m_max, trial->expected) == cudaSuccess &&
            will_do(trial, &algorithms[i], 1, trial->m_max)) {
            trial->known[trial->n_known++] = algorithms[i];
            return true;
        }
    }
    return false;
}

/* The same for sums, with a W that shows in which order they are made. */
static cudaError_t find_reference_of_sums(struct trial *trial, bool *ret_is_found)
{
    *ret_is_found = find_reference(trial);
    if (!*ret_is_found || !is_same(trial, expected_row(trial, 0), expected_row(trial, 1), 1)) {
        return cudaSuccess;
    }
    trial->n_known = 0;
    cudaError_t error = replace_w(trial);
    *ret_is_found = error == cudaSuccess && find_reference(trial);
    return error;
}

/* Expect what rounding gives of the sums of m rows, which are at `sums`, from first_m on. */
static cudaError_t expect_rounded(struct trial *trial, const void *sums,
                                  const struct cublaslt_gemm *rounded, uint32_t first_m, uint32_t m)
{
    const struct finish_rows finish = {
        .sums = sums,
        .stride = rounded->y_stride,
        .bias = trial->at.bias,
        .m = m,
        .n = rounded->n,
        .sums_dtype = DTYPE_F32,
        .bias_dtype = rounded->bias_dtype,
        .y_dtype = rounded->y_dtype,
        .first_y = (uint8_t *)trial->expected + first_m * y_row_bytes(rounded),
        .y_stride_bytes = y_row_bytes(rounded),
    };
    return (cudaError_t)finish_rows_enqueue(&finish, trial->stream);
}

/* Likewise for all rows that are rounded at once, which are more than those of a call for sums. */
static bool expect_all_rounded(struct trial *trial, const struct plain_choice *sums,
                               const struct cublaslt_gemm *rounded)
{
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; error == cudaSuccess && i < rounded->m; i += sums->rows_max) {
        uint32_t m = (uint32_t)num_min(rounded->m - i, sums->rows_max);
        error = multiply(trial, plain_algorithm(sums, m), i, m, trial->at.y);
        error = error != cudaSuccess ? error : expect_rounded(trial, trial->at.y, rounded, i, m);
    }
    return error == cudaSuccess;
}

int plain_trial(const struct cublaslt_gemm *sums, const struct cublaslt_gemm *rounded,
                const void *packed, struct plain_plan *ret_plan, const char **ret_text)
{
    struct trial trial;
    struct plain_plan plan = {.rounded.rows_max = 0};
    uint64_t y_bytes = num_max(sums->m * y_row_bytes(sums), rounded->m * y_row_bytes(rounded));
    const struct cublaslt_gemm *larger = rounded->m > sums->m ? rounded : sums;
    cudaError_t error = trial_init(&trial, larger, num_align_up(y_bytes, 256), packed);
    bool is_found = false;
    if (error == cudaSuccess) {
        begin(&trial, sums);
        error = find_reference_of_sums(&trial, &is_found);
        *ret_text = is_found && choose_all(&trial, &plan.sums) ? NULL : NO_TEXT;
    }
    if (error == cudaSuccess && *ret_text == NULL && rounded->m > 0 &&
        expect_all_rounded(&trial, &plan.sums, rounded)) {
        begin(&trial, rounded);
        (void)choose_all(&trial, &plan.rounded); /* else sums are rounded one launch later */
    }
    /* That a product failed may be the algorithm's fault; what is left behind is the device's. */
    error = error != cudaSuccess ? error : cudaStreamSynchronize(trial.stream);
    trial_finish(&trial);
    *ret_plan = plan;
    return error;
}
