/* models.c - verbs that change what is served: load, unload, reload, verify, drain. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tool/tool.h"

static const struct option load_options[] = {
    {"device", required_argument, NULL, 'd'},
    {"tp-rank", required_argument, NULL, 'r'},
    {"tp-size", required_argument, NULL, 's'},
    {"fuse", optional_argument, NULL, 'f'},
    {"tp-split", required_argument, NULL, 'k'},
    {"activations", required_argument, NULL, 'a'},
    {0},
};

static int parse_count(const char *text, const char *what, uint32_t *ret_count)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end || text[0] == '-' || value > UINT32_MAX) {
        return tool_usage("%s '%s' is not a number", what, text);
    }
    *ret_count = (uint32_t)value;
    return 0;
}

/* Behind the rules that are there already, with a blank between. */
static int add_rule(const char *rule, const char *what, char text[MSG_SHAPING_BYTES])
{
    size_t used = strlen(text);
    int length = snprintf(text + used, MSG_SHAPING_BYTES - used, "%s%s", used ? " " : "", rule);
    if (length < 0 || (size_t)length >= MSG_SHAPING_BYTES - used) {
        return tool_usage("%s: more than %d bytes of rules", what, MSG_SHAPING_BYTES - 1);
    }
    return 0;
}

/* What the options of load have said. */
struct load_line {
    struct msg_load *load;
    const char *behind_fuse; /* the word behind a --fuse without a rule; NULL: none */
    bool has_rank;
    bool has_size;
};

/* "--fuse" may stand alone; a word behind it is its rule if it looks like one and like no path. */
static const char *fuse_rule(int argc, char **argv, struct load_line *line)
{
    if (optarg) {
        return optarg;
    }
    const char *next = optind < argc ? argv[optind] : "-";
    if (strchr(next, '=') && !strchr(next, '/')) {
        optind++;
        return next;
    }
    line->behind_fuse = next[0] == '-' ? NULL : next;
    return "usual";
}

static int take_load_option(int key, int argc, char **argv, struct load_line *line)
{
    struct msg_load *load = line->load;
    switch (key) {
    case 'd':
        return tool_name(optarg, load->device, sizeof(load->device));
    case 'r':
        line->has_rank = true;
        return parse_count(optarg, "--tp-rank", &load->shaping.tp_rank);
    case 's':
        line->has_size = true;
        return parse_count(optarg, "--tp-size", &load->shaping.tp_size);
    case 'f':
        return add_rule(fuse_rule(argc, argv, line), "--fuse", load->shaping.fuse);
    case 'k':
        return add_rule(optarg, "--tp-split", load->shaping.split);
    case 'a':
        return add_rule(optarg, "--activations", load->shaping.act);
    default:
        return tool_bad_option(key, argv);
    }
}

static int check_load(const struct load_line *line, int n_words)
{
    if (n_words > 2 && line->behind_fuse) {
        return tool_usage("--fuse '%.64s' is not NAME=PART,PART,...", line->behind_fuse);
    }
    if (n_words != 2) {
        return tool_usage("load wants NAME and PATH");
    }
    if (line->has_rank != line->has_size) {
        return tool_usage("%s wants %s beside it", line->has_rank ? "--tp-rank" : "--tp-size",
                          line->has_rank ? "--tp-size" : "--tp-rank");
    }
    return 0;
}

static int parse_load(int argc, char **argv, struct msg_load *load)
{
    struct load_line line = {.load = load};
    int key;
    int r = 0;
    optind = 0;
    opterr = 0;
    while (r == 0 && (key = getopt_long(argc, argv, ":", load_options, NULL)) != -1) {
        r = take_load_option(key, argc, argv, &line);
    }
    return r != 0 ? r : check_load(&line, argc - optind);
}

/* The daemon has another working folder: it gets the whole path. */
static int take_path(const char *argument, struct msg_load *load)
{
    char path[PATH_MAX];
    if (realpath(argument, path)) {
        return tool_name(path, load->path, sizeof(load->path));
    }
    int status = errno == ENOENT   ? STATUS_NOT_FOUND
                 : errno == EACCES ? STATUS_PERMISSION
                                   : STATUS_INVALID_ARGUMENT;
    return tool_fail(
        client_refuse(status, "model '%s': %s: %s", load->name, argument, strerror(errno)));
}

int command_load(struct tool *tool, int argc, char **argv)
{
    struct msg_request request = {.verb = MSG_VERB_LOAD};
    int r = parse_load(argc, argv, &request.load);
    r = r ? r : tool_name(argv[optind], request.load.name, sizeof(request.load.name));
    r = r ? r : take_path(argv[optind + 1], &request.load);
    if (r != 0) {
        return r;
    }
    struct msg_reply reply;
    r = tool_call(tool, &request, MSG_BODY_JOB, &reply);
    return r != 0 ? r : tool_follow_job(tool, &reply);
}

/* A verb that takes one name and answers with nothing, or with a job. */
static int name_verb(struct tool *tool, enum msg_verb verb, int argc, char **argv)
{
    struct msg_request request = {.verb = verb};
    if (argc != 2) {
        return tool_usage("%s wants one name", argv[0]);
    }
    int r = tool_name(argv[1], request.name, sizeof(request.name));
    if (r != 0) {
        return r;
    }
    struct msg_reply reply;
    r = tool_call(tool, &request, MSG_BODY_NONE, &reply);
    if (r != 0) {
        return r;
    }
    if (reply.body == MSG_BODY_JOB) {
        return tool_follow_job(tool, &reply);
    }
    msg_reply_finish(&reply);
    return tool->is_json ? tool_print_json(json_pack("{ss ss}", "done", argv[0], "name", argv[1]))
                         : TOOL_DONE;
}

int command_unload(struct tool *tool, int argc, char **argv)
{
    return name_verb(tool, MSG_VERB_UNLOAD, argc, argv);
}

int command_reload(struct tool *tool, int argc, char **argv)
{
    return name_verb(tool, MSG_VERB_RELOAD, argc, argv);
}

int command_verify(struct tool *tool, int argc, char **argv)
{
    return name_verb(tool, MSG_VERB_VERIFY, argc, argv);
}

int command_drain(struct tool *tool, int argc, char **argv)
{
    struct msg_request request = {.verb = MSG_VERB_DRAIN};
    struct msg_reply reply;
    if (argc != 1) {
        return tool_usage("%s takes no arguments", argv[0]);
    }
    int r = tool_call(tool, &request, MSG_BODY_NONE, &reply);
    if (r != 0) {
        return r;
    }
    msg_reply_finish(&reply);
    if (tool->is_json) {
        return tool_print_json(json_pack("{ss}", "done", "drain"));
    }
    (void)printf(
        "draining: new requests are refused, those in flight finish; a restart of gemmd ends it\n");
    return TOOL_DONE;
}
