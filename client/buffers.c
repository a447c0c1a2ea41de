/* buffers.c - memory shared with the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"

#include "client/client.h"

/* ---- asking -----------------------------------------------------------------------------------
 */

static int new_buffer(struct gemmd_client *client, uint64_t size_bytes, gemmd_buffer_t **ret_buffer,
                      const char *call, struct gemmd_buffer **ret)
{
    if (!client || !ret_buffer) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "%s: %s is NULL", call,
                             client ? "ret_buffer" : "client");
    }
    struct gemmd_buffer *buffer = calloc(1, sizeof(*buffer));
    if (!buffer) {
        return client_fail_errno(-ENOMEM, "buffer");
    }
    *buffer = (struct gemmd_buffer){.client = client,
                                    .region = REGION_NULL,
                                    .memory = GEMMD_MEMORY_HOST,
                                    .size_bytes = size_bytes};
    *ret = buffer;
    return 0;
}

/* Hand the buffer out, or free it. */
static int end_call(int r, struct gemmd_buffer *buffer, gemmd_buffer_t **ret_buffer)
{
    if (r != 0) {
        gemmd_buffer_free(buffer);
        return r;
    }
    *ret_buffer = buffer;
    return GEMMD_OK;
}

static int ask(struct gemmd_buffer *buffer, union side_message *question, int fd,
               struct side_packet *ret_packet)
{
    int r = session_ask(buffer->client, question, fd, SIDE_BUFFER, ret_packet);
    if (r == 0) {
        buffer->id = ret_packet->message.buffer.buffer_id;
    }
    return r;
}

static int ask_for_buffer(struct gemmd_buffer *buffer, enum side_type type, uint32_t device_index,
                          uint64_t size_bytes, int fd, struct side_packet *ret_packet)
{
    union side_message question;
    side_init(&question, type, 0);
    question.alloc_buffer.size_bytes = size_bytes;
    question.alloc_buffer.device_index = device_index;
    return ask(buffer, &question, fd, ret_packet);
}

/* ---- mapping ----------------------------------------------------------------------------------
 */

/* Takes the fd over. */
static int map_host(struct gemmd_buffer *buffer, int fd)
{
    int r = region_attach(&buffer->region, fd, buffer->size_bytes);
    buffer->data = buffer->region.base;
    return r < 0 ? client_fail_errno(r, "mapping a buffer") : 0;
}

/* The fd stays the caller's. */
static int map_cuda(struct gemmd_buffer *buffer, const struct side_buffer *answer, int fd)
{
    int r = device_memory_map(answer->device_uuid, fd, answer->size_bytes, &buffer->mapping);
    buffer->memory = GEMMD_MEMORY_CUDA;
    buffer->data = (void *)(uintptr_t)buffer->mapping.address;
    return r;
}

static int map_answer(struct gemmd_buffer *buffer, struct side_packet *packet)
{
    const struct side_buffer *answer = &packet->message.buffer;
    if (packet->n_fds != 1) {
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon sent %u fds with a buffer, not 1",
                             packet->n_fds);
    }
    switch (answer->memory) {
    case SIDE_MEMORY_MEMFD:
        return map_host(buffer, steal_fd(&packet->fds[0]));
    case SIDE_MEMORY_CUDA:
        return map_cuda(buffer, answer, packet->fds[0]);
    default:
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon sent memory of unknown kind %u",
                             answer->memory);
    }
}

/* ---- the daemon's memory ----------------------------------------------------------------------
 */

int gemmd_buffer_alloc(gemmd_client_t *client, uint32_t device_index, uint64_t size_bytes,
                       gemmd_buffer_t **ret_buffer)
{
    struct gemmd_buffer *buffer = NULL;
    struct side_packet packet;
    int r = new_buffer(client, size_bytes, ret_buffer, "gemmd_buffer_alloc", &buffer);
    if (r != 0) {
        return r;
    }
    r = ask_for_buffer(buffer, SIDE_ALLOC_BUFFER, device_index, size_bytes, -1, &packet);
    if (r == 0) {
        r = map_answer(buffer, &packet);
        side_packet_finish(&packet);
    }
    return end_call(r, buffer, ret_buffer);
}

/* ---- memory of this process -------------------------------------------------------------------
 */

/* The daemon judges the fd first, so that its sentence is the one the caller reads. */
static int import_fd(struct gemmd_buffer *buffer, uint32_t device_index, int fd)
{
    struct side_packet packet;
    int r =
        ask_for_buffer(buffer, SIDE_IMPORT_BUFFER, device_index, buffer->size_bytes, fd, &packet);
    if (r != 0) {
        return r;
    }
    struct side_buffer answer = packet.message.buffer;
    side_packet_finish(&packet);
    if (fcntl(fd, F_GET_SEALS) < 0) {
        return map_cuda(buffer, &answer, fd);
    }
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return copy < 0 ? client_fail_errno(-errno, "duplicating the buffer's fd")
                    : map_host(buffer, copy);
}

int gemmd_buffer_import_fd(gemmd_client_t *client, uint32_t device_index, int fd,
                           uint64_t size_bytes, gemmd_buffer_t **ret_buffer)
{
    if (fd < 0) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_buffer_import_fd: fd is %d", fd);
    }
    struct gemmd_buffer *buffer = NULL;
    int r = new_buffer(client, size_bytes, ret_buffer, "gemmd_buffer_import_fd", &buffer);
    if (r != 0) {
        return r;
    }
    return end_call(import_fd(buffer, device_index, fd), buffer, ret_buffer);
}

int gemmd_buffer_alloc_host(gemmd_client_t *client, uint32_t device_index, uint64_t size_bytes,
                            gemmd_buffer_t **ret_buffer)
{
    if (size_bytes == 0) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_buffer_alloc_host: 0 bytes");
    }
    struct region region = REGION_NULL;
    int r = region_create(&region, "gemmd-buffer", size_bytes);
    if (r != 0) {
        return client_fail_errno(r, "gemmd_buffer_alloc_host");
    }
    r = gemmd_buffer_import_fd(client, device_index, region.fd, size_bytes, ret_buffer);
    region_finish(&region);
    return r;
}

static int ask_ipc(struct gemmd_buffer *buffer, uint32_t device_index,
                   const struct device_export *exported)
{
    union side_message question;
    struct side_packet packet;
    side_init(&question, SIDE_IMPORT_IPC, 0);
    question.import_ipc.size_bytes = buffer->size_bytes;
    question.import_ipc.offset_bytes = exported->offset_bytes;
    question.import_ipc.allocation_id = exported->allocation_id;
    question.import_ipc.device_index = device_index;
    memcpy(question.import_ipc.handle, exported->handle, sizeof(exported->handle));
    int r = ask(buffer, &question, -1, &packet);
    if (r == 0) {
        side_packet_finish(&packet);
    }
    return r;
}

/* A VMM allocation is shared as a whole, and the buffer is a part of it. */
static int ask_vmm(struct gemmd_buffer *buffer, uint32_t device_index,
                   const struct device_export *exported)
{
    struct side_packet packet;
    buffer->offset_bytes = exported->offset_bytes;
    int r = ask_for_buffer(buffer, SIDE_IMPORT_BUFFER, device_index, exported->allocation_bytes,
                           exported->fd, &packet);
    if (r == 0) {
        side_packet_finish(&packet);
    }
    return r;
}

int gemmd_buffer_import_cuda(gemmd_client_t *client, uint32_t device_index, void *pointer,
                             uint64_t size_bytes, gemmd_buffer_t **ret_buffer)
{
    struct device_export exported;
    int r = device_memory_export(pointer, size_bytes, &exported);
    if (r != 0) {
        return r;
    }
    CLEAN_FD int fd = exported.fd;
    struct gemmd_buffer *buffer = NULL;
    r = new_buffer(client, size_bytes, ret_buffer, "gemmd_buffer_import_cuda", &buffer);
    if (r != 0) {
        return r;
    }
    buffer->memory = GEMMD_MEMORY_CUDA;
    buffer->data = pointer;
    r = fd >= 0 ? ask_vmm(buffer, device_index, &exported)
                : ask_ipc(buffer, device_index, &exported);
    return end_call(r, buffer, ret_buffer);
}

/* ---- looking, letting go ----------------------------------------------------------------------
 */

void *gemmd_buffer_data(const gemmd_buffer_t *buffer)
{
    return buffer ? buffer->data : NULL;
}

uint64_t gemmd_buffer_bytes(const gemmd_buffer_t *buffer)
{
    return buffer ? buffer->size_bytes : 0;
}

enum gemmd_memory gemmd_buffer_memory(const gemmd_buffer_t *buffer)
{
    return buffer ? buffer->memory : GEMMD_MEMORY_HOST;
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
    device_memory_unmap(&buffer->mapping);
    free(buffer);
}
