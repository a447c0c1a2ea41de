/* session.c - questions and answers over the session socket. One at a time: the daemon answers in
 * order and never speaks first. */
#include <errno.h>

#include "client/client.h"

static int judge_answer(struct side_packet *packet, const union side_message *question,
                        enum side_type expected)
{
    const union side_message *answer = &packet->message;
    if (answer->header.sequence != question->header.sequence) {
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon answered question %llu with %llu",
                             (unsigned long long)question->header.sequence,
                             (unsigned long long)answer->header.sequence);
    }
    if (answer->header.type == SIDE_REFUSED) {
        struct reason why;
        (void)reason_set(&why, (int)answer->refused.status, "%s", answer->refused.text);
        return client_fail(&why);
    }
    if (answer->header.type != expected) {
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon answered with message type %u, not %u",
                             answer->header.type, (unsigned)expected);
    }
    return 0;
}

static int receive_answer(struct gemmd_client *client, struct side_packet *packet)
{
    struct reason why;
    int r = side_receive(client->session_fd, packet, &why);
    if (r == 1) {
        return 0;
    }
    if (r == 0) {
        return client_disconnected(client);
    }
    if (r == -EAGAIN) {
        return client_refuse(STATUS_TIMEOUT, "the daemon did not answer within %u ms",
                             client->options.timeout_msec);
    }
    return r < 0 ? client_fail_errno(r, "receiving from the session socket") : client_fail(&why);
}

static int ask_locked(struct gemmd_client *client, union side_message *question, int fd,
                      enum side_type expected, struct side_packet *ret_packet)
{
    question->header.sequence = ++client->n_sequence;
    int r = side_send(client->session_fd, question, &fd, fd >= 0 ? 1 : 0);
    if (r < 0) {
        return r == -EPIPE || r == -ECONNRESET
                   ? client_disconnected(client)
                   : client_fail_errno(r, "sending on the session socket");
    }
    struct side_packet packet;
    r = receive_answer(client, &packet);
    if (r != 0) {
        return r;
    }
    r = judge_answer(&packet, question, expected);
    if (r != 0) {
        side_packet_finish(&packet);
        return r;
    }
    *ret_packet = packet;
    return 0;
}

int session_ask(struct gemmd_client *client, union side_message *question, int fd,
                enum side_type expected, struct side_packet *ret_packet)
{
    pthread_mutex_lock(&client->side_lock);
    int r = ask_locked(client, question, fd, expected, ret_packet);
    pthread_mutex_unlock(&client->side_lock);
    return r;
}
