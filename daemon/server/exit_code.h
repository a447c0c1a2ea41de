/* exit_code.h - what the process says with its exit code; gemmctl shares the numbers. */
#pragma once

enum exit_code {
    EXIT_CODE_DONE = 0,
    EXIT_CODE_USAGE = 2, /* command line or configuration file */
    EXIT_CODE_REFUSED =
        4, /* a checkpoint, a device, a socket folder, another gemmd that runs there */
    EXIT_CODE_FAILED = 5, /* the machine or gemmd itself; a supervisor restarts it */
};
