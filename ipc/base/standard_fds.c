/* standard_fds.c - see standard_fds.h. CLOEXEC: a program that is executed looks for itself. */
#include "ipc/base/standard_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "ipc/base/error.h"

int standard_fds_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) {
            continue;
        }
        int opened = open("/dev/null", O_CLOEXEC | (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
        if (opened < 0) {
            return err_raise(-errno);
        }
        GD_ASSERT(opened == fd); /* the lowest that is free */
    }
    return 0;
}
