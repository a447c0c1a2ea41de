/* status.c - the daemon's status document, as it is or as indented lines. */
#include <stdio.h>
#include <string.h>

#include "client/tool/tool.h"

static void print_value(const char *name, const json_t *value, int depth);

static void print_scalar(const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    if (json_is_string(value)) {
        (void)printf("%s\n", json_string_value(value));
    } else {
        (void)printf("%s\n", text ? text : "?");
    }
    free(text);
}

static void print_members(json_t *object, int depth)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        print_value(name, value, depth);
    }
}

/* Lists of objects are numbered; lists of numbers stay on one line. Depth is bounded by the
 * daemon's schema, three levels. */
static void print_value(const char *name, const json_t *value, int depth)
{
    (void)printf("%*s%s: ", depth * 2, "", name);
    if (json_is_object(value)) {
        (void)putchar('\n');
        print_members((json_t *)(uintptr_t)value, depth + 1);
        return;
    }
    if (!json_is_array(value) || !json_is_object(json_array_get(value, 0))) {
        print_scalar(value);
        return;
    }
    (void)printf("%zu\n", json_array_size(value));
    for (size_t i = 0; i < json_array_size(value); i++) {
        char label[24];
        (void)snprintf(label, sizeof(label), "%zu", i);
        print_value(label, json_array_get(value, i), depth + 1);
    }
}

int command_status(struct tool *tool, int argc, char **argv)
{
    struct msg_request request = {.verb = MSG_VERB_STATUS};
    struct msg_reply reply;
    if (argc != 1) {
        return tool_usage("%s takes no arguments", argv[0]);
    }
    int r = control_call(tool->client, &request, &reply);
    if (r != 0) {
        return tool_fail(r);
    }
    json_t *document = reply.body == MSG_BODY_STATUS && reply.json
                           ? json_loads(reply.json, JSON_REJECT_DUPLICATES, NULL)
                           : NULL;
    msg_reply_finish(&reply);
    if (!json_is_object(document)) {
        json_decref(document);
        return tool_fail(
            client_refuse(STATUS_BAD_MESSAGE, "the daemon's status is not a JSON object"));
    }
    if (tool->is_json) {
        return tool_print_json(document);
    }
    print_members(document, 0);
    json_decref(document);
    return TOOL_DONE;
}
