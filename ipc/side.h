/* side.h - the session socket: AF_UNIX SEQPACKET, one message a packet, fds by SCM_RIGHTS.
 *
 * It carries what ZeroMQ cannot: kernel-verified credentials, file descriptors, and liveness. Its
 * hang-up is the client's death. The client asks, the daemon answers with the same sequence number;
 * the daemon never speaks first. Messages are fixed structs of host byte order: both ends are on
 * one machine. The protocol page (proto/PROTOCOL.md) has one entry per message. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

#define SIDE_MAGIC        0x444d4d47u /* "GMMD" */
#define SIDE_VERSION_MIN  1u
#define SIDE_VERSION_MAX  1u
#define SIDE_TOKEN_BYTES  32 /* lower-case hex of 128 random bits: the ZeroMQ routing id */
#define SIDE_NAME_BYTES   64
#define SIDE_FDS_MAX      2
#define SIDE_SOCKET_NAME  "session"
#define SIDE_CONTROL_NAME "control"
#define SIDE_STATUS_NAME  "status"

enum side_type {
    SIDE_HELLO = 1,          /* -> SIDE_WELCOME */
    SIDE_OPEN_LANE = 2,      /* -> SIDE_LANE with fds: region, doorbell */
    SIDE_ALLOC_BUFFER = 3,   /* -> SIDE_BUFFER with fd: region */
    SIDE_IMPORT_BUFFER = 4,  /* with fd: sealed memfd, or VMM allocation -> SIDE_BUFFER */
    SIDE_RELEASE_BUFFER = 5, /* -> SIDE_BUFFER; memory goes when the last request using it has */
    SIDE_IMPORT_IPC = 6,     /* part of a cudaMalloc() allocation -> SIDE_BUFFER */
    SIDE_OPEN_ORDER = 7,     /* of an open lane -> SIDE_ORDER with fds: words, device memory */
    SIDE_WELCOME = 101,
    SIDE_LANE = 102,
    SIDE_BUFFER = 103,
    SIDE_ORDER = 104,
    SIDE_REFUSED = 199,
};

struct side_header {
    uint32_t magic;
    uint16_t type;       /* enum side_type */
    uint16_t size_bytes; /* of the whole message */
    uint64_t sequence;
};

struct side_hello {
    struct side_header header;
    uint32_t version_min;
    uint32_t version_max;
    uint32_t flags;             /* zero */
    uint32_t lane_entries;      /* wanted ring size; 0: the daemon's default */
    char name[SIDE_NAME_BYTES]; /* for people; printable, NUL-terminated */
};

struct side_welcome {
    struct side_header header;
    uint32_t version;
    uint32_t n_devices;
    uint64_t session_id;
    char token[SIDE_TOKEN_BYTES]; /* not NUL-terminated */
    char daemon_version[32];
    uint32_t in_flight_max; /* per lane */
    uint32_t rows_max;      /* largest m of one request */
    uint64_t buffer_bytes_max;
    uint64_t n_buffers_max;
};

struct side_open_lane { /* also SIDE_OPEN_ORDER */
    struct side_header header;
    uint32_t device_index; /* opening the same one again gives the same one */
    uint32_t reserved;
};

struct side_lane {
    struct side_header header;
    uint32_t device_index;
    uint32_t n_entries;
};

struct side_alloc_buffer { /* also SIDE_IMPORT_BUFFER */
    struct side_header header;
    uint64_t size_bytes;
    uint32_t device_index;
    uint32_t reserved;
};

#define SIDE_IPC_HANDLE_BYTES 64u /* of a cudaIpcMemHandle_t */

struct side_import_ipc {
    struct side_header header;
    uint64_t size_bytes;
    uint64_t offset_bytes;  /* in the allocation */
    uint64_t allocation_id; /* CU_POINTER_ATTRIBUTE_BUFFER_ID: another one each time that the same
                               address is allocated */
    uint32_t device_index;
    uint32_t reserved;
    uint8_t handle[SIDE_IPC_HANDLE_BYTES];
};

struct side_release_buffer {
    struct side_header header;
    uint64_t buffer_id;
};

/* What a buffer's fd is. */
enum side_memory {
    SIDE_MEMORY_NONE = 0,  /* the answer has no fd */
    SIDE_MEMORY_MEMFD = 1, /* to be mapped by mmap() */
    SIDE_MEMORY_CUDA = 2,  /* the export of a VMM allocation of size_bytes, to be mapped by CUDA */
};

#define SIDE_UUID_BYTES 16u

struct side_buffer {
    struct side_header header;
    uint64_t buffer_id;
    uint64_t size_bytes; /* usable */
    uint32_t memory;     /* enum side_memory */
    uint32_t reserved;
    uint8_t device_uuid[SIDE_UUID_BYTES]; /* of a GPU; zeros on host */
};

/* The words of order.h: fd 0 is the memfd; on a GPU, fd 1 is the export of the memory of `done`. */
struct side_order {
    struct side_header header;
    uint32_t device_index;
    uint32_t n_entries;
    uint64_t done_bytes; /* of the VMM allocation; 0: the device has none */
    uint32_t has_mps;    /* the daemon is a client of an MPS server */
    uint32_t reserved;
    uint8_t device_uuid[SIDE_UUID_BYTES]; /* of a GPU; zeros on host */
};

struct side_refused {
    struct side_header header;
    uint32_t status;
    uint32_t reserved;
    char text[REASON_TEXT_BYTES];
};

union side_message {
    struct side_header header;
    struct side_hello hello;
    struct side_welcome welcome;
    struct side_open_lane open_lane;
    struct side_lane lane;
    struct side_alloc_buffer alloc_buffer;
    struct side_import_ipc import_ipc;
    struct side_release_buffer release_buffer;
    struct side_buffer buffer;
    struct side_order order;
    struct side_refused refused;
};

/* A received message with the fds that came along. The receiver takes what it wants with steal_fd()
 * and calls side_packet_finish(), which closes the rest. */
struct side_packet {
    union side_message message;
    int fds[SIDE_FDS_MAX];
    uint32_t n_fds;
    bool has_lost_fds; /* this process had no number free for one of them; all are closed */
};

struct side_peer {
    pid_t pid;
    uid_t uid;
    gid_t gid;
};

/* side_listen() - bind and listen at path (at most 107 bytes). The caller holds the directory's
 * lock (daemon/server/lockfile.h), so a socket found at path is stale and is replaced; anything
 * that is not a socket is refused with -EEXIST and left alone. mode: permission bits, set with no
 * window in which wider ones hold. Return: fd >= 0 or negative errno. */
int side_listen(const char *path, mode_t mode) GD_MUST_CHECK;
int side_accept(int listen_fd) GD_MUST_CHECK; /* non-blocking, CLOEXEC; fd or negative errno */
int side_connect(const char *path, uint32_t timeout_msec) GD_MUST_CHECK; /* as unix_connect() */
int side_peer(int fd, struct side_peer *ret_peer) GD_MUST_CHECK;

/* side_message_bytes() - the exact size of a message of that type; 0 for an unknown type. */
uint32_t side_message_bytes(uint16_t type);

/* side_init() - zero *message and fill its header. */
void side_init(union side_message *message, enum side_type type, uint64_t sequence);

/* side_send() - one packet with n_fds fds (kept by the caller). Never blocks on a non-blocking
 * socket: -EAGAIN when the peer does not read. Never raises SIGPIPE. */
int side_send(int fd, const union side_message *message, const int *fds,
              uint32_t n_fds) GD_MUST_CHECK;

/* side_receive() - one packet. Return: 1 with *ret_packet filled and valid, 0 on hang-up, -EAGAIN,
 * other negative errno, or STATUS_BAD_MESSAGE (wrong magic, unknown type, wrong size, too many fds;
 * all fds closed). Strings inside a valid message are NUL-terminated. */
int side_receive(int fd, struct side_packet *ret_packet, struct reason *why) GD_MUST_CHECK;

void side_packet_finish(struct side_packet *packet);
