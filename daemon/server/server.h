/* server.h - the process: owns everything, runs the main loop, ends in order. */
#pragma once

#include "daemon/server/config.h"
#include "daemon/server/exit_code.h"

/* server_run() - be the daemon until a signal, a lost device or a failure ends it. Blocks SIGTERM,
 * SIGINT, SIGHUP and ignores SIGPIPE for the process. Says on the log why it ends. */
enum exit_code server_run(const struct config *config);
