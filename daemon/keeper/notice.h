/* notice.h - a message on the notification socket, as sd_notify(3) sends it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/keeper/fdstore.h"
#include "ipc/base/check.h"
#include "ipc/base/foreign.h"

#define NOTICE_TEXT_BYTES 4096u

struct notice {
    char text[NOTICE_TEXT_BYTES];
    pid_t sender; /* the kernel says so; 0: it does not */
    struct foreign_fds fds;
    bool has_lost_fds;                /* this process had no number free for some */
    char fd_name[FDSTORE_NAME_BYTES]; /* "" when none is given, or it is too long */
    bool wants_put;
    bool wants_remove;
    bool is_ready;
    bool is_alive;
    bool is_stopping;
};

/* notice_receive() - the next one, without waiting. 0, -EAGAIN, or another negative errno. On
 * success the descriptors are the caller's: notice_finish() closes those that are left. */
int notice_receive(int fd, struct notice *ret_notice) GD_MUST_CHECK;
void notice_finish(struct notice *notice);

/* notice_parse() - fill in what the text says. */
void notice_parse(struct notice *notice);
