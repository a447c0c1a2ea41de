/* test-gpu-growth.c - weights that come and go beside others (T19): the memory that launches share
 * grows where it is, so that products of a weight keep their bits, and nobody else's memory is
 * written, whatever is loaded meanwhile. Graphs of products there are none: capturing is refused
 * (test-gpu-stream). Skipped without a GPU. The parent never uses CUDA: it forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "ipc/base/num.h"
#include "tests/gpu/chain.h"
#include "tests/gpu/gpu.h"
#include "tests/harness/control_job.h"
#include "tests/harness/model.h"

#define N_LARGER     3u
#define N_REPLAYS    100u
#define N_CHAINS     30u
#define N_STEPS      50u
#define K_MAX        256u
#define CANARY_BYTES (1ull << 30)
#define CANARY_BYTE  0x5a

static const uint32_t row_counts[] = {1, 2, 4, 8};
static const char *const larger_names[N_LARGER] = {"large", "larger", "largest"};

static struct fixture fixture;
static struct test_model model;
static struct test_model larger[N_LARGER]; /* each needs more of that memory than the one before */

static int set_up(void **state)
{
    (void)state;
    char argument[512];
    fixture_init(&fixture);
    test_model_write(&model, &fixture.folder, "tiny", 1);
    for (uint32_t i = 0; i < N_LARGER; i++) {
        const uint32_t shapes[TEST_WEIGHTS][2] = {{64, 4096u << i}, {40, 128}, {30, 70}};
        test_model_write_sized(&larger[i], &fixture.folder, larger_names[i], i + 2, shapes);
    }
    (void)snprintf(argument, sizeof(argument), "tiny=%s", model.path);
    const struct fixture_options options = {.model = argument, .config = "devices = cuda:0\n"};
    fixture_start(&fixture, &options);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    int code = fixture_stop(&fixture);
    fixture_finish(&fixture);
    test_model_finish(&model);
    for (uint32_t i = 0; i < N_LARGER; i++) {
        test_model_finish(&larger[i]);
    }
    return code;
}

static bool load(gemmd_client_t *client, const char *name, const char *path)
{
    char text[MSG_TEXT_BYTES] = "";
    int r = control_load(client, name, path, NULL, text);
    if (r != GEMMD_OK) {
        (void)fprintf(stderr, "%s: 0x%x %s\n", name, (unsigned)r, text);
    }
    return r == GEMMD_OK;
}

/* Load it, multiply with it, and let it go if it is not to stay. */
static bool use_larger(gemmd_client_t *client, uint32_t i, bool is_kept)
{
    struct product product;
    const struct product_shape shape = {
        .m = 70, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = i};
    if (!load(client, larger_names[i], larger[i].path) ||
        !product_init(&product, client, larger_names[i], &larger[i].weights[TEST_INT4], &shape)) {
        return false;
    }
    bool is_right = product_run(&product, client) && product_is_right(&product);
    product_finish(&product);
    return is_right && (is_kept || control_verb(client, MSG_VERB_UNLOAD, larger_names[i]) == 0);
}

/* ---- one after the other ---- */

struct replays {
    struct product first[ARRAY_LENGTH(row_counts)];
    struct product again[ARRAY_LENGTH(row_counts)];
};

static bool init_products(struct product products[], gemmd_client_t *client)
{
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < ARRAY_LENGTH(row_counts); i++) {
        const struct product_shape shape = {
            .m = row_counts[i], .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = 40 + i};
        is_right = product_init(&products[i], client, "tiny", &model.weights[TEST_INT4], &shape) &&
                   product_run(&products[i], client) && product_is_right(&products[i]);
    }
    return is_right;
}

static void finish_products(struct product products[])
{
    for (uint32_t i = 0; i < ARRAY_LENGTH(row_counts); i++) {
        product_finish(&products[i]);
    }
}

/* In host memory, which is brought into that memory, and in the GPU's own. */
static bool replay(struct replays *replays, gemmd_client_t *client, uint32_t i)
{
    uint32_t j = i % ARRAY_LENGTH(row_counts);
    enum gpu_kind kind = i % 3 == 0 ? GPU_HOST : GPU_ARENA;
    bool is_same = gpu_product_run(&replays->again[j], client, kind, kind) &&
                   product_same_bytes(&replays->first[j], &replays->again[j]);
    if (!is_same) {
        (void)fprintf(stderr, "replay %u of %u rows\n", i, row_counts[j]);
    }
    return is_same;
}

static bool canary_lives(const void *canary)
{
    uint8_t *bytes = malloc(CANARY_BYTES);
    bool is_whole = bytes != NULL && gpu_copy(bytes, canary, CANARY_BYTES) &&
                    bytes[0] == CANARY_BYTE && memcmp(bytes, bytes + 1, CANARY_BYTES - 1) == 0;
    free(bytes);
    if (!is_whole) {
        (void)fprintf(stderr, "the canary was written\n");
    }
    return is_whole;
}

static bool replay_all(struct replays *replays, gemmd_client_t *client)
{
    void *canary;
    bool is_right = cudaMalloc(&canary, CANARY_BYTES) == cudaSuccess &&
                    cudaMemset(canary, CANARY_BYTE, CANARY_BYTES) == cudaSuccess;
    for (uint32_t i = 0; is_right && i < N_REPLAYS * ARRAY_LENGTH(row_counts); i++) {
        is_right = replay(replays, client, i);
    }
    return is_right && canary_lives(canary) && cudaFree(canary) == cudaSuccess;
}

static bool child_of_replays(uint32_t i_child)
{
    (void)i_child;
    struct replays replays = {.first = {{.x = NULL}}};
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = init_products(replays.first, client) && init_products(replays.again, client) &&
                    use_larger(client, N_LARGER - 1, true) && replay_all(&replays, client);
    finish_products(replays.again);
    is_right = is_right && control_verb(client, MSG_VERB_UNLOAD, larger_names[N_LARGER - 1]) == 0 &&
               control_verb(client, MSG_VERB_UNLOAD, "tiny") == 0 &&
               load(client, "tiny", model.path) && init_products(replays.again, client);
    for (uint32_t i = 0; is_right && i < ARRAY_LENGTH(row_counts); i++) {
        is_right = replay(&replays, client, i);
    }
    finish_products(replays.first);
    finish_products(replays.again);
    gemmd_close(client);
    return is_right;
}

static void test_t19_a_larger_weight(void **state)
{
    (void)state;
    assert_true(gpu_children(1, child_of_replays));
}

/* ---- at once ---- */

static bool run_chain(gemmd_client_t *client, uint16_t ret_x[K_MAX])
{
    struct chain chain;
    if (!chain_init(&chain, client, "tiny/layer.int4", CHAIN_MEMORY)) {
        return false;
    }
    bool is_right = chain.weight.k <= K_MAX && chain_seed(&chain, 3) &&
                    chain_steps(&chain, N_STEPS) && chain_read(&chain, ret_x);
    chain_finish(&chain);
    return is_right;
}

static bool run_chains(gemmd_client_t *client)
{
    uint16_t expected[K_MAX] = {0}, x[K_MAX] = {0};
    bool is_right = run_chain(client, expected);
    for (uint32_t i = 0; is_right && i < N_CHAINS; i++) {
        is_right = run_chain(client, x) && memcmp(expected, x, sizeof(x)) == 0;
        if (!is_right) {
            (void)fprintf(stderr, "chain %u beside loads\n", i);
        }
    }
    return is_right;
}

/* The first child's products are in flight while the second one's weights come, each larger than
 * any before. */
static bool child_beside(uint32_t i_child)
{
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = true;
    if (i_child == 0) {
        is_right = run_chains(client);
    }
    for (uint32_t i = 0; is_right && i_child == 1 && i < N_LARGER; i++) {
        is_right = use_larger(client, i, false);
    }
    gemmd_close(client);
    return is_right;
}

static void test_t19_beside_launches(void **state)
{
    (void)state;
    assert_true(gpu_children(2, child_beside));
}

int main(void)
{
    gpu_need();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_t19_beside_launches), /* first: nothing has grown yet */
        cmocka_unit_test(test_t19_a_larger_weight),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
