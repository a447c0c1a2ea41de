/* test-lane.c - lanes: geometry, sleeping on both sides without a lost wake-up, and a client that
 * scribbles over everything it shares with the worker.
 *
 * A lost wake-up shows as a wait of WAIT_USEC or more, which fails the test. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ipc/lane.h"
#include "t.h"

#define N_ENTRIES 16u
#define WAIT_USEC 5000000u
#define N_ROUNDS  100000u

struct pair {
    struct lane worker;
    struct lane client;
};

static int duplicate(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static void pair_init(struct pair *pair)
{
    pair->worker = LANE_NULL;
    pair->client = LANE_NULL;
    assert_int_equal(lane_create(&pair->worker, N_ENTRIES, 3), 0);
    assert_int_equal(lane_attach(&pair->client, duplicate(pair->worker.region.fd),
                                 duplicate(pair->worker.doorbell_fd), NULL),
                     0);
}

static void pair_finish(struct pair *pair)
{
    lane_finish(&pair->client);
    lane_finish(&pair->worker);
}

static void test_geometry(void **state)
{
    (void)state;
    struct pair pair;
    struct lane lane = LANE_NULL;
    pair_init(&pair);
    assert_int_equal(pair.client.n_entries, N_ENTRIES);
    assert_int_equal(pair.client.device_index, 3);
    assert_ptr_not_equal(pair.client.shared, pair.worker.shared);
    assert_int_equal(pair.client.complete.entries - (uint8_t *)pair.client.shared,
                     4096 + N_ENTRIES * sizeof(struct request_desc));
    pair_finish(&pair);
    assert_int_equal(lane_create(&lane, 8, 0), -EINVAL);
    assert_int_equal(lane_create(&lane, 24, 0), -EINVAL);
    assert_int_equal(lane_create(&lane, 8192, 0), -EINVAL);
    assert_int_equal(lane_create(&lane, LANE_ENTRIES_MAX, 0), 0);
    lane_finish(&lane);
    lane_finish(&lane);
}

static void check_attach(struct pair *pair, int expected)
{
    struct lane lane = LANE_NULL;
    int region_fd = duplicate(pair->worker.region.fd);
    int doorbell_fd = duplicate(pair->worker.doorbell_fd);
    assert_int_equal(lane_attach(&lane, region_fd, doorbell_fd, NULL), expected);
    assert_int_equal(fcntl(region_fd, F_GETFD), -1);
    assert_int_equal(fcntl(doorbell_fd, F_GETFD), -1);
    assert_null(lane.shared);
}

static void test_attach_checks_the_header(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    pair.worker.shared->n_entries = 1024; /* more than the region holds */
    check_attach(&pair, STATUS_BAD_MESSAGE);
    pair.worker.shared->n_entries = 0;
    check_attach(&pair, STATUS_BAD_MESSAGE);
    pair.worker.shared->version = LANE_VERSION + 1;
    check_attach(&pair, STATUS_VERSION);
    pair.worker.shared->magic = 0;
    check_attach(&pair, STATUS_BAD_MESSAGE);
    pair_finish(&pair);

    struct lane lane = LANE_NULL;
    int doorbell_fd = eventfd(0, EFD_CLOEXEC);
    assert_int_equal(lane_attach(&lane, eventfd(0, EFD_CLOEXEC), doorbell_fd, NULL),
                     STATUS_BAD_MESSAGE);
    assert_int_equal(fcntl(doorbell_fd, F_GETFD), -1);
}

static bool is_rung(const struct lane *lane)
{
    struct pollfd item = {.fd = lane->doorbell_fd, .events = POLLIN};
    return poll(&item, 1, 0) == 1;
}

static void test_doorbell_only_for_a_sleeper(void **state)
{
    (void)state;
    struct pair pair;
    struct request_desc descs[N_ENTRIES + 4] = {{0}};
    struct request_desc got;
    pair_init(&pair);
    assert_int_equal(lane_submit(&pair.client, &descs[0]), RING_OK);
    assert_false(is_rung(&pair.worker));
    assert_false(lane_sleep_begin(&pair.worker)); /* there is something */
    lane_sleep_end(&pair.worker);
    assert_int_equal(ring_pop(&pair.worker.submit, &got), RING_OK);
    assert_true(lane_sleep_begin(&pair.worker));
    assert_int_equal(lane_submit_many(&pair.client, descs, N_ENTRIES + 4), N_ENTRIES);
    assert_true(is_rung(&pair.worker));
    lane_sleep_end(&pair.worker);
    assert_false(is_rung(&pair.worker));
    assert_int_equal(lane_submit_many(&pair.client, descs, 1), 0);
    assert_int_equal(lane_submit(&pair.client, descs), RING_FULL);
    pair.worker.shared->submit_head = 5000;
    assert_int_equal(lane_submit_many(&pair.client, descs, 1), -EPROTO);
    pair_finish(&pair);
}

/* The client shares the doorbell's open file and can make it blocking. */
static void test_a_blocking_doorbell_does_not_block_the_worker(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    assert_int_equal(fcntl(pair.client.doorbell_fd, F_SETFL, 0), 0);
    (void)lane_sleep_begin(&pair.worker);
    alarm(10); /* a worker that blocks here is killed, and the test with it */
    lane_sleep_end(&pair.worker);
    alarm(0);
    pair_finish(&pair);
}

static void test_takes_only_what_it_can_complete(void **state)
{
    (void)state;
    struct pair pair;
    struct request_result result = {.request_id = 1};
    pair_init(&pair);
    for (uint32_t i = 0; i < N_ENTRIES; i++) {
        assert_int_equal(lane_room(&pair.worker, N_ENTRIES - i - 1), RING_OK);
        assert_int_equal(lane_room(&pair.worker, N_ENTRIES - i), RING_FULL);
        assert_int_equal(lane_complete(&pair.worker, &result), RING_OK);
    }
    assert_int_equal(lane_room(&pair.worker, 0), RING_FULL);
    assert_int_equal(lane_complete(&pair.worker, &result), RING_FULL);
    assert_int_equal(lane_wait_completion(&pair.client, 0, 0), 0);
    assert_int_equal(ring_pop(&pair.client.complete, &result), RING_OK);
    assert_int_equal(lane_room(&pair.worker, 0), RING_OK);
    pair.client.shared->complete_head = 12345;
    assert_int_equal(lane_room(&pair.worker, 0), RING_CORRUPT);
    pair_finish(&pair);
}

static void test_wait_times_out(void **state)
{
    (void)state;
    struct pair pair;
    struct timespec before, after;
    pair_init(&pair);
    assert_int_equal(lane_wait_completion(&pair.client, 0, 0), -ETIMEDOUT);
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    assert_int_equal(lane_wait_completion(&pair.client, 1000, 20000), -ETIMEDOUT);
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    int64_t usec =
        (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
    assert_in_range(usec, 20000, 2000000);
    assert_int_equal(pair.client.shared->n_client_waiters, 0);
    pair_finish(&pair);
}

/* The worker of these tests: answers `n` requests, sleeping whenever there is none. */
struct echo {
    struct lane *lane;
    uint64_t n;
    uint64_t n_lost; /* sleeps that only the timeout ended */
};

static void sleep_until_rung(struct echo *echo)
{
    if (lane_sleep_begin(echo->lane)) {
        struct pollfd item = {.fd = echo->lane->doorbell_fd, .events = POLLIN};
        echo->n_lost += poll(&item, 1, WAIT_USEC / 1000) != 1;
    }
    lane_sleep_end(echo->lane);
}

static void *run_echo(void *argument)
{
    struct echo *echo = argument;
    for (uint64_t i = 0; i < echo->n && echo->n_lost == 0;) {
        struct request_desc desc;
        if (ring_pop(&echo->lane->submit, &desc) != RING_OK) {
            sleep_until_rung(echo);
            continue;
        }
        struct request_result result = {.request_id = desc.request_id * 2};
        echo->n_lost += lane_complete(echo->lane, &result) != RING_OK;
        i++;
    }
    return NULL;
}

static void test_ping_pong_loses_no_wake_up(void **state)
{
    (void)state;
    struct pair pair;
    pthread_t thread;
    uint64_t n_wrong = 0;
    pair_init(&pair);
    struct echo echo = {.lane = &pair.worker, .n = N_ROUNDS};
    assert_int_equal(pthread_create(&thread, NULL, run_echo, &echo), 0);
    for (uint64_t i = 0; i < N_ROUNDS && n_wrong == 0; i++) {
        struct request_desc desc = {.request_id = i};
        struct request_result result = {0};
        n_wrong += lane_submit(&pair.client, &desc) != RING_OK;
        /* Spins in every eighth round only, so that both ways of waiting meet every phase. */
        n_wrong += lane_wait_completion(&pair.client, i % 8 == 0 ? 20 : 0, WAIT_USEC) != 0;
        n_wrong += ring_pop(&pair.client.complete, &result) != RING_OK;
        n_wrong += result.request_id != 2 * i;
    }
    assert_int_equal(n_wrong, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(echo.n_lost, 0);
    pair_finish(&pair);
}

#define N_WAITERS      8
#define N_WAITER_TURNS 2000u

struct waiters {
    struct lane *lane;
    pthread_mutex_t mutex; /* serialises popping, as the client library's lane lock does */
    uint64_t n_popped;
    uint64_t n_lost;
};

/* Each thread waits for *a* completion and pops under the lock; another may have been quicker. */
static void *run_waiter(void *argument)
{
    struct waiters *waiters = argument;
    bool is_done = false;
    while (!is_done) {
        struct request_result result;
        int r = lane_wait_completion(waiters->lane, 0, WAIT_USEC);
        (void)pthread_mutex_lock(&waiters->mutex);
        is_done = waiters->n_popped >= N_WAITER_TURNS;
        waiters->n_lost += r != 0;
        if (!is_done && ring_pop(&waiters->lane->complete, &result) == RING_OK) {
            waiters->n_popped++;
        }
        is_done = is_done || waiters->n_lost > 0;
        (void)pthread_mutex_unlock(&waiters->mutex);
    }
    return NULL;
}

static void complete_one(struct lane *worker, uint64_t id)
{
    struct request_result result = {.request_id = id};
    for (int i = 0; i < 10000000 && lane_complete(worker, &result) == RING_FULL; i++) {
        (void)sched_yield();
    }
}

static void test_many_waiters(void **state)
{
    (void)state;
    struct pair pair;
    pthread_t threads[N_WAITERS];
    pair_init(&pair);
    struct waiters waiters = {.lane = &pair.client, .mutex = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < N_WAITERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_waiter, &waiters), 0);
    }
    for (uint64_t i = 0; i <= N_WAITER_TURNS; i++) { /* the last stays, and lets everybody go */
        complete_one(&pair.worker, i);
    }
    for (int i = 0; i < N_WAITERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(waiters.n_lost, 0);
    assert_int_equal(waiters.n_popped, N_WAITER_TURNS);
    assert_int_equal(pair.client.shared->n_client_waiters, 0);
    pair_finish(&pair);
}

/* A process of its own, as a hostile client is: writes random words over the whole region, the
 * header most of the time, until it is killed. */
static pid_t start_scribbler(struct lane *client)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) {
        return pid;
    }
    volatile uint32_t *words = client->region.base;
    uint64_t n_words = client->region.size_bytes / 4;
    uint64_t random = 88172645463325252ull;
    alarm(60); /* even if the test dies */
    for (;;) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        uint64_t limit = random % 4 == 0 ? n_words : sizeof(struct lane_shared) / 4;
        words[(random >> 8) % limit] =
            random % 8 < 4 ? (uint32_t)(random >> 40) % 64 : (uint32_t)(random >> 32);
    }
}

static void test_scribbling_client_cannot_hurt_the_worker(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t n_results[RING_CORRUPT + 1] = {0};
    struct request_desc desc;
    struct request_result result = {.request_id = 1};
    pair_init(&pair);
    pid_t pid = start_scribbler(&pair.client);
    for (uint64_t i = 0; i < 200000; i++) {
        n_results[ring_pop(&pair.worker.submit, &desc)]++;
        n_results[lane_complete(&pair.worker, &result)]++;
        assert_in_range(ring_fill(&pair.worker.submit), 0, N_ENTRIES);
        uint32_t n_free;
        n_results[ring_room(&pair.worker.complete, &n_free)]++;
        assert_in_range(n_free, 0, N_ENTRIES);
        if (i % 64 == 0) {
            n_results[lane_room(&pair.worker, 1)]++;
            (void)lane_sleep_begin(&pair.worker);
            lane_sleep_end(&pair.worker);
        }
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(pair.worker.n_entries, N_ENTRIES);
    assert_int_equal(pair.worker.submit.n_entries, N_ENTRIES);
    /* Whether the scribbler got a CPU is the scheduler's business. Of two tails half the range
     * apart at least one is impossible, and that must be noticed. */
    n_results[RING_CORRUPT] = 0;
    for (uint32_t i = 0; i < 2; i++) {
        atomic_store(&pair.client.shared->submit_tail, i << 31);
        n_results[ring_pop(&pair.worker.submit, &desc)]++;
    }
    assert_true(n_results[RING_CORRUPT] > 0);
    pair_finish(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_geometry),
        cmocka_unit_test(test_attach_checks_the_header),
        cmocka_unit_test(test_doorbell_only_for_a_sleeper),
        cmocka_unit_test(test_a_blocking_doorbell_does_not_block_the_worker),
        cmocka_unit_test(test_takes_only_what_it_can_complete),
        cmocka_unit_test(test_wait_times_out),
        cmocka_unit_test(test_scribbling_client_cannot_hurt_the_worker),
        cmocka_unit_test(test_ping_pong_loses_no_wake_up),
        cmocka_unit_test(test_many_waiters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
