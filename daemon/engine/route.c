/* route.c - see route.h.
 *
 * A node's successor is what a vote of all steps says: a step that agrees adds to its score, one
 * that does not takes two away, and at 0 the successor changes. A walker whose own edge has just
 * proved wrong does not vote, so that one with several passes at once, whose steps look random,
 * spoils little. A ring is searched for along the successors when a walker comes to a node that has
 * none; each search that finds none makes the next one wait for as many arrivals as it took steps,
 * so that searching costs a few nanoseconds an arrival. A ring ends when a successor in it changes.
 */
#include "daemon/engine/route.h"

#include <errno.h>
#include <stdlib.h>

#include "ipc/base/error.h"

#include "daemon/engine/hash.h"

#define SCORE_MAX       8u
#define SCORE_GOOD      2u /* of every node of a ring */
#define SEARCH_PATIENCE 16u

/* How much the newest think time counts in its mean; one far above it counts as so many times. */
#define WEIGHT_OF_NEW 0.125f
#define OUTLIER       4.0f
#define OUTLIER_NSEC  20000.0f /* ... and this much more, or a mean of 0 could never grow */
#define SAMPLES_MAX   64u      /* of a walker's own means */

struct routes {
    struct route_limits limits;
    uint32_t n_nodes;
    uint32_t n_edges; /* made so far; edges of walkers that left are in free_edges */
    uint32_t node_mask;
    uint32_t edge_mask;
    struct route_node *nodes;
    struct route_edge *edges;
    struct route_ring *rings;
    uint32_t n_rings; /* the first so many have been in use */
    struct list *node_buckets;
    struct list *edge_buckets;
    struct list free_edges;
    struct list walkers;
    uint32_t n_visits;
    uint64_t n_arrivals;
    uint64_t next_search; /* in arrivals */
};

/* ---- setting up ---- */

static uint32_t buckets_for(uint32_t n)
{
    uint32_t n_buckets = 16;
    while (n_buckets < n && n_buckets < 1u << 30) {
        n_buckets *= 2;
    }
    return n_buckets;
}

static void clear(struct routes *routes)
{
    for (uint32_t i = 0; i <= routes->node_mask; i++) {
        list_init(&routes->node_buckets[i]);
    }
    for (uint32_t i = 0; i <= routes->edge_mask; i++) {
        list_init(&routes->edge_buckets[i]);
    }
    for (uint32_t i = 0; i < routes->limits.rings_max; i++) {
        routes->rings[i] = (struct route_ring){.first = NULL};
        list_init(&routes->rings[i].walkers);
    }
    list_init(&routes->free_edges);
    routes->n_nodes = 0;
    routes->n_edges = 0;
}

int route_new(const struct route_limits *limits, struct routes **ret_routes)
{
    if (limits->nodes_max == 0 || limits->edges_max == 0 || limits->rings_max == 0) {
        return err_raise(-EINVAL);
    }
    struct routes *routes = calloc(1, sizeof(*routes));
    if (routes == NULL) {
        return err_raise(-ENOMEM);
    }
    routes->limits = *limits;
    routes->node_mask = buckets_for(limits->nodes_max) - 1;
    routes->edge_mask = buckets_for(limits->edges_max) - 1;
    routes->nodes = calloc(limits->nodes_max, sizeof(*routes->nodes));
    routes->edges = calloc(limits->edges_max, sizeof(*routes->edges));
    routes->rings = calloc(limits->rings_max, sizeof(*routes->rings));
    routes->node_buckets = calloc(routes->node_mask + 1, sizeof(struct list));
    routes->edge_buckets = calloc(routes->edge_mask + 1, sizeof(struct list));
    if (routes->nodes == NULL || routes->edges == NULL || routes->rings == NULL ||
        routes->node_buckets == NULL || routes->edge_buckets == NULL) {
        (void)route_free(routes);
        return err_raise(-ENOMEM);
    }
    list_init(&routes->walkers);
    clear(routes);
    *ret_routes = routes;
    return 0;
}

struct routes *route_free(struct routes *routes)
{
    if (routes != NULL) {
        free(routes->nodes);
        free(routes->edges);
        free(routes->rings);
        free(routes->node_buckets);
        free(routes->edge_buckets);
        free(routes);
    }
    return NULL;
}

/* ---- walkers on rings ---- */

static void enter_ring(struct route_walker *walker, struct route_ring *ring)
{
    walker->ring = ring;
    list_append(&ring->walkers, &walker->in_ring);
    ring->n_walkers++;
    ring->n_steps = UINT32_MAX; /* choose the cohort anew */
}

static void leave_ring(struct route_walker *walker)
{
    struct route_ring *ring = walker->ring;
    if (ring == NULL) {
        return;
    }
    list_remove(&walker->in_ring);
    ring->n_walkers--;
    ring->n_cohort -= walker->is_in_cohort;
    ring->n_steps = UINT32_MAX;
    walker->ring = NULL;
    walker->is_in_cohort = false;
}

static void break_ring(struct route_ring *ring)
{
    struct route_node *node = ring->first;
    for (uint32_t i = 0; i < ring->n_nodes; i++) {
        node->ring = NULL;
        node = node->next;
    }
    list_for_each_safe (in_ring, &ring->walkers) {
        struct route_walker *walker = LIST_OWNER(in_ring, struct route_walker, in_ring);
        leave_ring(walker);
        walker->n_good = 0;
    }
    ring->first = NULL;
    ring->n_nodes = 0;
}

void route_join(struct routes *routes, struct route_walker *walker)
{
    list_init(&walker->in_ring);
    list_init(&walker->edges);
    walker->n_samples = 1;
    list_append(&routes->walkers, &walker->in_routes);
}

void route_leave(struct routes *routes, struct route_walker *walker)
{
    leave_ring(walker);
    while (!list_is_empty(&walker->edges)) {
        struct route_edge *edge = LIST_OWNER(walker->edges.next, struct route_edge, in_walker);
        list_remove(&edge->in_walker);
        list_remove(&edge->in_bucket);
        list_append(&routes->free_edges, &edge->in_walker);
    }
    list_remove(&walker->in_routes);
    walker->at = NULL;
    walker->edge = NULL;
}

void route_forget(struct routes *routes)
{
    list_for_each (node, &routes->walkers) {
        struct route_walker *walker = LIST_OWNER(node, struct route_walker, in_routes);
        leave_ring(walker);
        list_init(&walker->edges);
        walker->at = NULL;
        walker->edge = NULL;
        walker->n_good = 0;
    }
    clear(routes);
}

/* ---- nodes and edges ---- */

struct route_node *route_node(struct routes *routes, uint64_t weight_key)
{
    struct list *bucket = &routes->node_buckets[hash_mix(weight_key) & routes->node_mask];
    list_for_each (in_bucket, bucket) {
        struct route_node *node = LIST_OWNER(in_bucket, struct route_node, in_bucket);
        if (node->weight_key == weight_key) {
            return node;
        }
    }
    if (routes->n_nodes == routes->limits.nodes_max) {
        return NULL;
    }
    struct route_node *node = &routes->nodes[routes->n_nodes++];
    *node = (struct route_node){.weight_key = weight_key};
    list_append(bucket, &node->in_bucket);
    return node;
}

static struct list *edge_bucket(struct routes *routes, const struct route_walker *walker,
                                const struct route_node *from)
{
    uint64_t hash = hash_mix((uintptr_t)walker ^ hash_mix((uintptr_t)from));
    return &routes->edge_buckets[hash & routes->edge_mask];
}

static struct route_edge *edge_find(struct routes *routes, const struct route_walker *walker,
                                    const struct route_node *from)
{
    list_for_each (in_bucket, edge_bucket(routes, walker, from)) {
        struct route_edge *edge = LIST_OWNER(in_bucket, struct route_edge, in_bucket);
        if (edge->walker == walker && edge->from == from) {
            return edge;
        }
    }
    return NULL;
}

/* NULL when there is no room: then the walker's mean has to do. */
static struct route_edge *edge_new(struct routes *routes, struct route_walker *walker,
                                   struct route_node *from)
{
    struct list *freed = list_pop(&routes->free_edges);
    struct route_edge *edge = NULL;
    if (freed != NULL) {
        edge = LIST_OWNER(freed, struct route_edge, in_walker);
    } else if (routes->n_edges < routes->limits.edges_max) {
        edge = &routes->edges[routes->n_edges++];
    } else {
        return NULL;
    }
    *edge = (struct route_edge){.walker = walker, .from = from};
    list_append(edge_bucket(routes, walker, from), &edge->in_bucket);
    list_append(&walker->edges, &edge->in_walker);
    return edge;
}

/* ---- rings ---- */

/* The end of a search: `first` was come by twice. */
static void make_ring(struct routes *routes, struct route_node *first)
{
    struct route_ring *ring = NULL;
    for (uint32_t i = 0; i < routes->limits.rings_max && ring == NULL; i++) {
        ring = routes->rings[i].n_nodes == 0 ? &routes->rings[i] : NULL;
    }
    if (ring == NULL) {
        return;
    }
    uint32_t n_rings = (uint32_t)(ring - routes->rings) + 1;
    routes->n_rings = n_rings > routes->n_rings ? n_rings : routes->n_rings;
    ring->first = first;
    ring->n_cohort = 0;
    ring->n_steps = UINT32_MAX;
    ring->ahead = (struct ahead){.n_laps = 0};
    struct route_node *node = first;
    do {
        node->ring = ring;
        node->i_ring = ring->n_nodes++;
        node = node->next;
    } while (node != first);
}

static void search_ring(struct routes *routes, struct route_node *from)
{
    if (routes->n_arrivals < routes->next_search) {
        return;
    }
    uint32_t visit = ++routes->n_visits;
    uint32_t n_steps = 0;
    struct route_node *node = from;
    while (node != NULL && node->visit != visit && node->score >= SCORE_GOOD &&
           node->ring == NULL) {
        node->visit = visit;
        node = node->next;
        n_steps++;
    }
    routes->next_search = routes->n_arrivals + n_steps + SEARCH_PATIENCE;
    if (node != NULL && node->visit == visit) {
        make_ring(routes, node);
    }
}

/* ---- steps ---- */

static void vote(struct route_node *node, struct route_node *next)
{
    if (node->next == next) {
        node->score += node->score < SCORE_MAX;
        return;
    }
    node->score = node->score > 2 ? node->score - 2 : 0;
    if (node->score > 0) {
        return;
    }
    if (node->ring != NULL) {
        break_ring(node->ring);
    }
    node->next = next;
    node->score = 1;
}

static void learn_think(struct route_walker *walker, struct route_edge *edge, float think_nsec)
{
    float limit = OUTLIER * edge->think_nsec + OUTLIER_NSEC;
    float sample = think_nsec < limit ? think_nsec : limit;
    float distance = sample - edge->think_nsec;
    float weight = 1.0f / (float)walker->n_samples;
    edge->think_nsec += WEIGHT_OF_NEW * distance;
    distance = distance < 0 ? -distance : distance;
    walker->deviation_nsec += weight * (distance - walker->deviation_nsec);
    walker->think_nsec += weight * (edge->think_nsec - walker->think_nsec);
    walker->n_samples += walker->n_samples < SAMPLES_MAX;
}

static void learn_step(struct routes *routes, struct route_walker *walker, struct route_node *to,
                       float think_nsec)
{
    struct route_edge *edge = walker->edge;
    if (edge == NULL) {
        edge = edge_new(routes, walker, walker->at);
        if (edge != NULL) {
            edge->to = to;
            edge->think_nsec = think_nsec;
            learn_think(walker, edge, think_nsec);
        }
        vote(walker->at, to);
    } else if (edge->to == to) {
        learn_think(walker, edge, think_nsec);
        vote(walker->at, to);
    } else {
        edge->to = to;
        edge->think_nsec = think_nsec;
    }
}

static bool is_step_along_ring(const struct route_node *from, const struct route_node *to)
{
    return from->ring != NULL && from->ring == to->ring &&
           to->i_ring == (from->i_ring + 1) % from->ring->n_nodes;
}

static void follow(struct routes *routes, struct route_walker *walker, struct route_node *node)
{
    if (node->ring == NULL) {
        search_ring(routes, node);
    }
    bool is_good = walker->at != NULL && is_step_along_ring(walker->at, node);
    walker->n_good = is_good ? walker->n_good + (walker->n_good < UINT32_MAX) : 0;
    if (walker->n_good < ROUTE_GOOD_STEPS) {
        leave_ring(walker);
    } else if (walker->ring == NULL) {
        enter_ring(walker, node->ring);
    } else {
        walker->ring->n_steps += walker->ring->n_steps < UINT32_MAX;
    }
}

void route_arrive(struct routes *routes, struct route_walker *walker, struct route_node *node,
                  uint64_t now_nsec)
{
    routes->n_arrivals++;
    if (node == NULL) {
        leave_ring(walker);
        walker->n_good = 0;
    } else {
        if (walker->at != NULL) {
            uint64_t think_nsec = walker->n_open == 0 && now_nsec > walker->idle_nsec
                                      ? now_nsec - walker->idle_nsec
                                      : 0;
            learn_step(routes, walker, node, (float)think_nsec);
        }
        follow(routes, walker, node);
    }
    walker->at = node;
    walker->edge = node != NULL ? edge_find(routes, walker, node) : NULL;
    walker->n_open++;
}

void route_complete(struct route_walker *walker, uint64_t now_nsec)
{
    GD_ASSERT(walker->n_open > 0);
    walker->n_open--;
    walker->idle_nsec = now_nsec;
}

uint64_t route_think_nsec(const struct route_walker *walker)
{
    const struct route_edge *edge = walker->edge;
    return (uint64_t)(edge != NULL ? edge->think_nsec : walker->think_nsec);
}

uint32_t route_rings(const struct routes *routes)
{
    uint32_t n_rings = 0;
    for (uint32_t i = 0; i < routes->n_rings; i++) {
        n_rings += routes->rings[i].n_nodes != 0;
    }
    return n_rings;
}

uint32_t route_in_step(const struct routes *routes)
{
    uint32_t n_walkers = 0;
    for (uint32_t i = 0; i < routes->n_rings; i++) {
        n_walkers += routes->rings[i].n_cohort;
    }
    return n_walkers;
}
