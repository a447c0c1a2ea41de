/* session.c - questions and answers over the session socket. One at a time: the daemon answers in
 * order and never speaks first. The answer to a question that was given up on may still come; it is
 * skipped. The socket does not block: the kernel's own limits start anew with each signal, and a
 * program that is profiled has a hundred a second. */
#include <errno.h>
#include <poll.h>

#include "ipc/base/clock.h"
#include "ipc/base/num.h"

#include "client/client.h"

bool session_is_alive(const struct gemmd_client *client)
{
    struct pollfd session = {.fd = client->session_fd, .events = POLLRDHUP};
    int n;
    do {
        n = poll(&session, 1, 0); /* EINTR even though it does not sleep: a signal was pending */
    } while (n < 0 && errno == EINTR);
    return n == 0;
}

int session_gone(const struct gemmd_client *client)
{
    return client_refuse(STATUS_DISCONNECTED, "the daemon at %s hung up", client->socket_dir);
}

static int judge_answer(const union side_message *answer, const union side_message *question,
                        enum side_type expected)
{
    if (answer->header.sequence != question->header.sequence) {
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon answered question %llu with %llu",
                             (unsigned long long)question->header.sequence,
                             (unsigned long long)answer->header.sequence);
    }
    if (answer->header.type == SIDE_REFUSED) {
        return client_fail_wire(answer->refused.status, answer->refused.text);
    }
    if (answer->header.type != expected) {
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon answered with message type %u, not %u",
                             answer->header.type, (unsigned)expected);
    }
    return 0;
}

/* Until the socket may be ready for that. */
static int await(const struct gemmd_client *client, short events, uint64_t end_nsec)
{
    struct pollfd session = {.fd = client->session_fd, .events = events};
    for (;;) {
        uint64_t left_nsec = end_nsec - num_min(clock_now_nsec(), end_nsec);
        int n = poll(&session, 1, (int)num_div_up(left_nsec, CLOCK_NSEC_PER_MSEC));
        if (n > 0) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return client_fail_errno(-errno, "waiting for the session socket");
        }
        if (left_nsec == 0) {
            return client_refuse(STATUS_TIMEOUT, "the daemon did not answer within %u ms",
                                 client->options.timeout_msec);
        }
    }
}

static int send_question(struct gemmd_client *client, const union side_message *question, int fd,
                         uint64_t end_nsec)
{
    int r;
    while ((r = side_send(client->session_fd, question, &fd, fd >= 0 ? 1 : 0)) == -EAGAIN) {
        r = await(client, POLLOUT, end_nsec);
        if (r != 0) {
            return r;
        }
    }
    if (r < 0) {
        return r == -EPIPE || r == -ECONNRESET
                   ? session_gone(client)
                   : client_fail_errno(r, "sending on the session socket");
    }
    return 0;
}

static int receive_packet(struct gemmd_client *client, uint64_t end_nsec,
                          struct side_packet *ret_packet)
{
    struct reason why = REASON_NULL;
    int r;
    while ((r = side_receive(client->session_fd, ret_packet, &why)) == -EAGAIN) {
        r = await(client, POLLIN, end_nsec);
        if (r != 0) {
            return r;
        }
    }
    if (r == 1) {
        return 0;
    }
    if (r == 0 || r == -ECONNRESET) {
        return session_gone(client);
    }
    return r < 0 ? client_fail_errno(r, "receiving from the session socket") : client_fail(&why);
}

static int receive_answer(struct gemmd_client *client, uint64_t sequence, uint64_t end_nsec,
                          struct side_packet *ret_packet)
{
    int r = receive_packet(client, end_nsec, ret_packet);
    while (r == 0 && ret_packet->message.header.sequence < sequence) {
        side_packet_finish(ret_packet);
        r = receive_packet(client, end_nsec, ret_packet);
    }
    return r;
}

int session_ask_locked(struct gemmd_client *client, union side_message *question, int fd,
                       enum side_type expected, struct side_packet *ret_packet)
{
    uint64_t end_nsec =
        clock_now_nsec() + client->options.timeout_msec * (uint64_t)CLOCK_NSEC_PER_MSEC;
    struct side_packet packet;
    question->header.sequence = ++client->n_sequence;
    int r = send_question(client, question, fd, end_nsec);
    r = r != 0 ? r : receive_answer(client, question->header.sequence, end_nsec, &packet);
    if (r != 0) {
        return r;
    }
    r = judge_answer(&packet.message, question, expected);
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
    int r = session_ask_locked(client, question, fd, expected, ret_packet);
    pthread_mutex_unlock(&client->side_lock);
    return r;
}

int session_check_fds(const struct side_packet *packet)
{
    return packet->has_lost_fds ? client_fail_errno(-EMFILE, "taking the daemon's memory") : 0;
}

/* A daemon that is gone has let go already, so a failing release is no news. */
static void release_locked(struct gemmd_client *client, uint64_t id)
{
    union side_message question;
    struct side_packet packet;
    side_init(&question, SIDE_RELEASE_BUFFER, 0);
    question.release_buffer.buffer_id = id;
    if (session_ask_locked(client, &question, -1, SIDE_BUFFER, &packet) == 0) {
        side_packet_finish(&packet);
    }
}

void session_release(struct gemmd_client *client, const struct buffer_id *id,
                     const struct buffer_id *id_next)
{
    uint32_t session = atomic_load(&client->session);
    if (id->session != session && id_next->session != session) {
        return; /* nor of a later one: do not wait for the lock */
    }
    pthread_mutex_lock(&client->side_lock);
    session = atomic_load(&client->session);
    if (id->session == session) {
        release_locked(client, id->number);
    } else if (id_next->session == session) {
        release_locked(client, id_next->number);
    }
    pthread_mutex_unlock(&client->side_lock);
}
