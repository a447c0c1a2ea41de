/* route.h - the order in which sessions use weights, learned from their requests: nobody declares
 * anything. A pure module: no clock, no threads, no allocation after init.
 *
 * Three things are learned:
 *
 *   edges   of one session: which weight follows which, and how long it thinks in between
 *   nodes   of one weight: which weight follows it for most sessions, and what its launches take
 *   rings   of nodes that follow one another and come back: a pass over a model
 *
 * A walker (a session) is on a ring while its requests follow the ring one by one. Whatever does
 * not (experts chosen by a router, prefill, several passes in one session, a weight that comes
 * twice in a pass) is on none, and promises nothing. When the tables are full everything is
 * forgotten and learned anew, which takes a pass. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/list.h"

#include "daemon/engine/ahead.h"
#include "daemon/engine/cost.h"

#define ROUTE_GOOD_STEPS 2u /* that a walker makes along a ring before it counts as on it */

struct route_ring;

struct route_node {
    uint64_t weight_key;
    struct list in_bucket;
    struct route_node *next; /* NULL: not known */
    uint32_t score;          /* how often `next` was right lately */
    struct route_ring *ring; /* NULL: on none */
    uint32_t i_ring;         /* place on it */
    uint32_t visit;          /* number of the last search that came by */
    struct cost cost;
};

struct route_edge {
    struct list in_bucket;
    struct list in_walker;
    const struct route_walker *walker;
    struct route_node *from;
    struct route_node *to;
    float think_nsec; /* mean */
};

/* A pass over a model, and who is on it. `n_cohort` to `run_nsec` are rendezvous.c's, `ahead` is
 * sched_ahead.c's. */
struct route_ring {
    struct route_node *first;
    uint32_t n_nodes; /* 0: not in use */
    struct list walkers;
    uint32_t n_walkers;
    uint32_t n_cohort; /* walkers that are worth waiting for; fewer than 2: nobody waits */
    uint32_t n_steps;  /* of its walkers since the cohort was chosen */
    double run_nsec;   /* of one launch for one row, mean over the ring */
    struct ahead ahead;
};

/* Embedded in the session. Zero, then route_join(). */
struct route_walker {
    struct route_node *at;   /* weight of its latest request; NULL: none that leads anywhere */
    struct route_edge *edge; /* from there; NULL: not taken yet */
    struct route_ring *ring; /* NULL: on none */
    struct list in_ring;
    struct list in_routes;
    struct list edges;
    uint32_t n_good;    /* steps along the ring without a fault */
    uint32_t n_open;    /* requests that have not ended */
    uint64_t idle_nsec; /* when the last of them ended */
    float think_nsec;   /* mean over its latest edges, and mean distance from each edge's mean */
    float deviation_nsec;
    uint32_t n_samples; /* of both, plus 1, up to a bound */
    bool is_in_cohort;  /* rendezvous.c's */
};

struct routes;

struct route_limits {
    uint32_t nodes_max;
    uint32_t edges_max;
    uint32_t rings_max;
};

/* route_new() - 0, -ENOMEM, or -EINVAL when a limit is 0. */
int route_new(const struct route_limits *limits, struct routes **ret_routes) GD_MUST_CHECK;
struct routes *route_free(struct routes *routes); /* walkers left are merely forgotten */

/* route_join() - before a walker's first request. route_leave() - after its last; it must have no
 * request open, or never complete it. */
void route_join(struct routes *routes, struct route_walker *walker);
void route_leave(struct routes *routes, struct route_walker *walker);

/* route_node() - the node of a weight, made at its first sight; NULL when the table is full.
 * route_forget() - all that was learned; nodes are gone, walkers are as if they had just joined. */
struct route_node *route_node(struct routes *routes, uint64_t weight_key);
void route_forget(struct routes *routes);

/* route_arrive() - the walker asks for that weight (NULL: something that is no part of a pass).
 * route_complete() - one of its requests ended; `has_run`: with a product. */
void route_arrive(struct routes *routes, struct route_walker *walker, struct route_node *node,
                  uint64_t now_nsec);
void route_complete(struct route_walker *walker, uint64_t now_nsec);

/* route_think_nsec() - how long the walker will think before its next request. */
uint64_t route_think_nsec(const struct route_walker *walker);

/* route_rings() - how many there are. route_in_step() - walkers in a cohort of one. */
uint32_t route_rings(const struct routes *routes);
uint32_t route_in_step(const struct routes *routes);
