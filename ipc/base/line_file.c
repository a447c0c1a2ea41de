/* line_file.c - see line_file.h. A damaged line costs what it kept, so nothing guards its bytes. */
#include "ipc/base/line_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

/* ---- reading ---- */

/* Lines that were looked at, and those of them that nobody wanted. */
struct tally {
    uint32_t n;
    uint32_t n_refused;
    uint32_t first_refused; /* counted from 1 */
};

/* One line of `length` bytes, with a NUL behind them and perhaps among them. */
static int take_line(char *line, size_t length, line_take take, void *context, struct tally *tally)
{
    tally->n++;
    if (line[0] == '#' || length == 0) {
        return 0;
    }
    bool is_text = strlen(line) == length && length < LINE_FILE_LINE_BYTES;
    int r = is_text ? take(context, line) : STATUS_UNSUPPORTED;
    if (r > 0) {
        tally->first_refused = tally->n_refused++ == 0 ? tally->n : tally->first_refused;
        return 0;
    }
    return r;
}

static int take_lines(char *text, size_t n_bytes, line_take take, void *context,
                      struct tally *tally)
{
    int r = 0;
    for (char *end = text + n_bytes, *next; r == 0 && text < end; text = next) {
        char *line_feed = memchr(text, '\n', (size_t)(end - text));
        char *line_end = line_feed ? line_feed : end;
        *line_end = '\0';
        next = line_end + 1;
        r = take_line(text, (size_t)(line_end - text), take, context, tally);
    }
    return r;
}

/* Of a file that is too long the last line is cut off and left out. */
static size_t whole_lines(const struct line_file *file, const char *text, size_t n_bytes)
{
    bool is_full = n_bytes == file->bytes_max;
    while (is_full && n_bytes > 0 && text[n_bytes - 1] != '\n') {
        n_bytes--;
    }
    return n_bytes;
}

int line_file_read(const struct line_file *file, line_take take, void *context, struct reason *why)
{
    FILE *stream = fopen(file->path, "re");
    if (!stream && errno == ENOENT) {
        return 0;
    }
    CLEAN_FREE char *text = stream ? malloc(file->bytes_max + 1) : NULL;
    size_t n_bytes = text ? fread(text, 1, file->bytes_max, stream) : 0;
    int error = stream && !ferror(stream) ? 0 : errno;
    if (stream) {
        (void)fclose(stream);
    }
    if (error != 0) {
        return reason_set(why, STATUS_UNSUPPORTED, "%s '%s' cannot be read: %s", file->what,
                          file->path, strerror(error));
    }
    struct tally tally = {0};
    int r = text ? take_lines(text, whole_lines(file, text, n_bytes), take, context, &tally)
                 : err_raise(-ENOMEM);
    return r != 0 || tally.n_refused == 0
               ? r
               : reason_set(why, STATUS_UNSUPPORTED,
                            "%s '%s': %u of its %u lines are none of ours and left out, line %u "
                            "the first",
                            file->what, file->path, tally.n_refused, tally.n, tally.first_refused);
}

/* ---- writing ---- */

/* The first line that is still written when the last ones fill the file. */
static uint32_t first_kept(const struct line_file *file, uint32_t n, line_format format,
                           const void *context)
{
    char text[LINE_FILE_LINE_BYTES];
    uint64_t n_bytes = strlen(file->header);
    uint32_t i = n;
    while (i > 0) {
        format(context, i - 1, text);
        n_bytes += strlen(text) + 1;
        if (n_bytes > file->bytes_max) {
            break;
        }
        i--;
    }
    return i;
}

/* 0 or an errno. */
static int write_lines(const struct line_file *file, const char *path, uint32_t n,
                       line_format format, const void *context)
{
    char text[LINE_FILE_LINE_BYTES];
    FILE *stream = fopen(path, "we");
    if (!stream) {
        return errno;
    }
    int error = fputs(file->header, stream) < 0 ? errno : 0;
    for (uint32_t i = first_kept(file, n, format, context); error == 0 && i < n; i++) {
        format(context, i, text);
        error = fputs(text, stream) < 0 || fputc('\n', stream) == EOF ? errno : 0;
    }
    return fclose(stream) != 0 && error == 0 ? errno : error;
}

static void make_folders(const char *path)
{
    char copy[PATH_MAX];
    (void)snprintf(copy, sizeof(copy), "%s", path);
    for (char *slash = copy; (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        (void)mkdir(copy, 0700); /* what goes wrong here shows when the file is opened */
        *slash = '/';
    }
}

int line_file_lock(const struct line_file *file)
{
    enum { TRIES = 50 };
    const struct timespec pause = {.tv_nsec = 2000000};
    char folder[PATH_MAX];
    make_folders(file->path);
    (void)snprintf(folder, sizeof(folder), "%s", file->path);
    char *slash = strrchr(folder, '/');
    if (slash) {
        slash[1] = '\0';
    }
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (uint32_t i = 0; fd >= 0 && i < TRIES && flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        (void)nanosleep(&pause, NULL);
    }
    return fd;
}

int line_file_write(const struct line_file *file, uint32_t n, line_format format,
                    const void *context, struct reason *why)
{
    char fresh[PATH_MAX];
    make_folders(file->path);
    (void)snprintf(fresh, sizeof(fresh), "%s.%d", file->path, (int)getpid());
    int error = write_lines(file, fresh, n, format, context);
    if (error == 0 && rename(fresh, file->path) != 0) {
        error = errno;
    }
    if (error != 0) {
        (void)unlink(fresh);
        return reason_set(why, STATUS_UNSUPPORTED, "%s '%s' cannot be written: %s", file->what,
                          file->path, strerror(error));
    }
    return 0;
}
