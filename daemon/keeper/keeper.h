/* keeper.h - gemmd --keeper: a parent for hosts without systemd.
 *
 * It holds the descriptors that the daemon wants to outlive it, and starts the daemon anew when
 * that has died. To the daemon it is a service manager: NOTIFY_SOCKET with FDSTORE, LISTEN_FDS at
 * the start, a watchdog. It has no threads, no CUDA context and no state beyond those descriptors,
 * so that there is little in it that could die.
 *
 * It raises its limit of open files as far as it may, and keeps descriptors up to half of that,
 * since the daemon, which has the same limit, begins with all of them; beyond, it says so once, and
 * a model that is not kept whole is loaded anew after a death.
 *
 * Signals: SIGTERM and SIGINT end the daemon, and then the keeper, with the daemon's exit code;
 * SIGHUP goes to the daemon; SIGUSR1 ends the daemon and starts the program that is at its path
 * then, which is how an upgrade goes. A daemon that ended well, or that refused its command line,
 * or its first start, is not started again. */
#pragma once

/* keeper_run() - program: of the daemon; argv: for it, NULL at the end. The exit code. */
int keeper_run(const char *program, char *const *argv);
