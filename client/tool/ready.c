/* ready.c - gemmctl ready: /readyz of the status socket, for supervisors that run a command. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "client/tool/tool.h"
#include "ipc/base/cleanup.h"
#include "ipc/side.h"
#include "ipc/unix.h"

#define ANSWER_MSEC 5000u /* the daemon answers within 2 s, if it does */

/* The whole answer, NUL-terminated. 0 or negative errno. */
static int ask(const char *path, char *text, size_t size_bytes)
{
    static const char request[] =
        "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const struct timeval limit = {.tv_sec = ANSWER_MSEC / 1000};
    CLEAN_FD int fd = unix_connect(path, SOCK_STREAM, ANSWER_MSEC);
    if (fd < 0) {
        return fd;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
        send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) < 0) {
        return -errno;
    }
    size_t n_bytes = 0;
    ssize_t n = 1;
    while (n > 0 && n_bytes < size_bytes - 1) {
        n = recv(fd, text + n_bytes, size_bytes - 1 - n_bytes, 0);
        n_bytes += n > 0 ? (size_t)n : 0;
    }
    text[n_bytes] = '\0';
    return n < 0 ? -errno : 0;
}

static int judge(struct tool *tool, const char *answer)
{
    int code = 0;
    const char *body = strstr(answer, "\r\n\r\n");
    if (sscanf(answer, "HTTP/1.%*1[01] %3d", &code) != 1 || body == NULL) {
        return tool_fail(client_refuse(STATUS_BAD_MESSAGE, "the daemon's answer is not HTTP"));
    }
    body += strlen("\r\n\r\n");
    size_t n_bytes = strcspn(body, "\n");
    if (tool->is_json) {
        (void)tool_print_json(
            json_pack("{s:b, s:s%}", "ready", code == 200, "text", body, n_bytes));
    } else {
        (void)fprintf(code == 200 ? stdout : stderr, "%.*s\n", (int)n_bytes, body);
    }
    return code == 200 ? TOOL_DONE : TOOL_REFUSED;
}

int command_ready(struct tool *tool, int argc, char **argv)
{
    char dir[CLIENT_DIR_BYTES], path[CLIENT_DIR_BYTES + sizeof("/" SIDE_STATUS_NAME)];
    char answer[4096];
    if (argc != 1) {
        return tool_usage("%s takes no arguments", argv[0]);
    }
    int r = client_socket_dir(tool->socket_dir, dir, sizeof(dir));
    if (r != 0) {
        return tool_fail(r);
    }
    (void)snprintf(path, sizeof(path), "%s/" SIDE_STATUS_NAME, dir);
    r = ask(path, answer, sizeof(answer));
    if (r == 0) {
        return judge(tool, answer);
    }
    (void)fprintf(stderr, "gemmctl: no answer from %s: %s\n", path, strerror(-r));
    return r == -EAGAIN ? TOOL_FAILED : TOOL_NO_DAEMON;
}
