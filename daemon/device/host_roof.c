/* host_roof.c - see host_roof.h.
 *
 * A plain sum over more memory than caches hold, all threads at once, a software prefetch ahead of
 * each: on some virtual machines the hardware's prefetcher alone leaves half of the speed. Memory
 * is read in rounds shorter than a scheduler's time slice and the best round counts, since whatever
 * else the machine does can only make one slower. */
#include "daemon/device/host_roof.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "ipc/base/clock.h"
#include "ipc/base/num.h"

#define ROOF_BYTES     (256ull << 20)
#define ROOF_BYTES_MIN (64ull << 20) /* less may come from a cache */
#define SLICE_BYTES    (2ull << 20)  /* what a thread takes at a time; a huge page */
#define ROUND_SLICES   2u            /* of each thread: half a millisecond or so */
#define TOUCH_SLICES   8u            /* of each thread: enough for others to make up for one */
#define TOUCH_NSEC     1000000000u   /* it takes a tenth, unless the machine is very busy */
#define READ_NSEC      100000000u
#define PREFETCH_BYTES 2048u
#define LINE_BYTES     64u

struct roof {
    uint8_t *memory;
    uint64_t n_slices;    /* of memory */
    uint64_t n_ready;     /* touched; what was never written is one page of zeros in a cache */
    uint64_t i_first;     /* slice of the round */
    _Atomic uint64_t sum; /* so that the reads are for something */
};

static void touch_part(void *arg, uint32_t i_part, GD_UNUSED uint32_t n_parts)
{
    struct roof *roof = arg;
    memset(roof->memory + (roof->n_ready + i_part) * SLICE_BYTES, 1, SLICE_BYTES);
}

static void read_part(void *arg, uint32_t i_part, GD_UNUSED uint32_t n_parts)
{
    struct roof *roof = arg;
    const uint64_t *words =
        (const uint64_t *)(const void *)(roof->memory + (roof->i_first + i_part) * SLICE_BYTES);
    const uint32_t n_line = LINE_BYTES / sizeof(*words);
    uint64_t sums[LINE_BYTES / sizeof(*words)] = {0};
    for (uint64_t i = 0; i < SLICE_BYTES / sizeof(*words); i += n_line) {
        __builtin_prefetch((const char *)&words[i] + PREFETCH_BYTES);
        for (uint32_t j = 0; j < n_line; j++) {
            sums[j] += words[i + j];
        }
    }
    uint64_t sum = 0;
    for (uint32_t j = 0; j < n_line; j++) {
        sum += sums[j];
    }
    atomic_fetch_add_explicit(&roof->sum, sum, memory_order_relaxed);
}

static void touch(struct roof *roof, struct thread_pool *pool, uint32_t n_threads)
{
    uint64_t end_nsec = clock_now_nsec() + TOUCH_NSEC;
    while (roof->n_ready < roof->n_slices && clock_now_nsec() < end_nsec) {
        uint64_t n = num_min(roof->n_slices - roof->n_ready, n_threads * TOUCH_SLICES);
        thread_pool_run(pool, touch_part, roof, (uint32_t)n);
        roof->n_ready += n;
    }
}

/* One pass over what was touched, or as much as fits into the time. */
static double best_gbps(struct roof *roof, struct thread_pool *pool, uint32_t n_threads)
{
    const uint32_t n_parts = n_threads * ROUND_SLICES;
    double best = 0;
    uint64_t end_nsec = clock_now_nsec() + READ_NSEC;
    for (uint64_t start_nsec; roof->i_first + n_parts <= roof->n_ready; roof->i_first += n_parts) {
        start_nsec = clock_now_nsec();
        if (start_nsec >= end_nsec) {
            break;
        }
        thread_pool_run(pool, read_part, roof, n_parts);
        double nsec = (double)num_max(clock_now_nsec() - start_nsec, 1);
        best = fmax(best, (double)(n_parts * SLICE_BYTES) / nsec);
    }
    return best;
}

double host_roof_gbps(struct thread_pool *pool, uint32_t n_threads, uint64_t available_bytes)
{
    struct roof roof = {.n_slices = num_min(ROOF_BYTES, available_bytes / 8) / SLICE_BYTES};
    uint64_t n_bytes = (roof.n_slices + 1) * SLICE_BYTES; /* one more: the prefetch runs ahead */
    roof.memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (roof.memory == MAP_FAILED) {
        return 0;
    }
    (void)madvise(roof.memory, n_bytes, MADV_HUGEPAGE); /* fewer faults where there are any */
    touch(&roof, pool, n_threads);
    double gbps =
        roof.n_ready * SLICE_BYTES >= ROOF_BYTES_MIN ? best_gbps(&roof, pool, n_threads) : 0;
    (void)munmap(roof.memory, n_bytes);
    return gbps;
}
