/* main.c - gemmctl: the command line, the table of commands, exit codes. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc/base/num.h"
#include "ipc/base/standard_fds.h"

#include "client/tool/tool.h"

/* ---- the commands ---- */

static const char load_options[] =
    "  --device D                 on that device, by its name; default: the first\n"
    "  --fuse [NAME=PART,PART...] serve modules side by side as one weight; without a rule q, k, "
    "v\n"
    "                             and gate, up, wherever they fit\n"
    "  --tp-rank R --tp-size S    cut the weights for one rank of a tensor-parallel group\n"
    "  --tp-split MODULE=n|k|whole\n"
    "                             cut that module so, or not\n"
    "  --activations [MODULE=]fp8|float\n"
    "                             round x of 4-bit integers to e4m3, with a scale a row, or not\n";

static const char gemm_options[] =
    "  --in x.npy                 float32 or float16, (m, k); int8, or e4m3 as uint8, where the\n"
    "                             weight quantises x\n"
    "  --x-scales s.npy           float32 scales of quantised rows\n"
    "  --out y.npy                gets float32, (m, n)\n"
    "  --act bf16|f16             the type that x is rounded to; default: the model's own\n"
    "  --repeat N                 multiply N times, and say the median and the least time\n"
    "  --fast-accumulation        fp8 activations: sums stay in the tensor cores for all of k\n";

static const char explain_options[] =
    "  --m 1,3,8..64              numbers of rows, 32 at most; .. doubles\n";

static const char ready_options[] =
    "  --alive                    ask only whether the daemon's main loop answers\n";

static const char top_options[] =
    "  --interval SECONDS         between two views, 0.05 to 3600; default: 1\n"
    "  --once                     print one view, and leave\n";

static const char bench_options[] =
    "  --preset MODEL             the layers of a model; as the next two, may be repeated\n"
    "  --shape NxK                a weight of N rows and K columns\n"
    "  --format F                 how it is quantised\n"
    "  --m 1,3,8..64              numbers of rows, 32 at most, each up to 8192; .. doubles\n"
    "  --act bf16|f16             the type of x and y, and of the plain weight beside it\n"
    "  --device D                 the device, by its name\n"
    "  --disable KERNEL           leave that kernel out; may be repeated\n"
    "  --padding                  both sides rounded up to 128 too: what an odd shape costs\n"
    "  --budget-ms T              about how long a measurement takes, 1 to 1000; default: 8\n"
    "  --csv FILE, --svg FILE     write all figures, or a plot of time and speed-up over rows\n";

static const struct tool_command commands[] = {
    {"status", "", "version, uptime, devices, models, sessions, rates", command_status},
    {"load",
     "NAME PATH [--device D] [--fuse [RULE]]... [--tp-rank R --tp-size S] [--tp-split "
     "MODULE=AXIS]... [--activations [MODULE=]fp8|float]...",
     "load a checkpoint folder as NAME", command_load, load_options},
    {"unload", "NAME", "stop serving a model", command_unload},
    {"reload", "NAME", "read a model's checkpoint again and swap it in", command_reload},
    {"models", "", "the models that are served", command_models},
    {"weights", "[NAME]", "the weights of a model, or all", command_weights},
    {"gemm",
     "WEIGHT --in x.npy [--x-scales s.npy] --out y.npy [--act bf16|f16] [--repeat N] "
     "[--fast-accumulation]",
     "one product", command_gemm, gemm_options},
    {"explain", "WEIGHT [--m 1,3,8..64]", "which kernel for which M, and why not the others",
     command_explain, explain_options},
    {"verify", "WEIGHT|MODEL", "packed weight against checkpoint, result against reference",
     command_verify},
    {"ready", "[--alive]", "exit code 0 if all devices compute (--alive: it answers), else 4",
     command_ready, ready_options},
    {"top", "[--interval SECONDS] [--once]",
     "a live view of devices and models; also of a daemon that hangs", command_top, top_options},
    {"bench",
     "[--preset MODEL | --shape NxK]... [--format F]... [--m 1,3,8..64] [--act bf16|f16] "
     "[--device D] [--disable KERNEL]... [--padding] [--budget-ms T] [--csv FILE] [--svg FILE]",
     "kernels and formats side by side over M, and which is the fastest", command_bench,
     bench_options, bench_print_notes},
    {"doctor", "", "what is wrong with this machine or could be better, and how", command_doctor},
    {"drain", "", "take no more work, finish what is there", command_drain},
};

enum { KEY_SOCKET_DIR = 0x100, KEY_JSON };

static const struct argp_option options[] = {
    {"socket-dir", KEY_SOCKET_DIR, "DIR", 0, "folder of the daemon's sockets", 0},
    {"json", KEY_JSON, NULL, 0, "print one JSON document", 0},
    {0},
};

struct arguments {
    const char *socket_dir;
    bool is_json;
    int argc; /* from the command's name on */
    char **argv;
};

static error_t take_option(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case KEY_SOCKET_DIR:
        arguments->socket_dir = argument;
        return 0;
    case KEY_JSON:
        arguments->is_json = true;
        return 0;
    case ARGP_KEY_ARG:
        arguments->argc = state->argc - state->next + 1;
        arguments->argv = state->argv + state->next - 1;
        state->next = state->argc;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The table of commands goes under the options in --help. */
static char *help_filter(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC) {
        return (char *)(uintptr_t)text;
    }
    char *list = NULL;
    size_t n_bytes = 0;
    FILE *stream = open_memstream(&list, &n_bytes);
    if (!stream) {
        return NULL;
    }
    (void)fprintf(stream, "Commands:\n");
    for (size_t i = 0; i < ARRAY_LENGTH(commands); i++) {
        (void)fprintf(stream, "  %-9s %s\n", commands[i].name, commands[i].does);
    }
    (void)fprintf(stream, "\ngemmctl COMMAND --help says what a command takes.\n"
                          "Exit codes: 0 done, 2 usage, 3 no daemon, 4 refused, 5 failed.");
    (void)fclose(stream);
    return list;
}

static const struct tool_command *find_command(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static bool wants_help(const struct arguments *arguments)
{
    for (int i = 1; i < arguments->argc; i++) {
        if (strcmp(arguments->argv[i], "--help") == 0) {
            return true;
        }
    }
    return false;
}

static int print_help(const struct tool_command *command)
{
    (void)printf("Usage: gemmctl [--socket-dir DIR] [--json] %s%s%s\n%s.\n", command->name,
                 command->arguments[0] != '\0' ? " " : "", command->arguments, command->does);
    if (command->options) {
        (void)fputs(command->options, stdout);
    }
    if (command->print_notes) {
        command->print_notes(stdout);
    }
    (void)printf("See gemmctl(1).\n");
    return TOOL_DONE;
}

static int no_command(const char *name)
{
    char names[256] = "";
    for (size_t i = 0; i < ARRAY_LENGTH(commands); i++) {
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%s%s", i == 0 ? "" : ", ",
                       commands[i].name);
    }
    return tool_usage("there is no command '%s'; there are %s", name, names);
}

static int run(const struct arguments *arguments, const struct tool_command *command)
{
    struct tool tool = {.socket_dir = arguments->socket_dir, .is_json = arguments->is_json};
    int r = command->run(&tool, arguments->argc, arguments->argv);
    gemmd_close(tool.client);
    return r;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    (void)fprintf(stream, "gemmctl %s\n", gemmd_version());
}

/* The options of all commands are accepted behind the command too: people write them there. */
static int take_common_options(struct arguments *arguments)
{
    static const char socket_dir[] = "--socket-dir";
    char **words = arguments->argv;
    int n_kept = 1;
    for (int i = 1; i < arguments->argc; i++) {
        if (strcmp(words[i], "--json") == 0) {
            arguments->is_json = true;
        } else if (strncmp(words[i], "--socket-dir=", sizeof(socket_dir)) == 0) {
            arguments->socket_dir = words[i] + sizeof(socket_dir);
        } else if (strcmp(words[i], socket_dir) != 0) {
            words[n_kept++] = words[i];
        } else if (++i < arguments->argc) {
            arguments->socket_dir = words[i];
        } else {
            return tool_usage("%s wants a folder", socket_dir);
        }
    }
    arguments->argc = n_kept;
    return TOOL_DONE;
}

/* At the end, however it comes about: argp writes help and version, and leaves. */
static void check_output(void)
{
    if (tool_flush(TOOL_DONE) != TOOL_DONE) {
        _exit(TOOL_FAILED);
    }
}

int main(int argc, char **argv)
{
    static const struct argp parser = {
        .options = options,
        .parser = take_option,
        .args_doc = "COMMAND [ARGUMENTS]",
        .doc = "Control gemmd, the daemon that serves products of quantised weights.\v.",
        .help_filter = help_filter,
    };
    struct arguments arguments = {0};
    if (standard_fds_open() != 0) {
        return TOOL_FAILED;
    }
    argp_program_version_hook = print_version;
    argp_err_exit_status = TOOL_USAGE;
    (void)atexit(check_output);
    if (argp_parse(&parser, argc, argv, ARGP_IN_ORDER, NULL, &arguments) != 0) {
        return TOOL_USAGE;
    }
    if (arguments.argc == 0) {
        return tool_usage("a command is missing");
    }
    if (take_common_options(&arguments) != TOOL_DONE) {
        return TOOL_USAGE;
    }
    const struct tool_command *command = find_command(arguments.argv[0]);
    tool_hint = command ? command->name : NULL;
    if (!command) {
        return no_command(arguments.argv[0]);
    }
    return wants_help(&arguments) ? print_help(command) : run(&arguments, command);
}
