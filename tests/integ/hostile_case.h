/* hostile_case.h - what the tests of hostile clients share: a daemon, and a well-behaved client
 * whose product was judged before the first attack and must be repeated after every one. */
#pragma once

#include "tests/harness/fixture.h"
#include "tests/harness/model.h"
#include "tests/harness/product.h"
#include "tests/harness/wire.h"

#define SETTLE_SECONDS 20.0

struct hostile {
    struct fixture fixture;
    struct test_model model; /* served as "tiny" */
    gemmd_client_t *good_client;
    struct product good;  /* judged once */
    struct product again; /* must repeat it */
    uint64_t random;
};

/* hostile_set_up() - group setup of cmocka; *state is a struct hostile from then on. config: lines
 * of the daemon's configuration. hostile_tear_down() - the daemon must end well, too. */
int hostile_set_up(void **state, const char *config);
int hostile_tear_down(void **state);

/* hostile_still_serves() - teardown of each test: the daemon lives, and an old client and new ones
 * of both paths get the good product's bytes. */
int hostile_still_serves(void **state);

/* hostile_good_goes_on() - the good client repeats its product. */
bool hostile_good_goes_on(struct hostile *hostile);

void hostile_fill_random(struct hostile *hostile, void *bytes, size_t n_bytes);

/* hostile_open_peer() - a session and a DEALER with its token; the session's descriptor. */
int hostile_open_peer(const struct hostile *hostile, struct peer *peer);
void hostile_close_peer(struct peer *peer, int fd);

/* hostile_resident_kib() - the daemon's memory. hostile_has_grown() - by kib_max or more since
 * then? Always false under the sanitizers, which keep what is freed. */
uint64_t hostile_resident_kib(const struct hostile *hostile);
bool hostile_has_grown(const struct hostile *hostile, uint64_t kib_before, uint64_t kib_max);
