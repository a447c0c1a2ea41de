/* armed_walk.h - clients of a worker whose device takes launches ahead of their rows. All their
 * requests are in the ring, in stream order, and their streams go from one to the next as soon as
 * its product is there: a walk. How many launches of a walk are armed depends on what the machine
 * does besides, since the worker measures whether that pays. So there is another one where there
 * were too few. Whatever fails ends the test. */
#pragma once

#include "tests/unit/engine/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>

#include "ipc/order.h"
#include "tests/unit/engine/ahead_device.h"
#include "tests/unit/engine/worker_bench.h"

#define N_CLIENTS    2u
#define N_STEPS      250u
#define N_ENTRIES    256u
#define WALKS_MAX    40u
#define WAIT_SECONDS 30u

struct walker {
    struct client client;
    void *memory;
    struct order_words words;
    uint32_t *done;                /* (N_ENTRIES) in the device's memory, as it were ... */
    _Atomic uint32_t *quick_ready; /* ... and there too */
    uint32_t value;                /* of this walk's words */
    uint32_t n_late;               /* entries up to here are ready on the device ... */
    uint32_t n_seen;               /* ... and up to here for the worker */
};

/* The test's one walk. */
struct walk {
    struct worker_bench wb;
    struct ahead_device device;
    struct walker walkers[N_CLIENTS];
    void (*_Atomic on_event)(void); /* once, when a launch of the second weight is armed */
    bool is_stopping;               /* the first walker, at the event */
    _Atomic uint32_t i_stopped;     /* its step then; 0: it has not */
    _Atomic bool is_through;        /* the first walker, with a walk */
    bool is_silent;                 /* clients do not tell the device, as old ones */
    uint32_t n_polls_late;          /* for which the worker does not see it; 0: it sees it first */
    uint32_t n_polls;               /* of these so far */
    pthread_mutex_t lock; /* what is ready, and where: the worker's thread and the test's say so */
};

extern struct walk walk;

/* For cmocka; what was armed has got its rows, or is accounted for. */
int walk_set_up(void **state);
int walk_tear_down(void **state);

/* walk_say_ready() - entries in order. walk_leave_out() - that entry never is; the next is to be.
 * walk_show_late() - for walk.device.on_poll: the worker sees what is ready n_polls_late late. */
void walk_say_ready(struct walker *walker, uint32_t entry);
void walk_leave_out(struct walker *walker, uint32_t entry);
void walk_show_late(bool is_free);

/* walk_submit() - the request of that step. walk_start() - walks of the first so many, all at once.
 * walk_collect() - the requests of one walker, each answered once, with OK and then with that
 * status; the number of those that are OK. */
void walk_submit(struct walker *walker, uint32_t i);
void walk_start(uint32_t n_walkers);
uint32_t walk_collect(struct walker *walker, uint32_t n_steps, uint32_t status);

/* walk_all() - a walk of so many, all served. walk_all_until() - walks until so much has happened.
 * walk_to_event() - walks until the event: from then on requests end with that status.
 * walk_to_stop() - walks of the first until it stops, at the event. */
void walk_all(uint32_t n_walkers);
void walk_all_until(uint32_t n_walkers, uint64_t (*count)(void), uint64_t enough);
void walk_to_event(uint32_t n_walkers, uint32_t status);
void walk_to_stop(void (*event)(void));

/* walk_disarmed() - launches that the worker disarmed for that reason. */
uint64_t walk_disarmed(enum worker_disarm why);
