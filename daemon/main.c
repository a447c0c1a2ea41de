/* main.c - argv, wiring and exit code. */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/server/cmdline.h"
#include "daemon/server/exit_code.h"
#include "daemon/server/log_sink.h"
#include "daemon/server/server.h"

static int set_log(const struct config *config, struct reason *why)
{
    const char *own = getenv("GEMMD_LOG");
    return log_sink_levels(own != NULL && own[0] != '\0' ? own : config->log, why);
}

int main(int argc, char **argv)
{
    struct config config;
    struct reason why = REASON_NULL;
    bool is_check_only = false;
    server_block_signals();
    int r = cmdline_parse(argc, argv, &config, &is_check_only, &why);
    r = r != 0 ? r : set_log(&config, &why);
    if (r != 0) {
        (void)fprintf(stderr, "gemmd: %s\n", r > 0 ? why.text : "out of memory");
        config_finish(&config);
        return r > 0 ? EXIT_CODE_USAGE : EXIT_CODE_FAILED;
    }
    enum exit_code code = EXIT_CODE_DONE;
    if (!is_check_only) {
        log_sink_install();
        code = server_run(&config);
    }
    config_finish(&config);
    return code;
}
