/* doctor_ipc.c - can two processes of this machine share memory the way gemmd and its clients do?
 * Tried, not guessed: a child gets a memfd and a doorbell over a Unix socket, maps it, and answers
 * through it; and where a daemon runs, memory of each of its devices is asked for and mapped. The
 * child is forked before this process uses CUDA, which must not be forked after. */
#include "client/tool/doctor.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/shm.h"

#define QUESTION    0x2a2a2a2au
#define ANSWER      0x17171717u
#define WAIT_MSEC   2000
#define BUFFER_SIZE 65536u

static int send_fds(int socket_fd, const int fds[2])
{
    char byte = 1;
    struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } control = {.space = {0}};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof(control.space)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(header), fds, 2 * sizeof(int));
    return sendmsg(socket_fd, &message, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

static int receive_fds(int socket_fd, int ret_fds[2])
{
    char byte;
    struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof(control.space)};
    if (recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC) != 1) {
        return -EIO;
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_len != CMSG_LEN(2 * sizeof(int))) {
        return -EBADMSG;
    }
    memcpy(ret_fds, CMSG_DATA(header), 2 * sizeof(int));
    return 0;
}

/* The child: its exit status is 0, or what failed. */
static int answer(int socket_fd)
{
    int fds[2];
    if (receive_fds(socket_fd, fds) != 0) {
        return EBADF;
    }
    _Atomic uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    if (word == MAP_FAILED) {
        return errno;
    }
    if (atomic_load(word) != QUESTION) {
        return EBADMSG;
    }
    atomic_store(word, ANSWER);
    return eventfd_write(fds[1], 1) == 0 ? 0 : errno;
}

/* 0, or the negative errno of what failed, with its name in *ret_what. */
static int try_child(const struct region *region, int doorbell_fd, double *ret_usec,
                     const char **ret_what)
{
    int sockets[2];
    *ret_what = "a socket pair";
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return -errno;
    }
    CLEAN_FD int ours = sockets[0];
    CLEAN_FD int theirs = sockets[1];
    *ret_what = "a child process";
    pid_t pid = fork();
    if (pid == 0) {
        _exit(answer(theirs));
    }
    if (pid < 0) {
        return -errno;
    }
    uint64_t begin_nsec = clock_now_nsec();
    *ret_what = "passing descriptors to a child";
    int r = send_fds(ours, (int[2]){region->fd, doorbell_fd});
    struct pollfd event = {.fd = doorbell_fd, .events = POLLIN};
    if (r == 0 && poll(&event, 1, WAIT_MSEC) != 1) {
        r = -ETIMEDOUT;
    }
    *ret_usec = (double)(clock_now_nsec() - begin_nsec) / 1e3;
    int state = 0;
    (void)waitpid(pid, &state, 0);
    if (WIFEXITED(state) && WEXITSTATUS(state) != 0) {
        *ret_what = "the child's mapping of shared memory";
        r = -WEXITSTATUS(state);
    }
    return r;
}

static int try_sharing(double *ret_usec, const char **ret_what)
{
    struct region region = REGION_NULL;
    *ret_what = "a memfd";
    int r = region_create(&region, "gemmctl-doctor", 4096);
    if (r != 0) {
        return r;
    }
    *ret_what = "an eventfd";
    CLEAN_FD int doorbell_fd = eventfd(0, EFD_CLOEXEC);
    r = doorbell_fd < 0 ? -errno : 0;
    if (r == 0) {
        _Atomic uint32_t *word = region.base;
        atomic_store(word, QUESTION);
        r = try_child(&region, doorbell_fd, ret_usec, ret_what);
        if (r == 0 && atomic_load(word) != ANSWER) {
            r = -EBADMSG;
        }
    }
    region_finish(&region);
    return r;
}

void doctor_ipc(struct findings *findings)
{
    double usec = 0;
    const char *what = "";
    int r = try_sharing(&usec, &what);
    if (r == 0) {
        (void)findings_add(findings, FINDING_OK, "ipc",
                           "a child process got shared memory of this one in %.1f ms", usec / 1e3);
        return;
    }
    finding_mend(findings_add(findings, FINDING_FAULT, "ipc", "%s failed: %s", what, strerror(-r)),
                 "a sandbox must allow memfd_create, fork, and descriptors over Unix sockets "
                 "(RestrictAddressFamilies=AF_UNIX, SystemCallFilter=@system-service)");
}

/* ---- with the daemon ---- */

void doctor_device_memory(struct findings *findings, struct tool *tool, uint32_t i_device,
                          const char *name)
{
    gemmd_buffer_t *buffer = NULL;
    if (gemmd_buffer_alloc(tool->client, i_device, BUFFER_SIZE, &buffer) == GEMMD_OK) {
        (void)findings_add(findings, FINDING_OK, "ipc",
                           "memory of %s can be shared with the daemon", name);
        gemmd_buffer_free(buffer);
        return;
    }
    finding_mend(findings_add(findings, FINDING_FAULT, "ipc", "memory of %s cannot be shared: %s",
                              name, gemmd_last_error()),
                 "run clients where they see the same GPUs as the daemon, with the same "
                 "CUDA_MPS_PIPE_DIRECTORY; for CPU memory, raise user_buffer_bytes_max");
}
