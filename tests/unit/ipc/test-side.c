/* test-side.c - the session socket: fds, hang-up, and every packet that must be refused. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc/base/num.h"
#include "ipc/side.h"
#include "t.h"

static void make_pair(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
}

static int count_fds(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n;
}

/* One packet of n_bytes, the message first and zeros after it, with n_fds copies of fd 0. */
static void send_raw(int fd, const union side_message *message, size_t n_bytes, int n_fds)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {{0}};
    char bytes[sizeof(*message) + 64] = {0};
    memcpy(bytes, message, sizeof(*message));
    struct iovec place = {.iov_base = bytes, .iov_len = n_bytes};
    struct msghdr header = {.msg_iov = &place, .msg_iovlen = 1};
    if (n_fds > 0) {
        int fds[8] = {0};
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, (size_t)n_fds * sizeof(int));
    }
    assert_int_equal(sendmsg(fd, &header, MSG_NOSIGNAL), (ssize_t)n_bytes);
}

static void test_message_and_fds_arrive(void **state)
{
    (void)state;
    int fds[2], pipes[2];
    char byte = 0;
    union side_message message;
    struct side_packet packet = {0};
    make_pair(fds);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    side_init(&message, SIDE_LANE, 42);
    message.lane.n_entries = 256;
    assert_int_equal(side_send(fds[0], &message, pipes, 2), 0);
    assert_int_equal(side_receive(fds[1], &packet, NULL), 1);
    assert_int_equal(packet.n_fds, 2);
    assert_int_equal(packet.message.header.sequence, 42);
    assert_int_equal(packet.message.lane.n_entries, 256);
    assert_int_equal(fcntl(packet.fds[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(write(packet.fds[1], "x", 1), 1);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    int closed = packet.fds[0];
    side_packet_finish(&packet);
    assert_int_equal(fcntl(closed, F_GETFD), -1);
    assert_int_equal(side_receive(fds[1], &packet, NULL), -EAGAIN);
    close(pipes[0]);
    close(pipes[1]);
    close(fds[0]);
    close(fds[1]);
}

static void test_every_type_has_its_size(void **state)
{
    (void)state;
    static const uint16_t types[] = {
        SIDE_HELLO,          SIDE_OPEN_LANE,  SIDE_ALLOC_BUFFER, SIDE_IMPORT_BUFFER,
        SIDE_RELEASE_BUFFER, SIDE_OPEN_ORDER, SIDE_ORDER,        SIDE_IMPORT_IPC,
        SIDE_WELCOME,        SIDE_LANE,       SIDE_BUFFER,       SIDE_REFUSED,
    };
    int fds[2];
    make_pair(fds);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        union side_message message;
        struct side_packet packet = {0};
        side_init(&message, (enum side_type)types[i], i);
        assert_int_equal(message.header.size_bytes, side_message_bytes(types[i]));
        assert_in_range(message.header.size_bytes, sizeof(struct side_header) + 1, sizeof(message));
        assert_int_equal(side_send(fds[0], &message, NULL, 0), 0);
        assert_int_equal(side_receive(fds[1], &packet, NULL), 1);
        assert_memory_equal(&packet.message, &message, message.header.size_bytes);
    }
    assert_int_equal(side_message_bytes(0), 0);
    assert_int_equal(side_message_bytes(SIDE_OPEN_ORDER + 1), 0);
    close(fds[0]);
    close(fds[1]);
}

static void check_refused(const union side_message *message, size_t n_bytes, int n_fds,
                          const char *needle)
{
    int fds[2];
    struct side_packet packet = {0};
    struct reason why = REASON_NULL;
    int n_before = count_fds();
    make_pair(fds);
    send_raw(fds[0], message, n_bytes, n_fds);
    assert_int_equal(side_receive(fds[1], &packet, &why), STATUS_BAD_MESSAGE);
    if (strstr(why.text, needle) == NULL) {
        fail_msg("'%s' does not say '%s'", why.text, needle);
    }
    assert_int_equal(packet.n_fds, 0);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(count_fds(), n_before);
}

static void test_malformed_packets_are_refused(void **state)
{
    (void)state;
    union side_message good, bad;
    side_init(&good, SIDE_HELLO, 1);
    size_t n = good.header.size_bytes;

    for (size_t i = 1; i < n; i++) {
        check_refused(&good, i, 1, "bytes");
    }
    check_refused(&good, n + 1, 1, "claims");
    check_refused(&good, sizeof(good) + 1, 2, "longer than");
    check_refused(&good, n, 3, "more than 2 fds");
    check_refused(&good, n, 8, "more than 2 fds");
    bad = good;
    bad.header.magic++;
    check_refused(&bad, n, 2, "magic");
    bad = good;
    bad.header.type = 77;
    check_refused(&bad, n, 0, "type 77 is unknown");
    bad = good;
    bad.header.size_bytes--;
    check_refused(&bad, n, 0, "claims");
    bad = good;
    memset(bad.hello.name, 'x', sizeof(bad.hello.name));
    check_refused(&bad, n, 0, "without an end");
}

/* No numbers are free for them: the message is there all the same, and no fd stays. */
static void test_fds_that_cannot_be_taken(void **state)
{
    (void)state;
    int fds[2];
    union side_message message;
    struct side_packet packet = {0};
    struct rlimit limit;
    int n_before = count_fds();
    make_pair(fds);
    int next = dup(fds[0]);
    close(next);
    side_init(&message, SIDE_BUFFER, 3);
    assert_int_equal(side_send(fds[0], &message, fds, 2), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit low = {.rlim_cur = (rlim_t)next + 1, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int r = side_receive(fds[1], &packet, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(r, 1);
    assert_true(packet.has_lost_fds);
    assert_int_equal(packet.n_fds, 0);
    assert_int_equal(packet.message.header.sequence, 3);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(count_fds(), n_before);
}

static void test_hang_up(void **state)
{
    (void)state;
    int fds[2];
    union side_message message;
    struct side_packet packet = {0};
    int n_before = count_fds();

    side_init(&message, SIDE_HELLO, 1);
    make_pair(fds);
    close(fds[0]);
    assert_int_equal(side_receive(fds[1], &packet, NULL), 0);
    assert_int_equal(side_send(fds[1], &message, NULL, 0), -EPIPE); /* and no signal */
    close(fds[1]);

    make_pair(fds); /* our answer unread at the peer: a reset */
    assert_int_equal(side_send(fds[1], &message, NULL, 0), 0);
    close(fds[0]);
    assert_int_equal(side_receive(fds[1], &packet, NULL), 0);
    close(fds[1]);

    make_pair(fds); /* nothing but an fd */
    send_raw(fds[0], &message, 0, 1);
    assert_int_equal(side_receive(fds[1], &packet, NULL), 0);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(count_fds(), n_before);
}

static void test_a_peer_that_does_not_read_does_not_block(void **state)
{
    (void)state;
    int fds[2];
    int r = 0;
    union side_message message;
    side_init(&message, SIDE_REFUSED, 1);
    make_pair(fds);
    for (int i = 0; i < 100000 && r == 0; i++) {
        r = side_send(fds[0], &message, NULL, 0);
    }
    assert_int_equal(r, -EAGAIN);
    close(fds[0]);
    close(fds[1]);
}

static char folder[] = "/tmp/gemmd-side-XXXXXX";

static void path_of_length(char *path, size_t n_bytes)
{
    memset(path, 'a', n_bytes);
    memcpy(path, folder, sizeof(folder) - 1);
    path[sizeof(folder) - 1] = '/';
    path[n_bytes] = '\0';
}

static void test_path_length(void **state)
{
    (void)state;
    char path[4097];
    path_of_length(path, 107);
    int listen_fd = side_listen(path, 0600);
    int client_fd = side_connect(path, 5000);
    assert_true(listen_fd >= 0 && client_fd >= 0);
    close(client_fd);
    close(listen_fd);
    unlink(path);
    path_of_length(path, 108);
    assert_int_equal(side_listen(path, 0600), -ENAMETOOLONG);
    assert_int_equal(side_connect(path, 5000), -ENAMETOOLONG);
    path_of_length(path, 4096);
    assert_int_equal(side_listen(path, 0600), -ENAMETOOLONG);
    assert_int_equal(side_listen("", 0600), -EINVAL);
}

static void check_mode(const char *path, mode_t mode)
{
    struct stat info;
    int fd = side_listen(path, mode); /* replaces the stale one of the call before */
    assert_true(fd >= 0);
    assert_int_equal(lstat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, mode);
    close(fd);
}

static void test_mode_whatever_the_umask(void **state)
{
    (void)state;
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/mode", folder);
    mode_t old = umask(077);
    check_mode(path, 0660);
    (void)umask(0);
    check_mode(path, 0600);
    check_mode(path, 0666);
    (void)umask(old);
    unlink(path);
}

static void test_what_is_no_socket_stays(void **state)
{
    (void)state;
    char path[64];
    struct stat info;
    (void)snprintf(path, sizeof(path), "%s/file", folder);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(side_listen(path, 0600), -EEXIST);
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISREG(info.st_mode));
    unlink(path);
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_int_equal(side_listen(path, 0600), -EEXIST);
    unlink(path);
    assert_int_equal(side_listen(folder, 0600), -EEXIST);
    assert_int_equal(side_connect(path, 5000), -ENOENT);
}

static void test_accept_and_peer(void **state)
{
    (void)state;
    char path[64];
    struct side_peer peer = {0};
    (void)snprintf(path, sizeof(path), "%s/accept", folder);
    int listen_fd = side_listen(path, 0600);
    assert_true(listen_fd >= 0);
    assert_int_equal(side_accept(listen_fd), -EAGAIN);
    int client_fd = side_connect(path, 5000);
    int fd = side_accept(listen_fd);
    assert_true(client_fd >= 0 && fd >= 0);
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    assert_true((fcntl(client_fd, F_GETFL) & O_NONBLOCK) == 0);
    assert_int_equal(side_peer(fd, &peer), 0);
    assert_int_equal(peer.pid, getpid());
    assert_int_equal(peer.uid, getuid());
    assert_int_equal(peer.gid, getgid());
    close(fd);
    close(client_fd);
    close(listen_fd);
    unlink(path);
}

static volatile sig_atomic_t n_alarms;

static void on_alarm(int signal)
{
    (void)signal;
    n_alarms++;
}

/* A listener that accepts nobody, and signals that come faster than the time limit is long. */
static void test_signals_make_no_connecting_longer(void **state)
{
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct itimerval interval = {.it_interval = {.tv_usec = 20000}, .it_value = {.tv_usec = 20000}};
    struct itimerval off = {.it_value = {0}};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    int fds[8];
    uint32_t n = 0;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/full", folder);
    int listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listen_fd, 0), 0);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &interval, NULL), 0);
    while (n < ARRAY_LENGTH(fds) && (fds[n] = side_connect(address.sun_path, 100)) >= 0) {
        n++;
    }
    assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
    assert_in_range(n, 1, ARRAY_LENGTH(fds) - 1);
    assert_int_equal(fds[n], -EAGAIN);
    assert_true(n_alarms > 1);
    while (n > 0) {
        close(fds[--n]);
    }
    close(listen_fd);
    unlink(address.sun_path);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_and_fds_arrive),
        cmocka_unit_test(test_every_type_has_its_size),
        cmocka_unit_test(test_malformed_packets_are_refused),
        cmocka_unit_test(test_fds_that_cannot_be_taken),
        cmocka_unit_test(test_hang_up),
        cmocka_unit_test(test_a_peer_that_does_not_read_does_not_block),
        cmocka_unit_test(test_path_length),
        cmocka_unit_test(test_mode_whatever_the_umask),
        cmocka_unit_test(test_what_is_no_socket_stays),
        cmocka_unit_test(test_accept_and_peer),
        cmocka_unit_test(test_signals_make_no_connecting_longer),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
