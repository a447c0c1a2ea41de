/* buffers.c - memory shared with the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "ipc/base/cleanup.h"

#include "client/client.h"

static int new_buffer(struct gemmd_client *client, uint64_t size_bytes, struct gemmd_buffer **ret)
{
    if (!client) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "buffer: client is NULL");
    }
    struct gemmd_buffer *buffer = calloc(1, sizeof(*buffer));
    if (!buffer) {
        return client_fail_errno(-ENOMEM, "buffer");
    }
    *buffer =
        (struct gemmd_buffer){.client = client, .region = REGION_NULL, .size_bytes = size_bytes};
    *ret = buffer;
    return 0;
}

static int ask_for_buffer(struct gemmd_buffer *buffer, enum side_type type, uint32_t device_index,
                          int fd, struct side_packet *ret_packet)
{
    union side_message question;
    side_init(&question, type, 0);
    question.alloc_buffer.size_bytes = buffer->size_bytes;
    question.alloc_buffer.device_index = device_index;
    int r = session_ask(buffer->client, &question, fd, SIDE_BUFFER, ret_packet);
    if (r == 0) {
        buffer->id = ret_packet->message.buffer.buffer_id;
    }
    return r;
}

static int alloc_region(struct gemmd_buffer *buffer, uint32_t device_index)
{
    struct side_packet packet;
    int r = ask_for_buffer(buffer, SIDE_ALLOC_BUFFER, device_index, -1, &packet);
    if (r != 0) {
        return r;
    }
    if (packet.n_fds != 1) {
        side_packet_finish(&packet);
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon sent %u fds with a buffer, not 1",
                             packet.n_fds);
    }
    r = region_attach(&buffer->region, steal_fd(&packet.fds[0]), buffer->size_bytes);
    side_packet_finish(&packet);
    return r < 0 ? client_fail_errno(r, "mapping a buffer") : 0;
}

int gemmd_buffer_alloc(gemmd_client_t *client, uint32_t device_index, uint64_t size_bytes,
                       gemmd_buffer_t **ret_buffer)
{
    struct gemmd_buffer *buffer = NULL;
    int r = new_buffer(client, size_bytes, &buffer);
    if (r != 0) {
        return r;
    }
    r = ret_buffer
            ? alloc_region(buffer, device_index)
            : client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_buffer_alloc: ret_buffer is NULL");
    if (r != 0) {
        gemmd_buffer_free(buffer);
        return r;
    }
    *ret_buffer = buffer;
    return GEMMD_OK;
}

/* The daemon judges the fd first, so that its sentence is the one the caller reads. */
static int import_region(struct gemmd_buffer *buffer, uint32_t device_index, int fd)
{
    struct side_packet packet;
    int r = ask_for_buffer(buffer, SIDE_IMPORT_BUFFER, device_index, fd, &packet);
    if (r != 0) {
        return r;
    }
    side_packet_finish(&packet);
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        return client_fail_errno(-errno, "duplicating the buffer's fd");
    }
    r = region_attach(&buffer->region, copy, buffer->size_bytes);
    return r < 0 ? client_fail_errno(r, "mapping a buffer") : 0;
}

int gemmd_buffer_import_fd(gemmd_client_t *client, uint32_t device_index, int fd,
                           uint64_t size_bytes, gemmd_buffer_t **ret_buffer)
{
    if (fd < 0 || !ret_buffer) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_buffer_import_fd: fd is %d, ret_buffer %s NULL", fd,
                             ret_buffer ? "is not" : "is");
    }
    struct gemmd_buffer *buffer = NULL;
    int r = new_buffer(client, size_bytes, &buffer);
    if (r != 0) {
        return r;
    }
    r = import_region(buffer, device_index, fd);
    if (r != 0) {
        gemmd_buffer_free(buffer);
        return r;
    }
    *ret_buffer = buffer;
    return GEMMD_OK;
}

void *gemmd_buffer_data(const gemmd_buffer_t *buffer)
{
    return buffer ? buffer->region.base : NULL;
}

uint64_t gemmd_buffer_bytes(const gemmd_buffer_t *buffer)
{
    return buffer ? buffer->size_bytes : 0;
}

/* A daemon that is gone has let go already, so a failing release is no news for the caller. */
static void release(struct gemmd_buffer *buffer)
{
    union side_message question;
    struct side_packet packet;
    side_init(&question, SIDE_RELEASE_BUFFER, 0);
    question.release_buffer.buffer_id = buffer->id;
    if (session_ask(buffer->client, &question, -1, SIDE_BUFFER, &packet) == 0) {
        side_packet_finish(&packet);
    }
}

void gemmd_buffer_free(gemmd_buffer_t *buffer)
{
    if (!buffer) {
        return;
    }
    if (buffer->id != 0) {
        release(buffer);
    }
    region_finish(&buffer->region);
    free(buffer);
}
