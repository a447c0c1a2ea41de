/* shm.c - memfd regions: making our own, mapping the daemon's, and accepting a stranger's.
 *
 * A file that a peer can shrink turns our next load into SIGBUS, so everything mapped here carries
 * F_SEAL_SHRINK: we put it on our own files before anybody else sees the fd, and demand it of
 * imported ones. A peer can still punch holes; a hole in a memfd reads as zeros. In a hugetlbfs
 * file it could fault for want of a huge page, so those are refused. POSIX shm objects cannot be
 * sealed at all, which is why there is no shm_open() here.
 *
 * A memfd has no limit of its own: committing more than there is would not fail but call the
 * kernel's OOM killer, so what cannot fit is refused before. Two that are made at once may both
 * pass that look; quotas bound what clients can make of it.
 *
 * Any thread; a region belongs to its holder. */
#include "ipc/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

static int map_region(struct region *region, int *fd, uint64_t size_bytes)
{
    void *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (base == MAP_FAILED) {
        return err_raise(-errno);
    }
    *region = (struct region){.fd = steal_fd(fd), .base = base, .size_bytes = size_bytes};
    return 0;
}

/* Without this a machine short of memory would kill us at a random store much later. */
static int commit_memory(int fd, uint64_t size_bytes)
{
    while (fallocate(fd, 0, 0, (off_t)size_bytes) < 0) {
        if (errno != EINTR) {
            return err_raise(-errno);
        }
    }
    return 0;
}

uint64_t region_available_bytes(void)
{
    uint64_t available = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL) {
        return available;
    }
    char line[128];
    unsigned long long kib;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
            available = (uint64_t)kib * 1024;
            break;
        }
    }
    (void)fclose(file);
    return available;
}

int region_create(struct region *region, const char *name, uint64_t size_bytes)
{
    if (size_bytes == 0) {
        return err_raise(-EINVAL);
    }
    if (size_bytes > region_available_bytes()) {
        return err_raise(-ENOSPC);
    }
    uint64_t file_bytes = num_align_up(size_bytes, (uint64_t)sysconf(_SC_PAGESIZE));
    CLEAN_FD int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return err_raise(-errno);
    }
    if (ftruncate(fd, (off_t)file_bytes) < 0) {
        return err_raise(-errno);
    }
    int r = commit_memory(fd, file_bytes);
    if (r < 0) {
        return r;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        return err_raise(-errno);
    }
    return map_region(region, &fd, file_bytes);
}

int region_attach(struct region *region, int fd, uint64_t size_bytes)
{
    CLEAN_FD int owned = fd;
    struct stat info;
    if (size_bytes == 0) {
        return err_raise(-EINVAL);
    }
    if (fstat(owned, &info) < 0) {
        return err_raise(-errno);
    }
    if (info.st_size < 0 || (uint64_t)info.st_size < size_bytes) {
        return err_raise(-EINVAL);
    }
    return map_region(region, &owned, size_bytes);
}

/* The seals come first: they make the size that is looked at afterwards a lasting one. */
static int check_seals(int fd, struct reason *why)
{
    struct statfs system;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstatfs(fd, &system) < 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "the buffer's fd is not a memfd");
    }
    if (system.f_type != TMPFS_MAGIC) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the buffer's memfd is of huge pages, which gemmd does not map");
    }
    if ((seals & F_SEAL_SHRINK) == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the buffer's memfd is not sealed against shrinking (F_SEAL_SHRINK)");
    }
    if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the buffer's memfd is sealed against writing");
    }
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "the buffer's memfd is opened read-only");
    }
    return 0;
}

int region_import(struct region *region, int fd, uint64_t size_bytes, struct reason *why)
{
    CLEAN_FD int owned = fd;
    int r = check_seals(owned, why);
    if (r != 0) {
        return r;
    }
    struct stat info;
    if (fstat(owned, &info) < 0) {
        return err_raise(-errno);
    }
    if (size_bytes == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "the buffer's size is 0");
    }
    if (info.st_size < 0 || (uint64_t)info.st_size < size_bytes) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the buffer's memfd has %lld bytes, fewer than the declared %llu",
                          (long long)info.st_size, (unsigned long long)size_bytes);
    }
    return map_region(region, &owned, size_bytes);
}

void region_finish(struct region *region)
{
    if (region->base != NULL) {
        (void)munmap(region->base, region->size_bytes);
    }
    cleanup_fd(&region->fd);
    *region = REGION_NULL;
}
