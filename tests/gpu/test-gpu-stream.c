/* test-gpu-stream.c - products in the order of CUDA streams are the same, bit for bit, as with a
 * CPU that waits for everything, in every way that this machine has: two ways need MPS, so the
 * program runs with and without it (tests/gpu/run mps test). Skipped without a GPU. The parent
 * never uses CUDA: it forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/client.h"
#include "ipc/base/num.h"
#include "tests/gpu/chain.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/step.h"
#include "tests/harness/model.h"
#include "tests/harness/tiny.h"

#define N_STEPS     700u /* more than can be in flight */
#define N_STREAMS   5u
#define N_IN_FLIGHT 256u /* session_requests_max, by default */
#define N_CROWD     4u
#define K_MAX       256u
#define WEIGHT      "tiny/layer.int4" /* 96 x 256 */

static struct fixture fixture;
static struct test_model model;

static int set_up(void **state)
{
    (void)state;
    return tiny_start(&fixture, &model, 1, "devices = cuda:0\n");
}

static int tear_down(void **state)
{
    (void)state;
    return tiny_stop(&fixture, &model);
}

/* ---- one stream ---- */

static bool run_chain(gemmd_client_t *client, enum chain_way way, uint32_t seed, uint32_t n_steps,
                      uint16_t ret_x[K_MAX])
{
    struct chain chain;
    bool is_right = chain_init(&chain, client, WEIGHT, way) && chain_seed(&chain, seed) &&
                    chain_steps(&chain, n_steps) && chain_read(&chain, ret_x);
    chain_finish(&chain);
    return is_right;
}

static bool is_same(const uint16_t *expected, const uint16_t *x, const char *what)
{
    if (memcmp(expected, x, K_MAX * sizeof(*x)) != 0) {
        (void)fprintf(stderr, "%s: other bits than with a CPU that waits\n", what);
        return false;
    }
    return true;
}

static bool child_of_chains(uint32_t i_child)
{
    uint16_t expected[K_MAX], x[K_MAX];
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = run_chain(client, CHAIN_SYNC, i_child, N_STEPS, expected);
    for (enum chain_way way = CHAIN_MEMORY; is_right && way < CHAIN_WAYS; way++) {
        if (!chain_has_way(client, 0, way)) {
            (void)fprintf(stderr, "note: not %s: %s\n", chain_way_names[way], gemmd_last_error());
            continue;
        }
        is_right = run_chain(client, way, i_child, N_STEPS, x) &&
                   is_same(expected, x, chain_way_names[way]);
    }
    gemmd_close(client);
    return is_right;
}

static void test_every_way_gives_the_same_bits(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_chains));
}

static void test_a_crowd_of_chains(void **state)
{
    (void)state;
    assert_true(gpu_children(N_CROWD, child_of_chains));
}

/* Products of a stream that have ended leave room for one that the CPU waits for. */
static bool child_that_waits_afterwards(uint32_t i_child)
{
    (void)i_child;
    uint16_t x[K_MAX];
    struct chain chain;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = chain_init(&chain, client, WEIGHT, CHAIN_MEMORY) && chain_seed(&chain, 1) &&
                    delay_enqueue(20000, chain.cuda_stream) == 0 &&
                    chain_steps(&chain, N_IN_FLIGHT) &&
                    cudaStreamSynchronize(chain.cuda_stream) == cudaSuccess &&
                    run_chain(client, CHAIN_SYNC, 1, 1, x);
    chain_finish(&chain);
    gemmd_close(client);
    return is_right;
}

static void test_a_full_stream_that_has_ended(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_that_waits_afterwards));
}

/* ---- several streams ---- */

/* Chains of one client that take turns, each begun behind a delay of its own. */
static bool run_streams(gemmd_client_t *client, struct chain chains[N_STREAMS],
                        uint16_t expected[N_STREAMS][K_MAX])
{
    uint16_t x[K_MAX];
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < N_STREAMS; i++) {
        is_right = run_chain(client, CHAIN_SYNC, i, N_STEPS, expected[i]) &&
                   chain_seed(&chains[i], i) &&
                   delay_enqueue(1000 * (N_STREAMS - i), chains[i].cuda_stream) == 0;
    }
    for (uint32_t i_step = 0; is_right && i_step < N_STEPS; i_step++) {
        for (uint32_t i = 0; is_right && i < N_STREAMS; i++) {
            is_right = chain_steps(&chains[i], 1);
        }
    }
    for (uint32_t i = 0; is_right && i < N_STREAMS; i++) {
        is_right = chain_read(&chains[i], x) && is_same(expected[i], x, "one of several streams");
    }
    return is_right;
}

static enum chain_way best_way(gemmd_client_t *client)
{
    return chain_has_way(client, 0, CHAIN_KERNEL) ? CHAIN_KERNEL : CHAIN_MEMORY;
}

static bool child_of_streams(uint32_t i_child)
{
    (void)i_child;
    uint16_t expected[N_STREAMS][K_MAX];
    struct chain chains[N_STREAMS];
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    enum chain_way way = best_way(client);
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < N_STREAMS; i++) {
        is_right = chain_init(&chains[i], client, WEIGHT, way);
    }
    is_right = is_right && run_streams(client, chains, expected);
    for (uint32_t i = 0; i < N_STREAMS; i++) {
        chain_finish(&chains[i]);
    }
    gemmd_close(client);
    return is_right;
}

static void test_several_streams(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_streams));
}

/* x of one stream out of y of another, in the order of an event. */
static bool child_of_two(uint32_t i_child)
{
    (void)i_child;
    uint16_t expected[K_MAX], x[K_MAX];
    struct chain first, second;
    cudaEvent_t event;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    enum chain_way way = best_way(client);
    bool is_right = run_chain(client, CHAIN_SYNC, 9, 40, expected) &&
                    chain_init(&first, client, WEIGHT, way) &&
                    chain_init(&second, client, WEIGHT, way) && chain_seed(&first, 9) &&
                    cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess;
    second.gemm = first.gemm; /* the same x and y, on another stream */
    for (uint32_t i = 0; is_right && i < 20; i++) {
        struct chain *pair[] = {&first, &second};
        for (uint32_t j = 0; is_right && j < 2; j++) {
            is_right =
                gemmd_gemm_on_stream(pair[j]->stream, &first.gemm) == GEMMD_OK &&
                step_enqueue(gemmd_buffer_data(first.y), first.weight.n, gemmd_buffer_data(first.x),
                             first.weight.k, pair[j]->cuda_stream) == 0 &&
                cudaEventRecord(event, pair[j]->cuda_stream) == cudaSuccess &&
                cudaStreamWaitEvent(pair[1 - j]->cuda_stream, event, 0) == cudaSuccess;
        }
    }
    is_right = is_right && chain_sync(&second) && chain_read(&first, x) &&
               is_same(expected, x, "two streams in turn");
    chain_finish(&second);
    chain_finish(&first);
    gemmd_close(client);
    return is_right;
}

static void test_streams_that_wait_for_each_other(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_two));
}

/* ---- words that wrap ---- */

/* All words of the lane as they are after 2^32 - 2 requests of each entry. */
static bool age_words(gemmd_client_t *client)
{
    struct queue *queue = &client->lanes[0];
    uint32_t *words = malloc(queue->n_tickets * sizeof(*words));
    for (uint32_t i = 0; i < queue->n_tickets; i++) {
        words[i] = UINT32_MAX - 1;
        queue->tickets[i].order_value = words[i];
        atomic_store(&queue->turns.words.ready[i], words[i]);
        atomic_store(&queue->turns.words.ended[i], words[i]);
    }
    uint64_t n_bytes = queue->n_tickets * sizeof(*words);
    uintptr_t done = (uintptr_t)queue->turns.device.done.address;
    bool is_copied = gpu_copy((void *)done, words, n_bytes) &&
                     gpu_copy((void *)(done + ORDER_DEVICE_READY_OFFSET), words, n_bytes);
    free(words);
    return is_copied;
}

static bool child_of_wrap(uint32_t i_child)
{
    (void)i_child;
    uint16_t expected[K_MAX], x[K_MAX];
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = run_chain(client, CHAIN_SYNC, 3, N_STEPS, expected) &&
                    run_chain(client, best_way(client), 3, 4, x);
    for (enum chain_way way = CHAIN_MEMORY; is_right && way < CHAIN_WAYS; way++) {
        is_right = !chain_has_way(client, 0, way) ||
                   (age_words(client) && run_chain(client, way, 3, N_STEPS, x) &&
                    is_same(expected, x, "words that wrap"));
    }
    gemmd_close(client);
    return is_right;
}

static void test_words_wrap(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_wrap));
}

/* ---- graphs ---- */

/* Refused with the reason, and the capture goes on as if nothing had been asked. */
static bool child_of_capture(uint32_t i_child)
{
    (void)i_child;
    struct chain chain;
    struct gemmd_signal signal;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t replay = NULL;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right =
        chain_init(&chain, client, WEIGHT, best_way(client)) &&
        cudaStreamBeginCapture(chain.cuda_stream, cudaStreamCaptureModeGlobal) == cudaSuccess &&
        delay_enqueue(1, chain.cuda_stream) == 0 &&
        gemmd_gemm_on_stream(chain.stream, &chain.gemm) == GEMMD_UNSUPPORTED &&
        strstr(gemmd_last_error(), "is being captured") != NULL &&
        gemmd_submit_on_stream(chain.stream, &chain.gemm, &signal) == GEMMD_UNSUPPORTED &&
        cudaStreamEndCapture(chain.cuda_stream, &graph) == cudaSuccess &&
        cudaGraphInstantiate(&replay, graph, 0) == cudaSuccess &&
        cudaGraphLaunch(replay, chain.cuda_stream) == cudaSuccess && chain_seed(&chain, 1) &&
        chain_steps(&chain, 3) && chain_sync(&chain);
    chain_finish(&chain);
    gemmd_close(client);
    return is_right;
}

static void test_capture_is_refused(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_capture));
}

int main(void)
{
    gpu_need();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_way_gives_the_same_bits),
        cmocka_unit_test(test_a_crowd_of_chains),
        cmocka_unit_test(test_a_full_stream_that_has_ended),
        cmocka_unit_test(test_several_streams),
        cmocka_unit_test(test_streams_that_wait_for_each_other),
        cmocka_unit_test(test_words_wrap),
        cmocka_unit_test(test_capture_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
