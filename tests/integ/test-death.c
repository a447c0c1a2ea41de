/* test-death.c - clients killed with SIGKILL at random moments while two others run (T24, T25).
 *
 * The two compare every product bit for bit with their first, which was judged against float64. At
 * the end the daemon must hold what it held before the first death: descriptors, mappings,
 * sessions, buffers, bytes. GEMMD_KILLS sets how many die; GEMMD_KILLS=1000 is the long run. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/fixture.h"
#include "tests/harness/model.h"
#include "tests/harness/product.h"
#include "tests/harness/status_document.h"

#define N_KILLS       60u
#define N_WARM_UP     8u
#define N_SURVIVORS   2u
#define KILL_USEC_MAX 20000u
/* ThreadSanitizer maps memory of its own as threads and sessions come and go: not ours to count. */
#if defined(__SANITIZE_THREAD__)
#define MAPS_SLACK (UINT32_MAX / 2)
#else
#define MAPS_SLACK 8u /* the C library's own arenas come and go; a leak would be one a kill */
#endif
#define SETTLE_SECONDS 10.0
#define N_SAME_LOOKS   20u
#define N_PRODUCTS_MIN 20u /* of each survivor */

struct shared {
    atomic_bool is_over;
    _Atomic uint64_t n_products[N_SURVIVORS];
};

static struct fixture fixture;
static struct test_model model;
static struct shared *shared;

static int set_up(void **state)
{
    (void)state;
    char argument[512];
    fixture_init(&fixture);
    test_model_write(&model, &fixture.folder, "tiny", 3);
    (void)snprintf(argument, sizeof(argument), "tiny=%s", model.path);
    const struct fixture_options options = {.model = argument};
    fixture_start(&fixture, &options);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    int code = fixture_stop(&fixture);
    fixture_finish(&fixture);
    test_model_finish(&model);
    (void)munmap(shared, sizeof(*shared));
    return code;
}

/* ---- those who live ---- */

static bool survive(uint32_t i_survivor)
{
    struct product first;
    struct product again;
    const struct product_shape shape = {
        .m = 5 + i_survivor * 30, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = i_survivor};
    const struct test_weight *weight = &model.weights[TEST_INT4];
    gemmd_client_t *client =
        fixture_open(&fixture, i_survivor == 0 ? GEMMD_PATH_RING : GEMMD_PATH_ZEROMQ);
    if (!product_init(&first, client, "tiny", weight, &shape) ||
        !product_init(&again, client, "tiny", weight, &shape) || !product_run(&first, client) ||
        !product_is_right(&first)) {
        return false;
    }
    while (!atomic_load(&shared->is_over)) {
        product_clear(&again);
        if (!product_run(&again, client) || !product_same_bytes(&first, &again)) {
            (void)fprintf(stderr, "survivor %u: product %ju differs\n", i_survivor,
                          (uintmax_t)atomic_load(&shared->n_products[i_survivor]));
            return false;
        }
        atomic_fetch_add(&shared->n_products[i_survivor], 1);
    }
    gemmd_close(client);
    return true;
}

/* ---- those who die ---- */

static void submit_for_ever(gemmd_client_t *client, struct product *product)
{
    for (;;) {
        gemmd_ticket_t ticket;
        if (gemmd_submit(client, &product->gemm, 1, &ticket) != GEMMD_OK) {
            fixture_sleep(0.0005); /* all tickets are out, and nobody waits for them */
        }
    }
}

static void multiply_for_ever(gemmd_client_t *client, struct product *product)
{
    for (;;) {
        if (!product_run(product, client)) {
            _exit(1);
        }
    }
}

static void allocate_for_ever(gemmd_client_t *client)
{
    for (;;) {
        gemmd_buffer_t *buffers[16];
        for (uint32_t i = 0; i < ARRAY_LENGTH(buffers); i++) {
            if (gemmd_buffer_alloc(client, 0, 4096 + i * 10000, &buffers[i]) != GEMMD_OK) {
                _exit(1);
            }
        }
        for (uint32_t i = 0; i < ARRAY_LENGTH(buffers); i++) {
            gemmd_buffer_free(buffers[i]);
        }
    }
}

static void open_for_ever(void)
{
    for (;;) {
        gemmd_close(fixture_open(&fixture, GEMMD_PATH_RING));
    }
}

static void live_until_killed(uint32_t i_kill)
{
    struct product product;
    const struct product_shape shape = {
        .m = 1 + i_kill * 7 % 300, .x_dtype = GEMMD_F16, .y_dtype = GEMMD_F16, .seed = i_kill};
    if (i_kill % 6 == 5) {
        open_for_ever();
    }
    gemmd_client_t *client =
        fixture_open(&fixture, i_kill % 2 == 0 ? GEMMD_PATH_RING : GEMMD_PATH_ZEROMQ);
    if (i_kill % 6 == 4) {
        allocate_for_ever(client);
    }
    if (!product_init(&product, client, "tiny", &model.weights[i_kill % TEST_WEIGHTS], &shape)) {
        _exit(1);
    }
    if (i_kill % 6 < 2) {
        multiply_for_ever(client, &product);
    }
    submit_for_ever(client, &product);
}

static pid_t start_child(void (*live)(uint32_t), uint32_t i)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        live(i);
        _exit(1);
    }
    return pid;
}

static void live_and_tell(uint32_t i_survivor)
{
    _exit(survive(i_survivor) ? 0 : 1);
}

static void kill_clients(uint32_t n_kills, uint64_t *random)
{
    for (uint32_t i = 0; i < n_kills; i++) {
        int child;
        pid_t pid = start_child(live_until_killed, i);
        (void)usleep((useconds_t)(test_random(random) % KILL_USEC_MAX));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &child, 0), pid);
        if (!WIFSIGNALED(child)) { /* it has said why on stderr */
            fail_msg("client %u ended by itself with %d", i, WEXITSTATUS(child));
        }
    }
}

/* ---- the test ---- */

struct holdings {
    struct status_counts counts;
    uint32_t n_fds;
    uint32_t n_maps;
};

/* What a session that is hung up on held goes a moment after it, ZeroMQ's descriptors last: so they
 * are looked at until their number has stayed for a while. */
static void holdings_read(struct holdings *holdings)
{
    double deadline = fixture_now() + SETTLE_SECONDS;
    status_counts_settle(&fixture, 1, SETTLE_SECONDS, &holdings->counts);
    holdings->n_fds = fixture_fds(&fixture);
    for (uint32_t n_same = 0; n_same < N_SAME_LOOKS && fixture_now() < deadline; n_same++) {
        fixture_sleep(0.02);
        uint32_t n_fds = fixture_fds(&fixture);
        n_same = n_fds == holdings->n_fds ? n_same : 0;
        holdings->n_fds = n_fds;
    }
    holdings->n_maps = fixture_maps(&fixture);
}

static void await_products(void)
{
    double deadline = fixture_now() + SETTLE_SECONDS;
    for (uint32_t i = 0; i < N_SURVIVORS; i++) {
        while (atomic_load(&shared->n_products[i]) < N_PRODUCTS_MIN && fixture_now() < deadline) {
            fixture_sleep(0.02);
        }
    }
}

static void test_deaths_disturb_nobody(void **state)
{
    (void)state;
    uint64_t random = 0x5eed;
    pid_t survivors[N_SURVIVORS];
    struct holdings before;
    struct holdings after;
    kill_clients(N_WARM_UP, &random);
    holdings_read(&before);
    for (uint32_t i = 0; i < N_SURVIVORS; i++) {
        survivors[i] = start_child(live_and_tell, i);
    }
    kill_clients(fixture_number("GEMMD_KILLS", N_KILLS), &random);
    assert_true(fixture_is_running(&fixture));
    await_products();
    atomic_store(&shared->is_over, true);
    for (uint32_t i = 0; i < N_SURVIVORS; i++) {
        int child;
        assert_int_equal(waitpid(survivors[i], &child, 0), survivors[i]);
        assert_int_equal(child, 0);
        assert_true(atomic_load(&shared->n_products[i]) >= N_PRODUCTS_MIN);
    }
    holdings_read(&after);
    print_message("%u killed; survivors made %ju and %ju products; fds %u -> %u, maps %u -> %u\n",
                  fixture_number("GEMMD_KILLS", N_KILLS),
                  (uintmax_t)atomic_load(&shared->n_products[0]),
                  (uintmax_t)atomic_load(&shared->n_products[1]), before.n_fds, after.n_fds,
                  before.n_maps, after.n_maps);
    assert_int_equal(after.counts.n_sessions, before.counts.n_sessions);
    assert_int_equal(after.counts.n_buffers, before.counts.n_buffers);
    assert_int_equal(after.counts.buffer_bytes, before.counts.buffer_bytes);
    assert_int_equal(after.counts.n_fds, before.counts.n_fds);
    assert_int_equal(after.counts.n_lanes, before.counts.n_lanes);
    assert_int_equal(after.counts.n_in_flight, 0);
    assert_int_equal(after.n_fds, before.n_fds);
    assert_true(after.n_maps <= before.n_maps + MAPS_SLACK);
}

/* T24: what is given back is given back at once, not at the session's end. */
static void test_buffers_come_and_go(void **state)
{
    (void)state;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    uint32_t n_fds = 0;
    uint32_t n_maps = 0;
    for (uint32_t i = 0; i < 500; i++) {
        struct product product;
        const struct product_shape shape = {
            .m = 1, .x_dtype = GEMMD_F32, .y_dtype = GEMMD_F32, .seed = i};
        assert_true(product_init(&product, client, "tiny", &model.weights[TEST_INT4], &shape));
        assert_true(product_run(&product, client));
        product_finish(&product);
        if (i == 9) {
            n_fds = fixture_fds(&fixture);
            n_maps = fixture_maps(&fixture);
        }
    }
    assert_true(fixture_fds(&fixture) <= n_fds + 2);
    assert_true(fixture_maps(&fixture) <= n_maps + MAPS_SLACK);
    gemmd_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deaths_disturb_nobody),
        cmocka_unit_test(test_buffers_come_and_go),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
