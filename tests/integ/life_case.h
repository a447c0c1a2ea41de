/* life_case.h - what the tests of the daemon's life share: each test starts daemons of its own, on
 * a folder with one small model. */
#pragma once

#include "tests/harness/fixture.h"
#include "tests/harness/model.h"
#include "tests/harness/product.h"

#define EXIT_USAGE   2
#define EXIT_REFUSED 4
#define EXIT_FAILED  5

struct life {
    struct fixture fixture;
    struct test_model model; /* "tiny" */
    char argument[512];      /* of --model */
    struct fixture_options options;
};

extern const struct product_shape life_shape;

/* life_set_up() and life_tear_down() - of each test: *state is a struct life; no daemon runs yet.
 */
int life_set_up(void **state);
int life_tear_down(void **state);

/* life_serves_through() - a right product of "tiny". life_serves() - that of a new client. */
bool life_serves_through(gemmd_client_t *client, const struct test_model *model);
bool life_serves(struct life *life);

/* life_socket_path() - in one static buffer. life_has_sockets() - is one of the two still there? */
const char *life_socket_path(const struct life *life, const char *name);
bool life_has_sockets(const struct life *life);
