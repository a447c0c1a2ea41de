/* standard_fds.h - a program that is started without some of its standard descriptors (">&-") must
 * not have them taken by its own sockets and files, into which whatever it prints would go. */
#pragma once

#include "ipc/base/check.h"

/* standard_fds_open() - what is missing of 0, 1 and 2 becomes /dev/null, opened the other way
 * round, so that who reads or writes it is told: EBADF. First thing in main(). 0 or negative errno.
 */
int standard_fds_open(void) GD_MUST_CHECK;
