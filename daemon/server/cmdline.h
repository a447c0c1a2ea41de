/* cmdline.h - gemmd's command line, by argp. */
#pragma once

#include "daemon/server/config.h"

/* cmdline_parse() - argv over the file it names over the defaults. --help, --usage and --version
 * print and exit(0); a mistake of usage prints and exits with 2. *ret_config is initialised in
 * every case that returns and the caller finishes it. Return: 0 or -ENOMEM, or
 * STATUS_INVALID_ARGUMENT. */
int cmdline_parse(int argc, char **argv, struct config *ret_config, bool *ret_is_check_only,
                  struct reason *why) GD_MUST_CHECK;
