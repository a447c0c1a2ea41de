/* tiny.h - the daemon on a private socket folder, serving the test model as "tiny", or nothing yet:
 * what most tests of the service begin and end with. */
#pragma once

#include <stdint.h>

#include "tests/harness/fixture.h"
#include "tests/harness/model.h"

/* tiny_start() - both are set up; config: lines of gemmd.conf, NULL: none. Returns 0, for cmocka.
 * tiny_stop() - the daemon's exit code after SIGTERM; nothing is left of either. */
int tiny_start(struct fixture *fixture, struct test_model *model, uint64_t seed,
               const char *config);
int tiny_stop(struct fixture *fixture, struct test_model *model);

/* bare_start() - without a model, and a client of it. bare_stop() - as tiny_stop(). */
int bare_start(struct fixture *fixture, gemmd_client_t **ret_client);
int bare_stop(struct fixture *fixture, gemmd_client_t *client);
