/* connection.c - opening and closing. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "client/client.h"
#include "ipc/base/cleanup.h"

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

static int take_options(struct gemmd_client *client, const struct gemmd_options *options)
{
    client->options = (struct gemmd_options)GEMMD_OPTIONS_INIT;
    if (options) {
        if (options->struct_bytes != sizeof(*options)) {
            return client_refuse(
                STATUS_INVALID_ARGUMENT,
                "gemmd_options.struct_bytes is %zu, this library's is %zu: start from "
                "GEMMD_OPTIONS_INIT",
                options->struct_bytes, sizeof(*options));
        }
        client->options = *options;
    }
    if (client->options.path != GEMMD_PATH_RING && client->options.path != GEMMD_PATH_ZEROMQ) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_options.path %d is no path",
                             (int)client->options.path);
    }
    if (client->options.timeout_msec == 0 || client->options.timeout_msec > INT_MAX) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_options.timeout_msec %u is not in 1..%d",
                             client->options.timeout_msec, INT_MAX);
    }
    const char *name = client->options.name ? client->options.name : program_invocation_short_name;
    (void)snprintf(client->name, sizeof(client->name), "%s", name);
    client->options.name = client->name;
    int r = client_socket_dir(client->options.socket_dir, client->socket_dir,
                              sizeof(client->socket_dir));
    client->options.socket_dir = client->socket_dir;
    return r;
}

static int connect_session(struct gemmd_client *client)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", client->socket_dir, SIDE_SOCKET_NAME);
    uint32_t msec = client->options.timeout_msec;
    int fd = side_connect(path, msec);
    if (fd == -EAGAIN) {
        return client_refuse(STATUS_TIMEOUT, "the daemon at %s took no connection within %u ms",
                             path, msec);
    }
    if (fd < 0) {
        char text[128];
        return client_refuse(fd == -EACCES ? STATUS_PERMISSION : STATUS_DISCONNECTED,
                             "no daemon answers at %s: %s", path,
                             strerror_r(-fd, text, sizeof(text)));
    }
    client->session_fd = fd;
    struct timeval limit = {.tv_sec = msec / 1000, .tv_usec = (suseconds_t)(msec % 1000) * 1000};
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0) {
        return client_fail_errno(-errno, "setting the session socket's time limit");
    }
    return 0;
}

static int say_hello(struct gemmd_client *client)
{
    union side_message question;
    side_init(&question, SIDE_HELLO, 0);
    question.hello.version_min = SIDE_VERSION_MIN;
    question.hello.version_max = SIDE_VERSION_MAX;
    memcpy(question.hello.name, client->name, sizeof(question.hello.name));
    struct side_packet packet;
    int r = session_ask(client, &question, -1, SIDE_WELCOME, &packet);
    if (r != 0) {
        return r;
    }
    client->welcome = packet.message.welcome;
    side_packet_finish(&packet);
    uint32_t version = client->welcome.version;
    if (version < SIDE_VERSION_MIN || version > SIDE_VERSION_MAX) {
        return client_refuse(STATUS_VERSION,
                             "the daemon chose protocol version %u, this library speaks %u to %u",
                             version, SIDE_VERSION_MIN, SIDE_VERSION_MAX);
    }
    return 0;
}

static int connect_all(struct gemmd_client *client, const struct gemmd_options *options)
{
    int r = take_options(client, options);
    r = r != 0 ? r : connect_session(client);
    r = r != 0 ? r : say_hello(client);
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
    client->session_fd = -1;
    client->watcher_fd = -1;
    client->exchange = (struct exchange){.sock = SOCK_NULL, .socket_fd = -1, .kick_fd = -1};
    list_init(&client->exchange.calls);
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
    turns_stop(client);
    exchange_finish(client);
    for (uint32_t i = 0; i < CLIENT_DEVICES_MAX; i++) {
        turns_finish(&client->lanes[i].turns);
        queue_finish(&client->lanes[i]);
    }
    queue_finish(&client->zeromq);
    cleanup_fd(&client->session_fd);
    pthread_mutex_destroy(&client->lanes_lock);
    pthread_mutex_destroy(&client->side_lock);
    free(client);
}
