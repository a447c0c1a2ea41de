/* side-message.c - fuzz: one packet on the session socket. The first byte says how many fds come
 * with it, the rest is the packet. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/side.h"

#define FDS_SENT_MAX 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

union control {
    struct cmsghdr header;
    uint8_t bytes[CMSG_SPACE(FDS_SENT_MAX * sizeof(int))];
};

static void send_packet(int fd, const uint8_t *data, size_t n_bytes, uint32_t n_fds)
{
    uint8_t packet[2048];
    int fds[FDS_SENT_MAX] = {fd, fd, fd, fd};
    union control control = {{0}};
    memcpy(packet, data, n_bytes);
    struct iovec place = {.iov_base = packet, .iov_len = n_bytes};
    struct msghdr header = {.msg_iov = &place, .msg_iovlen = 1};
    if (n_fds > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
    }
    GD_ASSERT(sendmsg(fd, &header, MSG_NOSIGNAL) == (ssize_t)n_bytes);
}

/* The lowest free fd shows a leak: it must be the same before and after. */
static int lowest_free_fd(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    GD_ASSERT(fd >= 0);
    (void)close(fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    int fds[2];
    struct side_packet packet;
    struct reason why = REASON_NULL;
    if (n_bytes < 1 || n_bytes > 2048) {
        return 0;
    }
    int before = lowest_free_fd();
    GD_ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    send_packet(fds[0], data + 1, n_bytes - 1, data[0] % (FDS_SENT_MAX + 1));
    int r = side_receive(fds[1], &packet, &why);
    GD_ASSERT(r == 0 || r == 1 || (r == STATUS_BAD_MESSAGE && why.text[0] != '\0'));
    if (r == 1) {
        GD_ASSERT(packet.n_fds == data[0] % (FDS_SENT_MAX + 1));
        GD_ASSERT(packet.message.header.size_bytes == n_bytes - 1);
        side_packet_finish(&packet);
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
    GD_ASSERT(lowest_free_fd() == before);
    return 0;
}
