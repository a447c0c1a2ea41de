/* list.h - intrusive doubly linked list with a sentinel. A linked node is on exactly one list;
 * list_remove() on an unlinked (initialised) node does nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next;
    struct list *prev;
};

#define LIST_OWNER(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

/* An empty list, or a node on no list. */
static inline void list_init(struct list *list)
{
    list->next = list;
    list->prev = list;
}

/* Of a node: it is on no list. */
static inline bool list_is_empty(const struct list *list)
{
    return list->next == list;
}

/* The node must be on no list. */
static inline void list_insert_before(struct list *position, struct list *node)
{
    node->prev = position->prev;
    node->next = position;
    position->prev->next = node;
    position->prev = node;
}

/* To the end. */
static inline void list_append(struct list *list, struct list *node)
{
    list_insert_before(list, node);
}

static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* Takes the first node off; NULL when there is none. */
static inline struct list *list_pop(struct list *list)
{
    if (list_is_empty(list)) {
        return NULL;
    }
    struct list *first = list->next;
    list_remove(first);
    return first;
}

#define list_for_each(node, head)                                                                  \
    for (struct list *node = (head)->next; node != (head); node = node->next)

/* Safe against removal of the current node only. */
#define list_for_each_safe(node, head)                                                             \
    for (struct list *node = (head)->next, *next_of_##node = node->next; node != (head);           \
         node = next_of_##node, next_of_##node = node->next)
