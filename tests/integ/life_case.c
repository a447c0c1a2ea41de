/* life_case.c - see life_case.h. */
#include "tests/integ/life_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ipc/side.h"

const struct product_shape life_shape = {
    .m = 9, .x_dtype = GEMMD_F32, .y_dtype = GEMMD_F32, .seed = 77};

int life_set_up(void **state)
{
    struct life *life = calloc(1, sizeof(*life));
    if (life == NULL) {
        return -1;
    }
    fixture_init(&life->fixture);
    test_model_write(&life->model, &life->fixture.folder, "tiny", 11);
    (void)snprintf(life->argument, sizeof(life->argument), "tiny=%s", life->model.path);
    life->options.model = life->argument;
    *state = life;
    return 0;
}

int life_tear_down(void **state)
{
    struct life *life = *state;
    fixture_finish(&life->fixture);
    test_model_finish(&life->model);
    free(life);
    return 0;
}

bool life_serves_through(gemmd_client_t *client, const struct test_model *model)
{
    struct product product;
    if (!product_init(&product, client, "tiny", &model->weights[TEST_INT4], &life_shape)) {
        return false;
    }
    bool is_served = product_run(&product, client) && product_is_right(&product);
    product_finish(&product);
    return is_served;
}

bool life_serves(struct life *life)
{
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    bool is_served = life_serves_through(client, &life->model);
    gemmd_close(client);
    return is_served;
}

const char *life_socket_path(const struct life *life, const char *name)
{
    static char path[400];
    (void)snprintf(path, sizeof(path), "%s/%s", life->fixture.socket_dir, name);
    return path;
}

bool life_has_sockets(const struct life *life)
{
    return access(life_socket_path(life, SIDE_SOCKET_NAME), F_OK) == 0 ||
           access(life_socket_path(life, SIDE_CONTROL_NAME), F_OK) == 0;
}
