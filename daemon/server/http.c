/* http.c - see http.h. libmicrohttpd parses and buffers; it is driven from outside, without threads
 * of its own: its epoll descriptor and its time limits are two sources of the main loop, and the
 * timer is on only while somebody is connected, so that an idle daemon sleeps.
 *
 * libmicrohttpd knows how long a connection has been silent, not how old it is. Ages are kept here,
 * and the end of a connection that is too old is brought about by shutting its socket down. */
#include "daemon/server/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "daemon/server/accept_guard.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/foreign.h"
#include "ipc/base/num.h"

#define HEADER_BYTES_MAX 8192u /* libmicrohttpd's memory of a connection */

struct connection {
    int fd; /* -1: the slot is free */
    uid_t uid;
    uint64_t end_nsec;
    struct MHD_Connection *suspended; /* NULL: it is not */
};

/* One listening socket. */
struct listener {
    struct http *http;
    struct MHD_Daemon *daemon;
    bool is_tcp;
    sd_event_source *io_source;
    sd_event_source *timer;
    struct connection connections[HTTP_CONNECTIONS_MAX];
};

struct http {
    struct sd_event *event; /* borrowed */
    http_answer_fn answer;
    void *arg;
    bool is_ending;
    struct listener *listeners[HTTP_SOCKETS_MAX];
    uint32_t n_listeners;
};

/* ---- replies ---- */

static struct MHD_Response *response_of(struct http_reply *reply)
{
    if (reply->body == NULL) {
        return NULL;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(reply->n_bytes, reply->body, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(reply->body);
        return NULL;
    }
    /* Documents of this moment, which a page of another site may neither frame nor guess. */
    static const char *const headers[][2] = {
        {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src "
                                    "'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'"},
        {MHD_HTTP_HEADER_ALLOW, "GET, HEAD"},
    };
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
    for (uint32_t i = 0; i < ARRAY_LENGTH(headers); i++) {
        (void)MHD_add_response_header(response, headers[i][0], headers[i][1]);
    }
    return response;
}

/* MHD_NO ends the connection. */
static enum MHD_Result send_reply(struct MHD_Connection *connection, struct http_reply *reply)
{
    struct MHD_Response *response = response_of(reply);
    if (response == NULL) {
        return MHD_NO;
    }
    enum MHD_Result r = MHD_queue_response(connection, reply->code, response);
    MHD_destroy_response(response);
    return r;
}

static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned code, const char *text)
{
    struct http_reply reply = {.code = code,
                               .type = "text/plain; charset=utf-8",
                               .body = strdup(text),
                               .n_bytes = strlen(text)};
    return send_reply(connection, &reply);
}

/* ---- requests ---- */

/* "localhost", "127.0.0.1" or "[::1]", with or without a port. */
static bool is_own_host(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (uint32_t i = 0; host != NULL && i < ARRAY_LENGTH(names); i++) {
        size_t n_bytes = strlen(names[i]);
        if (strncasecmp(host, names[i], n_bytes) == 0 &&
            (host[n_bytes] == '\0' || host[n_bytes] == ':')) {
            return true;
        }
    }
    return false;
}

static const char *header_of(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static struct connection *slot_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info->socket_context;
}

static enum MHD_Result answer(struct listener *listener, struct MHD_Connection *connection,
                              const char *path)
{
    struct http *http = listener->http;
    const char *accept = header_of(connection, MHD_HTTP_HEADER_ACCEPT);
    const struct http_request request = {
        .path = path,
        .wants_openmetrics =
            accept != NULL && strstr(accept, "application/openmetrics-text") != NULL,
    };
    struct http_reply reply = {.body = NULL};
    if (http->is_ending) {
        return send_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "the daemon ends\n");
    }
    if (http->answer(http->arg, &request, &reply)) {
        return send_reply(connection, &reply);
    }
    slot_of(connection)->suspended = connection;
    MHD_suspend_connection(connection);
    return MHD_YES;
}

/* Called once for the headers, then, for what is answered with OK, once more, and again after a
 * suspension; bodies are read and forgotten. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path,
                                  const char *method, GD_UNUSED const char *version,
                                  GD_UNUSED const char *body, size_t *n_body_bytes, void **state)
{
    static int seen;
    struct listener *listener = arg;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD only\n");
    }
    if (listener->is_tcp && !is_own_host(header_of(connection, MHD_HTTP_HEADER_HOST))) {
        return send_text(connection, MHD_HTTP_FORBIDDEN, "this is not the host that you name\n");
    }
    if (*state == NULL) {
        *state = &seen;
        return MHD_YES;
    }
    if (*n_body_bytes != 0) {
        *n_body_bytes = 0;
        return MHD_YES;
    }
    return answer(listener, connection, path);
}

/* ---- connections ---- */

/* Either side has ended it. libmicrohttpd says so only when it comes to that connection, which may
 * be after it has accepted the next; sending nothing fails if we may not send any more. */
static bool is_over(int fd)
{
    struct pollfd event = {.fd = fd};
    bool may_send = send(fd, "", 0, MSG_NOSIGNAL | MSG_DONTWAIT) == 0 || errno == EAGAIN;
    return !may_send || (poll(&event, 1, 0) > 0 && (event.revents & (POLLHUP | POLLERR)) != 0);
}

static bool is_over_user_limit(const struct listener *listener, uid_t uid)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        const struct connection *connection = &listener->connections[i];
        n += connection->fd >= 0 && connection->uid == uid && !is_over(connection->fd);
    }
    return n >= HTTP_USER_MAX;
}

/* Users of a Unix socket share it; all of TCP counts as one that may have the whole. */
static void admit(struct listener *listener, struct connection *slot, int fd)
{
    struct ucred peer = {.uid = 0};
    socklen_t n_bytes = sizeof(peer);
    bool is_known =
        !listener->is_tcp && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes) == 0;
    if (is_known && is_over_user_limit(listener, peer.uid)) {
        (void)shutdown(fd, SHUT_RDWR);
    }
    *slot = (struct connection){
        .fd = fd,
        .uid = peer.uid,
        .end_nsec = clock_now_nsec() + HTTP_LIFE_SECONDS * (uint64_t)CLOCK_NSEC_PER_SEC,
    };
}

static struct connection *free_slot(struct listener *listener)
{
    for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        if (listener->connections[i].fd < 0) {
            return &listener->connections[i];
        }
    }
    return NULL;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        struct connection *slot = *context;
        foreign_drain(slot->fd); /* libmicrohttpd closes it next */
        slot->fd = -1;
        slot->suspended = NULL;
        return;
    }
    struct connection *slot = free_slot(arg);
    GD_ASSERT(slot != NULL); /* libmicrohttpd keeps to the same limit */
    *context = slot;
    admit(arg, slot,
          MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
}

/* Hang up on what is too old; when the next will be, or UINT64_MAX. */
static uint64_t end_old_ones(struct listener *listener)
{
    uint64_t now_nsec = clock_now_nsec();
    uint64_t next_nsec = UINT64_MAX;
    for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        struct connection *connection = &listener->connections[i];
        if (connection->fd < 0 || connection->end_nsec == UINT64_MAX) {
            continue;
        }
        if (connection->end_nsec <= now_nsec) {
            (void)shutdown(connection->fd, SHUT_RDWR);
            connection->end_nsec = UINT64_MAX;
            continue;
        }
        next_nsec = num_min(next_nsec, connection->end_nsec - now_nsec);
    }
    return next_nsec;
}

/* ---- the loop ---- */

static void turn(struct listener *listener)
{
    (void)MHD_run(listener->daemon);
    uint64_t wait_nsec = end_old_ones(listener);
    MHD_UNSIGNED_LONG_LONG wait_msec;
    if (MHD_get_timeout(listener->daemon, &wait_msec) == MHD_YES) {
        wait_nsec = num_min(wait_nsec, (uint64_t)wait_msec * CLOCK_NSEC_PER_MSEC);
    }
    if (wait_nsec == UINT64_MAX) {
        (void)sd_event_source_set_enabled(listener->timer, SD_EVENT_OFF);
        return;
    }
    (void)sd_event_source_set_time_relative(listener->timer,
                                            num_div_up(wait_nsec, CLOCK_NSEC_PER_USEC));
    (void)sd_event_source_set_enabled(listener->timer, SD_EVENT_ONESHOT);
}

static int on_ready(GD_UNUSED sd_event_source *source, GD_UNUSED int fd, GD_UNUSED uint32_t events,
                    void *arg)
{
    turn(arg);
    return 0;
}

static int on_time(GD_UNUSED sd_event_source *source, GD_UNUSED uint64_t usec, void *arg)
{
    turn(arg);
    return 0;
}

void http_resume(struct http *http)
{
    for (uint32_t i = 0; i < http->n_listeners; i++) {
        struct listener *listener = http->listeners[i];
        bool has_any = false;
        for (uint32_t j = 0; j < HTTP_CONNECTIONS_MAX; j++) {
            struct MHD_Connection *suspended = listener->connections[j].suspended;
            if (suspended != NULL) {
                listener->connections[j].suspended = NULL;
                MHD_resume_connection(suspended);
                has_any = true;
            }
        }
        if (has_any) {
            turn(listener);
        }
    }
}

/* ---- set-up and end ---- */

int http_new(struct sd_event *event, http_answer_fn answer_fn, void *arg, struct http **ret_http)
{
    struct http *http = calloc(1, sizeof(*http));
    if (http == NULL) {
        return err_raise(-ENOMEM);
    }
    http->event = event;
    http->answer = answer_fn;
    http->arg = arg;
    *ret_http = http;
    return 0;
}

static void listener_free(struct listener *listener)
{
    if (listener->daemon != NULL) {
        MHD_stop_daemon(listener->daemon); /* closes its socket */
    }
    (void)sd_event_source_disable_unref(listener->io_source);
    (void)sd_event_source_disable_unref(listener->timer);
    free(listener);
}

struct http *http_free(struct http *http)
{
    if (http == NULL) {
        return NULL;
    }
    accept_guard_favour(-1);
    http->is_ending = true;
    http_resume(http); /* libmicrohttpd must not stop with a connection suspended */
    for (uint32_t i = 0; i < http->n_listeners; i++) {
        listener_free(http->listeners[i]);
    }
    free(http);
    return NULL;
}

static int start(struct listener *listener, int *fd)
{
    const unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME;
    listener->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, listener, MHD_OPTION_LISTEN_SOCKET, *fd,
        MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        HTTP_IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES_MAX,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, listener, MHD_OPTION_END);
    if (listener->daemon == NULL) {
        return err_raise(errno != 0 ? -errno : -EIO);
    }
    (void)steal_fd(fd);
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(listener->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    sd_event *event = listener->http->event;
    int r =
        sd_event_add_io(event, &listener->io_source, info->epoll_fd, EPOLLIN, on_ready, listener);
    r = r < 0 ? r
              : sd_event_add_time_relative(event, &listener->timer, CLOCK_MONOTONIC, 0, 1000,
                                           on_time, listener);
    return r < 0 ? err_raise(r) : 0;
}

static int add_listener(struct http *http, int listen_fd, bool is_tcp)
{
    CLEAN_FD int fd = listen_fd;
    struct listener *listener = calloc(1, sizeof(*listener));
    if (listener == NULL) {
        return err_raise(-ENOMEM);
    }
    GD_ASSERT(http->n_listeners < HTTP_SOCKETS_MAX);
    listener->http = http;
    listener->is_tcp = is_tcp;
    for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        listener->connections[i].fd = -1;
    }
    int r = start(listener, &fd);
    if (r != 0) {
        listener_free(listener);
        return r;
    }
    http->listeners[http->n_listeners++] = listener;
    return 0;
}

int http_listen(struct http *http, int fd)
{
    accept_guard_favour(fd);
    foreign_forbid(fd);
    return add_listener(http, fd, false);
}

int http_listen_loopback(struct http *http, unsigned short port)
{
    CLEAN_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int one = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, (int)HTTP_CONNECTIONS_MAX) != 0) {
        return err_raise(-errno);
    }
    return add_listener(http, steal_fd(&fd), true);
}
