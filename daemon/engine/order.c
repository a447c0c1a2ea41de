/* order.c - see order.h.
 *
 * A node's successor is what a vote of all steps says: a step that agrees adds to its score, one
 * that does not takes two away, and at 0 the successor changes. A walker whose own edge has just
 * proved wrong does not vote, so that one with several passes at once, whose steps look random,
 * spoils little. A ring is searched for along the successors when a walker comes to a node that has
 * none; each search that finds none makes the next one wait for as many arrivals as it took steps,
 * so that searching costs a few nanoseconds an arrival. A ring ends when a successor in it changes.
 */
#include "daemon/engine/order.h"

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

struct order {
    struct order_limits limits;
    uint32_t n_nodes;
    uint32_t n_edges; /* made so far; edges of walkers that left are in free_edges */
    uint32_t node_mask;
    uint32_t edge_mask;
    struct order_node *nodes;
    struct order_edge *edges;
    struct order_ring *rings;
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

static void clear(struct order *order)
{
    for (uint32_t i = 0; i <= order->node_mask; i++) {
        list_init(&order->node_buckets[i]);
    }
    for (uint32_t i = 0; i <= order->edge_mask; i++) {
        list_init(&order->edge_buckets[i]);
    }
    for (uint32_t i = 0; i < order->limits.rings_max; i++) {
        order->rings[i] = (struct order_ring){.first = NULL};
        list_init(&order->rings[i].walkers);
    }
    list_init(&order->free_edges);
    order->n_nodes = 0;
    order->n_edges = 0;
}

int order_new(const struct order_limits *limits, struct order **ret_order)
{
    if (limits->nodes_max == 0 || limits->edges_max == 0 || limits->rings_max == 0) {
        return err_raise(-EINVAL);
    }
    struct order *order = calloc(1, sizeof(*order));
    if (order == NULL) {
        return err_raise(-ENOMEM);
    }
    order->limits = *limits;
    order->node_mask = buckets_for(limits->nodes_max) - 1;
    order->edge_mask = buckets_for(limits->edges_max) - 1;
    order->nodes = calloc(limits->nodes_max, sizeof(*order->nodes));
    order->edges = calloc(limits->edges_max, sizeof(*order->edges));
    order->rings = calloc(limits->rings_max, sizeof(*order->rings));
    order->node_buckets = calloc(order->node_mask + 1, sizeof(struct list));
    order->edge_buckets = calloc(order->edge_mask + 1, sizeof(struct list));
    if (order->nodes == NULL || order->edges == NULL || order->rings == NULL ||
        order->node_buckets == NULL || order->edge_buckets == NULL) {
        (void)order_free(order);
        return err_raise(-ENOMEM);
    }
    list_init(&order->walkers);
    clear(order);
    *ret_order = order;
    return 0;
}

struct order *order_free(struct order *order)
{
    if (order != NULL) {
        free(order->nodes);
        free(order->edges);
        free(order->rings);
        free(order->node_buckets);
        free(order->edge_buckets);
        free(order);
    }
    return NULL;
}

/* ---- walkers on rings ---- */

static void enter_ring(struct order_walker *walker, struct order_ring *ring)
{
    walker->ring = ring;
    list_append(&ring->walkers, &walker->in_ring);
    ring->n_walkers++;
    ring->n_steps = UINT32_MAX; /* choose the cohort anew */
}

static void leave_ring(struct order_walker *walker)
{
    struct order_ring *ring = walker->ring;
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

static void break_ring(struct order_ring *ring)
{
    struct order_node *node = ring->first;
    for (uint32_t i = 0; i < ring->n_nodes; i++) {
        node->ring = NULL;
        node = node->next;
    }
    list_for_each_safe (in_ring, &ring->walkers) {
        struct order_walker *walker = LIST_OWNER(in_ring, struct order_walker, in_ring);
        leave_ring(walker);
        walker->n_good = 0;
    }
    ring->first = NULL;
    ring->n_nodes = 0;
}

void order_join(struct order *order, struct order_walker *walker)
{
    list_init(&walker->in_ring);
    list_init(&walker->edges);
    walker->n_samples = 1;
    list_append(&order->walkers, &walker->in_order);
}

void order_leave(struct order *order, struct order_walker *walker)
{
    leave_ring(walker);
    while (!list_is_empty(&walker->edges)) {
        struct order_edge *edge = LIST_OWNER(walker->edges.next, struct order_edge, in_walker);
        list_remove(&edge->in_walker);
        list_remove(&edge->in_bucket);
        list_append(&order->free_edges, &edge->in_walker);
    }
    list_remove(&walker->in_order);
    walker->at = NULL;
    walker->edge = NULL;
}

void order_forget(struct order *order)
{
    list_for_each (node, &order->walkers) {
        struct order_walker *walker = LIST_OWNER(node, struct order_walker, in_order);
        leave_ring(walker);
        list_init(&walker->edges);
        walker->at = NULL;
        walker->edge = NULL;
        walker->n_good = 0;
    }
    clear(order);
}

/* ---- nodes and edges ---- */

struct order_node *order_node(struct order *order, uint64_t weight_key)
{
    struct list *bucket = &order->node_buckets[hash_mix(weight_key) & order->node_mask];
    list_for_each (in_bucket, bucket) {
        struct order_node *node = LIST_OWNER(in_bucket, struct order_node, in_bucket);
        if (node->weight_key == weight_key) {
            return node;
        }
    }
    if (order->n_nodes == order->limits.nodes_max) {
        return NULL;
    }
    struct order_node *node = &order->nodes[order->n_nodes++];
    *node = (struct order_node){.weight_key = weight_key};
    list_append(bucket, &node->in_bucket);
    return node;
}

static struct list *edge_bucket(struct order *order, const struct order_walker *walker,
                                const struct order_node *from)
{
    uint64_t hash = hash_mix((uintptr_t)walker ^ hash_mix((uintptr_t)from));
    return &order->edge_buckets[hash & order->edge_mask];
}

static struct order_edge *edge_find(struct order *order, const struct order_walker *walker,
                                    const struct order_node *from)
{
    list_for_each (in_bucket, edge_bucket(order, walker, from)) {
        struct order_edge *edge = LIST_OWNER(in_bucket, struct order_edge, in_bucket);
        if (edge->walker == walker && edge->from == from) {
            return edge;
        }
    }
    return NULL;
}

/* NULL when there is no room: then the walker's mean has to do. */
static struct order_edge *edge_new(struct order *order, struct order_walker *walker,
                                   struct order_node *from)
{
    struct list *freed = list_pop(&order->free_edges);
    struct order_edge *edge = NULL;
    if (freed != NULL) {
        edge = LIST_OWNER(freed, struct order_edge, in_walker);
    } else if (order->n_edges < order->limits.edges_max) {
        edge = &order->edges[order->n_edges++];
    } else {
        return NULL;
    }
    *edge = (struct order_edge){.walker = walker, .from = from};
    list_append(edge_bucket(order, walker, from), &edge->in_bucket);
    list_append(&walker->edges, &edge->in_walker);
    return edge;
}

/* ---- rings ---- */

/* The end of a search: `first` was come by twice. */
static void make_ring(struct order *order, struct order_node *first)
{
    struct order_ring *ring = NULL;
    for (uint32_t i = 0; i < order->limits.rings_max && ring == NULL; i++) {
        ring = order->rings[i].n_nodes == 0 ? &order->rings[i] : NULL;
    }
    if (ring == NULL) {
        return;
    }
    ring->first = first;
    ring->n_cohort = 0;
    ring->n_steps = UINT32_MAX;
    struct order_node *node = first;
    do {
        node->ring = ring;
        node->i_ring = ring->n_nodes++;
        node = node->next;
    } while (node != first);
}

static void search_ring(struct order *order, struct order_node *from)
{
    if (order->n_arrivals < order->next_search) {
        return;
    }
    uint32_t visit = ++order->n_visits;
    uint32_t n_steps = 0;
    struct order_node *node = from;
    while (node != NULL && node->visit != visit && node->score >= SCORE_GOOD &&
           node->ring == NULL) {
        node->visit = visit;
        node = node->next;
        n_steps++;
    }
    order->next_search = order->n_arrivals + n_steps + SEARCH_PATIENCE;
    if (node != NULL && node->visit == visit) {
        make_ring(order, node);
    }
}

/* ---- steps ---- */

static void vote(struct order_node *node, struct order_node *next)
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

static void learn_think(struct order_walker *walker, struct order_edge *edge, float think_nsec)
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

static void learn_step(struct order *order, struct order_walker *walker, struct order_node *to,
                       float think_nsec)
{
    struct order_edge *edge = walker->edge;
    if (edge == NULL) {
        edge = edge_new(order, walker, walker->at);
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

static bool is_step_along_ring(const struct order_node *from, const struct order_node *to)
{
    return from->ring != NULL && from->ring == to->ring &&
           to->i_ring == (from->i_ring + 1) % from->ring->n_nodes;
}

static void follow(struct order *order, struct order_walker *walker, struct order_node *node)
{
    if (node->ring == NULL) {
        search_ring(order, node);
    }
    bool is_good = walker->at != NULL && is_step_along_ring(walker->at, node);
    walker->n_good = is_good ? walker->n_good + (walker->n_good < UINT32_MAX) : 0;
    if (walker->n_good < ORDER_GOOD_STEPS) {
        leave_ring(walker);
    } else if (walker->ring == NULL) {
        enter_ring(walker, node->ring);
    } else {
        walker->ring->n_steps += walker->ring->n_steps < UINT32_MAX;
    }
}

void order_arrive(struct order *order, struct order_walker *walker, struct order_node *node,
                  uint64_t now_nsec)
{
    order->n_arrivals++;
    if (node == NULL) {
        leave_ring(walker);
        walker->n_good = 0;
    } else {
        if (walker->at != NULL) {
            uint64_t think_nsec = walker->n_open == 0 && now_nsec > walker->idle_nsec
                                      ? now_nsec - walker->idle_nsec
                                      : 0;
            learn_step(order, walker, node, (float)think_nsec);
        }
        follow(order, walker, node);
    }
    walker->at = node;
    walker->edge = node != NULL ? edge_find(order, walker, node) : NULL;
    walker->n_open++;
}

void order_complete(struct order_walker *walker, uint64_t now_nsec)
{
    GD_ASSERT(walker->n_open > 0);
    walker->n_open--;
    walker->idle_nsec = now_nsec;
}

uint64_t order_think_nsec(const struct order_walker *walker)
{
    const struct order_edge *edge = walker->edge;
    return (uint64_t)(edge != NULL ? edge->think_nsec : walker->think_nsec);
}

uint32_t order_rings(const struct order *order)
{
    uint32_t n_rings = 0;
    for (uint32_t i = 0; i < order->limits.rings_max; i++) {
        n_rings += order->rings[i].n_nodes != 0;
    }
    return n_rings;
}

uint32_t order_in_step(const struct order *order)
{
    uint32_t n_walkers = 0;
    for (uint32_t i = 0; i < order->limits.rings_max; i++) {
        n_walkers += order->rings[i].n_cohort;
    }
    return n_walkers;
}
