/* cmdline.c - options of the command line are set through the same table as those of the file, so
 * that both have the same bounds and sentences. argp sees argv once and only collects; the file is
 * read after it, again whenever a SIGHUP wants it, and the collected settings go on top. */
#include "daemon/server/cmdline.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server/build_id.h"
#include "daemon/server/exit_code.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

enum {
    KEY_CONFIG = 'c',
    KEY_SOCKET_DIR = 's',
    KEY_DEVICE = 'd',
    KEY_MODEL = 'm',
    KEY_CHECK = 0x100,
    KEY_MODEL_OPTIONS,
    KEY_KEEPER,
    KEY_KEPT
};

static const struct argp_option argp_rows[] = {
    {"config", KEY_CONFIG, "FILE", 0,
     "Read options from FILE (see gemmd.conf(5)); none is read otherwise", 0},
    {"socket-dir", KEY_SOCKET_DIR, "DIR", 0, "Put the sockets into DIR", 0},
    {"device", KEY_DEVICE, "auto|host|cuda:N|GPU-UUID", 0, "A device to own; may be repeated", 0},
    {"model", KEY_MODEL, "NAME=PATH", 0, "Load a checkpoint before being ready; may be repeated",
     0},
    {"model-options", KEY_MODEL_OPTIONS, "NAME: KEY=VALUE ...", 0,
     "Fuse or cut that model's weights (see gemmd.conf(5)); may be repeated", 0},
    {"keeper", KEY_KEEPER, NULL, 0,
     "Be the parent of a daemon: hold its weights, and start it anew when it dies", 0},
    {&CMDLINE_KEPT[2], KEY_KEPT, NULL, OPTION_HIDDEN, NULL, 0},
    {"check-config", KEY_CHECK, NULL, 0, "Check command line and file, and exit", 0},
    {0},
};

static void cmdline_add(struct argp_state *state, const char *name, const char *value)
{
    struct cmdline *cmdline = state->input;
    if (cmdline->n_settings == CMDLINE_SETTINGS_MAX) {
        argp_error(state, "more than %u settings", CMDLINE_SETTINGS_MAX);
        return;
    }
    cmdline->settings[cmdline->n_settings++] = (struct cmdline_setting){name, value};
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
    struct cmdline *cmdline = state->input;
    switch (key) {
    case KEY_CONFIG:
        cmdline->config_path = arg;
        return 0;
    case KEY_SOCKET_DIR:
        cmdline_add(state, "socket_dir", arg);
        return 0;
    case KEY_DEVICE:
        cmdline->has_devices = true;
        cmdline_add(state, "devices", arg);
        return 0;
    case KEY_MODEL:
        cmdline_add(state, "models", arg);
        return 0;
    case KEY_MODEL_OPTIONS:
        cmdline_add(state, "model_options", arg);
        return 0;
    case KEY_KEEPER:
        cmdline->is_keeper = true;
        return 0;
    case KEY_KEPT:
        cmdline->is_keeper = false;
        cmdline->is_kept = true;
        return 0;
    case KEY_CHECK:
        cmdline->is_check_only = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* argp would begin the lines that it breaks at the left edge. */
static void print_indented(FILE *stream, const char *text)
{
    enum { MARGIN = 5, WIDTH = 78 }; /* a blank before each word; argp breaks longer lines */
    int column = MARGIN;
    fprintf(stream, "%*s", MARGIN, "");
    while (*text != '\0') {
        int n = (int)strcspn(text, " ");
        if (column + 1 + n > WIDTH) {
            fprintf(stream, "\n%*s", MARGIN, "");
            column = MARGIN;
        }
        fprintf(stream, " %.*s", n, text);
        column += 1 + n;
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', stream);
}

/* The tail of --help: the option table of the file. argp frees the text. */
static char *help_filter(int key, const char *text, GD_UNUSED void *input)
{
    if (key != ARGP_KEY_HELP_POST_DOC) {
        return (char *)(uintptr_t)text;
    }
    char *help = NULL;
    size_t n_bytes = 0;
    FILE *stream = open_memstream(&help, &n_bytes);
    if (stream == NULL) {
        return NULL;
    }
    fputs("Options of the configuration file, with their defaults:\n", stream);
    uint32_t n;
    const struct config_option *rows = config_options(&n);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(stream, "  %s = %s\n", rows[i].name, rows[i].initial);
        print_indented(stream, rows[i].doc);
    }
    return fclose(stream) == 0 ? help : NULL;
}

static void print_version(FILE *stream, GD_UNUSED struct argp_state *state)
{
    (void)fprintf(stream, "gemmd %s, build %s\n", GEMMD_VERSION, build_id());
}

int cmdline_parse(int argc, char **argv, struct cmdline *ret_cmdline)
{
    static const struct argp parser = {
        .options = argp_rows,
        .parser = parse_key,
        .doc = "Own the devices of this machine and one packed copy of each weight, and multiply "
               "for other "
               "processes.\vx",
        .help_filter = help_filter,
    };
    argp_program_version_hook = print_version;
    argp_err_exit_status = EXIT_CODE_USAGE;
    *ret_cmdline = (struct cmdline){0};
    int r = argp_parse(&parser, argc, argv, 0, NULL, ret_cmdline);
    return r != 0 ? err_raise(-r) : 0;
}

int cmdline_config(const struct cmdline *cmdline, struct config *ret_config, struct reason *why)
{
    int r = config_init(ret_config);
    if (r == 0 && cmdline->config_path != NULL) {
        r = config_load(ret_config, cmdline->config_path, why);
    }
    if (r != 0) {
        return r;
    }
    if (cmdline->has_devices) {
        config_clear(ret_config, "devices");
    }
    for (uint32_t i = 0; i < cmdline->n_settings; i++) {
        r = config_set(ret_config, cmdline->settings[i].name, cmdline->settings[i].value, why);
        if (r != 0) {
            return r;
        }
    }
    return config_check(ret_config, why);
}
