/* bench-w8a8.cu - the 8-bit kernels of w8a8_gemm.cu and w8a8_prefill.cu on the layers the field
 * measures with. Checks every point against float64 before timing it, and that a row has the same
 * bits at every m.
 *
 *   bench-w8a8 [fp8|group|int8|fast [decode|prefill|compare [LAYER]]]
 *
 * decode: 1 to 64 rows; time over the floor, of the product alone and with x quantised before it,
 * alone and in a chain of overlapping launches. Floor: 1.5 us + bytes / 4.55 TB/s.
 * prefill: 65 to 1024 rows; time, TFLOP/s and the clock of the SMs. compare: the same beside
 * cuBLASLt, and what it takes to bring the packed weight into the rows which that reads. */
#include "tests/bench/cuda/cublaslt_8bit.h"
#include "tests/bench/cuda/w8a8_case.cuh"

static const uint32_t decode_counts[] = {1, 2, 4, 8, 16, 32, 64};
static const uint32_t prefill_counts[] = {65, 128, 192, 256, 384, 512, 768, 1024};
constexpr int n_decode_counts = sizeof(decode_counts) / sizeof(decode_counts[0]);

struct way {
    const char *name;
    enum what what;
    bool may_overlap;
};

static const way ways[] = {
    {"ready", PRODUCT, false},           {"ready chain", PRODUCT, true},
    {"quant", QUANTISED_PRODUCT, false}, {"quant chain", QUANTISED_PRODUCT, true},
    {"gather", GATHERED_PRODUCT, false}, {"gather chain", GATHERED_PRODUCT, true}};
constexpr int n_ways = sizeof(ways) / sizeof(ways[0]);

static const char *name_of(const weight &w)
{
    return kind_names[w.is_fast ? static_cast<uint32_t>(W8A8_N_KINDS) : w.kind];
}

/* ---- decode ---- */

static void decode_layer(const weight &w, const rows &r, double (&logs)[n_ways][n_decode_counts])
{
    double floor = 1.5 + (double)w.bytes / 4.55e6;
    std::vector<float> first_row;
    for (int i = 0; i < n_decode_counts; i++) {
        uint32_t m = decode_counts[i];
        double error = check(w, r, m, first_row);
        printf("%-5s %-8s m %2u error %.1e floor %5.1f", name_of(w), w.shape.name, m, error, floor);
        for (int j = 0; j < n_ways; j++) {
            if (m > 8 && ways[j].what == GATHERED_PRODUCT) {
                continue;
            }
            double usec = time_usec(w, r, m, ways[j].what, ways[j].may_overlap);
            printf("  %s %5.1f (%.3f)", ways[j].name, usec, usec / floor);
            logs[j][i] += log(usec / floor);
        }
        printf("  quant only %.1f\n", time_usec(w, r, m, QUANTISATION, false));
    }
}

static void print_means(uint32_t kind, const double (&logs)[n_ways][n_decode_counts])
{
    for (int i = 0; i < n_decode_counts; i++) {
        printf("%-5s geomean m %2u", kind_names[kind], decode_counts[i]);
        for (int j = 0; j < n_ways; j++) {
            if (logs[j][i] != 0) {
                printf("  %s %.3f", ways[j].name, exp(logs[j][i] / 6));
            }
        }
        printf("\n");
    }
}

/* ---- prefill ---- */

struct timing {
    double usec, mhz;
};

/* The fastest of the algorithms that cuBLASLt proposes. */
static timing time_cublaslt(cublaslt_8bit &lt, const weight &w, const rows &r, uint32_t m,
                            enum cublaslt_way way)
{
    timing best = {INFINITY, 0};
    uint32_t n_algorithms = lt.prepare(m, w.shape.n, w.shape.k, way);
    for (uint32_t i = 0; i < n_algorithms; i++) {
        lt.choose_algorithm(i);
        double usec = time_launches(n_launches_of(w, m), [&](uint32_t j, cudaStream_t stream) {
            lt.enqueue(r.workspace, w.copies[j % w.copies.size()], r.y, stream);
        });
        best = usec < best.usec ? timing{usec, timed_mhz} : best;
    }
    return best;
}

static void compare(cublaslt_8bit &lt, const weight &w, const rows &r, uint32_t m, double usec)
{
    static const struct {
        const char *name;
        enum cublaslt_way way;
        bool is_int8;
    } peers[] = {{"tensor fast", CUBLASLT_TENSOR_FAST, false},
                 {"tensor", CUBLASLT_TENSOR, false},
                 {"row fast", CUBLASLT_ROW_FAST, false},
                 {"block", CUBLASLT_BLOCK, false},
                 {"int8", CUBLASLT_INT8, true}};
    printf(" | cuBLASLt");
    for (const auto &peer : peers) {
        if (peer.is_int8 == (w.kind == W8A8_INT8)) {
            timing best = time_cublaslt(lt, w, r, m, peer.way);
            printf("  %s %6.1f (%.3f) %4.0f MHz", peer.name, best.usec, usec / best.usec, best.mhz);
        }
    }
}

/* Every chunk of 16 bytes of the packed codes, to where it is in rows: a thread each, lines of 128
 * bytes on both sides. */
__global__ void to_rows(const uint8_t *packed, uint8_t *rows, uint32_t n, uint32_t k)
{
    uint64_t n_chunks = (uint64_t)n * k / 16, n_blocks = k / SWIZZLE_K;
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < n_chunks; i += gridDim.x * 256ull) {
        uint64_t i_atom = i / 64, i_block = i_atom % n_blocks, i_group = i_atom / n_blocks;
        uint32_t i_row = i / 8 % SWIZZLE_ROWS, in_block = i % 8 * 16;
        const uint8_t *atom =
            packed + (i_block * (n / SWIZZLE_ROWS) + i_group) * SWIZZLE_ATOM_BYTES;
        uint8_t *to = rows + (i_group * SWIZZLE_ROWS + i_row) * k + i_block * SWIZZLE_K + in_block;
        *(uint4 *)to = *(const uint4 *)(atom + swizzle_byte_of(i_row, in_block));
    }
}

static void print_to_rows(const weight &w)
{
    uint8_t *rows;
    CHECK(cudaMalloc(&rows, w.bytes));
    double usec = time_launches((uint32_t)w.copies.size(), [&](uint32_t i, cudaStream_t stream) {
        to_rows<<<2112, 256, 0, stream>>>(w.copies[i], rows, w.shape.n, w.shape.k);
    });
    CHECK(cudaFree(rows));
    printf("%-5s %-8s into rows %.1f\n", name_of(w), w.shape.name, usec);
}

static void prefill_layer(const weight &w, const rows &r, cublaslt_8bit *lt)
{
    std::vector<float> first_row;
    if (!w.is_fast) {
        (void)check(w, r, 64, first_row);
    }
    if (lt != nullptr) {
        print_to_rows(w);
    }
    for (uint32_t m : prefill_counts) {
        double error = check(w, r, m, first_row);
        double usec = time_usec(w, r, m, PRODUCT, false);
        double chain_usec = time_usec(w, r, m, PRODUCT, true);
        double tflops = 2e-6 * m * (double)w.bytes / chain_usec, mhz = timed_mhz;
        printf("%-5s %-8s m %4u error %.1e  ready %6.1f  ready chain %6.1f %4.0f TF %4.0f MHz  "
               "quant chain %6.1f  quant only %4.1f",
               name_of(w), w.shape.name, m, error, usec, chain_usec, tflops, mhz,
               time_usec(w, r, m, QUANTISED_PRODUCT, true),
               time_usec(w, r, m, QUANTISATION, false));
        if (lt != nullptr) {
            compare(*lt, w, r, m, chain_usec);
        }
        printf("\n");
    }
}

/* ---- */

static void run(uint32_t kind, const char *what, const char *layer_name)
{
    double logs[n_ways][n_decode_counts] = {};
    bool is_decode = strcmp(what, "decode") == 0;
    cublaslt_8bit lt;
    bool is_compared = strcmp(what, "compare") == 0 && lt.open();
    for (const layer &shape : layers) {
        if (layer_name != nullptr && strcmp(layer_name, shape.name) != 0) {
            continue;
        }
        weight w = make_weight(shape, kind);
        rows r = make_rows(shape);
        if (is_decode) {
            decode_layer(w, r, logs);
        } else {
            prefill_layer(w, r, is_compared ? &lt : nullptr);
        }
        free_weight(w);
        CHECK(cudaFree(r.x));
        CHECK(cudaFree(r.y));
        CHECK(cudaFree(r.workspace));
    }
    if (is_decode && layer_name == nullptr) {
        print_means(kind, logs);
    }
}

int main(int argc, char **argv)
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    CHECK(w8a8_lay_out_load());
    CHECK(w8a8_gemm_load());
    CHECK(w8a8_prefill_load());
    uint32_t n_run = argc < 2 ? static_cast<uint32_t>(W8A8_N_KINDS)
                              : n_kinds; /* few rows are never summed fast */
    for (uint32_t kind = 0; kind < n_run; kind++) {
        if (argc < 2 || strcmp(argv[1], kind_names[kind]) == 0) {
            run(kind, argc > 2 ? argv[2] : "decode", argc > 3 ? argv[3] : nullptr);
        }
    }
    return 0;
}
