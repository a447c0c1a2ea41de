/* main.c - argv, wiring and exit code. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/keeper/keeper.h"
#include "daemon/server/cmdline.h"
#include "daemon/server/exit_code.h"
#include "daemon/server/log_sink.h"
#include "daemon/server/server.h"
#include "daemon/server/supervisor.h"
#include "ipc/base/log.h"
#include "ipc/base/standard_fds.h"

/* By the path at which this program lies now: after an upgrade that is another program. */
static int keep(int argc, char **argv)
{
    char program[PATH_MAX];
    char **kept_argv = calloc((size_t)argc + 2, sizeof(*kept_argv));
    if (kept_argv == NULL || realpath("/proc/self/exe", program) == NULL) {
        free(kept_argv);
        return EXIT_CODE_FAILED;
    }
    char kept[] = CMDLINE_KEPT;
    memcpy(kept_argv, argv, (size_t)argc * sizeof(*argv));
    kept_argv[argc] = kept;
    int code = keeper_run(program, kept_argv);
    free(kept_argv);
    return code;
}

/* To somebody at a terminal, or to the log of a service that is to go on. */
static int refuse(const struct cmdline *cmdline, int r, const struct reason *why)
{
    const char *sentence = r > 0 ? why->text : strerror(-r);
    enum exit_code code = r > 0 ? EXIT_CODE_USAGE : EXIT_CODE_FAILED;
    if (cmdline->is_check_only || cmdline->is_kept || !supervisor_has_weights()) {
        (void)fprintf(stderr, "gemmd: %s\n", sentence);
        return code;
    }
    log_sink_install();
    log_event(LOG_EVENT_START_REFUSED, LOG_LEVEL_ERROR, "server", "%s", sentence);
    return supervisor_end_start(code);
}

static bool is_parsed;

/* argp ends the process itself at a mistake in the command line, a unit's ExecStart= say. */
static void end_parsing(int code, GD_UNUSED void *arg)
{
    if (!is_parsed && code == EXIT_CODE_USAGE && supervisor_has_weights()) {
        log_sink_install();
        _exit((int)supervisor_end_start(EXIT_CODE_USAGE));
    }
}

/* A checkpoint may be put there before the start, and be for another user's eyes: no fault yet. */
static void warn_of_models(const struct config *config)
{
    for (uint32_t i = 0; i < config->models.n; i++) {
        struct reason why = REASON_NULL;
        int r = config_check_checkpoint(config, i, &why);
        if (r != 0) {
            (void)fprintf(stderr, "gemmd: warning: %s\n", r > 0 ? why.text : strerror(-r));
        }
    }
}

int main(int argc, char **argv)
{
    struct cmdline cmdline;
    struct config config = {0};
    struct reason why = REASON_NULL;
    if (standard_fds_open() != 0) {
        return EXIT_CODE_FAILED;
    }
    server_block_signals();
    (void)on_exit(end_parsing, NULL);
    int r = cmdline_parse(argc, argv, &cmdline);
    is_parsed = true;
    r = r != 0 ? r : cmdline_config(&cmdline, &config, &why);
    r = r != 0 ? r : log_sink_configure(config.log, &why);
    if (r != 0) {
        config_finish(&config);
        return refuse(&cmdline, r, &why);
    }
    int code = EXIT_CODE_DONE;
    if (cmdline.is_check_only) {
        warn_of_models(&config);
    } else {
        log_sink_install();
        code = cmdline.is_keeper ? keep(argc, argv) : (int)server_run(&config, &cmdline);
    }
    config_finish(&config);
    return code;
}
