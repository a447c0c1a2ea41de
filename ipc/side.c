/* side.c - packets of the session socket.
 *
 * SEQPACKET rather than STREAM: the kernel keeps message borders, so a peer cannot leave us half a
 * message to wait for, and fds always belong to the packet they came with. A packet is received
 * into a copy of ours, then checked, then used. Every fd that came with a refused packet is closed
 * before the refusal is returned. No state, any thread; a socket belongs to its holder. */
#include "ipc/side.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/foreign.h"
#include "ipc/base/num.h"
#include "ipc/unix.h"

/* X(type, struct) */
#define SIDE_MESSAGE_LIST(X)                                                                       \
    X(SIDE_HELLO, side_hello)                                                                      \
    X(SIDE_OPEN_LANE, side_open_lane)                                                              \
    X(SIDE_ALLOC_BUFFER, side_alloc_buffer)                                                        \
    X(SIDE_IMPORT_BUFFER, side_alloc_buffer)                                                       \
    X(SIDE_RELEASE_BUFFER, side_release_buffer)                                                    \
    X(SIDE_IMPORT_IPC, side_import_ipc)                                                            \
    X(SIDE_OPEN_ORDER, side_open_lane)                                                             \
    X(SIDE_WELCOME, side_welcome)                                                                  \
    X(SIDE_LANE, side_lane)                                                                        \
    X(SIDE_BUFFER, side_buffer)                                                                    \
    X(SIDE_ORDER, side_order)                                                                      \
    X(SIDE_REFUSED, side_refused)

union side_control {
    struct cmsghdr header;
    uint8_t bytes[CMSG_SPACE(SIDE_FDS_MAX * sizeof(int))];
};

int side_listen(const char *path, mode_t mode)
{
    return unix_listen(path, SOCK_SEQPACKET, mode);
}

int side_accept(int listen_fd)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return fd < 0 ? -errno : fd; /* -EAGAIN is everyday, so no err_raise() */
}

int side_connect(const char *path, uint32_t timeout_msec)
{
    return unix_connect(path, SOCK_SEQPACKET, timeout_msec);
}

int side_peer(int fd, struct side_peer *ret_peer)
{
    struct ucred credentials;
    socklen_t n_bytes = sizeof(credentials);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &n_bytes) < 0) {
        return err_raise(-errno);
    }
    *ret_peer = (struct side_peer){
        .pid = credentials.pid,
        .uid = credentials.uid,
        .gid = credentials.gid,
    };
    return 0;
}

uint32_t side_message_bytes(uint16_t type)
{
    switch (type) {
#define SIDE_MESSAGE_X(value, name)                                                                \
    case value:                                                                                    \
        return sizeof(struct name);
        SIDE_MESSAGE_LIST(SIDE_MESSAGE_X)
#undef SIDE_MESSAGE_X
    default:
        return 0;
    }
}

void side_init(union side_message *message, enum side_type type, uint64_t sequence)
{
    *message = (union side_message){0};
    message->header.magic = SIDE_MAGIC;
    message->header.type = (uint16_t)type;
    message->header.size_bytes = (uint16_t)side_message_bytes((uint16_t)type);
    message->header.sequence = sequence;
}

int side_send(int fd, const union side_message *message, const int *fds, uint32_t n_fds)
{
    GD_ASSERT(n_fds <= SIDE_FDS_MAX);
    union side_message copy = *message; /* iov_base is not const */
    union side_control control = {0};
    struct iovec place = {.iov_base = &copy, .iov_len = message->header.size_bytes};
    struct msghdr header = {.msg_iov = &place, .msg_iovlen = 1};
    if (n_fds > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
    }
    while (sendmsg(fd, &header, MSG_NOSIGNAL) < 0) {
        if (errno != EINTR) {
            return -errno; /* a full or gone peer is everyday, so no err_raise() */
        }
    }
    return 0;
}

static bool is_terminated(const char *text, size_t size_bytes)
{
    return memchr(text, '\0', size_bytes) != NULL;
}

static int check_strings(const union side_message *message, struct reason *why)
{
    bool is_good = true;
    switch (message->header.type) {
    case SIDE_HELLO:
        is_good = is_terminated(message->hello.name, sizeof(message->hello.name));
        break;
    case SIDE_WELCOME:
        is_good =
            is_terminated(message->welcome.daemon_version, sizeof(message->welcome.daemon_version));
        break;
    case SIDE_REFUSED:
        is_good = is_terminated(message->refused.text, sizeof(message->refused.text));
        break;
    default:
        break;
    }
    return is_good ? 0
                   : reason_set(why, STATUS_BAD_MESSAGE,
                                "session message type %u has a string without an end",
                                message->header.type);
}

static int check_message(const union side_message *message, size_t n_bytes, struct reason *why)
{
    const struct side_header *header = &message->header;
    if (n_bytes < sizeof(*header)) {
        return reason_set(why, STATUS_BAD_MESSAGE,
                          "session message of %zu bytes is shorter than its header", n_bytes);
    }
    if (header->magic != SIDE_MAGIC) {
        return reason_set(why, STATUS_BAD_MESSAGE, "session message has magic 0x%08x, not 0x%08x",
                          header->magic, SIDE_MAGIC);
    }
    uint32_t expected = side_message_bytes(header->type);
    if (expected == 0) {
        return reason_set(why, STATUS_BAD_MESSAGE, "session message type %u is unknown",
                          header->type);
    }
    if (header->size_bytes != expected || n_bytes != expected) {
        return reason_set(why, STATUS_BAD_MESSAGE,
                          "session message type %u has %zu bytes and claims %u, not %u",
                          header->type, n_bytes, header->size_bytes, expected);
    }
    return check_strings(message, why);
}

static int check_packet(const union side_message *message, size_t n_bytes, uint32_t n_fds,
                        int flags, struct reason *why)
{
    if (n_fds > SIDE_FDS_MAX) {
        return reason_set(why, STATUS_BAD_MESSAGE, "session message came with more than %d fds",
                          SIDE_FDS_MAX);
    }
    if ((flags & MSG_TRUNC) != 0) {
        return reason_set(why, STATUS_BAD_MESSAGE, "session message is longer than %zu bytes",
                          sizeof(*message));
    }
    return check_message(message, n_bytes, why);
}

int side_receive(int fd, struct side_packet *ret_packet, struct reason *why)
{
    struct side_packet packet = {.n_fds = 0};
    struct foreign_fds fds;
    struct foreign_signs signs;
    ssize_t n_bytes;
    do {
        n_bytes = foreign_receive(fd, &packet.message, sizeof(packet.message), 0, &fds, &signs);
    } while (n_bytes < 0 && errno == EINTR);
    if (n_bytes < 0) {
        /* A peer that closes with our answers unread is reported as a reset: it hung up as well. */
        return errno == ECONNRESET ? 0 : -errno;
    }
    int r =
        n_bytes == 0 ? 0 : check_packet(&packet.message, (size_t)n_bytes, fds.n, signs.flags, why);
    if (n_bytes == 0 || r != 0) { /* an empty packet looks like the end, and is treated as one */
        foreign_close_all(&fds);
        return r;
    }
    if ((signs.flags & MSG_CTRUNC) != 0) { /* the message is as good as any: answer it */
        foreign_close_all(&fds);
        packet.has_lost_fds = true;
    }
    memcpy(packet.fds, fds.fds, fds.n * sizeof(int));
    packet.n_fds = fds.n;
    *ret_packet = packet;
    return 1;
}

void side_packet_finish(struct side_packet *packet)
{
    for (uint32_t i = 0; i < packet->n_fds; i++) {
        if (packet->fds[i] >= 0) {
            foreign_close(packet->fds[i]);
            packet->fds[i] = -1;
        }
    }
    packet->n_fds = 0;
}
