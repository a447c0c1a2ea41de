/* fdstore.c - see fdstore.h. */
#include "daemon/keeper/fdstore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

#define FIRST_FD 3

static bool is_name(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length < FDSTORE_NAME_BYTES && strpbrk(name, ":\n") == NULL;
}

int fdstore_put(struct fdstore *store, const char *name, int fd)
{
    CLEAN_FD int owned = fd;
    if (!is_name(name)) {
        return err_raise(-EINVAL);
    }
    if (store->n >= store->n_max) {
        return err_raise(-ENOBUFS);
    }
    struct fdstore_item *longer = realloc(store->items, (store->n + 1) * sizeof(*store->items));
    if (longer == NULL) {
        return err_raise(-ENOMEM);
    }
    store->items = longer;
    struct fdstore_item *item = &store->items[store->n++];
    (void)snprintf(item->name, sizeof(item->name), "%s", name);
    item->fd = steal_fd(&owned);
    return 0;
}

void fdstore_remove(struct fdstore *store, const char *name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < store->n; i++) {
        if (strcmp(store->items[i].name, name) == 0) {
            (void)close(store->items[i].fd);
        } else {
            store->items[n++] = store->items[i];
        }
    }
    store->n = n;
}

void fdstore_finish(struct fdstore *store)
{
    for (uint32_t i = 0; i < store->n; i++) {
        (void)close(store->items[i].fd);
    }
    free(store->items);
    *store = FDSTORE_NULL;
}

/* ---- handing over ---- */

static int set_number(const char *variable, long long number)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%lld", number);
    return setenv(variable, text, 1) < 0 ? err_raise(-errno) : 0;
}

static int set_names(const struct fdstore *store)
{
    CLEAN_FREE char *names = calloc(store->n + 1, FDSTORE_NAME_BYTES);
    if (names == NULL) {
        return err_raise(-ENOMEM);
    }
    char *end = names;
    for (uint32_t i = 0; i < store->n; i++) {
        end += i > 0;
        (void)snprintf(end, FDSTORE_NAME_BYTES, "%s", store->items[i].name);
        end += strlen(end);
        *end = i + 1 < store->n ? ':' : '\0';
    }
    return setenv("LISTEN_FDNAMES", names, 1) < 0 ? err_raise(-errno) : 0;
}

/* The place of a descriptor may be where a later one lies: that one is moved behind all places, and
 * comes back from there. */
static int make_room(struct fdstore *store, uint32_t i_place)
{
    int place = FIRST_FD + (int)i_place;
    for (uint32_t i = i_place + 1; i < store->n; i++) {
        if (store->items[i].fd == place) {
            store->items[i].fd = fcntl(place, F_DUPFD_CLOEXEC, FIRST_FD + (int)store->n);
            return store->items[i].fd < 0 ? err_raise(-errno) : 0;
        }
    }
    return 0;
}

/* Each stays open across exec() at its place, and is closed where it was. */
static int place_fd(struct fdstore_item *item, int place)
{
    if (item->fd == place) {
        return fcntl(place, F_SETFD, 0) < 0 ? err_raise(-errno) : 0;
    }
    if (dup2(item->fd, place) < 0) {
        return err_raise(-errno);
    }
    (void)close(item->fd);
    item->fd = place;
    return 0;
}

static int place_fds(struct fdstore *store)
{
    int r = 0;
    for (uint32_t i = 0; i < store->n && r == 0; i++) {
        r = make_room(store, i);
        r = r != 0 ? r : place_fd(&store->items[i], FIRST_FD + (int)i);
    }
    return r;
}

int fdstore_hand_over(struct fdstore *store)
{
    if (store->n == 0) {
        return unsetenv("LISTEN_FDS") < 0 ? err_raise(-errno) : 0;
    }
    int r = place_fds(store);
    r = r != 0 ? r : set_number("LISTEN_PID", getpid());
    r = r != 0 ? r : set_number("LISTEN_FDS", store->n);
    return r != 0 ? r : set_names(store);
}
