/* fake_supervisor.h - the service supervisor's side of sd_notify(3) and sd_listen_fds(3), in the
 * test's own process: so that a test can see, count and exchange what the daemon has it keep. */
#pragma once

#include "daemon/keeper/fdstore.h"
#include "tests/harness/fixture.h"

struct fake_supervisor {
    struct fdstore store; /* what is kept now; handed over to every daemon that is started */
    int fd;
    char address[32];
    char watchdog_usec[24]; /* WATCHDOG_USEC of daemons started from now on; "": none */
    uint32_t n_ready;       /* READY=1 so far */
    uint32_t n_signs;       /* WATCHDOG=1 so far */
    uint32_t n_stopping;
};

void fake_supervisor_init(struct fake_supervisor *supervisor);
void fake_supervisor_finish(struct fake_supervisor *supervisor);

/* fake_supervisor_manage() - have daemons that are started with these options managed. */
void fake_supervisor_manage(struct fake_supervisor *supervisor, struct fixture_options *options);

/* fake_supervisor_read() - take in every message that is there. fake_supervisor_await() - until
 * *count, one of the above, is n at least, for 10 s. */
void fake_supervisor_read(struct fake_supervisor *supervisor);
void fake_supervisor_await(struct fake_supervisor *supervisor, const struct fixture *fixture,
                           const uint32_t *count, uint32_t n);

/* fake_supervisor_find() - the first descriptor whose name starts so; borrowed; NULL: there is
 * none. fake_supervisor_count() - how many there are. */
struct fdstore_item *fake_supervisor_find(struct fake_supervisor *supervisor, const char *prefix);
uint32_t fake_supervisor_count(const struct fake_supervisor *supervisor, const char *prefix);
