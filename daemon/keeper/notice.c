/* notice.c - see notice.h. */
#include "daemon/keeper/notice.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

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

int notice_receive(int fd, struct notice *ret_notice)
{
    struct foreign_signs signs;
    *ret_notice = (struct notice){.sender = 0};
    if (foreign_receive(fd, ret_notice->text, NOTICE_TEXT_BYTES - 1, MSG_DONTWAIT, &ret_notice->fds,
                        &signs) < 0) {
        return -errno; /* an empty socket is no fault */
    }
    ret_notice->sender = signs.sender;
    ret_notice->has_lost_fds = (signs.flags & MSG_CTRUNC) != 0;
    notice_parse(ret_notice);
    return 0;
}

void notice_finish(struct notice *notice)
{
    foreign_close_all(&notice->fds);
}
