/* buffers.c - memory shared with the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"

#include "client/client.h"

/* ---- sharing ---- */

static int new_buffer(struct gemmd_client *client, uint64_t size_bytes, gemmd_buffer_t **ret_buffer,
                      const char *call, struct gemmd_buffer **ret)
{
    if (!client || !ret_buffer) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "%s: %s is NULL", call,
                             client ? "ret_buffer" : "client");
    }
    int r = forked_check(client);
    if (r != 0) {
        return r;
    }
    struct gemmd_buffer *buffer = calloc(1, sizeof(*buffer));
    if (!buffer) {
        return client_fail_errno(-ENOMEM, "buffer");
    }
    *buffer = (struct gemmd_buffer){.client = client,
                                    .region = REGION_NULL,
                                    .memory = GEMMD_MEMORY_HOST,
                                    .size_bytes = size_bytes,
                                    .fd = -1};
    list_init(&buffer->in_client);
    *ret = buffer;
    return 0;
}

/* The question is what another daemon would be asked. */
static int ask(struct gemmd_buffer *buffer, int fd, struct side_packet *ret_packet)
{
    union side_message question = buffer->question;
    int r = session_ask(buffer->client, &question, fd, SIDE_BUFFER, ret_packet);
    if (r == 0) {
        buffer->id = (struct buffer_id){.number = ret_packet->message.buffer.buffer_id,
                                        .session = atomic_load(&buffer->client->session)};
    }
    return r;
}

static void prepare(struct gemmd_buffer *buffer, enum side_type type, uint32_t device_index,
                    uint64_t size_bytes)
{
    side_init(&buffer->question, type, 0);
    buffer->question.alloc_buffer.size_bytes = size_bytes;
    buffer->question.alloc_buffer.device_index = device_index;
}

/* Where a buffer's memory comes from: how to ask for it, and to map the answer. */
struct origin {
    int (*share)(struct gemmd_buffer *buffer, const struct origin *origin);
    uint32_t device_index;
    int fd; /* the caller's; -1: none */
    const struct device_export *exported;
};

static int share_once(struct gemmd_buffer *buffer, const struct origin *origin)
{
    struct gemmd_client *client = buffer->client;
    if (atomic_load(&client->is_reviving)) {
        return session_gone(client); /* and do not wait for the lock */
    }
    pthread_mutex_lock(&client->buffers_lock);
    int r =
        atomic_load(&client->is_reviving) ? session_gone(client) : origin->share(buffer, origin);
    if (r == 0) {
        list_append(&client->buffers, &buffer->in_client);
    }
    pthread_mutex_unlock(&client->buffers_lock);
    return r;
}

/* With this daemon, or the next one. Hand the buffer out, or free it. */
static int share(struct gemmd_buffer *buffer, const struct origin *origin,
                 gemmd_buffer_t **ret_buffer)
{
    struct gemmd_client *client = buffer->client;
    int r;
    bool is_alone;
    do {
        uint32_t epoch = atomic_load(&client->epoch);
        r = share_once(buffer, origin);
        is_alone = r == STATUS_DISCONNECTED && client->options.reconnect_msec > 0;
        if (is_alone) {
            r = client->revive(client, epoch, REVIVE_NO_LIMIT);
        }
    } while (is_alone && r == 0);
    if (r != 0) {
        gemmd_buffer_free(buffer);
        return r;
    }
    *ret_buffer = buffer;
    return GEMMD_OK;
}

static int copy_fd(int fd, int *ret_copy)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        return client_fail_errno(-errno, "duplicating the buffer's fd");
    }
    *ret_copy = copy;
    return 0;
}

/* ---- mapping ---- */

/* The fd stays the caller's. */
static int map_host(struct gemmd_buffer *buffer, int fd)
{
    int copy = -1;
    int r = copy_fd(fd, &copy);
    if (r != 0) {
        return r;
    }
    r = region_attach(&buffer->region, copy, buffer->size_bytes);
    buffer->data = buffer->region.base;
    return r < 0 ? client_fail_errno(r, "mapping a buffer") : 0;
}

static int map_cuda(struct gemmd_buffer *buffer, const struct side_buffer *answer, int fd)
{
    int r = device_memory_map(answer->device_uuid, fd, answer->size_bytes, &buffer->mapping);
    buffer->memory = GEMMD_MEMORY_CUDA;
    buffer->data = (void *)(uintptr_t)buffer->mapping.address;
    return r;
}

static int map_memory(struct gemmd_buffer *buffer, const struct side_buffer *answer, int fd)
{
    switch (answer->memory) {
    case SIDE_MEMORY_MEMFD:
        return map_host(buffer, fd);
    case SIDE_MEMORY_CUDA:
        return map_cuda(buffer, answer, fd);
    default:
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon sent memory of unknown kind %u",
                             answer->memory);
    }
}

/* ---- the daemon's memory ---- */

/* The memory outlives that daemon, since this process has a descriptor of it: the next one is given
 * that, as if it were the client's own. */
static int take_answer(struct gemmd_buffer *buffer, const struct side_packet *packet,
                       uint32_t device_index)
{
    const struct side_buffer *answer = &packet->message.buffer;
    int r = session_check_fds(packet);
    if (r != 0) {
        return r;
    }
    if (packet->n_fds != 1) {
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon sent %u fds with a buffer, not 1",
                             packet->n_fds);
    }
    bool is_cuda = answer->memory == SIDE_MEMORY_CUDA;
    r = map_memory(buffer, answer, packet->fds[0]);
    r = r == 0 && is_cuda ? copy_fd(packet->fds[0], &buffer->fd) : r;
    prepare(buffer, SIDE_IMPORT_BUFFER, device_index,
            is_cuda ? answer->size_bytes : buffer->size_bytes);
    return r;
}

static int share_new(struct gemmd_buffer *buffer, const struct origin *origin)
{
    struct side_packet packet;
    prepare(buffer, SIDE_ALLOC_BUFFER, origin->device_index, buffer->size_bytes);
    int r = ask(buffer, -1, &packet);
    if (r != 0) {
        return r;
    }
    r = take_answer(buffer, &packet, origin->device_index);
    side_packet_finish(&packet);
    return r;
}

int gemmd_buffer_alloc(gemmd_client_t *client, uint32_t device_index, uint64_t size_bytes,
                       gemmd_buffer_t **ret_buffer)
{
    struct gemmd_buffer *buffer = NULL;
    const struct origin origin = {.share = share_new, .device_index = device_index, .fd = -1};
    int r = new_buffer(client, size_bytes, ret_buffer, "gemmd_buffer_alloc", &buffer);
    return r != 0 ? r : share(buffer, &origin, ret_buffer);
}

/* ---- memory of this process ---- */

/* The daemon judges the fd first, so that its sentence is the one the caller reads. */
static int share_fd(struct gemmd_buffer *buffer, const struct origin *origin)
{
    struct side_packet packet;
    prepare(buffer, SIDE_IMPORT_BUFFER, origin->device_index, buffer->size_bytes);
    int r = ask(buffer, origin->fd, &packet);
    if (r != 0) {
        return r;
    }
    struct side_buffer answer = packet.message.buffer;
    side_packet_finish(&packet);
    if (fcntl(origin->fd, F_GET_SEALS) >= 0) {
        return map_host(buffer, origin->fd);
    }
    r = map_cuda(buffer, &answer, origin->fd);
    return r != 0 ? r : copy_fd(origin->fd, &buffer->fd);
}

int gemmd_buffer_import_fd(gemmd_client_t *client, uint32_t device_index, int fd,
                           uint64_t size_bytes, gemmd_buffer_t **ret_buffer)
{
    if (fcntl(fd, F_GETFD) < 0) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_buffer_import_fd: fd is %d: %s", fd,
                             strerror(errno));
    }
    struct gemmd_buffer *buffer = NULL;
    const struct origin origin = {.share = share_fd, .device_index = device_index, .fd = fd};
    int r = new_buffer(client, size_bytes, ret_buffer, "gemmd_buffer_import_fd", &buffer);
    return r != 0 ? r : share(buffer, &origin, ret_buffer);
}

int gemmd_buffer_alloc_host(gemmd_client_t *client, uint32_t device_index, uint64_t size_bytes,
                            gemmd_buffer_t **ret_buffer)
{
    if (size_bytes == 0) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_buffer_alloc_host: 0 bytes");
    }
    struct region region = REGION_NULL;
    int r = region_create(&region, "gemmd-buffer", size_bytes);
    if (r == -ENOSPC) {
        return client_refuse(
            STATUS_NO_SPACE, "gemmd_buffer_alloc_host: %llu bytes, and this machine has %llu left",
            (unsigned long long)size_bytes, (unsigned long long)region_available_bytes());
    }
    if (r != 0) {
        return client_fail_errno(r, "gemmd_buffer_alloc_host");
    }
    r = gemmd_buffer_import_fd(client, device_index, region.fd, size_bytes, ret_buffer);
    region_finish(&region);
    return r;
}

static void prepare_ipc(struct gemmd_buffer *buffer, const struct origin *origin)
{
    const struct device_export *exported = origin->exported;
    side_init(&buffer->question, SIDE_IMPORT_IPC, 0);
    buffer->question.import_ipc.size_bytes = buffer->size_bytes;
    buffer->question.import_ipc.offset_bytes = exported->offset_bytes;
    buffer->question.import_ipc.allocation_id = exported->allocation_id;
    buffer->question.import_ipc.device_index = origin->device_index;
    memcpy(buffer->question.import_ipc.handle, exported->handle, sizeof(exported->handle));
}

/* A VMM allocation is shared as a whole, and the buffer is a part of it. */
static void prepare_vmm(struct gemmd_buffer *buffer, const struct origin *origin)
{
    buffer->offset_bytes = origin->exported->offset_bytes;
    prepare(buffer, SIDE_IMPORT_BUFFER, origin->device_index, origin->exported->allocation_bytes);
}

/* The daemon cannot tell: an IPC handle that it opens for one GPU looks like memory of that GPU,
 * and its kernels would read the other's over the bus. */
static int check_home(const struct side_buffer *answer, const struct origin *origin)
{
    if (memcmp(answer->device_uuid, origin->exported->device_uuid, SIDE_UUID_BYTES) == 0) {
        return 0;
    }
    return client_refuse(STATUS_INVALID_ARGUMENT,
                         "gemmd_buffer_import_cuda: the memory is on another GPU than the daemon's "
                         "device %u; allocate it on the weight's device",
                         origin->device_index);
}

static int share_cuda(struct gemmd_buffer *buffer, const struct origin *origin)
{
    struct side_packet packet;
    if (origin->fd >= 0) {
        prepare_vmm(buffer, origin);
    } else {
        prepare_ipc(buffer, origin);
    }
    int r = ask(buffer, origin->fd, &packet);
    if (r != 0) {
        return r;
    }
    struct side_buffer answer = packet.message.buffer;
    side_packet_finish(&packet);
    r = check_home(&answer, origin);
    return r == 0 && origin->fd >= 0 ? copy_fd(origin->fd, &buffer->fd) : r;
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
    const struct origin origin = {
        .share = share_cuda, .device_index = device_index, .fd = fd, .exported = &exported};
    r = new_buffer(client, size_bytes, ret_buffer, "gemmd_buffer_import_cuda", &buffer);
    if (r != 0) {
        return r;
    }
    buffer->memory = GEMMD_MEMORY_CUDA;
    buffer->data = pointer;
    return share(buffer, &origin, ret_buffer);
}

/* ---- looking, letting go ---- */

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

/* Of this process; what is CUDA's is not a child's to give back. */
static void let_go(struct gemmd_buffer *buffer, bool is_inherited)
{
    cleanup_fd(&buffer->fd);
    region_finish(&buffer->region);
    if (!is_inherited) {
        device_memory_unmap(&buffer->mapping);
    }
    free(buffer);
}

/* False in a child of fork() where a thread that is not there holds the lock for ever: it may have
 * left the list half changed, so nobody looks at it. */
static bool lock_list(struct gemmd_client *client)
{
    return forked_is_inherited(client) ? pthread_mutex_trylock(&client->buffers_lock) == 0
                                       : pthread_mutex_lock(&client->buffers_lock) == 0;
}

void buffers_finish(struct gemmd_client *client)
{
    bool is_inherited = forked_is_inherited(client);
    if (!lock_list(client)) {
        return;
    }
    for (struct list *node; (node = list_pop(&client->buffers)) != NULL;) {
        let_go(LIST_OWNER(node, struct gemmd_buffer, in_client), is_inherited);
    }
    pthread_mutex_unlock(&client->buffers_lock);
}

void gemmd_buffer_free(gemmd_buffer_t *buffer)
{
    if (!buffer) {
        return;
    }
    bool is_inherited = forked_is_inherited(buffer->client);
    if (lock_list(buffer->client)) {
        list_remove(&buffer->in_client);
        pthread_mutex_unlock(&buffer->client->buffers_lock);
    }
    if (!is_inherited) {
        handover_await(buffer->client, &buffer->id);
        session_release(buffer->client, &buffer->id, &buffer->id_next);
    }
    let_go(buffer, is_inherited);
}
