/* main.c - argv, wiring and exit code. */
#include <stdio.h>
#include <string.h>

#include "daemon/server/cmdline.h"
#include "daemon/server/exit_code.h"
#include "daemon/server/log_sink.h"
#include "daemon/server/server.h"

int main(int argc, char **argv)
{
    struct cmdline cmdline;
    struct config config = {0};
    struct reason why = REASON_NULL;
    server_block_signals();
    int r = cmdline_parse(argc, argv, &cmdline);
    r = r != 0 ? r : cmdline_config(&cmdline, &config, &why);
    r = r != 0 ? r : log_sink_configure(config.log, &why);
    if (r != 0) {
        (void)fprintf(stderr, "gemmd: %s\n", r > 0 ? why.text : strerror(-r));
        config_finish(&config);
        return r > 0 ? EXIT_CODE_USAGE : EXIT_CODE_FAILED;
    }
    enum exit_code code = EXIT_CODE_DONE;
    if (!cmdline.is_check_only) {
        log_sink_install();
        code = server_run(&config, &cmdline);
    }
    config_finish(&config);
    return code;
}
