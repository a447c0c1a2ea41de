/* order.h - the order in which sessions use weights, learned from their requests: nobody declares
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

#include "daemon/engine/cost.h"

#define ORDER_GOOD_STEPS 2u /* that a walker makes along a ring before it counts as on it */

struct order_ring;

struct order_node {
    uint64_t weight_key;
    struct list in_bucket;
    struct order_node *next; /* NULL: not known */
    uint32_t score;          /* how often `next` was right lately */
    struct order_ring *ring; /* NULL: on none */
    uint32_t i_ring;         /* place on it */
    uint32_t visit;          /* number of the last search that came by */
    struct cost cost;
};

struct order_edge {
    struct list in_bucket;
    struct list in_walker;
    const struct order_walker *walker;
    struct order_node *from;
    struct order_node *to;
    float think_nsec; /* mean */
};

/* A pass over a model, and who is on it. `n_cohort` and what follows are
 * rendezvous.c's. */
struct order_ring {
    struct order_node *first;
    uint32_t n_nodes; /* 0: not in use */
    struct list walkers;
    uint32_t n_walkers;
    uint32_t n_cohort; /* walkers that are worth waiting for; fewer than 2: nobody waits */
    uint32_t n_steps;  /* of its walkers since the cohort was chosen */
    double run_nsec;   /* of one launch for one row, mean over the ring */
};

/* Embedded in the session. Zero, then order_join(). */
struct order_walker {
    struct order_node *at;   /* weight of its latest request; NULL: none that leads anywhere */
    struct order_edge *edge; /* from there; NULL: not taken yet */
    struct order_ring *ring; /* NULL: on none */
    struct list in_ring;
    struct list in_order;
    struct list edges;
    uint32_t n_good;    /* steps along the ring without a fault */
    uint32_t n_open;    /* requests that have not ended */
    uint64_t idle_nsec; /* when the last of them ended */
    float think_nsec;   /* mean over its latest edges, and mean distance from each edge's mean */
    float deviation_nsec;
    uint32_t n_samples; /* of both, plus 1, up to a bound */
    bool is_in_cohort;  /* rendezvous.c's */
};

struct order;

struct order_limits {
    uint32_t nodes_max;
    uint32_t edges_max;
    uint32_t rings_max;
};

/* order_new() - 0, -ENOMEM, or -EINVAL when a limit is 0. */
int order_new(const struct order_limits *limits, struct order **ret_order) GD_MUST_CHECK;
struct order *order_free(struct order *order); /* walkers left are merely forgotten */

/* order_join() - before a walker's first request. order_leave() - after its last; it must have no
 * request open, or never complete it. */
void order_join(struct order *order, struct order_walker *walker);
void order_leave(struct order *order, struct order_walker *walker);

/* order_node() - the node of a weight, made at its first sight; NULL when the table is full.
 * order_forget() - all that was learned; nodes are gone, walkers are as if they had just joined. */
struct order_node *order_node(struct order *order, uint64_t weight_key);
void order_forget(struct order *order);

/* order_arrive() - the walker asks for that weight (NULL: something that is no part of a pass).
 * order_complete() - one of its requests ended; `has_run`: with a product. */
void order_arrive(struct order *order, struct order_walker *walker, struct order_node *node,
                  uint64_t now_nsec);
void order_complete(struct order_walker *walker, uint64_t now_nsec);

/* order_think_nsec() - how long the walker will think before its next request. */
uint64_t order_think_nsec(const struct order_walker *walker);

/* order_rings() - how many there are. order_in_step() - walkers in a cohort of one. */
uint32_t order_rings(const struct order *order);
uint32_t order_in_step(const struct order *order);
