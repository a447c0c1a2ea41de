/* mailbox.h - news from worker threads to the main loop: a list under a mutex and an eventfd.
 *
 * Posting never blocks on the reader and cannot be refused. If memory for a letter cannot be had,
 * the news would be lost and a client would wait for ever; then the mailbox says so and the process
 * has to end. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/list.h"
#include "ipc/base/reason.h"
#include "ipc/request.h"

enum mail_kind {
    MAIL_REPLY,    /* a ZeroMQ request ended: `result` */
    MAIL_DETACHED, /* a worker holds nothing of that session any more */
    MAIL_FATAL,    /* a device is lost: `result.text` says why */
};

struct mail {
    struct list in_box;
    enum mail_kind kind;
    uint64_t session_id;
    struct request_result result;
};

struct mailbox {
    pthread_mutex_t lock;
    struct list letters;
    bool is_lossy;
    int event_fd; /* owned; readable while there is something */
};

#define MAILBOX_NULL ((struct mailbox){.event_fd = -1})

int mailbox_init(struct mailbox *mailbox) GD_MUST_CHECK; /* 0 or negative errno */
void mailbox_finish(struct mailbox *mailbox); /* drops what is inside; safe on MAILBOX_NULL */

/* mailbox_post() - any thread. result: copied; NULL for none. */
void mailbox_post(struct mailbox *mailbox, enum mail_kind kind, uint64_t session_id,
                  const struct request_result *result);

/* mailbox_take() - main thread: everything at once, onto the empty list `ret_letters`; the caller
 * frees each. Return: 0, or -ENOMEM once a letter was lost. */
int mailbox_take(struct mailbox *mailbox, struct list *ret_letters) GD_MUST_CHECK;
