/* plain_trial.c - see plain_trial.h.
 *
 * An algorithm that fails is told from one that gives a row other bits: the one is a fault of the
 * machine, and passes, the other is how that algorithm is. */
#include "kernels/cuda/plain_trial.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "ipc/base/num.h"
#include "kernels/cuda/plain_product.h"

#define RANKED_MAX  8u                     /* of a range */
#define KNOWN_MAX   (PLAIN_RANGES_MAX + 1) /* the reference, and what was chosen for ranges */
#define HOPELESS    1.3f                   /* times the fastest: not timed again */
#define BUDGET_MSEC 0.6f                   /* for timing an algorithm once more */

struct trial {
    struct plain_product product;
    cublasLtMatmulAlgo_t known[KNOWN_MAX]; /* (n_known): they give what is expected */
    uint32_t n_known;
    uint32_t n_outcomes[PLAIN_FAILED + 1]; /* of algorithms */
};

static bool count(struct trial *trial, enum plain_outcome outcome)
{
    trial->n_outcomes[outcome]++;
    return outcome == PLAIN_GOOD;
}

/* ---- invariance ---- */

/* Do rows have the bits that are expected, for some numbers of them from first_m to last_m, lying
 * in various places? */
static enum plain_outcome compare_some(struct trial *trial, const cublasLtMatmulAlgo_t *algorithm,
                                       uint32_t first_m, uint32_t last_m)
{
    /* Of each range the first, the last, and some between, odd and even. */
    static const uint16_t sample[] = {1,   2,   3,   7,   8,   16,  17,  32,  33,   63,   64,
                                      65,  80,  95,  96,  97,  112, 127, 128, 129,  160,  191,
                                      192, 193, 222, 255, 256, 257, 320, 383, 384,  385,  448,
                                      511, 512, 513, 640, 767, 768, 769, 896, 1000, 1023, 1024};
    uint32_t m_max = trial->product.m_max;
    enum plain_outcome outcome = PLAIN_GOOD;
    for (uint32_t i = 0; outcome == PLAIN_GOOD && i < ARRAY_LENGTH(sample); i++) {
        uint32_t m = sample[i];
        uint32_t first = 37 * i % (m_max - (uint32_t)num_min(m, m_max) + 1);
        if (m >= first_m && m <= last_m) {
            outcome = plain_product_compare(&trial->product, algorithm, first, m);
        }
    }
    return outcome;
}

static enum plain_outcome judge(struct trial *trial, const cublasLtMatmulAlgo_t *algorithm,
                                uint32_t first_m, uint32_t last_m)
{
    for (uint32_t m = first_m; m <= last_m; m++) {
        if (!plain_product_can(&trial->product, algorithm, m)) {
            return PLAIN_DECLINED;
        }
    }
    return compare_some(trial, algorithm, first_m, last_m);
}

/* ---- choosing ---- */

static uint32_t ranked(const struct trial *trial, uint32_t m, cublasLtMatmulAlgo_t *ret_algorithms)
{
    struct cublaslt_gemm gemm = trial->product.gemm;
    gemm.m = m;
    return cublaslt_algorithms(&gemm, ret_algorithms, RANKED_MAX);
}

/* *ret_msec is infinite for what is far too slow. The first launch loads code; some more follow. */
static enum plain_outcome time_at(struct trial *trial, const cublasLtMatmulAlgo_t *algorithm,
                                  uint32_t m, float best_msec, float *ret_msec)
{
    struct plain_product *product = &trial->product;
    float msec, sum_msec = 0;
    *ret_msec = INFINITY;
    enum plain_outcome outcome = plain_product_time(product, algorithm, m, &msec);
    outcome = outcome != PLAIN_GOOD ? outcome : plain_product_time(product, algorithm, m, &msec);
    if (outcome != PLAIN_GOOD || msec > HOPELESS * best_msec) {
        return outcome;
    }
    uint32_t n_launches = (uint32_t)fminf(fmaxf(BUDGET_MSEC / msec, 2), 20);
    for (uint32_t i = 0; outcome == PLAIN_GOOD && i < n_launches; i++) {
        outcome = plain_product_time(product, algorithm, m, &msec);
        sum_msec += msec;
    }
    *ret_msec = outcome == PLAIN_GOOD ? sum_msec / (float)n_launches : INFINITY;
    return outcome;
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
        float msec;
        if (is_repeated(algorithms, i + 1)) {
            continue;
        }
        enum plain_outcome outcome = time_at(trial, &algorithms[i], last_m, best_msec, &msec);
        if (outcome == PLAIN_GOOD && msec < best_msec) {
            outcome = judge(trial, &algorithms[i], first_m, last_m);
        }
        if (count(trial, outcome) && msec < best_msec) {
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
    uint32_t m_max = trial->product.m_max;
    for (uint32_t i = plain_ranges(m_max); i-- > 0;) {
        cublasLtMatmulAlgo_t *chosen = &ret_choice->algorithms[i];
        if (!choose(trial, plain_range_first(i), plain_range_last(m_max, i), chosen)) {
            return false;
        }
        trial->known[trial->n_known++] = *chosen;
    }
    ret_choice->rows_max = m_max;
    return true;
}

/* ---- sums, and what is rounded ---- */

static void begin(struct trial *trial, const struct cublaslt_gemm *gemm)
{
    plain_product_begin(&trial->product, gemm);
    trial->n_known = 0;
}

/* The first that will do for all m; what it gives is expected from then on. */
static bool find_reference(struct trial *trial)
{
    cublasLtMatmulAlgo_t algorithms[RANKED_MAX];
    uint32_t m_max = trial->product.m_max;
    uint32_t n = ranked(trial, m_max, algorithms);
    for (uint32_t i = 0; i < n; i++) {
        enum plain_outcome outcome = plain_product_expect(&trial->product, &algorithms[i]);
        outcome = outcome != PLAIN_GOOD ? outcome : judge(trial, &algorithms[i], 1, m_max);
        if (count(trial, outcome)) {
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
    if (!*ret_is_found || plain_product_shows_order(&trial->product)) {
        return cudaSuccess;
    }
    trial->n_known = 0;
    cudaError_t error = (cudaError_t)plain_product_replace_w(&trial->product);
    *ret_is_found = error == cudaSuccess && find_reference(trial);
    return error;
}

/* What became of what was tried, where that is not as it should be. */
static void tell(const struct trial *trial, bool is_made, struct reason *note)
{
    const uint32_t *n_outcomes = trial->n_outcomes;
    uint32_t n_declined = n_outcomes[PLAIN_DECLINED], n_failed = n_outcomes[PLAIN_FAILED];
    uint32_t n_other = n_outcomes[PLAIN_OTHER_BITS];
    uint32_t n = n_outcomes[PLAIN_GOOD] + n_other + n_declined + n_failed;
    if (trial->product.failure != NULL) {
        (void)reason_set(note, STATUS_DEVICE_ERROR,
                         "cuBLASLt failed with %s at %u rows: of %u trials of an algorithm %u "
                         "failed, %u gave a row other bits, %u were declined",
                         trial->product.failure, trial->product.failure_m, n, n_failed, n_other,
                         n_declined);
    } else if (!is_made && n == 0) {
        (void)reason_set(note, STATUS_UNSUPPORTED, "cuBLASLt names no algorithm for it");
    } else if (!is_made) {
        (void)reason_set(note, STATUS_UNSUPPORTED,
                         "no algorithm of cuBLASLt gives a row the same bits at every m: of %u "
                         "trials %u gave other bits, %u were declined",
                         n, n_other, n_declined);
    }
}

static cudaError_t try_all(struct trial *trial, const struct cublaslt_gemm *sums,
                           const struct cublaslt_gemm *rounded, struct plain_plan *ret_plan,
                           struct reason *note)
{
    bool is_found;
    begin(trial, sums);
    cudaError_t error = find_reference_of_sums(trial, &is_found);
    if (error != cudaSuccess) {
        return error;
    }
    bool is_made = is_found && choose_all(trial, &ret_plan->sums);
    if (is_made && rounded->m > 0 &&
        count(trial, plain_product_expect_rounded(&trial->product, &ret_plan->sums, rounded))) {
        begin(trial, rounded);
        (void)choose_all(trial, &ret_plan->rounded); /* else sums are rounded one launch later */
    }
    tell(trial, is_made, note);
    return cudaSuccess;
}

int plain_trial(const struct cublaslt_gemm *sums, const struct cublaslt_gemm *rounded,
                const void *packed, struct plain_plan *ret_plan, struct reason *note)
{
    struct trial trial = {.n_known = 0};
    *ret_plan = (struct plain_plan){.rounded.rows_max = 0};
    cudaError_t error = (cudaError_t)plain_product_init(&trial.product, sums, rounded, packed);
    error = error != cudaSuccess ? error : try_all(&trial, sums, rounded, ret_plan, note);
    return plain_product_finish(&trial.product, error);
}
