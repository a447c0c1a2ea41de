/* explain.c - which kernel a weight gets for which number of rows, and why not the others. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tool/tool.h"

static const struct option explain_options[] = {{"m", required_argument, NULL, 'm'}, {0}};

/* "1,16,64" */
static int parse_rows(const char *text, struct msg_explain *explain)
{
    while (*text) {
        char *end;
        unsigned long m = strtoul(text, &end, 10);
        if (end == text || (*end && *end != ',') || m < 1 || m > UINT32_MAX ||
            explain->n_m == MSG_EXPLAIN_M_MAX) {
            return tool_usage(
                "--m wants at most %u numbers of rows, like 1,16,64; it stops making sense at '%s'",
                MSG_EXPLAIN_M_MAX, text);
        }
        explain->m[explain->n_m++] = (uint32_t)m;
        text = *end ? end + 1 : end;
    }
    return 0;
}

static int parse_explain(int argc, char **argv, struct msg_explain *explain)
{
    int key;
    int r = 0;
    optind = 0;
    opterr = 0;
    while (r == 0 && (key = getopt_long(argc, argv, ":", explain_options, NULL)) != -1) {
        r = key == 'm' ? parse_rows(optarg, explain) : tool_bad_option(key, argv);
    }
    if (r == 0 && argc - optind != 1) {
        return tool_usage("explain wants one WEIGHT");
    }
    return r ? r : tool_name(argv[optind], explain->weight, sizeof(explain->weight));
}

/* Times that the daemon does not know are 0 on the wire. */
static json_t *known_usec(double usec)
{
    return usec > 0 ? json_real(usec) : json_null();
}

static json_t *choice_json(const struct msg_choice *choice)
{
    json_t *declined = json_array();
    for (uint32_t i = 0; i < choice->n_declined; i++) {
        json_array_append_new(declined, json_pack("{ss ss}", "kernel", choice->declined[i].kernel,
                                                  "reason", choice->declined[i].reason));
    }
    return json_pack("{si ss ss sf so so so}", "m", (int)choice->m, "kernel", choice->kernel,
                     "tile", choice->tile, "predicted_usec", choice->predicted_usec,
                     "measured_usec", known_usec(choice->measured_usec), "floor_usec",
                     known_usec(choice->floor_usec), "declined", declined);
}

static const char *usec_text(double usec, char text[24])
{
    (void)snprintf(text, 24, usec > 0 ? "%.1f" : "-", usec);
    return text;
}

static void print_choice(const struct msg_choice *choice)
{
    char floor[24], measured[24], share[24] = "-";
    double usec = choice->measured_usec > 0 ? choice->measured_usec : choice->predicted_usec;
    if (choice->floor_usec > 0 && usec > 0) {
        (void)snprintf(share, sizeof(share), "%.0f %%", 100 * choice->floor_usec / usec);
    }
    (void)printf("%6u  %-24s %-38s %9.1f %9s %9s %8s\n", choice->m, choice->kernel, choice->tile,
                 choice->predicted_usec, usec_text(choice->measured_usec, measured),
                 usec_text(choice->floor_usec, floor), share);
    for (uint32_t i = 0; i < choice->n_declined; i++) {
        (void)printf("        not %s: %s\n", choice->declined[i].kernel,
                     choice->declined[i].reason);
    }
}

static int print_explanation(struct tool *tool, const struct msg_reply *reply)
{
    const struct msg_weight *weight = &reply->explanation.weight;
    if (tool->is_json) {
        json_t *choices = json_array();
        for (uint32_t i = 0; i < reply->explanation.n_choices; i++) {
            json_array_append_new(choices, choice_json(&reply->explanation.choices[i]));
        }
        return tool_print_json(json_pack(
            "{ss si si ss ss so}", "weight", weight->name, "n", (int)weight->n, "k", (int)weight->k,
            "format", weight->format, "layout", weight->layout, "choices", choices));
    }
    char bytes[32];
    (void)printf("%s: n %u, k %u, %s, packed as %s in %s\n", weight->name, weight->n, weight->k,
                 weight->format, weight->layout, tool_bytes(weight->packed_bytes, bytes));
    (void)printf("%6s  %-24s %-38s %9s %9s %9s %8s\n", "M", "KERNEL", "TILE", "PREDICTED",
                 "MEASURED", "FLOOR us", "OF ROOF");
    for (uint32_t i = 0; i < reply->explanation.n_choices; i++) {
        print_choice(&reply->explanation.choices[i]);
    }
    return TOOL_DONE;
}

int command_explain(struct tool *tool, int argc, char **argv)
{
    struct msg_request request = {.verb = MSG_VERB_EXPLAIN};
    struct msg_reply reply;
    int r = parse_explain(argc, argv, &request.explain);
    if (r != 0) {
        return r;
    }
    r = tool_call(tool, &request, MSG_BODY_EXPLANATION, &reply);
    if (r != 0) {
        return r;
    }
    r = print_explanation(tool, &reply);
    msg_reply_finish(&reply);
    return r;
}
