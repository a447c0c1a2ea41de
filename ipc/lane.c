/* lane.c - the pair of rings and the two ways to sleep beside them.
 *
 * The worker sleeps in poll() over many lanes, hence a doorbell fd; a client sleeps on one lane,
 * hence a futex, which needs no fd and wakes every waiting thread with one call. Both use the same
 * protocol against lost wake-ups:
 *
 *     sleeper                         waker
 *     flag = 1                        push (release of the tail)
 *     full fence                      full fence
 *     look at the ring again          read the flag, wake if it is set
 *
 * Of the two loads after the fences at least one sees the other side's store. Acquire and release
 * alone allow both to miss, on x86 too.
 *
 * A hostile client owns every byte of the shared page. The worker reads three words of it: two ring
 * indices, judged in ring.c, and n_client_waiters, which can cost it a futile FUTEX_WAKE. Geometry
 * is in `struct lane`, never read back. The client also shares the doorbell's open file, so it
 * could make that blocking: the worker empties it with RWF_NOWAIT, not trusting O_NONBLOCK. */
#include "ipc/lane.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

static_assert(sizeof(struct lane_shared) <= LANE_HEADER_BYTES, "the header is one page");
static_assert(sizeof(_Atomic uint32_t) == 4, "a futex word is 4 bytes");

/* gcc warns that ThreadSanitizer does not model fences. It need not here: the data is ordered by
 * the acquire and release in ring.c, and the fences only order the flags, which are atomics. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif
static void full_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/* No FUTEX_PRIVATE_FLAG: waiter and waker are different processes. */
static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *deadline)
{
    return syscall(SYS_futex, word, op, value, deadline, NULL, FUTEX_BITSET_MATCH_ANY);
}

uint64_t lane_bytes(uint32_t n_entries)
{
    return LANE_HEADER_BYTES +
           (uint64_t)n_entries * (sizeof(struct request_desc) + sizeof(struct request_result));
}

static bool is_ring_size(uint32_t n_entries)
{
    return n_entries >= LANE_ENTRIES_MIN && n_entries <= LANE_ENTRIES_MAX &&
           (n_entries & (n_entries - 1)) == 0;
}

static void wire_up(struct lane *lane, uint32_t n_entries, uint32_t device_index)
{
    uint8_t *descs = (uint8_t *)lane->region.base + LANE_HEADER_BYTES;
    uint8_t *results = descs + n_entries * sizeof(struct request_desc);

    lane->shared = lane->region.base;
    lane->n_entries = n_entries;
    lane->device_index = device_index;
    ring_init(&lane->submit, &lane->shared->submit_tail, &lane->shared->submit_head, descs,
              n_entries, sizeof(struct request_desc));
    ring_init(&lane->complete, &lane->shared->complete_tail, &lane->shared->complete_head, results,
              n_entries, sizeof(struct request_result));
}

int lane_create(struct lane *lane, uint32_t n_entries, uint32_t device_index)
{
    if (!is_ring_size(n_entries)) {
        return err_raise(-EINVAL);
    }
    struct lane made = LANE_NULL;
    int r = region_create(&made.region, "gemmd-lane", lane_bytes(n_entries));
    if (r < 0) {
        return r;
    }
    made.doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made.doorbell_fd < 0) {
        r = err_raise(-errno);
        lane_finish(&made);
        return r;
    }
    wire_up(&made, n_entries, device_index);
    made.shared->magic = LANE_MAGIC;
    made.shared->version = LANE_VERSION;
    made.shared->n_entries = n_entries;
    made.shared->device_index = device_index;
    *lane = made;
    return 0;
}

static int check_header(const struct lane_shared *shared, uint64_t size_bytes, struct reason *why)
{
    if (shared->magic != LANE_MAGIC) {
        return reason_set(why, STATUS_BAD_MESSAGE, "the lane's region has no lane in it");
    }
    if (shared->version != LANE_VERSION) {
        return reason_set(why, STATUS_VERSION,
                          "the lane has layout version %u, this library knows %u", shared->version,
                          LANE_VERSION);
    }
    if (!is_ring_size(shared->n_entries) || lane_bytes(shared->n_entries) > size_bytes) {
        return reason_set(why, STATUS_BAD_MESSAGE, "the lane claims %u entries in %llu bytes",
                          shared->n_entries, (unsigned long long)size_bytes);
    }
    return 0;
}

/* Maps what is there, whole; takes the fd over. */
static int attach_region(struct region *region, int fd, struct reason *why)
{
    CLEAN_FD int owned = fd;
    struct stat info;
    if (fstat(owned, &info) < 0) {
        return err_raise(-errno);
    }
    if (info.st_size < (off_t)LANE_HEADER_BYTES) {
        return reason_set(why, STATUS_BAD_MESSAGE, "the lane's region has only %lld bytes",
                          (long long)info.st_size);
    }
    return region_attach(region, steal_fd(&owned), (uint64_t)info.st_size);
}

int lane_attach(struct lane *lane, int region_fd, int doorbell_fd, struct reason *why)
{
    struct lane made = LANE_NULL;
    made.doorbell_fd = doorbell_fd;
    int r = attach_region(&made.region, region_fd, why);
    if (r == 0) {
        r = check_header(made.region.base, made.region.size_bytes, why);
    }
    if (r != 0) {
        lane_finish(&made);
        return r;
    }
    /* A second read of the header is no hole: its writer is the daemon, which the client trusts. */
    const struct lane_shared *shared = made.region.base;
    wire_up(&made, shared->n_entries, shared->device_index);
    *lane = made;
    return 0;
}

void lane_finish(struct lane *lane)
{
    region_finish(&lane->region);
    cleanup_fd(&lane->doorbell_fd);
    *lane = LANE_NULL;
}

static void ring_doorbell_if_asleep(struct lane *lane)
{
    full_fence();
    if (atomic_load_explicit(&lane->shared->is_worker_asleep, memory_order_relaxed) == 0) {
        return;
    }
    /* It fails only when 2^64 - 2 rings are pending, and then the worker wakes anyway. */
    (void)!write(lane->doorbell_fd, &(uint64_t){1}, sizeof(uint64_t));
}

enum ring_result lane_submit(struct lane *lane, const struct request_desc *desc)
{
    enum ring_result result = ring_push(&lane->submit, desc);
    if (result == RING_OK) {
        ring_doorbell_if_asleep(lane);
    }
    return result;
}

int lane_submit_many(struct lane *lane, const struct request_desc *descs, uint32_t n)
{
    uint32_t n_pushed = 0;
    enum ring_result result = RING_OK;
    while (n_pushed < n && (result = ring_push(&lane->submit, &descs[n_pushed])) == RING_OK) {
        n_pushed++;
    }
    if (n_pushed > 0) {
        ring_doorbell_if_asleep(lane);
    }
    return result == RING_CORRUPT ? err_raise(-EPROTO) : (int)n_pushed;
}

/* Looks at the shared head, not at `complete.own`: another thread may be popping just now. That
 * thread is of our own process, so there is nothing to distrust. */
static bool has_completion(const struct lane *lane, uint32_t *ret_tail)
{
    *ret_tail = atomic_load_explicit(&lane->shared->complete_tail, memory_order_acquire);
    return *ret_tail != atomic_load_explicit(&lane->shared->complete_head, memory_order_acquire);
}

static bool spin_for_completion(struct lane *lane, uint32_t spin_usec)
{
    uint32_t tail;
    struct spin_wait wait = spin_begin(&lane->spin, spin_usec);
    while (spin_again(&wait)) {
        if (has_completion(lane, &tail)) {
            spin_hit(&wait);
            return true;
        }
    }
    return false;
}

/* The caller is counted in n_client_waiters already. The kernel compares the tail once more before
 * it sleeps, so a completion that comes in between is seen. */
static int sleep_for_completion(struct lane *lane, const struct timespec *deadline)
{
    uint32_t tail;
    while (!has_completion(lane, &tail)) {
        if (futex(&lane->shared->complete_tail, FUTEX_WAIT_BITSET, tail, deadline) == 0) {
            continue;
        }
        if (errno == ETIMEDOUT) {
            return has_completion(lane, &tail) ? 0 : -ETIMEDOUT;
        }
        if (errno != EAGAIN && errno != EINTR) {
            return err_raise(-errno);
        }
    }
    return 0;
}

int lane_wait_completion(struct lane *lane, uint32_t spin_usec, uint64_t timeout_usec)
{
    uint32_t tail;
    if (has_completion(lane, &tail)) {
        return 0;
    }
    uint64_t start = clock_now_nsec();
    if (spin_for_completion(lane, (uint32_t)num_min(spin_usec, timeout_usec))) {
        return 0;
    }
    /* A century is for ever, and its nanoseconds fit. */
    const uint64_t usec_max = 100ull * 365 * 24 * 3600 * 1000000;
    uint64_t end = start + (timeout_usec < usec_max ? timeout_usec : usec_max) * 1000;
    struct timespec deadline = {.tv_sec = (time_t)(end / CLOCK_NSEC_PER_SEC),
                                .tv_nsec = (long)(end % CLOCK_NSEC_PER_SEC)};

    (void)atomic_fetch_add(&lane->shared->n_client_waiters, 1);
    full_fence();
    int r = sleep_for_completion(lane, &deadline);
    (void)atomic_fetch_sub(&lane->shared->n_client_waiters, 1);
    return r;
}

enum ring_result lane_complete(struct lane *lane, const struct request_result *result)
{
    enum ring_result pushed = ring_push(&lane->complete, result);
    if (pushed != RING_OK) {
        return pushed;
    }
    full_fence();
    if (atomic_load_explicit(&lane->shared->n_client_waiters, memory_order_relaxed) != 0) {
        (void)futex(&lane->shared->complete_tail, FUTEX_WAKE_BITSET, INT_MAX, NULL);
    }
    return RING_OK;
}

enum ring_result lane_room(const struct lane *lane, uint32_t n_in_flight)
{
    uint32_t n_free;
    enum ring_result result = ring_room(&lane->complete, &n_free);
    return result == RING_OK && n_free <= n_in_flight ? RING_FULL : result;
}

bool lane_sleep_begin(struct lane *lane)
{
    atomic_store_explicit(&lane->shared->is_worker_asleep, 1, memory_order_relaxed);
    full_fence();
    return ring_fill(&lane->submit) == 0;
}

void lane_sleep_end(struct lane *lane)
{
    uint64_t n_rings;
    struct iovec place = {.iov_base = &n_rings, .iov_len = sizeof(n_rings)};

    atomic_store_explicit(&lane->shared->is_worker_asleep, 0, memory_order_relaxed);
    /* Failing with EAGAIN is the usual case: nobody has rung. */
    (void)!preadv2(lane->doorbell_fd, &place, 1, -1, RWF_NOWAIT);
}
