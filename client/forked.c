/* forked.c - clients that came into this process by fork().
 *
 * The child has a copy of everything and owns nothing of it: the rings and sockets are the
 * parent's, the threads are not there, and a lock may be held by one of them for ever. So calls are
 * refused, and what destructors call lets go of the child's descriptors and mappings and touches
 * nothing else. Whose a client is, is told by counting forks rather than by getpid(), a system
 * call. */
#include <stdatomic.h>
#include <stdlib.h>

#include "ipc/base/cleanup.h"

#include "client/client.h"

static pthread_once_t is_counting = PTHREAD_ONCE_INIT;
static _Atomic uint32_t n_forks; /* between the first process that used the library and this one */

static void on_child(void)
{
    atomic_fetch_add_explicit(&n_forks, 1, memory_order_relaxed);
}

static void count_forks(void)
{
    (void)pthread_atfork(NULL, NULL, on_child); /* without memory for it nothing is refused */
}

uint32_t forked_generation(void)
{
    (void)pthread_once(&is_counting, count_forks);
    return atomic_load_explicit(&n_forks, memory_order_relaxed);
}

bool forked_is_inherited(const struct gemmd_client *client)
{
    return client->fork_generation != atomic_load_explicit(&n_forks, memory_order_relaxed);
}

int forked_check(const struct gemmd_client *client)
{
    if (!forked_is_inherited(client)) {
        return 0;
    }
    return client_refuse(STATUS_INVALID_ARGUMENT,
                         "this client was opened before fork(): the child has to open its own");
}

/* libzmq's part stays: it ends by asking threads that are not there. */
void forked_let_go(struct gemmd_client *client)
{
    for (uint32_t i = 0; i < CLIENT_DEVICES_MAX; i++) {
        lane_finish(&client->lanes[i].lane);
        free(client->lanes[i].tickets);
    }
    free(client->zeromq.tickets);
    cleanup_fd(&client->session_fd);
    cleanup_fd(&client->exchange.kick_fd);
    cleanup_fd(&client->watcher_fd);
    free(client);
}
