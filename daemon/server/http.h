/* http.h - a small HTTP server in the main loop, for people and for monitoring: GET and HEAD of a
 * few documents, over sockets that somebody else opened.
 *
 * Whoever may connect must not be able to hold the daemon up. So: never blocking, a limit of
 * connections for each socket and of those for each user of a Unix socket, a limit for headers, no
 * bodies, and an end to every connection after HTTP_LIFE_SECONDS however it behaves. Over TCP only
 * requests are answered that name this machine as their host: a page of some web site, which can
 * have a browser ask here under a name of its own, is none of them. Main thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ipc/base/check.h"

#define HTTP_SOCKETS_MAX     2u
#define HTTP_CONNECTIONS_MAX 16u /* of a socket */
#define HTTP_USER_MAX        8u  /* of a user on a Unix socket */
#define HTTP_IDLE_SECONDS    5u
#define HTTP_LIFE_SECONDS    15u
#define HTTP_FDS             (HTTP_SOCKETS_MAX * (HTTP_CONNECTIONS_MAX + 3u))

struct sd_event;
struct http;

struct http_request {
    const char *path; /* decoded, without the query */
    bool wants_openmetrics;
};

struct http_reply {
    unsigned code;    /* 200, 404, ... */
    const char *type; /* of the content; static */
    char *body;       /* malloc'd; taken over */
    size_t n_bytes;
};

/* Fill the reply, or return false: the same request is asked again after http_resume(). A reply
 * without a body means that there was no memory for it. */
typedef bool (*http_answer_fn)(void *arg, const struct http_request *request,
                               struct http_reply *ret_reply);

/* http_new() - no socket yet. 0 or -ENOMEM. http_free() - hangs up; NULL is fine. */
int http_new(struct sd_event *event, http_answer_fn answer, void *arg,
             struct http **ret_http) GD_MUST_CHECK;
struct http *http_free(struct http *http);

/* http_listen() - serve a listening socket; fd is taken over in any case. 0 or negative errno.
 * http_listen_loopback() - the same on 127.0.0.1, a TCP port. */
int http_listen(struct http *http, int fd) GD_MUST_CHECK;
int http_listen_loopback(struct http *http, unsigned short port) GD_MUST_CHECK;

/* http_resume() - ask again what was put off. */
void http_resume(struct http *http);
