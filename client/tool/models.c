/* models.c - verbs that change what is served: load, unload, reload, verify, drain. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tool/tool.h"

static const struct option load_options[] = {
    {"device", required_argument, NULL, 'd'},   {"tp-rank", required_argument, NULL, 'r'},
    {"tp-size", required_argument, NULL, 's'},  {"fuse", optional_argument, NULL, 'f'},
    {"tp-split", required_argument, NULL, 'k'}, {0},
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

/* "--fuse" may stand alone; a word behind it is its rule if it looks like one and like no path. */
static const char *fuse_rule(int argc, char **argv)
{
    if (optarg) {
        return optarg;
    }
    const char *next = optind < argc ? argv[optind] : "";
    if (strchr(next, '=') && !strchr(next, '/')) {
        optind++;
        return next;
    }
    return "usual";
}

static int take_load_option(int key, int argc, char **argv, struct msg_load *load)
{
    switch (key) {
    case 'd':
        return tool_name(optarg, load->device, sizeof(load->device));
    case 'r':
        return parse_count(optarg, "--tp-rank", &load->shaping.tp_rank);
    case 's':
        return parse_count(optarg, "--tp-size", &load->shaping.tp_size);
    case 'f':
        return add_rule(fuse_rule(argc, argv), "--fuse", load->shaping.fuse);
    case 'k':
        return add_rule(optarg, "--tp-split", load->shaping.split);
    default:
        return tool_bad_option(key, argv);
    }
}

static int parse_load(int argc, char **argv, struct msg_load *load)
{
    int key;
    int r = 0;
    optind = 0;
    opterr = 0;
    while (r == 0 && (key = getopt_long(argc, argv, ":", load_options, NULL)) != -1) {
        r = take_load_option(key, argc, argv, load);
    }
    if (r == 0 && argc - optind != 2) {
        return tool_usage("load wants NAME and PATH");
    }
    return r;
}

int command_load(struct tool *tool, int argc, char **argv)
{
    struct msg_request request = {.verb = MSG_VERB_LOAD};
    int r = parse_load(argc, argv, &request.load);
    r = r ? r : tool_name(argv[optind], request.load.name, sizeof(request.load.name));
    if (r != 0) {
        return r;
    }
    /* The daemon has another working folder: it gets the whole path. */
    char path[PATH_MAX];
    if (!realpath(argv[optind + 1], path)) {
        (void)fprintf(stderr, "gemmctl: %s: %s\n", argv[optind + 1], strerror(errno));
        return TOOL_REFUSED;
    }
    r = tool_name(path, request.load.path, sizeof(request.load.path));
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
    (void)printf("draining: new requests are refused, those in flight finish\n");
    return TOOL_DONE;
}
