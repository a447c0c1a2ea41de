/* server.h - the process: owns everything, runs the main loop, ends in order. */
#pragma once

#include "daemon/server/cmdline.h"
#include "daemon/server/config.h"
#include "daemon/server/exit_code.h"

/* server_block_signals() - keep SIGTERM, SIGINT and SIGHUP for the loop and ignore SIGPIPE. First
 * thing in main(): a signal that comes before it still kills. */
void server_block_signals(void);

/* server_run() - be the daemon until a signal, a lost device or a failure ends it, after
 * server_block_signals(). Says on the log why it ends. config: made of cmdline; a SIGHUP makes it
 * anew. */
enum exit_code server_run(struct config *config, const struct cmdline *cmdline);
