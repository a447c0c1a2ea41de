/* reload.h - SIGHUP: the configuration file once more, while the daemon runs. Main thread. */
#pragma once

#include "daemon/server/cmdline.h"
#include "daemon/server/config.h"
#include "daemon/server/core.h"

#define RELOAD_NAMES_BYTES 1024u /* of all options */

/* Names of options that differ, comma-separated; "" for none. */
struct reload_changes {
    char taken[RELOAD_NAMES_BYTES];
    char left[RELOAD_NAMES_BYTES]; /* not reloadable: they need a restart */
};

/* reload_take() - move each reloadable option of *fresh into *config, and leave the others. Both
 * stay safe to finish. */
void reload_take(struct config *config, struct config *fresh, struct reload_changes *ret_changes);

/* reload_config() - read the file again that the command line names, which still goes before it,
 * and take over what is reloadable: into *config, which is core->config, the accounts and the log.
 * A file with a fault changes nothing. Says what came of it in one line on the log. */
void reload_config(struct core *core, struct config *config, const struct cmdline *cmdline);
