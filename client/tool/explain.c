/* explain.c - which kernel a weight gets for which number of rows, and why not the others. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "ipc/base/num.h"

#include "client/tool/explain.h"

static const struct option explain_options[] = {{"m", required_argument, NULL, 'm'}, {0}};

static int parse_explain(int argc, char **argv, struct msg_explain *explain)
{
    int key;
    int r = 0;
    optind = 0;
    opterr = 0;
    while (r == 0 && (key = getopt_long(argc, argv, ":", explain_options, NULL)) != -1) {
        r = key == 'm' ? tool_rows(optarg, MSG_EXPLAIN_M_MAX, explain->m, &explain->n_m)
                       : tool_bad_option(key, argv);
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
    return json_pack("{si ss ss so so so so}", "m", (int)choice->m, "kernel", choice->kernel,
                     "tile", choice->tile, "predicted_usec", known_usec(choice->predicted_usec),
                     "measured_usec", known_usec(choice->measured_usec), "floor_usec",
                     known_usec(choice->floor_usec), "declined", declined);
}

/* For the legend. */
struct marks {
    bool has_predicted;
    bool has_unknown;
    bool has_cached;
};

static const char *time_text(const struct msg_choice *choice, struct marks *marks, char text[24])
{
    if (choice->measured_usec > 0) {
        (void)snprintf(text, 24, "%.1f", choice->measured_usec);
    } else if (choice->predicted_usec > 0) {
        marks->has_predicted = true;
        (void)snprintf(text, 24, "~%.1f", choice->predicted_usec);
    } else {
        marks->has_unknown = true;
        (void)snprintf(text, 24, "-");
    }
    return text;
}

/* A weight that a cache holds is read faster than the roof, which is the memory's. */
static const char *share_text(const struct msg_choice *choice, struct marks *marks, char text[24])
{
    double usec = choice->measured_usec > 0 ? choice->measured_usec : choice->predicted_usec;
    (void)snprintf(text, 24, "-");
    if (choice->floor_usec > 0 && usec >= choice->floor_usec) {
        (void)snprintf(text, 24, "%.0f %%", 100 * choice->floor_usec / usec);
    } else if (choice->floor_usec > 0 && usec > 0) {
        marks->has_cached = true;
        (void)snprintf(text, 24, "cache");
    }
    return text;
}

/* Columns as wide as what is in them. */
static void measure(const struct msg_choice *choices, uint32_t n, int *ret_kernel, int *ret_tile)
{
    size_t kernel = strlen("KERNEL"), tile = strlen("TILE");
    for (uint32_t i = 0; i < n; i++) {
        kernel = num_max(kernel, strlen(choices[i].kernel));
        tile = num_max(tile, strlen(choices[i].tile));
    }
    *ret_kernel = (int)kernel;
    *ret_tile = (int)tile;
}

static void print_choices(const struct msg_choice *choices, uint32_t n)
{
    struct marks marks = {0};
    int kernel, tile;
    measure(choices, n, &kernel, &tile);
    (void)printf("%6s  %-*s  %-*s %9s %8s\n", "M", kernel, "KERNEL", tile, "TILE", "us", "OF ROOF");
    for (uint32_t i = 0; i < n; i++) {
        char time[24], share[24];
        (void)printf("%6u  %-*s  %-*s %9s %8s\n", choices[i].m, kernel, choices[i].kernel, tile,
                     choices[i].tile, time_text(&choices[i], &marks, time),
                     share_text(&choices[i], &marks, share));
    }
    if (marks.has_predicted) {
        (void)printf("~ predicted, not measured\n");
    }
    if (marks.has_unknown) {
        (void)printf(
            "- not known: the daemon measures up to M 64, on the host only with tuning = yes in "
            "gemmd.conf\n");
    }
    if (marks.has_cached) {
        (void)printf("cache: faster than memory can be read, since a cache holds the weight\n");
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
        return tool_print_json(json_pack("{ss si si ss ss ss so}", "weight", weight->name, "n",
                                         (int)weight->n, "k", (int)weight->k, "format",
                                         weight->format, "layout", weight->layout, "ahead",
                                         reply->explanation.ahead, "choices", choices));
    }
    const struct msg_choice *choices = reply->explanation.choices;
    uint32_t n_choices = reply->explanation.n_choices;
    char bytes[32], floor[32] = "not known";
    if (n_choices > 0 && choices[0].floor_usec > 0) {
        (void)snprintf(floor, sizeof(floor), "%.1f us", choices[0].floor_usec);
    }
    (void)printf("%s: n %u, k %u, %s, packed as %s in %s, floor %s; x and y of %s\n", weight->name,
                 weight->n, weight->k, weight->format, weight->layout,
                 tool_bytes(weight->packed_bytes, bytes), floor, dtype_name(weight->act_dtype));
    print_choices(choices, n_choices);
    if (reply->explanation.ahead[0] != '\0') { /* an earlier daemon does not say */
        (void)printf("queued before their rows come: %s\n", reply->explanation.ahead);
    }
    return explain_others(stdout, choices, n_choices);
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
