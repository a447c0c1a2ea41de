/* bench-kernels.c - host kernels against the memory's own speed.
 *
 * Roof: the threads sum a large array, as wide as the compiler can, a slice of 32 MiB a run; once
 * relying on the hardware's prefetcher and once for each of several software prefetch distances,
 * since on some virtual machines the former alone reads at half the speed of the best. The fastest
 * of them is the roof.
 * Kernels: weights of one format (W4A16 g128 unless told otherwise) or, of the smaller shape only,
 * of all, larger than the caches or rotated so that they are; prepare and run as the daemon does.
 * Both sides use memory of the same kind. Best and median of the runs; on a machine that others
 * load too, best is the figure to trust. "of read" is best against the roof's best, "median" beside
 * it median against median.
 *
 *   bench-kernels [--json] [--threads T] [--runs R] [--isa portable|avx2|avx512] [--huge]
 *                 [--rows M,M,...] [--format "int4 g128"|...|all] */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "gk/gk.h"
#include "ipc/base/num.h"
#include "team.h"
#include "tests/unit/kernels/format_case.h"

#define ROOF_BYTES     (512ull << 20)
#define ROOF_RUN_BYTES (32ull << 20)  /* short enough to fall between other people's work */
#define ROTATION_BYTES (256ull << 20) /* copies of a weight together are at least that large */
#define COPIES_MAX     64u
#define RUNS_MAX       1000u
#define ROWS_MAX       16u

struct options {
    uint32_t n_threads;
    uint32_t n_runs;
    uint32_t rows[ROWS_MAX];
    uint32_t n_rows;
    const char *format; /* "all": every one */
    bool is_json;
    bool is_huge;
};

struct timing {
    double best_usec;
    double median_usec;
};

static double now_usec(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct timing timing_of(double *usec, uint32_t n_runs)
{
    qsort(usec, n_runs, sizeof(*usec), compare);
    return (struct timing){usec[0], usec[n_runs / 2]};
}

static void *map_memory(uint64_t size_bytes, bool is_huge)
{
    void *memory =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    (void)madvise(memory, size_bytes, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return memory;
}

/* ---- the roof ---- */

typedef uint64_t vector __attribute__((vector_size(32)));

struct roof {
    const vector *words;
    uint64_t n_words;
    uint32_t prefetch_bytes;    /* ahead; 0: none */
    uint64_t sums[TEAM_MAX][8]; /* a cache line for each thread */
};

static void sum_part(void *arg, uint32_t i_part, uint32_t n_parts)
{
    struct roof *roof = arg;
    const vector *word = roof->words + roof->n_words / n_parts * i_part;
    vector sums[8] = {{0}};
    for (uint64_t i = 0; i + 8 <= roof->n_words / n_parts; i += 8) {
        if (roof->prefetch_bytes != 0) {
            for (uint32_t j = 0; j < 4; j++) {
                __builtin_prefetch((const char *)&word[i + 2 * j] + roof->prefetch_bytes);
            }
        }
        for (uint32_t j = 0; j < 8; j++) {
            sums[j] += word[i + j];
        }
    }
    for (uint32_t j = 0; j < 8; j++) {
        roof->sums[i_part][j] = sums[j][0] + sums[j][1] + sums[j][2] + sums[j][3];
    }
}

/* Every byte is 1: proof that the loop read what it claims. */
static void check_roof(const struct roof *roof, uint32_t n_threads)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_threads * 8; i++) {
        sum += roof->sums[i / 8][i % 8];
    }
    if (sum != 0x0101010101010101u * (roof->n_words / n_threads / 8 * 8 * n_threads * 4)) {
        (void)fprintf(stderr, "bench-kernels: the read loop lost bytes\n");
        exit(1);
    }
}

static struct timing time_roof(struct team *team, const struct options *options, struct roof *roof,
                               const void *memory)
{
    double usec[RUNS_MAX];
    for (uint32_t i = 0; i < options->n_runs; i++) {
        uint64_t i_slice = i % (ROOF_BYTES / ROOF_RUN_BYTES);
        roof->words = (const vector *)memory + i_slice * roof->n_words;
        double start = now_usec();
        team_run(team, sum_part, roof);
        usec[i] = now_usec() - start;
    }
    check_roof(roof, options->n_threads);
    return timing_of(usec, options->n_runs);
}

static struct timing measure_roof(struct team *team, const struct options *options)
{
    static const uint32_t distances[] = {0, 512, 2048, 8192};
    struct timing best = {(double)INFINITY, (double)INFINITY};
    uint64_t n_bytes = ROOF_BYTES + distances[ARRAY_LENGTH(distances) - 1];
    void *memory = map_memory(n_bytes, options->is_huge);
    memset(memory, 1, n_bytes);
    for (uint32_t i = 0; i < ARRAY_LENGTH(distances); i++) {
        struct roof roof = {.n_words = ROOF_RUN_BYTES / sizeof(vector),
                            .prefetch_bytes = distances[i]};
        struct timing timing = time_roof(team, options, &roof, memory);
        best.best_usec = fmin(best.best_usec, timing.best_usec);
        best.median_usec = fmin(best.median_usec, timing.median_usec);
    }
    (void)munmap(memory, n_bytes);
    return best;
}

/* ---- kernels ---- */

struct weight {
    const char *format;
    struct gk_desc desc;
    const struct gk_layout *layout;
    uint64_t packed_bytes;
    uint32_t n_copies;
    uint8_t *memory;
};

/* Plain elements are all 0x3c3c..., a small number in each of the types. A bit of e4m3
 * codes stays 0 that every NaN has. */
static void vary_codes(struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint32_t mask = gk_code_bits(desc->code) == 4 ? 15 : desc->code == GK_CODE_E4M3 ? 0xf7 : 0xff;
    uint8_t *codes = canonical->codes;
    if (gk_code_is_plain(desc->code)) {
        memset(codes, 0x3c, (uint64_t)desc->n * desc->k * gk_code_bits(desc->code) / 8);
        return;
    }
    for (uint64_t i = 0; i < (uint64_t)desc->n * desc->k; i++) {
        codes[i] = (uint8_t)(i * 2654435761u >> 13 & mask);
    }
}

/* Act-order is the reverse: no two neighbours of x stay so. A packed weight is copied rather than
 * packed again. */
static void weight_init(struct weight *weight, const struct format_case *format, uint32_t n,
                        uint32_t k, bool is_huge)
{
    struct gk_canonical canonical;
    weight->format = format->name;
    weight->desc = format_desc(format, n, k, DTYPE_NONE);
    canonical_fill(&canonical, &weight->desc, 0, 0x1p-7);
    vary_codes(&canonical);
    for (uint32_t i = 0; weight->desc.has_perm && i < k; i++) {
        canonical.perm[i] = k - 1 - i;
    }
    weight->layout = gk_layout_for(&weight->desc, GK_DEVICE_HOST);
    weight->packed_bytes = weight->layout->packed_bytes(&weight->desc);
    weight->n_copies =
        (uint32_t)num_min(num_div_up(ROTATION_BYTES, weight->packed_bytes), COPIES_MAX);
    weight->memory = map_memory(weight->packed_bytes * weight->n_copies, is_huge);
    weight->layout->pack(&canonical, weight->memory);
    for (uint32_t i = 1; i < weight->n_copies; i++) {
        memcpy(weight->memory + i * weight->packed_bytes, weight->memory, weight->packed_bytes);
    }
    gk_canonical_finish(&canonical);
}

struct job {
    const struct gk_kernel *kernel;
    struct gk_launch launch;
};

static void prepare_part(void *arg, uint32_t i_part, uint32_t n_parts)
{
    struct job *job = arg;
    job->kernel->prepare(&job->launch, i_part, n_parts);
}

static void run_part(void *arg, uint32_t i_part, uint32_t n_parts)
{
    struct job *job = arg;
    job->kernel->run(&job->launch, i_part, n_parts);
}

static struct timing measure_kernel(struct team *team, const struct options *options,
                                    const struct weight *weight, struct job *job)
{
    double usec[RUNS_MAX];
    for (uint32_t i = 0; i < options->n_runs; i++) {
        job->launch.packed = weight->memory + i % weight->n_copies * weight->packed_bytes;
        double start = now_usec();
        team_run(team, prepare_part, job);
        team_run(team, run_part, job);
        usec[i] = now_usec() - start;
    }
    return timing_of(usec, options->n_runs);
}

/* ---- the table ---- */

static double gbps_of(uint64_t n_bytes, double usec)
{
    return (double)n_bytes / usec * 1e-3;
}

static void print_result(const struct options *options, const struct job *job,
                         const struct weight *weight, const struct timing *timing,
                         const struct timing *roof, bool is_first)
{
    const struct gk_problem *problem = &job->launch.problem;
    double gbps = gbps_of(weight->packed_bytes, timing->best_usec);
    double median_gbps = gbps_of(weight->packed_bytes, timing->median_usec);
    double gflops = 2e-3 * problem->m * problem->desc.n * problem->desc.k / timing->best_usec;
    double predicted = job->kernel->predicted_usec(problem, options->n_threads);
    double share = gbps / gbps_of(ROOF_RUN_BYTES, roof->best_usec);
    double median_share = median_gbps / gbps_of(ROOF_RUN_BYTES, roof->median_usec);
    if (options->is_json) {
        printf("%s\n  {\"format\": \"%s\", \"n\": %u, \"k\": %u, \"m\": %u, \"kernel\": \"%s\", "
               "\"best_usec\": %.1f, "
               "\"median_usec\": %.1f, \"predicted_usec\": %.1f, \"best_gbps\": %.2f, "
               "\"median_gbps\": %.2f, \"best_gflops\": %.1f, \"share_of_roof\": %.3f, "
               "\"median_share_of_roof\": %.3f}",
               is_first ? "" : ",", weight->format, problem->desc.n, problem->desc.k, problem->m,
               job->kernel->name, timing->best_usec, timing->median_usec, predicted, gbps,
               median_gbps, gflops, share, median_share);
        return;
    }
    printf("%-24s %6u x %-6u %3u  %-24s %10.1f %10.1f %10.1f %7.2f %7.2f %8.1f %6.0f%% %6.0f%%\n",
           weight->format, problem->desc.n, problem->desc.k, problem->m, job->kernel->name,
           timing->best_usec, timing->median_usec, predicted, gbps, median_gbps, gflops,
           100 * share, 100 * median_share);
}

static void bench_shape(struct team *team, const struct options *options,
                        const struct format_case *format, uint32_t n, uint32_t k,
                        const struct timing *roof, bool is_first)
{
    struct weight weight;
    weight_init(&weight, format, n, k, options->is_huge);
    uint16_t *x = calloc((uint64_t)GK_BATCH_ROWS_MAX * k, sizeof(*x));
    uint16_t *y = calloc((uint64_t)GK_BATCH_ROWS_MAX * n, sizeof(*y));
    const struct gk_problem like = {.desc = weight.desc, .layout = weight.layout};
    uint64_t workspace_bytes = gk_workspace_max(&like);
    void *workspace = aligned_alloc(64, num_align_up(workspace_bytes, 64));
    const void *x_rows[GK_BATCH_ROWS_MAX];
    void *y_rows[GK_BATCH_ROWS_MAX];
    for (uint32_t i = 0; i < GK_BATCH_ROWS_MAX; i++) {
        x_rows[i] = x + (uint64_t)i * k;
        y_rows[i] = y + (uint64_t)i * n;
    }
    for (uint64_t i = 0; i < (uint64_t)GK_BATCH_ROWS_MAX * k; i++) {
        x[i] = (uint16_t)(0x3f80 + i % 128); /* bfloat16, 1 to 2 */
    }
    for (uint32_t i = 0; i < options->n_rows; i++) {
        uint32_t m = options->rows[i];
        struct job job = {
            .launch = {.problem = {weight.desc, weight.layout, m, DTYPE_BF16, DTYPE_BF16},
                       .x_rows = x_rows,
                       .y_rows = y_rows,
                       .workspace = workspace}};
        struct reason why = REASON_NULL;
        if (gk_select(&job.launch.problem, &job.kernel, &why) != 0) {
            (void)fprintf(stderr, "bench-kernels: %s\n", why.text);
            exit(1);
        }
        struct timing timing = measure_kernel(team, options, &weight, &job);
        print_result(options, &job, &weight, &timing, roof, is_first && i == 0);
    }
    free(x);
    free(y);
    free(workspace);
    (void)munmap(weight.memory, weight.packed_bytes * weight.n_copies);
}

static void print_head(const struct options *options, const struct timing *roof)
{
    double best = gbps_of(ROOF_RUN_BYTES, roof->best_usec);
    double median = gbps_of(ROOF_RUN_BYTES, roof->median_usec);
    if (options->is_json) {
        printf("{\"n_threads\": %u, \"n_runs\": %u, \"is_huge\": %s, \"read_best_gbps\": %.2f, "
               "\"read_median_gbps\": %.2f, \"results\": [",
               options->n_threads, options->n_runs, options->is_huge ? "true" : "false", best,
               median);
        return;
    }
    printf("%u threads, %u runs, %s pages; read %.2f GB/s best, %.2f median\n", options->n_threads,
           options->n_runs, options->is_huge ? "huge" : "4 KiB", best, median);
    printf("%-24s %6s x %-6s %3s  %-24s %10s %10s %10s %7s %7s %8s %7s %7s\n", "format", "n", "k",
           "m", "kernel", "best us", "median", "predicted", "GB/s", "median", "GFLOP/s", "of read",
           "median");
}

/* "1,16,64"; n_rows stays 0 where that makes no sense. */
static void parse_rows(const char *text, struct options *options)
{
    options->n_rows = 0;
    for (uint32_t n = 0; n < ROWS_MAX; n++) {
        char *end;
        unsigned long m = strtoul(text, &end, 10);
        if (m == 0 || m > GK_BATCH_ROWS_MAX || (*end != ',' && *end != '\0')) {
            return;
        }
        options->rows[n] = (uint32_t)m;
        if (*end == '\0') {
            options->n_rows = n + 1;
            return;
        }
        text = end + 1;
    }
}

static void parse_options(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {
        {"json", no_argument, NULL, 'j'},         {"threads", required_argument, NULL, 't'},
        {"runs", required_argument, NULL, 'r'},   {"isa", required_argument, NULL, 'i'},
        {"huge", no_argument, NULL, 'h'},         {"rows", required_argument, NULL, 'm'},
        {"format", required_argument, NULL, 'f'}, {0}};
    struct reason why = REASON_NULL;
    int option;
    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (option == 'j') {
            options->is_json = true;
        } else if (option == 'h') {
            options->is_huge = true;
        } else if (option == 't') {
            options->n_threads = (uint32_t)strtoul(optarg, NULL, 10);
        } else if (option == 'f') {
            options->format = optarg;
        } else if (option == 'm') {
            parse_rows(optarg, options);
        } else if (option == 'r') {
            options->n_runs = (uint32_t)strtoul(optarg, NULL, 10);
        } else if (option != 'i' || gk_host_isa_limit(optarg, &why) != 0) {
            (void)fprintf(stderr, "bench-kernels: %s\n", option == 'i' ? why.text : "usage");
            exit(2);
        }
    }
    if (options->n_rows == 0 || options->n_threads == 0 || options->n_threads > TEAM_MAX ||
        options->n_runs == 0 || options->n_runs > RUNS_MAX) {
        (void)fprintf(stderr,
                      "bench-kernels: threads 1 to %u, runs 1 to %u, up to %u rows of 1 to %u\n",
                      TEAM_MAX, RUNS_MAX, ROWS_MAX, GK_BATCH_ROWS_MAX);
        exit(2);
    }
}

static void bench_formats(struct team *team, const struct options *options,
                          const struct timing *roof)
{
    bool is_all = strcmp(options->format, "all") == 0;
    bool is_first = true;
    for (uint32_t i = 0; i < n_format_cases; i++) {
        if (!is_all && strcmp(options->format, format_cases[i].name) != 0) {
            continue;
        }
        if (!is_all) {
            bench_shape(team, options, &format_cases[i], 28672, 8192, roof, is_first);
            is_first = false;
        }
        bench_shape(team, options, &format_cases[i], 4096, 4096, roof, is_first);
        is_first = false;
    }
    if (is_first) {
        (void)fprintf(stderr, "bench-kernels: no format '%s'\n", options->format);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    struct options options = {.n_threads = 2,
                              .n_runs = 20,
                              .rows = {1, 2, 4, 8, 16, 32, 64},
                              .n_rows = 7,
                              .format = "int4 g128"};
    parse_options(argc, argv, &options);
    struct team team;
    team_init(&team, options.n_threads);
    struct timing roof = measure_roof(&team, &options);
    print_head(&options, &roof);
    bench_formats(&team, &options, &roof);
    if (options.is_json) {
        printf("\n]}\n");
    }
    team_finish(&team);
    return 0;
}
