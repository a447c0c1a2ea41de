/* hostile_case.c - see hostile_case.h. */
#include "tests/integ/hostile_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zmq.h>

static const struct product_shape good_shape = {
    .m = 33, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = 1};

static bool init_good(struct hostile *hostile, gemmd_client_t *client, struct product *product)
{
    return product_init(product, client, "tiny", &hostile->model.weights[TEST_INT4], &good_shape);
}

int hostile_set_up(void **state, const char *config)
{
    char argument[512];
    struct hostile *hostile = calloc(1, sizeof(*hostile));
    if (hostile == NULL) {
        return -1;
    }
    *state = hostile;
    hostile->random = 0xbad;
    fixture_init(&hostile->fixture);
    test_model_write(&hostile->model, &hostile->fixture.folder, "tiny", 5);
    (void)snprintf(argument, sizeof(argument), "tiny=%s", hostile->model.path);
    const struct fixture_options options = {.model = argument, .config = config};
    fixture_start(&hostile->fixture, &options);
    hostile->good_client = fixture_open(&hostile->fixture, GEMMD_PATH_RING);
    bool is_good = init_good(hostile, hostile->good_client, &hostile->good) &&
                   init_good(hostile, hostile->good_client, &hostile->again) &&
                   product_run(&hostile->good, hostile->good_client) &&
                   product_is_right(&hostile->good);
    return is_good ? 0 : -1;
}

int hostile_tear_down(void **state)
{
    struct hostile *hostile = *state;
    product_finish(&hostile->good);
    product_finish(&hostile->again);
    gemmd_close(hostile->good_client);
    int code = fixture_stop(&hostile->fixture);
    fixture_finish(&hostile->fixture);
    test_model_finish(&hostile->model);
    free(hostile);
    return code;
}

bool hostile_good_goes_on(struct hostile *hostile)
{
    product_clear(&hostile->again);
    return product_run(&hostile->again, hostile->good_client) &&
           product_same_bytes(&hostile->good, &hostile->again);
}

static bool newcomer_is_served(struct hostile *hostile, enum gemmd_path path)
{
    struct product fresh = {0};
    gemmd_client_t *client = fixture_open(&hostile->fixture, path);
    bool is_right = init_good(hostile, client, &fresh) && product_run(&fresh, client) &&
                    product_same_bytes(&hostile->good, &fresh);
    product_finish(&fresh);
    gemmd_close(client);
    return is_right;
}

int hostile_still_serves(void **state)
{
    struct hostile *hostile = *state;
    if (!fixture_is_running(&hostile->fixture)) {
        fixture_fail(&hostile->fixture, "the daemon is gone");
    }
    bool is_right = hostile_good_goes_on(hostile) && newcomer_is_served(hostile, GEMMD_PATH_RING) &&
                    newcomer_is_served(hostile, GEMMD_PATH_ZEROMQ);
    return is_right ? 0 : -1;
}

void hostile_fill_random(struct hostile *hostile, void *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        ((uint8_t *)bytes)[i] = (uint8_t)test_random(&hostile->random);
    }
}

uint64_t hostile_resident_kib(const struct hostile *hostile)
{
    char path[64];
    char line[256];
    unsigned long kib = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)hostile->fixture.pid);
    FILE *status = fopen(path, "r");
    if (status == NULL) {
        fixture_fail(&hostile->fixture, "%s is not there", path);
    }
    while (fgets(line, sizeof(line), status) != NULL && sscanf(line, "VmRSS: %lu", &kib) != 1) {
    }
    (void)fclose(status);
    return kib;
}

bool hostile_has_grown(const struct hostile *hostile, uint64_t kib_before, uint64_t kib_max)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)hostile;
    (void)kib_before;
    (void)kib_max;
    return false;
#else
    return hostile_resident_kib(hostile) >= kib_before + kib_max;
#endif
}

int hostile_open_peer(const struct hostile *hostile, struct peer *peer)
{
    char token[SIDE_TOKEN_BYTES];
    int fd = wire_session(&hostile->fixture, token);
    peer_init(peer, &hostile->fixture, ZMQ_DEALER, token, sizeof(token));
    if (peer_ping(peer, 1) != GEMMD_OK) {
        fixture_fail(&hostile->fixture, "a session's PING is not answered OK");
    }
    return fd;
}

void hostile_close_peer(struct peer *peer, int fd)
{
    peer_finish(peer);
    (void)close(fd);
}
