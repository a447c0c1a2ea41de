/* notice.c - see notice.h. */
#include "daemon/keeper/notice.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/num.h"

/* ---- the text ---- */

static void parse_line(struct notice *notice, const char *line, size_t n_bytes)
{
    static const char name_key[] = "FDNAME=";
    const struct {
        const char *line;
        bool *flag;
    } flags[] = {
        {"FDSTORE=1", &notice->wants_put},    {"FDSTOREREMOVE=1", &notice->wants_remove},
        {"READY=1", &notice->is_ready},       {"WATCHDOG=1", &notice->is_alive},
        {"STOPPING=1", &notice->is_stopping},
    };
    for (uint32_t i = 0; i < ARRAY_LENGTH(flags); i++) {
        if (strlen(flags[i].line) == n_bytes && memcmp(line, flags[i].line, n_bytes) == 0) {
            *flags[i].flag = true;
        }
    }
    size_t key_bytes = sizeof(name_key) - 1;
    if (n_bytes > key_bytes && memcmp(line, name_key, key_bytes) == 0 &&
        n_bytes - key_bytes < sizeof(notice->fd_name)) {
        (void)snprintf(notice->fd_name, sizeof(notice->fd_name), "%.*s", (int)(n_bytes - key_bytes),
                       line + key_bytes);
    }
}

void notice_parse(struct notice *notice)
{
    for (const char *line = notice->text; *line != '\0';) {
        size_t n_bytes = strcspn(line, "\n");
        parse_line(notice, line, n_bytes);
        line += n_bytes + (line[n_bytes] == '\n');
    }
}

/* ---- the message ---- */

static void take_control(struct notice *notice, struct msghdr *message)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL;
         part = CMSG_NXTHDR(message, part)) {
        size_t n_bytes = part->cmsg_len - CMSG_LEN(0);
        if (part->cmsg_level != SOL_SOCKET) {
            continue;
        }
        if (part->cmsg_type == SCM_RIGHTS) {
            memcpy(notice->fds, CMSG_DATA(part), n_bytes);
            notice->n_fds = (uint32_t)(n_bytes / sizeof(int));
        }
        struct ucred sender;
        if (part->cmsg_type == SCM_CREDENTIALS && n_bytes == sizeof(sender)) {
            memcpy(&sender, CMSG_DATA(part), sizeof(sender));
            notice->sender = sender.pid;
        }
    }
}

int notice_receive(int fd, struct notice *ret_notice)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(NOTICE_FDS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    } control;
    *ret_notice = (struct notice){.n_fds = 0};
    struct iovec text = {.iov_base = ret_notice->text, .iov_len = NOTICE_TEXT_BYTES - 1};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    if (recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0) {
        return -errno; /* an empty socket is no fault */
    }
    ret_notice->has_lost_fds = (message.msg_flags & MSG_CTRUNC) != 0;
    take_control(ret_notice, &message);
    notice_parse(ret_notice);
    return 0;
}

void notice_finish(struct notice *notice)
{
    for (uint32_t i = 0; i < notice->n_fds; i++) {
        cleanup_fd(&notice->fds[i]);
    }
    notice->n_fds = 0;
}
