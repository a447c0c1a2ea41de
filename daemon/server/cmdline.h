/* cmdline.h - gemmd's command line, by argp. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/server/config.h"

#define CMDLINE_SETTINGS_MAX (CONFIG_DEVICES_MAX + CONFIG_MODELS_MAX + 8u)

/* What the command line said. All texts are borrowed: of argv, or static. */
struct cmdline_setting {
    const char *name; /* of an option of config.h */
    const char *value;
};

struct cmdline {
    const char *config_path; /* NULL: no file */
    struct cmdline_setting settings[CMDLINE_SETTINGS_MAX];
    uint32_t n_settings;
    bool has_devices;
    bool is_check_only;
    bool is_keeper; /* keep a daemon of the same command line, rather than be one */
    bool is_kept;   /* be one that a keeper has started */
};

/* cmdline_parse() - read argv, which has to stay. --help, --usage and --version print and exit(0);
 * a mistake of usage prints and exits with 2. Return: 0 or negative errno. */
int cmdline_parse(int argc, char **argv, struct cmdline *ret_cmdline) GD_MUST_CHECK;

/* What a keeper appends to the command line that it hands on. */
#define CMDLINE_KEPT "--kept"

/* cmdline_config() - the command line over the file it names, read now, over the defaults.
 * *ret_config is initialised in every case and the caller finishes it. Return: 0 or -ENOMEM, or
 * STATUS_INVALID_ARGUMENT. */
int cmdline_config(const struct cmdline *cmdline, struct config *ret_config,
                   struct reason *why) GD_MUST_CHECK;
