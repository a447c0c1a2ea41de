/* exit_code.h - what the process says with its exit code; gemmctl shares the numbers. */
#pragma once

#include "ipc/base/reason.h"

enum exit_code {
    EXIT_CODE_DONE = 0,
    EXIT_CODE_USAGE = 2, /* command line or configuration file */
    EXIT_CODE_REFUSED =
        4, /* a checkpoint, a device, a socket folder, another gemmd that runs there */
    EXIT_CODE_FAILED = 5, /* the machine or gemmd itself; a supervisor restarts it */
};

/* exit_code_tell() - say in one line on the log why a start, or going on, did not work, whatever
 * kind of failure it was, r below or above 0: `what` failed, or *why has the sentence. Returns the
 * code to end with. */
enum exit_code exit_code_tell(int r, const struct reason *why, const char *what);
