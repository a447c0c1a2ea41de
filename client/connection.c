/* connection.c - the session socket's connection: the first, and those after it. A later one takes
 * the place of the first under the same descriptor number, so that whoever polls it needs no lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/client.h"
#include "ipc/base/cleanup.h"

static int take_place(struct gemmd_client *client, int *fd)
{
    atomic_fetch_add(&client->session, 1);
    if (client->session_fd < 0) {
        client->session_fd = steal_fd(fd);
        return 0;
    }
    return dup3(*fd, client->session_fd, O_CLOEXEC) < 0
               ? client_fail_errno(-errno, "changing the session")
               : 0;
}

/* Nobody there, one that died without taking its socket along, or one that is not for this user. */
static int fail_connect(int r, const char *path)
{
    char text[128];
    const char *error = strerror_r(-r, text, sizeof(text));
    switch (-r) {
    case EACCES:
        return client_refuse(
            STATUS_PERMISSION,
            "this user may not connect to %s: %s; it takes the daemon's group, and "
            "socket_mode = 0660 there",
            path, error);
    case ECONNREFUSED:
        return client_refuse(STATUS_DISCONNECTED,
                             "the daemon at %s has died, and may be starting anew just now: %s",
                             path, error);
    case EMFILE:
    case ENFILE:
        return client_fail_errno(r, "connecting to the daemon");
    default:
        return client_refuse(STATUS_DISCONNECTED, "no daemon answers at %s: %s", path, error);
    }
}

static int connect_session(struct gemmd_client *client, uint32_t connect_msec)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", client->socket_dir, SIDE_SOCKET_NAME);
    CLEAN_FD int fd = side_connect(path, connect_msec);
    if (fd == -EAGAIN) {
        return client_refuse(STATUS_TIMEOUT, "the daemon at %s took no connection within %u ms",
                             path, connect_msec);
    }
    if (fd < 0) {
        return fail_connect(fd, path);
    }
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0) { /* session.c waits, and for how long */
        return client_fail_errno(-errno, "setting up the session socket");
    }
    return take_place(client, &fd);
}

static int say_hello(struct gemmd_client *client)
{
    union side_message question;
    side_init(&question, SIDE_HELLO, 0);
    question.hello.version_min = SIDE_VERSION_MIN;
    question.hello.version_max = SIDE_VERSION_MAX;
    memcpy(question.hello.name, client->name, sizeof(question.hello.name));
    struct side_packet packet;
    int r = session_ask_locked(client, &question, -1, SIDE_WELCOME, &packet);
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

int connection_open(struct gemmd_client *client, uint32_t connect_msec)
{
    pthread_mutex_lock(&client->side_lock); /* nobody asks before HELLO is said */
    int r = connect_session(client, connect_msec);
    if (r == 0 && atomic_load(&client->is_closing)) { /* else who closes has shut it down */
        r = session_gone(client);
    }
    r = r != 0 ? r : say_hello(client);
    pthread_mutex_unlock(&client->side_lock);
    return r;
}
