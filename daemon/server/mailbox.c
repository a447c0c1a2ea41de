/* mailbox.c - see mailbox.h. The eventfd is written under the lock and only when the list was
 * empty, so that a burst of replies costs one system call. */
#include "daemon/server/mailbox.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ipc/base/error.h"

int mailbox_init(struct mailbox *mailbox)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        return err_raise(-errno);
    }
    *mailbox = (struct mailbox){.event_fd = fd};
    list_init(&mailbox->letters);
    (void)pthread_mutex_init(&mailbox->lock, NULL);
    return 0;
}

void mailbox_finish(struct mailbox *mailbox)
{
    if (mailbox->event_fd < 0) {
        return;
    }
    for (struct list *node; (node = list_pop(&mailbox->letters)) != NULL;) {
        free(LIST_OWNER(node, struct mail, in_box));
    }
    (void)close(mailbox->event_fd);
    (void)pthread_mutex_destroy(&mailbox->lock);
    mailbox->event_fd = -1;
}

void mailbox_post(struct mailbox *mailbox, enum mail_kind kind, uint64_t session_id,
                  const struct request_result *result)
{
    struct mail *mail = calloc(1, sizeof(*mail));
    (void)pthread_mutex_lock(&mailbox->lock);
    bool was_empty = list_is_empty(&mailbox->letters) && !mailbox->is_lossy;
    if (mail == NULL) {
        mailbox->is_lossy = true;
    } else {
        mail->kind = kind;
        mail->session_id = session_id;
        mail->result = result != NULL ? *result : (struct request_result){0};
        list_append(&mailbox->letters, &mail->in_box);
    }
    if (was_empty) {
        (void)eventfd_write(mailbox->event_fd, 1);
    }
    (void)pthread_mutex_unlock(&mailbox->lock);
}

int mailbox_take(struct mailbox *mailbox, struct list *ret_letters)
{
    (void)pthread_mutex_lock(&mailbox->lock);
    eventfd_t ignored;
    (void)eventfd_read(mailbox->event_fd, &ignored);
    for (struct list *node; (node = list_pop(&mailbox->letters)) != NULL;) {
        list_append(ret_letters, node);
    }
    bool is_lossy = mailbox->is_lossy;
    (void)pthread_mutex_unlock(&mailbox->lock);
    return is_lossy ? err_raise(-ENOMEM) : 0;
}
