/* lingering.c - see lingering.h. */
#include "tests/harness/lingering.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/base/check.h"

struct lingering lingering_new(int seconds)
{
    static const char bytes[65536];
    struct lingering made;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_bytes = sizeof(address);
    const struct linger linger = {.l_onoff = 1, .l_linger = seconds};
    int listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    GD_ASSERT(bind(listen_fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    GD_ASSERT(listen(listen_fd, 1) == 0);
    GD_ASSERT(getsockname(listen_fd, (struct sockaddr *)&address, &n_bytes) == 0);
    made.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    GD_ASSERT(connect(made.fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    made.reader = (int)accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    GD_ASSERT(made.reader >= 0);
    while (send(made.fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
    GD_ASSERT(setsockopt(made.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
    (void)close(listen_fd);
    return made;
}

bool lingering_send(int fd, const void *bytes, size_t n_bytes, int sent, uint32_t n_fds)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(LINGERING_SENT_MAX * sizeof(int))];
    } control = {0};
    const int fds[LINGERING_SENT_MAX] = {sent, sent, sent};
    struct iovec place = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n_bytes};
    struct msghdr header = {.msg_iov = &place,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = CMSG_SPACE(n_fds * sizeof(int))};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
    memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
    ssize_t n = sendmsg(fd, &header, MSG_NOSIGNAL);
    GD_ASSERT(n == (ssize_t)n_bytes || (n < 0 && errno == EPERM));
    return n >= 0;
}
