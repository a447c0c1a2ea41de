/* client.c - a client from open to close. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "ipc/base/cleanup.h"

static const struct taken options_taken = {
    .name = "gemmd_options",
    .struct_bytes = sizeof(struct gemmd_options),
    .ends = {STRUCT_END(struct gemmd_options, timeout_msec),
             STRUCT_END(struct gemmd_options, has_no_repeat),
             STRUCT_END(struct gemmd_options, hold_usec)},
};

int client_socket_dir(const char *wanted, char *ret_dir, size_t size_bytes)
{
    const char *environment = getenv("GEMMD_SOCKET_DIR");
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    const char *suffix = "";
    const char *dir = wanted ? wanted : environment;
    if (!dir || !*dir) {
        dir = runtime && *runtime ? runtime : "/run";
        suffix = "/gemmd";
    }
    int n = snprintf(ret_dir, size_bytes, "%s%s", dir, suffix);
    if (n < 0 || (size_t)n >= size_bytes) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "the socket folder '%.64s...' is longer than %zu bytes", dir,
                             size_bytes - 1);
    }
    return 0;
}

static int check_options(const struct gemmd_options *options)
{
    if (options->path != GEMMD_PATH_RING && options->path != GEMMD_PATH_ZEROMQ) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_options.path %d is no path",
                             (int)options->path);
    }
    if (options->timeout_msec == 0 || options->timeout_msec > INT_MAX) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_options.timeout_msec %u is not in 1..%d", options->timeout_msec,
                             INT_MAX);
    }
    if (options->reconnect_msec > INT_MAX) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_options.reconnect_msec %u is not in 0..%d",
                             options->reconnect_msec, INT_MAX);
    }
    if ((unsigned)options->priority > GEMMD_PRIORITY_LOW) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_options.priority %d is none",
                             (int)options->priority);
    }
    return 0;
}

static int take_options(struct gemmd_client *client, const struct gemmd_options *options)
{
    client->options = (struct gemmd_options)GEMMD_OPTIONS_INIT;
    int r = options ? taken_read(&options_taken, options, &client->options) : 0;
    r = r != 0 ? r : check_options(&client->options);
    if (r != 0) {
        return r;
    }
    const char *name = client->options.name ? client->options.name : program_invocation_short_name;
    (void)snprintf(client->name, sizeof(client->name), "%s", name);
    client->options.name = client->name;
    r = client_socket_dir(client->options.socket_dir, client->socket_dir,
                          sizeof(client->socket_dir));
    client->options.socket_dir = client->socket_dir;
    return r;
}

static int connect_all(struct gemmd_client *client, const struct gemmd_options *options)
{
    int r = take_options(client, options);
    r = r != 0 ? r : connection_open(client, client->options.timeout_msec);
    return r != 0 ? r : exchange_init(client);
}

int gemmd_open(const struct gemmd_options *options, gemmd_client_t **ret_client)
{
    if (!ret_client) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_open: ret_client is NULL");
    }
    struct gemmd_client *client = calloc(1, sizeof(*client));
    if (!client) {
        return client_fail_errno(-ENOMEM, "gemmd_open");
    }
    client->fork_generation = forked_generation();
    client->revive = revive;
    client->session_fd = -1;
    client->watcher_fd = -1;
    client->exchange = (struct exchange){.sock = SOCK_NULL, .socket_fd = -1, .kick_fd = -1};
    list_init(&client->exchange.calls);
    list_init(&client->buffers);
    known_init(&client->known);
    pthread_mutex_init(&client->life_lock, NULL);
    queue_init_changed(&client->life_changed);
    pthread_mutex_init(&client->buffers_lock, NULL);
    pthread_mutex_init(&client->side_lock, NULL);
    pthread_mutex_init(&client->lanes_lock, NULL);
    queue_init(&client->zeromq);
    for (uint32_t i = 0; i < CLIENT_DEVICES_MAX; i++) {
        queue_init(&client->lanes[i]);
    }
    int r = connect_all(client, options);
    if (r != 0) {
        gemmd_close(client);
        return r;
    }
    *ret_client = client;
    return GEMMD_OK;
}

void gemmd_close(gemmd_client_t *client)
{
    if (!client) {
        return;
    }
    if (forked_is_inherited(client)) {
        buffers_finish(client);
        forked_let_go(client);
        return;
    }
    revive_end(client);
    turns_stop(client);
    exchange_finish(client);
    for (uint32_t i = 0; i < CLIENT_DEVICES_MAX; i++) {
        turns_finish(&client->lanes[i].turns);
        queue_finish(&client->lanes[i]);
    }
    queue_finish(&client->zeromq);
    buffers_finish(client);
    cleanup_fd(&client->session_fd);
    known_finish(&client->known);
    pthread_mutex_destroy(&client->buffers_lock);
    pthread_cond_destroy(&client->life_changed);
    pthread_mutex_destroy(&client->life_lock);
    pthread_mutex_destroy(&client->lanes_lock);
    pthread_mutex_destroy(&client->side_lock);
    free(client);
}
