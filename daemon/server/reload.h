/* reload.h - SIGHUP: the configuration file once more, while the daemon runs. Main thread. */
#pragma once

#include <stddef.h>

#include "daemon/server/cmdline.h"
#include "daemon/server/config.h"
#include "daemon/server/core.h"

/* reload_take() - move each reloadable option of *fresh into *config, and leave the others.
 * ret_rest: the names of those others that differ, comma-separated, cut to fit; "" for none. Both
 * stay safe to finish. */
void reload_take(struct config *config, struct config *fresh, char *ret_rest, size_t size_bytes);

/* reload_config() - read the file again that the command line names, which still goes before it,
 * and take over what is reloadable: into *config, which is core->config, the accounts and the log.
 * A file with a fault changes nothing. Says what came of it in one line on the log. */
void reload_config(struct core *core, struct config *config, const struct cmdline *cmdline);
